"""A log's run as a result of ours: its figures by every rule, and where each of them stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.history.results import LOG_FACT, LOG_WARNINGS_FACT, RunResult
from helpers.logs.imported import Imported, RuleFigure
from helpers.logs.record import Said, Setting
from helpers.machine.wall_clock import utc_now
from helpers.trainers.contract.job import finite

SOURCE_FACT, SHA256_FACT, USUAL_RULE_FACT = "source", "sha256", "usual rule"


def result_of(
    imported: Imported, settings: Mapping[Setting, Said], name: str, *, doubts: tuple[str, ...] = (), **values: Any
) -> RunResult:
    """``values`` are the fields that no log tells (uuid, session, case, origin …); ``name`` is the log for people,
    ``settings`` the whole configuration, ``doubts`` come after the log's own warnings."""
    said = {each: settings[each].value for each in settings}
    return RunResult(
        created=utc_now().isoformat(timespec="seconds"),
        build={
            "framework": said.get(Setting.FRAMEWORK, ""),
            "version": said.get(Setting.FRAMEWORK_VERSION, ""),
        },
        figures=figures_of(imported),
        reader_share=imported.reader_share,
        facts={
            LOG_FACT: _line(name, imported, said.get(Setting.FRAMEWORK_VERSION, "")),
            LOG_WARNINGS_FACT: "; ".join((*imported.warnings, *doubts)),
            **_provenance(imported),
            **{f"setting {each.value}": f"{settings[each].value} ({settings[each].where})" for each in settings},
        },
        **values,
    )


def figures_of(imported: Imported) -> dict[str, float | str]:
    """Images/s by each rule, or why not; under the rule's plain name too where one parameter alone was tried."""
    every = (*imported.figures, imported.honest)
    plain_names = [each.rule.partition(":")[0] for each in every]
    found = {each.rule: _told(each) for each in every}
    for each, plain in zip(every, plain_names, strict=True):
        if plain_names.count(plain) == 1:
            found.setdefault(plain, _told(each))
    return found


def _told(figure: RuleFigure) -> float | str:
    rate = figure.samples_per_s
    if rate is None:
        return figure.reason or f"rule {figure.rule} gives no figure"
    return float(rate) if finite(rate) and rate > 0 else f"rule {figure.rule} gave {rate!r}, which is no throughput"


def _line(name: str, imported: Imported, version: str) -> str:
    """``a/b.log, lines 1-310, paddleclas, sha256 0123456789ab, version 2.5.0``."""
    lines = f"lines {imported.first_line}-{imported.last_line}"
    told = [name, lines, imported.format, f"sha256 {imported.sha256[:12]}"]
    return ", ".join([*told, *([f"version {version}"] if version else [])])


def _provenance(imported: Imported) -> dict[str, str]:
    """What the figures rest on, as texts: file, hash, lines, records used and dropped by each rule."""
    every = (*imported.figures, imported.honest)
    return {
        SOURCE_FACT: imported.source,
        SHA256_FACT: imported.sha256,
        "format": imported.format,
        "run in file": f"{imported.number} of {imported.runs_in_file}",
        "lines": f"{imported.first_line}-{imported.last_line}",
        USUAL_RULE_FACT: imported.usual,
        "dropped": "; ".join(f"{each.count}: {each.reason} (line {each.first.number})" for each in imported.dropped),
        **{
            f"rule {each.rule}": "; ".join(filter(None, (f"{each.used} used", *each.unused, each.how, each.reason)))
            for each in every
        },
    }
