"""Every command on the pages: it exists, its options do, it runs where it can at once, and it prints what is shown."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from helpers.commands.main import main, parsed
from helpers.launch.launchers import CHOICES
from helpers.plan.matrix import TARGETS
from helpers.plan.perf_yaml import load_config
from helpers.session.gate import EXIT_OK
from tests.docs.blocks import (
    ANOTHER_MACHINE,
    MODES,
    REASONS,
    ROOT,
    SHELL,
    TRANSCRIPT,
    Block,
    Command,
    Mode,
    all_blocks,
)
from tests.docs.conftest import Story
from tests.docs.shape import difference
from tests.for_each import for_each

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS_OF_MAKE = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE))
VARIABLES_OF_MAKE = set(re.findall(r"^([A-Z_]+) [?:]?=", MAKEFILE, re.MULTILINE))
# Lists the cases of each command line of standard input: one process for all, which imports the suite once.
LISTS = """
import contextlib, io, json, sys, pytest
for words in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = pytest.main([*words, "--collect-only", "-q", "-p", "no:cacheprovider"])
    print(json.dumps([int(code), output.getvalue()]))
"""


def of(*modes: Mode) -> list[Block]:
    return [block for block in all_blocks() if block.mode in modes]


def each(*modes: Mode) -> list[pytest.param]:  # type: ignore[valid-type]
    return [pytest.param(block, id=block.place) for block in of(*modes)]


@for_each("block", all_blocks(), ids=lambda block: block.place)
def test_each_block_says_how_it_is_tried(block: Block) -> None:
    assert block.language in MODES, f"expected ```LANGUAGE MODE, LANGUAGE one of {', '.join(MODES)}"
    modes = ", ".join(mode.value for mode in MODES[block.language])
    assert block.mode is not None, f"expected ```{block.language} MODE, MODE one of: {modes}"
    reasons = {Mode.NOT_RUN: REASONS, Mode.CONFIG: ("", ANOTHER_MACHINE)}.get(block.mode, ("",))
    assert block.reason in reasons, f"expected one of {reasons} behind {block.mode.value}"
    assert block.language == TRANSCRIPT or not re.search(r"^\$ ", block.text, re.MULTILINE), "a console block"


@pytest.mark.parametrize("block", each(Mode.CONFIG))
def test_a_part_of_perf_yaml_is_read(block: Block, tmp_path: Path) -> None:
    """A section of the block stands in the place of the project's own."""
    (tmp_path / "perf.yaml").write_text(block.text, encoding="utf-8")
    assert load_config(tmp_path / "perf.yaml", CHOICES).matrix


# ---- the command lines


def wrong(command: Command, config: pytest.Config) -> str:
    """What is wrong with a command line of ours; empty where nothing is, or where it is somebody else's program."""
    program, arguments = command.program, command.arguments
    if program in ("perfgate", "helpers.commands"):
        return wrong_for_perfgate(arguments, config)
    if program == "pytest":
        return wrong_for_pytest(arguments, config)
    if program == "make":
        variables = [word.partition("=")[0] for word in arguments if "=" in word]
        targets = [word for word in arguments if "=" not in word]
        return ", ".join({*targets} - TARGETS_OF_MAKE | {*variables} - VARIABLES_OF_MAKE)
    if program.partition(".")[0] in ("benchmarks", "helpers", "tests"):
        return wrong_for_module(program, arguments)
    return ""


def wrong_for_perfgate(arguments: list[str], config: pytest.Config) -> str:
    with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(io.StringIO()):
        try:
            found = parsed(arguments)
        except SystemExit as ended:
            return told.getvalue() if ended.code else ""
    return wrong_for_pytest(getattr(found, "pytest_options", []), config)


def wrong_for_pytest(arguments: list[str], config: pytest.Config) -> str:
    # The options of this very session are the suite's: its plugin is loaded for every folder (conftest.py).
    try:
        _, unknown = config._parser.parse_known_and_unknown_args(arguments)
    except pytest.UsageError as error:
        return str(error)
    return " ".join(unknown)


def wrong_for_module(program: str, arguments: list[str]) -> str:
    place = ROOT.joinpath(*program.split("."))
    files = [place.with_suffix(".py")] if place.with_suffix(".py").is_file() else sorted(place.glob("*.py"))
    if not files:
        return f"no module {program}"
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    options = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    return ", ".join(option for option in options if f'"{option}"' not in source)


@pytest.mark.parametrize("block", [pytest.param(block, id=block.place) for block in all_blocks() if block.commands])
def test_the_commands_and_their_options_exist(block: Block, pytestconfig: pytest.Config) -> None:
    found = [(command.words, wrong(command, pytestconfig)) for command in block.commands]
    assert [(" ".join(words), mistake) for words, mistake in found if mistake] == []
    if block.mode not in (Mode.CRON, Mode.NOT_RUN):
        others = [command.words for command in block.commands if not command.program and command.words[0] not in SHELL]
        assert others == [], "no command of ours"


def test_make_knows_what_to_do_for_each_of_its_commands() -> None:
    commands = {command.words[1:] for block in all_blocks() for command in block.commands if command.program == "make"}
    assert commands
    for words in sorted(commands):
        argv = ["make", "--dry-run", f"PYTHON={sys.executable}", *words]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), words


@pytest.mark.slow
def test_the_sessions_of_the_pages_select_cases() -> None:
    found = {
        tuple(command.arguments): block.place
        for block in all_blocks()
        for command in block.commands
        if command.program == "pytest" and "/" not in command.arguments[0]
    }
    given = json.dumps(sorted({selection_of(arguments) for arguments in found}))
    argv = [sys.executable, "-c", LISTS]
    done = subprocess.run(argv, cwd=ROOT, input=given, capture_output=True, text=True, timeout=120, check=True)
    for arguments, answer in zip(json.loads(given), done.stdout.splitlines(), strict=True):
        code, listed = json.loads(answer)
        assert code == 0, f"{arguments}: {listed}"
        assert any(f"test_{target}[" in listed for target in TARGETS) or "frameworks" in str(arguments), arguments


def selection_of(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """What selects cases among a session's arguments."""
    chosen = [arguments[0]]
    for option, value in pairwise(arguments):
        if option in ("-m", "-k"):
            chosen += [option, value]
    return tuple(chosen)


# ---- the commands that answer at once


@pytest.fixture
def in_checkout(story: Story, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(story.folder)
    # The width of the pages.
    monkeypatch.setenv("COLUMNS", "100")
    return story.folder


# A page is one test: a command may go on from what the one before it on the page has left.
PAGES_THAT_RUN = [
    pytest.param(tuple(blocks), id=page)
    for page, blocks in groupby(of(Mode.RUN), key=lambda block: block.place.partition(":")[0])
]


@pytest.mark.slow
@pytest.mark.parametrize("blocks", PAGES_THAT_RUN)
def test_the_commands_of_a_page_run_and_print_what_is_shown(
    blocks: tuple[Block, ...], in_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = [(block, command) for block in blocks for command in block.commands]
    for block, command in shown:
        if command.program.startswith("benchmarks."):
            assert difference(command.output, output_of_module(command)) == "", block.place
            continue
        assert command.program == "perfgate", command
        out = io.StringIO()
        status = main([*command.arguments, *places(command.arguments, in_checkout)], out)
        told = f"{block.place}: {' '.join(command.words)}: exit status {status}\n"
        told += f"{out.getvalue()}{capsys.readouterr().err}"
        if block.language == TRANSCRIPT:
            assert difference(command.output, out.getvalue()) == "", told
        else:
            assert status == EXIT_OK, told


def output_of_module(command: Command) -> str:
    argv = [sys.executable, "-m", command.program, *command.arguments]
    variables = {**os.environ, **dict(command.variables)}
    return subprocess.run(argv, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120, check=True).stdout


def places(arguments: list[str], folder: Path) -> list[str]:
    """The options that make a command look into ``folder``, which is where it looks by itself in a checkout."""
    known = vars(parsed(arguments))
    options = {"config": folder / "perf.yaml", "baselines": folder / "baselines", "runs_dir": folder / "runs"}
    return [f"--{name.replace('_', '-')}={path}" for name, path in options.items() if name in known]
