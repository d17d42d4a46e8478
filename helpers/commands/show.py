"""``perfgate show CASE``: one case in words, its settings with their sources, and whether this machine runs it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, TextIO

from helpers.commands.formats import add_printed_formats, print_answer
from helpers.commands.loading import find_cases, load_suite
from helpers.commands.show_text import FORMATS, CaseSheet, FigureLine, FixedLine, RecordedLine, SettingLine
from helpers.launch.checks import check_settings
from helpers.launch.launchers.launcher import LaunchCommand, Place
from helpers.launch.launchers.table import launcher_for
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.image_folder import images_needed
from helpers.plan.matrix import TARGETS
from helpers.plan.overrides import effective, neutral_reason, parse_overrides, setting, with_overrides
from helpers.plan.published import PublishedFigure
from helpers.plan.recipes.recipe import fixed_of, sourced_settings
from helpers.plan.recipes.setting import SettingsTable, plain_values
from helpers.session.policy import EXIT_OK
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import ConfigError, LaunchError
from helpers.trainers.contract.frameworks import FRAMEWORKS
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import spec_of

NAME = "show"
HELP = "Show a case: published figures, protocol, settings with their sources, command, and whether it runs here"

_PRECISIONS = {
    Precision.FP32: "32-bit floats, TF32 off",
    Precision.TF32: "32-bit floats, TF32 on",
    Precision.BF16: "bfloat16",
    Precision.AMP_O1: "automatic mixed precision, level O1",
    Precision.AMP_O2: "automatic mixed precision, level O2 (pure fp16)",
    Precision.AMP: "the framework's own automatic mixed precision",
    Precision.UNSTATED: "not stated by the source: the strategy chooses, the result records it",
}
_DATA = {
    DataSource.DALI: "JPEG files through NVIDIA DALI",
    DataSource.DALI_CPU: "JPEG files through NVIDIA DALI, decoded on the CPU",
    DataSource.NATIVE: "JPEG files through the framework's own loader",
    DataSource.SYNTHETIC: "synthetic batches",
    DataSource.UNSTATED: "not stated by the source",
}
_EXECUTIONS = {
    Execution.STATIC: "static: a program with its strategies",
    Execution.DYNAMIC: "dynamic",
    Execution.TO_STATIC: "to_static: dynamic code, compiled",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="Case id, as pytest --collect-only and perfgate cases list them")
    parser.add_argument("--target", choices=TARGETS, help="Show the case only on this target")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="Show the settings and the command for this device")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="Change one training setting and say what that does to a result. Can be given several times",
    )
    add_printed_formats(parser, FORMATS)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print a sheet for each target that has the case. Raises SuiteError on an unknown case or override."""
    overrides = parse_overrides(arguments.overrides)
    suite = load_suite(arguments)
    found = find_cases(suite.cases, arguments.case, arguments.target)
    sheets = [sheet_of(suite, each, overrides, arguments.device) for each in found]
    print_answer(arguments, FORMATS, sheets, out)
    return EXIT_OK


def sheet_of(suite: Suite, suite_case: SuiteCase, overrides: Mapping[str, Any], device: str | None = None) -> CaseSheet:
    """The sheet of a case, with settings and command for ``device``, by default the target's.

    Raises ConfigError on an override that the case's settings do not have.
    """
    case, protocol = suite_case.case, suite_case.protocol
    device = device or suite_case.device
    try:
        table = sourced_settings(case, device, launcher=suite.config.launcher_for(case))
        problem = None
    except ConfigError as error:
        if overrides:
            raise
        table, problem = {}, f"none: {error}"
    usual = plain_values(table)
    changes = effective(usual, overrides, case.id)
    settings = with_overrides(usual, changes, case.id)
    job = draft_job(suite_case, settings, device=device, run_folder="RUN")
    commands: tuple[tuple[str, ...], ...] = ()
    not_launched = None
    variables = dict(job.environment)
    if settings:
        refused = check_settings([job])[0]
        problem = f"the trainer refuses them: {refused}" if refused else None
    try:
        started = _commands(case, job)
        commands, variables = tuple(each.argv for each in started), {**variables, **started[0].environment}
    except LaunchError as error:
        not_launched = str(error)
    needed = images_needed(case, (figure.rule for figure in suite_case.figures))
    return CaseSheet(
        case_id=case.id,
        target=suite_case.target,
        device=device,
        words=_words(case),
        figures=tuple(_figure(each) for each in suite_case.figures),
        protocol=protocol.name,
        warmup_steps=protocol.warmup_steps,
        most_warmup_steps=protocol.most_warmup_steps,
        window_steps=protocol.window_steps,
        runs=protocol.runs,
        published_tolerance=suite.config.tolerances.published_for(case.id),
        recorded_tolerance=suite.config.tolerances.recorded_for(case.id),
        settings=_lines(table, settings, changes),
        fixed=tuple(FixedLine(each.name, each.value, str(each.source)) for each in fixed_of(case, device)),
        environment=variables,
        commands=commands,
        here=suite.why_not(suite_case),
        machine=suite.machine.describe(),
        problem=problem,
        not_launched=not_launched,
        recorded=_recorded(suite, suite_case),
        images_needed=needed.describe() if needed else "",
    )


def _commands(case: Case, job: JobSpec) -> tuple[LaunchCommand, ...]:
    """The commands that start the job, one for each node."""
    launcher = launcher_for(case, job.launcher)
    if case.nodes == 1:
        return (launcher.command(job, "PYTHON"),)
    places = [Place(node, case.nodes, f"NODE{node}", "NODE0:PORT") for node in range(case.nodes)]
    return tuple(launcher.command(job, "PYTHON", place) for place in places)


def _lines(table: SettingsTable, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[SettingLine, ...]:
    """A line for each setting; a whole group that ``--set`` gives is one line."""
    lines = []
    told: set[str] = set()
    usual = plain_values(table)
    for key, decided in table.items():
        group = next((each for each in changes if key == each or key.startswith(f"{each}.")), key)
        if group in told:
            continue
        told.add(group)
        value = setting(settings, group)
        neutral = neutral_reason(group, value) if group in changes else None
        source = decided.source
        lines.append(SettingLine(group, value, setting(usual, group), source.where, source.reason, neutral))
    return tuple(lines)


def _recorded(suite: Suite, suite_case: SuiteCase) -> RecordedLine | None:
    entry = suite.baselines.load(suite_case.device).entries.get(suite_case.case.id)
    if entry is None:
        return None
    come_from = entry.provenance
    return RecordedLine(entry.samples_per_s, entry.rule, len(entry.replicates), come_from.date, come_from.commit)


def _figure(figure: PublishedFigure) -> FigureLine:
    return FigureLine(
        figure.samples_per_s,
        figure.status.value,
        figure.gpu,
        f"{figure.case.framework.value} {figure.framework_version}",
        figure.precision_printed,
        figure.rule,
        figure.source,
        figure.table,
        figure.note,
    )


def _words(case: Case) -> dict[str, str]:
    words = {
        "framework": FRAMEWORKS[case.framework].title,
        "model": spec_of(case.model).title,
        "precision": _PRECISIONS[case.precision],
        "batch": f"{_count(case.batch_size_per_card, 'image')} a card, {case.batch_size_per_card * case.cards} a step",
        "cards": _cards(case),
        "data": _DATA[case.data],
    }
    if case.execution is not None:
        words["execution"] = _EXECUTIONS[case.execution]
    switched = [name for name in ("compile", "graphs", "xla", "auto") if getattr(case, name)]
    if switched:
        words["switched on"] = ", ".join(switched)
    return words


def _cards(case: Case) -> str:
    cards = _count(case.cards_per_node, "card")
    return cards if case.nodes == 1 else f"{case.nodes} nodes of {cards}, {case.cards} in all"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"
