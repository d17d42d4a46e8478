"""Row 17: names that a shell, a path or a terminal would obey, wherever a name can be given."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.machine.wall_clock import utc_now
from helpers.trainers.contract.errors import printable
from tests.faults.data import case_id, refused
from tests.faults.fault import Fault, Seen, expect
from tests.faults.workshop import ONE_CARD, ROOT, TWO_CARDS, Finished, Workshop

# Whoever ran one of the names below as a command would make this file.
_PROOF = "pwned"
# Legal in a path, and read as something else by a shell, a URL, a format or a pattern.
_LEGAL = f"a 猫 'b' \"c\" $(touch {_PROOF}) `touch {_PROOF}`; touch {_PROOF} #1 %41 {{d}} [e] \\n ?f=g&h"
_CONTROLS = "a\x1b[31m\nPASSED\rb\u202ec"
_HOSTILE = f"0\x1b[2J\nERROR: x; $(touch {_PROOF}) `touch {_PROOF}` '\"; touch {_PROOF}; ../../{_PROOF} \u202e|"
# No other control characters may be in a report that a person or a program reads.
_LAYOUT = "\n\t"
# Pytest's own exit code for a filter that no test's name matches.
_NOTHING_COLLECTED = 5


@dataclass(frozen=True)
class Places:
    """What lies where a name could have made something: beside the workshop, and where the suite runs."""

    names: frozenset[str]

    @staticmethod
    def of(workshop: Workshop) -> Places:
        beside = [path.name for path in workshop.folder.parent.iterdir()]
        return Places(frozenset(beside))

    def wrong(self, workshop: Workshop) -> tuple[str, ...]:
        made = Places.of(workshop).names - self.names
        proofs = [*workshop.folder.parent.rglob(f"{_PROOF}*"), *_proofs_elsewhere()]
        return expect(
            (not made, f"made beside the workshop: {sorted(made)}"),
            (not proofs, f"obeyed: {[str(path) for path in proofs]}"),
        )


def _proofs_elsewhere() -> list[Path]:
    """The folders in which processes of the suite start others."""
    folders = [ROOT, ROOT.parent, ROOT / "perf_tests", Path.home(), Path("/tmp"), Path("/")]
    return [path for folder in folders for path in folder.glob(f"{_PROOF}*")]


def _shows_controls(name: str, text: str) -> tuple[str, ...]:
    """Characters that a terminal or a page would obey."""
    found = sorted({char for char in text if unicodedata.category(char) in ("Cc", "Cf") and char not in _LAYOUT})
    return (f"{name} holds {[ascii(char) for char in found]}",) if found else ()


def _reports(workshop: Workshop, done: Finished) -> tuple[str, ...]:
    files = [workshop.folder / "results.json", workshop.folder / "junit.xml"]
    wrong = [_shows_controls("the output", done.output)]
    wrong += [_shows_controls(path.name, path.read_text(encoding="utf-8")) for path in files if path.exists()]
    return tuple(each for some in wrong for each in some)


# ---- refused


def _is_refused(name: str, what: str, given: Sequence[tuple[str, str]]) -> Fault:
    """Options that are refused; each of ``given``, a name and a value, gets a session of its own."""

    def make(workshop: Workshop) -> Seen:
        before, wrong = Places.of(workshop), []
        seen = Seen("refused", None, "")
        for option, value in given:
            case = value if option == "-k" else ONE_CARD
            session = "" if option in ("--session", "--resume") else "night"
            done = workshop.run(*([] if option == "-k" else [f"{option}={value}"]), case=case, session=session)
            wrong += _shows_controls(f"the output with {option}={value!a}", done.output)
            if option == "-k" and done.exit_code == _NOTHING_COLLECTED:
                # It is legal in a filter, and the name of no case.
                wrong += expect(("deselected" in done.output and not done.cases, f"-k {value!a}: {done.output}"))
                continue
            seen = refused(workshop, done)
            error = [line for line in done.output.splitlines() if line.startswith("ERROR: ")]
            named = any(each in line for line in error for each in (value, printable(value)))
            wrong += [f"{option}={value!a}: {each}" for each in seen.wrong]
            wrong += expect((named, f"{option}={value!a} not named: {error}"))
        wrong += before.wrong(workshop)
        return Seen(seen.status, seen.exit_code, seen.message, None, seen.left, workshop.lost(), tuple(wrong))

    return Fault(17, name, what, make)


# ---- measured all the same


def _hostile_folder(workshop: Workshop) -> Seen:
    """Everything of a workshop lies in a folder so named: configuration, runs, baselines, history, interpreter."""
    folder = workshop.folder.parent / "deep" / _LEGAL
    folder.parent.mkdir()
    before = Places.of(workshop)
    with Workshop(folder, real=workshop.real) as shop:
        inside = Places.of(shop)
        junit = f"--junitxml={folder / 'junit.xml'}"
        one = shop.run("--update-baselines", junit)
        two = shop.run("--update-baselines", junit, case=TWO_CARDS, session="second")
        recorded = [path for path in (folder / "baselines" / "recorded").glob("*.json") if path.name != "schema.json"]
        wrong = (
            *expect(
                (one.status == "NO_BASELINE", f"status {one.status}: {one.reason}"),
                (two.status == "NO_BASELINE", f"status of two cards {two.status}: {two.reason}"),
                (one.exit_code == two.exit_code == 0, f"exit codes {one.exit_code}, {two.exit_code}"),
                ((folder / "runs" / "history.sqlite").exists(), "the history is elsewhere"),
                (len(recorded) == 1, f"{len(recorded)} files of baselines"),
            ),
            *_reports(shop, one),
            *_reports(shop, two),
            *before.wrong(workshop),
            *inside.wrong(shop),
        )
        left = len(one.left) + len(two.left)
        return Seen(one.status, one.exit_code, one.reason, None, left, shop.lost(), wrong)


def _hostile_yaml(workshop: Workshop) -> Seen:
    """Options on the command line are refused; a file's are shown escaped."""
    before, wrong = Places.of(workshop), []
    hostile = f"{workshop.folder}/{_CONTROLS}"
    changes: tuple[tuple[str, Callable[[dict[str, Any]], object], tuple[int, ...]], ...] = (
        ("data", lambda config: config["data"].update(root=hostile), (4,)),
        ("interpreter", lambda config: config["frameworks"]["paddle"].update(interpreter=hostile), (6,)),
        ("history", lambda config: config["history"].update(url=f"sqlite:///{hostile}"), (0, 4)),
    )
    for name, change, codes in changes:

        def both(config: dict[str, Any], change: Callable[[dict[str, Any]], object] = change) -> None:
            config["matrix"]["cpu"][0].update(data=["synthetic", "native"], cards=1)
            change(config)

        workshop.configure(both)
        case = case_id("native") if name == "data" else ONE_CARD
        done = workshop.run("-v", f"--junitxml={workshop.folder / 'junit.xml'}", case=case, session=name)
        wrong += expect((done.exit_code in codes, f"{name}: exit code {done.exit_code}: {done.output[-300:]!a}"))
        wrong += expect((printable(_CONTROLS) in done.output or done.exit_code == 0, f"{name}: not named"))
        wrong += [f"{name}: {each}" for each in _reports(workshop, done)]
    wrong += before.wrong(workshop)
    return Seen(done.status, done.exit_code, done.reason, None, len(done.left), 0, tuple(wrong))


def _control_characters(workshop: Workshop) -> Seen:
    """A run folder's name has characters that a terminal would obey: it is measured, or refused by name."""
    before = Places.of(workshop)
    done = workshop.run("--runs-dir", str(workshop.folder / _CONTROLS), f"--junitxml={workshop.folder / 'junit.xml'}")
    refusal = done.exit_code == 4 and "PASSED" in done.output and "ERROR: " in done.output
    wrong = (
        *expect((refusal or done.exit_code == 0, f"exit code {done.exit_code}: {done.output[-300:]!a}")),
        *_reports(workshop, done),
        *before.wrong(workshop),
    )
    return Seen(
        "refused" if refusal else done.status, done.exit_code, done.output[-200:], None, len(done.left), 0, wrong
    )


_HEADER = """
from helpers.trainers.common import process

class Hostile(process.DeviceRecord):
    framework_commit = property(lambda self: {name!r}, lambda self, value: None)
    name = property(lambda self: {name!r}, lambda self, value: None)

def at_start(spec, rank):
    process.DeviceRecord = Hostile
    mark()
"""


# The commands that follow a night of hostile names, first plain ones, then such with hostile names of their own.
_ASKED = (
    ("history", ONE_CARD),
    ("history", ONE_CARD, "--json"),
    ("compare", "night", "second"),
    ("trend", ONE_CARD),
    ("history", _HOSTILE),
    ("compare", _HOSTILE, "second"),
    ("acknowledge", ONE_CARD, "--at", _HOSTILE, "--commit", "0123abcd", "--reason", "known"),
    ("exclude", _HOSTILE, "--reason", "known"),
)


def _hostile_commit(workshop: Workshop) -> Seen:
    """The framework's interpreter names such a commit and version, the trainer such a commit and device."""
    before = Places.of(workshop)
    probe = json.dumps({"distribution": "paddlepaddle", "version": _HOSTILE, "commit": _HOSTILE, "no_dali": ""})
    interpreter = workshop.folder / "hostile-python"
    lines = (
        "#!/bin/sh",
        'case "$2 $4" in "helpers.machine.framework_probe ")',
        f"printf %s {shlex.quote(probe)}; exit;; esac",
        f'exec {shlex.quote(str(workshop.interpreter))} "$@"',
    )
    interpreter.write_text("\n".join(lines) + "\n", encoding="utf-8")
    interpreter.chmod(0o755)
    workshop.configure(lambda config: config["frameworks"]["paddle"].update(interpreter=str(interpreter)))
    done = workshop.run(
        "--update-baselines", "-v", f"--junitxml={workshop.folder / 'junit.xml'}", fault=_HEADER.format(name=_HOSTILE)
    )
    again = workshop.run("-v", session="second", fault=_HEADER.format(name=_HOSTILE))
    day = str(utc_now().date())
    known = ("acknowledge", ONE_CARD, "--at", day, "--commit", "0123abcd", "--reason", _HOSTILE, "--who", _HOSTILE)
    outputs = [_tool(workshop, *words) for words in (known, *_ASKED)]
    outputs.append(_tool(workshop, "history", ONE_CARD, "--plot", str(workshop.folder / "plot.svg")))
    recorded = (workshop.folder / "baselines" / "recorded").glob("[!s]*.json")
    plots = [path.read_text(encoding="utf-8") for path in workshop.folder.glob("*.svg")]
    wrong = (
        *expect(
            (bool(done.marks), "the header was not made hostile"),
            (done.status == "NO_BASELINE", f"status {done.status}: {done.reason}"),
            (done.exit_code == 0, f"exit code {done.exit_code}"),
            (again.exit_code in (0, 6), f"exit code of the second {again.exit_code}"),
            ("Traceback" not in done.output + again.output + "".join(outputs), "a traceback"),
        ),
        *_reports(workshop, done),
        *_reports(workshop, again),
        *(each for text in outputs for each in _shows_controls(f"perfgate: {text[:60]!a}", text)),
        *(each for text in plots for each in _shows_controls("a plot", text)),
        *(each for path in recorded for each in _shows_controls(path.name, path.read_text(encoding="utf-8"))),
        *before.wrong(workshop),
    )
    return Seen(done.status, done.exit_code, done.reason, None, len(done.left), workshop.lost(), wrong)


def _tool(workshop: Workshop, *words: str) -> str:
    """What ``perfgate`` prints, on both streams."""
    argv = [sys.executable, "-m", "helpers.commands", *words, "--config", str(workshop.folder / "perf.yaml")]
    argv += ["--baselines", str(workshop.folder / "baselines"), "--runs-dir", str(workshop.folder / "runs")]
    done = subprocess.run(argv, cwd=ROOT, env=workshop.environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _measured(name: str, what: str, make: Callable[[Workshop], Seen]) -> Fault:
    return Fault(17, name, what, make)


_SHELL = (f"$(touch {_PROOF})", f"; touch {_PROOF}", f"`touch {_PROOF}`", f"../{_PROOF}", f"/tmp/{_PROOF}", _CONTROLS)

FAULTS = [
    _is_refused(
        "hostile session names",
        "--session holds $(…) and control characters, --resume ../",
        [("--session", _SHELL[0]), ("--session", _CONTROLS), ("--resume", _SHELL[3])],
    ),
    _is_refused(
        "more hostile session names",
        "--session and --resume hold $(…), `…`, ;, ../, a whole path, control characters",
        [(each, name) for each in ("--session", "--resume") for name in _SHELL],
    ),
    _is_refused(
        "hostile case filters",
        "-k holds $(…), `…`, ;, ../, a whole path, control characters",
        [("-k", each) for each in _SHELL],
    ),
    _is_refused(
        "hostile files",
        "options name files with control characters",
        [(each, f"no/{_CONTROLS}") for each in ("--data", "--reference-env", "--perf-config", "--set", "--history")],
    ),
    _measured(
        "hostile names in perf.yaml", "data, interpreter and history hold control characters there", _hostile_yaml
    ),
    _measured("all in a folder of a hostile name", f"its name is {_LEGAL}", _hostile_folder),
    _measured(
        "control characters in the runs folder",
        "its name holds ESC, newline, a mark that turns text",
        _control_characters,
    ),
    _measured("hostile commit, version and device", "the interpreter and the trainer tell such names", _hostile_commit),
]
