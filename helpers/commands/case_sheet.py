"""One case for ``perfgate cases CASE``: its published figures, protocol, settings with their sources and commands, and
whether this machine runs it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from helpers.common.words import counted
from helpers.judging.rules.rates import rate_unit, to_record
from helpers.judging.statistics import number
from helpers.launch.launchers import launch_command
from helpers.launch.launchers.launcher import LaunchCommand, Place
from helpers.launch.programs import check_settings
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.image_folder import images_needed
from helpers.plan.published import PublishedFigure, title_of
from helpers.plan.recipes import SettingsTable, plain_values
from helpers.plan.recipes.departures import departures_of
from helpers.plan.recipes.published_programs import published_program
from helpers.plan.recipes.recipe import fixed_of, sourced_settings
from helpers.report.text import hanging
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, LaunchError, printable
from helpers.trainers.contract.job import JobSpec

# 1: first format.
SHEET_SCHEMA_VERSION = 1

WIDTH = 100
_INDENT = "  "
# The fields of a published figure that are shown.
_OF_A_FIGURE = (
    "samples_per_s", "gpu", "framework_version", "precision_printed", "rule", "source", "table", "note",
)  # fmt: skip


Sheet = Mapping[str, Any]


def sheet_of(suite: Suite, suite_case: SuiteCase) -> Sheet:
    """The sheet of a case, with settings and commands for the target's device. Tolerances are fractions. A text is
    empty if there is nothing to say."""
    case = suite_case.case
    problem, table = "", {}
    try:
        table = dict(sourced_settings(case, suite_case.device, launcher=suite.config.launcher_for(case)))
    except ConfigError as error:
        problem = f"none: {error}"
    job = draft_job(suite_case, plain_values(table), device=suite_case.device, run_folder="RUN")
    if table and (refused := check_settings([job])[0]):
        problem = f"the trainer refuses them: {refused}"
    started: tuple[LaunchCommand, ...] = ()
    try:
        started = _launch_commands(case, job)
    except LaunchError as error:
        problem = problem or str(error)
    needed = images_needed(case, (figure.rule for figure in suite_case.figures))
    known = published_program(case, suite_case.device)
    tolerances = suite.config.tolerances.of(case.id)
    return {
        "case_id": case.id,
        "target": suite_case.target,
        "figures": tuple(map(_figure, suite_case.figures)),
        "protocol": suite_case.protocol,
        "published_tolerance": tolerances.published,
        "recorded_tolerance": tolerances.recorded,
        "settings": table,
        # What no setting changes.
        "fixed": fixed_of(case, suite_case.device),
        # The differences of the suite's program from the publisher's; none without a published figure.
        "departures": _departures(suite, suite_case),
        "environment": {**job.environment, **(started[0].environment if started else {})},
        "commands": tuple(each.argv for each in started),
        # Why this machine does not run the case; None if it does.
        "here": suite.why_not(suite_case),
        "machine": suite.machine.describe(),
        # Why there are no settings or no command, or what the trainer refuses in them.
        "problem": problem,
        "recorded": _recorded(suite, suite_case),
        # How many images a comparison with the published figure needs.
        "images_needed": needed.describe() if needed else "",
        # Those of one rank's program behind the published figures, by the names of contract.program.COUNTED; None if
        # nobody knows them.
        "operators": known.of(case) if known else None,
        "operators_source": str(known.source) if known else "",
    }


def _figure(figure: PublishedFigure) -> dict[str, Any]:
    return {**{name: getattr(figure, name) for name in _OF_A_FIGURE}, "status": figure.status.value}


def _departures(suite: Suite, suite_case: SuiteCase) -> tuple[Mapping[str, str], ...]:
    """How the suite's program differs from that of the case's published figures; empty if it has none."""
    if not suite_case.figures:
        return ()
    build, title = suite.installed.build(suite_case), suite_case.case.framework.spec.title
    here = build if isinstance(build, str) else f"{build.distribution} {build.version}"
    versions = ", ".join(dict.fromkeys(f"{title} {each.framework_version}" for each in suite_case.figures))
    documents = ", ".join(dict.fromkeys(title_of(each.source) for each in suite_case.figures))
    found = [("version", versions, here, documents)]
    for each in departures_of(suite_case.case):
        found.append((each.about, each.published, each.here, str(each.told_by)))
    return tuple(dict(zip(("about", "published", "here", "source"), each, strict=True)) for each in found)


def _launch_commands(case: Case, job: JobSpec) -> tuple[LaunchCommand, ...]:
    """The commands that start the job, one for each node."""
    if case.nodes == 1:
        return (launch_command(job, "PYTHON"),)
    places = [Place(node, case.nodes, f"NODE{node}", "NODE0:PORT") for node in range(case.nodes)]
    return tuple(launch_command(job, "PYTHON", place) for place in places)


def _recorded(suite: Suite, suite_case: SuiteCase) -> str:
    entry = suite.recorded_entry(suite_case.target, suite_case.case.id)
    if entry is None:
        return ""
    rate = f"{number(entry.samples_per_s)} {rate_unit(suite_case.case.id)} by {entry.rule}"
    origin = entry.provenance
    return f"{rate}, {len(entry.replicates)} runs, {origin.date[:10]}, {origin.commit[:12]}"


def sheets_record(sheets: Sequence[Sheet]) -> dict[str, Any]:
    cases = [{**to_record(sheet), "settings": _settings_record(sheet["settings"])} for sheet in sheets]
    return {"schema_version": SHEET_SCHEMA_VERSION, "cases": cases}


def _settings_record(settings: SettingsTable) -> dict[str, Any]:
    return {key: {"value": each.value, **asdict(each.source)} for key, each in settings.items()}


def render(sheet: Sheet, width: int = WIDTH) -> str:
    """The sheet as text of at most ``width`` columns; longer words and commands are not broken."""
    sections = (
        ("published", _figures(sheet)),
        ("protocol", _protocol(sheet)),
        ("settings, by source", [*filter(None, [sheet["problem"]]), *_by_source(sheet["settings"])]),
        (
            "the same whatever the settings say",
            [f"{each.name}: {each.value} ({each.source})" for each in sheet["fixed"]],
        ),
        ("departures from the program behind the published figures", _departed(sheet)),
        ("operators of the published program of one rank", _operators(sheet)),
        ("on this machine", _here(sheet)),
    )
    lines = [f"{sheet['case_id']} [{sheet['target']}]"]
    for title, body in sections:
        if body:
            lines += ["", title, *(line for text in body for line in _wrapped(text, width))]
    variables = [f"{name}={value}" for name, value in sheet["environment"].items()]
    lines += ["", "command of one run (RUN: its folder, PYTHON: the framework's interpreter)"]
    lines += [_INDENT + shlex.join(["env", *variables, *each]) for each in sheet["commands"]]
    return "\n".join(printable(line).rstrip() for line in lines)


def _wrapped(text: str, width: int) -> list[str]:
    """A line under a title; it goes on further to the right."""
    indent = _INDENT + " " * (len(text) - len(text.lstrip(" ")))
    return hanging(text.lstrip(" "), width, indent, indent + _INDENT)


def _figures(sheet: Sheet) -> list[str]:
    lines = []
    for each in sheet["figures"]:
        rate = f"{each['samples_per_s']} {rate_unit(sheet['case_id'])} on {each['gpu']}, {each['framework_version']}"
        lines.append(f"{rate}; status {each['status']}; by {each['rule']}")
        printed = f'printed as {each["precision_printed"]} in "{each["table"]}" of {title_of(each["source"])}'
        lines.append("; ".join(filter(None, [_INDENT + printed, each["note"]])))
    needs = [f"needs {sheet['images_needed']}"] if sheet["images_needed"] else []
    return [*lines, *needs] if lines else ["none"]


def _protocol(sheet: Sheet) -> list[str]:
    protocol = sheet["protocol"]
    steady = protocol.most_warmup_steps > protocol.warmup_steps
    warm_up = f"{protocol.warmup_steps}{f' to {protocol.most_warmup_steps} (until steady)' if steady else ''}"
    return [
        f"{protocol.name}: {warm_up} steps of warm-up, {protocol.window_steps} measured, "
        f"{counted(protocol.runs, 'run')} in fresh processes",
        f"tolerance: -{sheet['published_tolerance']:.1%} against a published figure; "
        f"±{sheet['recorded_tolerance']:.1%} is the smallest change that counts against the reference build",
    ]


def _by_source(settings: SettingsTable) -> Iterator[str]:
    """The settings grouped by source, each with the source's remark."""
    for where in dict.fromkeys(each.source.where for each in settings.values()):
        alike = {key: each for key, each in settings.items() if each.source.where == where}
        widest = max(map(len, alike))
        yield where
        for key, each in alike.items():
            yield f"{_INDENT}{key:{widest}}  {value_text(each.value)}  {each.source.reason}".rstrip()


def _departed(sheet: Sheet) -> list[str]:
    return [
        line
        for each in sheet["departures"]
        for line in (each["about"], f"  published: {each['published']} ({each['source']})", f"  here: {each['here']}")
    ]


def _operators(sheet: Sheet) -> list[str]:
    counts = {name: count for name, count in (sheet["operators"] or {}).items() if count}
    widest = max(map(len, counts), default=0)
    lines = [f"{name:{widest}}  {count}" for name, count in counts.items()]
    return [*lines, f"source: {sheet['operators_source']}"] if lines else []


def _here(sheet: Sheet) -> list[str]:
    here = "runs" if sheet["here"] is None else f"not run: {sheet['here']}"
    return [sheet["machine"], here, f"recorded: {sheet['recorded'] or 'nothing'}"]


def value_text(value: Any) -> str:
    """A setting's value as ``--set`` takes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {value_text(each)}" for key, each in value.items()) + "}"
    return str(value)
