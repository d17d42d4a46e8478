"""Writes the result of a gate for GitHub Actions: a line ``::error file=…,line=…::`` for each failing case, and the
job's summary page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from helpers.common.files import check_not_planted
from helpers.judging.case.evidence import CaseKey
from helpers.session.gate_verdict import GateCase, GateState, GateVerdict
from helpers.trainers.contract.errors import printable

# Variables of GitHub's runner: "true" in a job, and the file to which a step appends Markdown.
ACTIONS_VARIABLE = "GITHUB_ACTIONS"
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
WORKSPACE_VARIABLE = "GITHUB_WORKSPACE"

# GitHub refuses a step's summary of more than 1 MiB.
_MOST_SUMMARY_BYTES = 1 << 20
_CUT = "\n\n(cut: GitHub takes 1 MiB; the whole report is in the results file)\n"


def annotation_lines(gate: GateVerdict, places: Mapping[CaseKey, tuple[str, int]]) -> list[str]:
    """A workflow command for each case that fails the gate or is in quarantine and did not pass; one command for the
    gate itself if it failed without such a case.

    ``places`` has, by SuiteCase.key, the file (relative to the repository) and the line of a case's test.
    """
    lines = [_command("error", case, places) for case in gate.failed]
    lines += [_command("warning", case, places) for case in gate.quarantined if case.status != "PASS"]
    if gate.state is GateState.FAILED and not gate.failed:
        lines.append(gate_annotation(gate.line))
    return lines


def gate_annotation(text: str) -> str:
    """The workflow command for a failure of the gate that is not a case's."""
    return f"::error title=The gate::{_data(text)}"


def line_of_test(source: Sequence[str], function: str) -> int:
    """The number of the line at which a test function begins; 1 if the source does not have it."""
    begins = re.compile(rf"(?:async )?def {re.escape(function)}\(")
    return next((number for number, line in enumerate(source, 1) if begins.match(line)), 1)


def append_summary(file: Path, markdown: str) -> None:
    """Append a page to the step's summary. Raises OSError."""
    content = markdown.encode()
    if len(content) > _MOST_SUMMARY_BYTES:
        content = content[: _MOST_SUMMARY_BYTES - len(_CUT)].decode(errors="ignore").encode() + _CUT.encode()
    check_not_planted(file)
    with file.open("ab") as summary:
        summary.write(content)


def _command(kind: str, case: GateCase, places: Mapping[CaseKey, tuple[str, int]]) -> str:
    title = f"title={_property(f'{case.status} {case.case_id} [{case.target}]')}"
    where = []
    if (place := places.get(case.key)) is not None:
        where = [f"file={_property(place[0])}", f"line={place[1]}"]
    return f"::{kind} {','.join([*where, title])}::{_data(case.text)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
