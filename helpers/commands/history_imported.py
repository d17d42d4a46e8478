"""What ``perfgate history`` shows of results that were imported from logs, apart from the nights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helpers.history.results import LOG_FACT, RunResult
from helpers.judging.rules import run_figure
from helpers.judging.statistics import number
from helpers.logs.imported import HONEST
from helpers.logs.results import USUAL_RULE_FACT
from helpers.report.text import hanging

HEADING = "imported from logs; no run is ever held against them"


def render_stored(results: Sequence[RunResult], width: int) -> str:
    """A few lines a result: its figure by its publisher's rule and by the honest one, and the log."""
    told = hanging(f"{HEADING}: {len(results)}", width, "", "")
    for each in results:
        rule = each.facts.get(USUAL_RULE_FACT, "")
        figures = "; ".join(f"{_figure(each, name)} by {name}" for name in dict.fromkeys((rule, HONEST)) if name)
        first = f"{each.created[:10]}  {each.case_id} [{each.target}] ({each.origin})  {figures}"
        told += hanging(first, width, "", "    ")
        told += hanging(f"{each.uuid[:12]}  {each.facts.get(LOG_FACT, '')}", width, "    ", "    ")
    return "\n".join(told)


def stored_record(result: RunResult) -> dict[str, Any]:
    """The result for JSON, without the empty fields that only a measured run fills."""
    names = ("uuid", "case_id", "target", "created", "origin", "build", "figures", "facts", "reader_share")
    record = result.to_record()
    return {name: dict(record[name]) if isinstance(record[name], dict) else record[name] for name in names}


def _figure(result: RunResult, rule: str) -> str:
    figure = run_figure(rule, result.figures)
    return "no figure" if isinstance(figure, str) else f"{number(figure)} images/s"
