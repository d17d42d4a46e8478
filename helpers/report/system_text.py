"""The environment tables and the doctor's findings as text, Markdown and JSON values."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from helpers.doctor.diagnosis import Diagnosis
from helpers.doctor.finding import Finding
from helpers.errors import printable
from helpers.report.escaping import markdown_text
from helpers.system_report import COLUMNS, TOPOLOGY, SystemReport

WIDTH = 100
# 1: first format.
DOCTOR_SCHEMA_VERSION = 1


def doctor_text(diagnosis: Diagnosis, width: int = WIDTH) -> str:
    """Tables, findings, and the verdict as the last line."""
    parts = [report_text(diagnosis.report, width), "", *_findings_text(diagnosis.findings, width)]
    parts.extend(_wrapped(diagnosis.verdict, "    ", width))
    return "\n".join(parts) + "\n"


def doctor_markdown(diagnosis: Diagnosis) -> str:
    lines = [report_markdown(diagnosis.report), "## What spoils a measurement here", ""]
    if diagnosis.findings:
        rows = [[f.severity.value, f.name, f.found, f.why, f.remedy] for f in diagnosis.findings]
        lines += [*_table(["", "what", "found", "why", "what to do"], rows), ""]
    return "\n".join([*lines, f"**{_cell(diagnosis.verdict)}**"]) + "\n"


def doctor_record(diagnosis: Diagnosis) -> dict[str, Any]:
    """Plain JSON values; ``schema_version`` is DOCTOR_SCHEMA_VERSION."""
    findings = [
        {"severity": f.severity.value, "name": f.name, "found": f.found, "why": f.why, "remedy": f.remedy}
        for f in diagnosis.findings
    ]
    return {
        "schema_version": DOCTOR_SCHEMA_VERSION,
        "system": diagnosis.report.to_mapping(),
        "findings": findings,
        "fit": diagnosis.fit,
        "verdict": diagnosis.verdict,
    }


def report_text(report: SystemReport, width: int = WIDTH) -> str:
    """Every table under its name; the topology as ``nvidia-smi topo -m`` prints it."""
    lines: list[str] = []
    for name, rows in report.sections.items():
        lines += ["", name] if lines else [name]
        lines += _matrix_text(rows) if name == TOPOLOGY else _rows_text(rows, width)
    return "\n".join(lines)


def report_markdown(report: SystemReport) -> str:
    lines: list[str] = []
    for name, rows in report.sections.items():
        lines += [f"## {name}", ""]
        if name == TOPOLOGY:
            lines += ["```", *(line[2:] for line in _matrix_text(rows)), "```", ""]
        else:
            lines += [*_table(["", ""], list(rows.items())), ""]
    return "\n".join(lines)


def _rows_text(rows: Mapping[str, str], width: int) -> list[str]:
    widest = max(map(len, rows), default=0)
    lines = []
    for name, value in rows.items():
        first = f"  {printable(name):<{widest}}  "
        lines += textwrap.wrap(
            printable(value), width, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False,
            break_on_hyphens=False,
        ) or [first.rstrip()]  # fmt: skip
    return lines


def _matrix_text(rows: Mapping[str, str]) -> list[str]:
    cells = [["" if name == COLUMNS else name, *text.split("\t")] for name, text in rows.items()]
    columns = max(map(len, cells))
    padded = [[*row, *[""] * (columns - len(row))] for row in cells]
    widths = [max(len(row[place]) for row in padded) for place in range(columns)]
    return ["  " + "  ".join(map(str.ljust, map(printable, row), widths)).rstrip() for row in padded]


def _findings_text(findings: Sequence[Finding], width: int) -> list[str]:
    if not findings:
        return []
    lines = ["what spoils a measurement here"]
    for finding in findings:
        head = f"  {finding.severity.value.upper()} {finding.name}: {finding.found}"
        lines += _wrapped(head, "      ", width)
        lines += _wrapped(f"    why: {finding.why}", "      ", width)
        lines += _wrapped(f"    do:  {finding.remedy}", "         ", width)
    return [*lines, ""]


def _wrapped(text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        printable(text), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(_cell, line)) + " |" for line in lines]


def _cell(text: str) -> str:
    return markdown_text(text)
