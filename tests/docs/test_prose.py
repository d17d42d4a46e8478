"""What the pages' sentences name exists: commands, options, targets of make, cases, settings of perf.yaml, files."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from helpers.commands.main import commands, parser_of
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from tests.docs.blocks import ROOT, pages
from tests.docs.test_blocks import TARGETS_OF_MAKE

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
# What is called in a piece of code; a name in capital letters is the reader's.
CALL = re.compile(r"(?:\.venv/bin/)?(perfgate|make) ([a-z][a-z0-9-]*)(?![\w-])")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
AREAS = ("helpers", "fixtures", "perf_tests", "benchmarks", "tests", "requirements", "docs", r"\.github", r"\.ci")
# Options of others' programs (srun, sbatch, docker, buildah, git, pip), one of a trial of docs/extending.md, and one of
# perfgate itself.
OTHERS = {f"--{name}" for name in """
    nnodes rank master host nproc_per_node close no-index signal reverse gres constraint container requeue no-requeue
    ipc wait deadline nodelist build-arg cpus cpuset-cpus env file gpus hostname ignorefile init isolation read-only
    secret shm-size target tmpfs user volume csv version
""".split()}  # fmt: skip # noqa: SIM905


def spans() -> Iterator[tuple[str, str]]:
    """Page and text of every piece of code in a sentence."""
    for page in pages():
        for found in SPAN.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            yield page.name, " ".join(found.split())


@cache
def options_of_commands() -> dict[str, set[str]]:
    (action,) = [each for each in parser_of(commands())._actions if isinstance(each, argparse._SubParsersAction)]
    return {name: set(_options(parser)) for name, parser in action.choices.items()}


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _options(inner)


@cache
def options_of_programs() -> set[str]:
    """Those of the suite's modules that are called by ``python -m``."""
    areas = ("benchmarks", "requirements", "tests/faults", "tests/fuzz")
    files = [path for area in areas for path in (ROOT / area).rglob("*.py")]
    return {found for path in files for found in re.findall(r'"(--[a-z-]+)"', path.read_text(encoding="utf-8"))}


def options_of_pytest(config: pytest.Config) -> set[str]:
    return {name for group in [config._parser._anonymous, *config._parser._groups] for each in group.options
            for name in each.names()}  # fmt: skip


def test_every_command_in_a_sentence_exists() -> None:
    known = {"perfgate": {*options_of_commands(), "help"}, "make": TARGETS_OF_MAKE}
    called = [(page, text, CALL.match(text)) for page, text in spans()]
    assert [f"{page}: {text}" for page, text, call in called if call and call[2] not in known[call[1]]] == []


def test_every_option_in_a_sentence_exists(pytestconfig: pytest.Config) -> None:
    of_commands = options_of_commands()
    any_of_ours = set().union(*of_commands.values()) | options_of_programs() | options_of_pytest(pytestconfig)
    wrong = []
    for page, text in spans():
        call = CALL.match(text)
        known = of_commands.get(call[2], any_of_ours) if call else any_of_ours | OTHERS
        before, _, behind = text.partition(" -- ")
        wrong += [f"{page}: {text}: {option}" for option in OPTION.findall(before) if option not in known]
        wrong += [f"{page}: {text}: {option}" for option in OPTION.findall(behind) if option not in any_of_ours]
    assert wrong == []


def test_every_case_on_the_pages_is_one() -> None:
    wrong = []
    # That page adds a model.
    for page in (page for page in pages() if page.name != "extending.md"):
        text = page.read_text(encoding="utf-8")
        for found in re.findall(r"\b(?:paddle|pytorch|tensorflow|mxnet)-[\w.]+-[\w.]+-bs\d+-\d+x\d+-[\w-]*\w", text):
            try:
                assert Case.parse(found).id == found
            except (AssertionError, ConfigError):
                wrong.append(f"{page.name}: {found}")
    assert wrong == []


def test_every_file_in_a_sentence_exists() -> None:
    wrong = [
        f"{page}: {text}"
        for page, text in spans()
        if re.fullmatch(rf"(?:{'|'.join(AREAS)})/[\w./-]+", text)
        and not (ROOT / text).exists()
        and not _is_an_example(text)
    ]
    assert wrong == []


def _is_an_example(text: str) -> bool:
    return "NAME" in text or "FRAMEWORK" in text or "<" in text or Path(text).suffix == ""
