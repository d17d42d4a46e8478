"""``perfgate doctor``: prints this machine's environment tables, and everything that would spoil a measurement on
it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from helpers.commands.loading import add_json, add_runs_folder, history_option, load_suite, print_answer, width_of
from helpers.history.address import history_problem, named_address
from helpers.machine.devices import Machine
from helpers.machine.doctor import Diagnosis, diagnose
from helpers.machine.doctor.issue import Issue
from helpers.machine.tables import COLUMNS, TOPOLOGY, Tables
from helpers.report.table import Table
from helpers.report.text import hanging
from helpers.session.measuring.examination import ExaminationIO, examine
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import printable

NAME = "doctor"
HELP = "Print this machine's environment tables, and what will spoil a measurement here with what to do about it"
EXITS = {
    0: "the machine can measure",
    1: "something makes measuring worthless here",
}

EXIT_FIT = 0
EXIT_BLOCKED = 1

WIDTH = 100
# 1: first format.
DOCTOR_SCHEMA_VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="Check this ImageNet-layout FOLDER")
    parser.add_argument(
        "--history", metavar="URL", type=history_option, help="Check that this history database answers"
    )
    add_runs_folder(parser, "Check the disk of this run folder")


# The bytes of a run (spec, result with its tables, outputs) and of a step (its line in a rank's log).
_RUN_BYTES = 256 * 1024
_STEP_BYTES = 256


def run(arguments: argparse.Namespace, out: TextIO, io: ExaminationIO | None = None) -> int:
    """Print tables, issues and verdict. Exit status 1 if an issue makes measurements worthless."""
    suite = load_suite(arguments)
    named = named_address(arguments.history, suite.config.history.url, suite.config.path)
    diagnosis = diagnosis_of(suite, arguments.runs_dir, arguments.data, history_url=named, io=io)
    print_answer(arguments, out, doctor_text(diagnosis, width_of(out)), doctor_record(diagnosis))
    return EXIT_FIT if diagnosis.fit else EXIT_BLOCKED


def diagnosis_of(
    suite: Suite,
    runs_folder: Path,
    data: Path | None = None,
    *,
    history_url: str | None = None,
    io: ExaminationIO | None = None,
) -> Diagnosis:
    """The doctor's diagnosis of this machine, and of ``data`` and ``history_url`` if they are given."""
    named = data or (Path(suite.config.data.root) if suite.config.data.root else None)
    context = examine(
        suite.config,
        data_root=named.expanduser().absolute() if named else None,
        runs_folder=runs_folder.expanduser().absolute(),
        runs_bytes_on=lambda machine: night_bytes(suite, machine),
        history_problem=lambda: history_problem(history_url),
        io=io,
    )
    return diagnose(context)


def night_bytes(suite: Suite, machine: Machine) -> int:
    """Estimates how many bytes a night with all cases whose cards are here writes into the runs folder."""
    total = 0
    for each in suite.cases:
        if each.case.cards_per_node <= len(machine.cards_of(each.target)):
            protocol = each.protocol
            steps = protocol.window_steps + max(protocol.warmup_steps, protocol.most_warmup_steps or 0)
            total += protocol.runs * (_RUN_BYTES + each.case.cards * steps * _STEP_BYTES)
    return total


def doctor_text(diagnosis: Diagnosis, width: int = WIDTH) -> str:
    """Tables, issues, and the verdict as the last line."""
    parts = [report_text(diagnosis.tables, width), "", *_issues_text(diagnosis.issues, width)]
    parts.extend(_wrapped(diagnosis.verdict, "    ", width))
    return "\n".join(parts)


def doctor_record(diagnosis: Diagnosis) -> dict[str, Any]:
    """Plain JSON values; ``schema_version`` is DOCTOR_SCHEMA_VERSION."""
    issues = [
        {"severity": f.severity.value, "name": f.name, "found": f.found, "why": f.why, "remedy": f.remedy}
        for f in diagnosis.issues
    ]
    return {
        "schema_version": DOCTOR_SCHEMA_VERSION,
        "system": diagnosis.tables,
        "findings": issues,
        "fit": diagnosis.fit,
        "verdict": diagnosis.verdict,
    }


def report_text(report: Tables, width: int = WIDTH) -> str:
    """All tables with their names; the topology in the form of ``nvidia-smi topo -m``."""
    lines: list[str] = []
    for name, rows in report.items():
        lines += ["", name] if lines else [name]
        lines += _matrix_text(rows) if name == TOPOLOGY else _rows_text(rows, width)
    return "\n".join(lines)


def _rows_text(rows: Mapping[str, str], width: int) -> list[str]:
    widest = max(map(len, rows), default=0)
    lines = []
    for name, value in rows.items():
        first = f"  {printable(name):<{widest}}  "
        lines += hanging(value, width, first, " " * len(first)) or [first.rstrip()]
    return lines


def _matrix_text(rows: Mapping[str, str]) -> list[str]:
    cells = [["" if name == COLUMNS else name, *text.split("\t")] for name, text in rows.items()]
    columns = max(map(len, cells))
    first, *others = ([*map(printable, row), *[""] * (columns - len(row))] for row in cells)
    grid = Table.of_texts(first, others).grid("  ")
    return [grid.heading, *grid.lines]


def _issues_text(issues: Sequence[Issue], width: int) -> list[str]:
    if not issues:
        return []
    lines = ["what spoils a measurement here"]
    for issue in issues:
        head = f"  {issue.severity.value.upper()} {issue.name}: {issue.found}"
        lines += _wrapped(head, "      ", width)
        lines += _wrapped(f"    why: {issue.why}", "      ", width)
        lines += _wrapped(f"    do:  {issue.remedy}", "         ", width)
    return [*lines, ""]


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return hanging(text, width, "", indent)
