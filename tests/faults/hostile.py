"""Row 17: names that a shell, a path or a terminal would obey, wherever a name can be given."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.trainers.contract.errors import printable
from tests.faults.data import refused
from tests.faults.fault import Fault, Seen, expect
from tests.faults.handled import ended_as
from tests.faults.workshop import ONE_CARD, ROOT, TWO_CARDS, Finished, Workshop

# Whoever ran one of the names below as a command would make this file.
_PROOF = "pwned"
# Legal in a path, and read as something else by a shell, a URL, a format or a pattern.
_LEGAL = f"a 猫 'b' \"c\" $(touch {_PROOF}) `touch {_PROOF}`; touch {_PROOF} #1 %41 {{d}} [e] \\n ?f=g&h"
_CONTROLS = "a\x1b[31m\nPASSED\rb\u202ec"
_HOSTILE = f"0\x1b[2J\nERROR: x; $(touch {_PROOF}) `touch {_PROOF}` '\"; touch {_PROOF}; ../../{_PROOF} \u202e|"
# No other control characters may be in a report that a person or a program reads.
_LAYOUT = "\n\t"


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
            session = "" if option in ("--session", "--resume") else "night"
            done = workshop.run(f"{option}={value}", session=session)
            wrong += _shows_controls(f"the output with {option}={value!a}", done.output)
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
    with Workshop(folder) as shop:
        inside = Places.of(shop)
        junit = f"--junitxml={folder / 'junit.xml'}"
        one = shop.run("--update-baselines", junit)
        two = shop.run("--update-baselines", junit, case=TWO_CARDS, session="second")
        recorded = list((folder / "baselines" / "recorded").glob("*.json"))
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
    ("history", _HOSTILE),
    ("compare", _HOSTILE, "second"),
    ("mark", _HOSTILE, "--reason", "known"),
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
    known = ("mark", f"second/{ONE_CARD}", "--reason", _HOSTILE)
    outputs = [_tool(workshop, *words) for words in (known, *_ASKED)]
    recorded = (workshop.folder / "baselines" / "recorded").glob("[!s]*.json")
    wrong = (
        *_reports(workshop, done),
        *_reports(workshop, again),
        *(each for text in outputs for each in _shows_controls(f"perfgate: {text[:60]!a}", text)),
        *(each for path in recorded for each in _shows_controls(path.name, path.read_text(encoding="utf-8"))),
        *before.wrong(workshop),
    )
    return ended_as(
        workshop,
        done,
        "NO_BASELINE",
        0,
        (bool(done.marks), "the header was not made hostile"),
        (again.exit_code in (0, 6), f"exit code of the second {again.exit_code}"),
        ("Traceback" not in done.output + again.output + "".join(outputs), "a traceback"),
        also=wrong,
    )


def _tool(workshop: Workshop, *words: str) -> str:
    """What ``perfgate`` prints, on both streams."""
    argv = [sys.executable, "-m", "helpers.commands", *words, "--config", str(workshop.folder / "perf.yaml")]
    argv += ["--baselines", str(workshop.folder / "baselines"), "--runs-dir", str(workshop.folder / "runs")]
    done = subprocess.run(argv, cwd=ROOT, env=workshop.environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


FAULTS = [
    _is_refused(
        "hostile session names",
        "--session holds $(…) and control characters, --resume ../",
        [("--session", f"$(touch {_PROOF})"), ("--session", _CONTROLS), ("--resume", f"../{_PROOF}")],
    ),
    Fault(17, "all in a folder of a hostile name", f"its name is {_LEGAL}", _hostile_folder),
    Fault(17, "hostile commit, version and device", "the interpreter and the trainer tell such names", _hostile_commit),
]
