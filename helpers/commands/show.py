"""``perfgate show CASE``: describes a case, its settings with their sources, and whether this machine runs it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from helpers.commands.loading import (
    JSON,
    TEXT,
    Formats,
    add_history,
    add_printed_formats,
    find_cases,
    history_of,
    history_url,
    json_text,
    load_suite,
    print_answer,
    say,
)
from helpers.history import may_be_at
from helpers.judging.rates import rate_unit, to_record
from helpers.judging.statistics import number
from helpers.judging.wording import counted
from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import LaunchCommand, Place
from helpers.launch.programs import check_settings
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.image_folder import images_needed
from helpers.plan.matrix import TARGETS
from helpers.plan.overrides import effective, neutral_reason, parse_overrides, setting, with_overrides
from helpers.plan.published import PublishedFigure, title_of
from helpers.plan.recipes import SettingsTable, plain_values
from helpers.plan.recipes.recipe import departures_of, fixed_of, sourced_settings
from helpers.report.nights import acknowledgement_text
from helpers.report.program import ProgramLine, built_here, operator_lines, program_line
from helpers.report.text import hanging
from helpers.session.gate import EXIT_OK
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import ConfigError, HistoryError, LaunchError, NoHistory, printable
from helpers.trainers.contract.frameworks import FRAMEWORKS
from helpers.trainers.contract.job import JobSpec

NAME = "show"
HELP = "Show a case: published figures, protocol, settings with their sources, command, and whether it runs here"
EXITS = {
    0: "the case is shown",
}

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
# 1: first format.
# 2: a case has "acknowledged".
# 3: a case has "program".
SHOW_SCHEMA_VERSION = 3

WIDTH = 100
_INDENT = "  "
_ENVIRONMENT = "environment."
# The column of values is padded at most to this width, so that remarks stay near their values.
_WIDEST_VALUE = 26


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
    parser.add_argument(
        "--build-program",
        action="store_true",
        help="Build its program, without training it, and count its operators beside the published ones; "
        "with --json this is always done",
    )
    add_printed_formats(parser, FORMATS)
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print a sheet for each target that has the case. Raises SuiteError on an unknown case or override."""
    overrides = parse_overrides(arguments.overrides)
    suite = load_suite(arguments)
    found = find_cases(suite.cases, arguments.case, arguments.target)
    acknowledged = _acknowledged(arguments)
    sheets = [replace(sheet_of(suite, each, overrides, arguments.device), acknowledged=acknowledged) for each in found]
    if arguments.build_program or arguments.json is not None:
        # The same case on two targets has one program.
        first = {each.device: (each, bool(sheet.changed)) for sheet, each in zip(sheets, found, strict=True)}
        programs = {device: built_here(suite, each, changed, say) for device, (each, changed) in first.items()}
        sheets = [replace(sheet, program=programs[each.device]) for sheet, each in zip(sheets, found, strict=True)]
    print_answer(arguments, FORMATS, sheets, out)
    return EXIT_OK


def _acknowledged(arguments: argparse.Namespace) -> tuple[str, ...]:
    """What users acknowledged of the case, or why that is not known; nothing without a history."""
    if not may_be_at(history_url(arguments)):
        return ()
    try:
        with history_of(arguments) as history:
            return tuple(map(acknowledgement_text, history.acknowledgements(arguments.case, holding_only=False)))
    except NoHistory:
        return ()
    except HistoryError as error:
        return (f"not known: {error}",)


def sheet_of(suite: Suite, suite_case: SuiteCase, overrides: Mapping[str, Any], device: str | None = None) -> CaseSheet:
    """The sheet of a case. Settings and command are those for ``device``, by default the target's device.

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
        started = _launch_commands(case, job)
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
        published_tolerance=suite.config.tolerances.of(case.id).published,
        recorded_tolerance=suite.config.tolerances.of(case.id).recorded,
        settings=_lines(table, settings, changes),
        fixed=tuple(FixedLine(each.name, each.value, str(each.source)) for each in fixed_of(case, device)),
        departures=_departures(suite, suite_case),
        environment=variables,
        commands=commands,
        here=suite.why_not(suite_case),
        machine=suite.machine.describe(),
        problem=problem,
        not_launched=not_launched,
        recorded=_recorded(suite, suite_case),
        images_needed=needed.describe() if needed else "",
        program=program_line(suite_case),
    )


def _departures(suite: Suite, suite_case: SuiteCase) -> tuple[DepartureLine, ...]:
    """How the suite's program differs from that of the case's published figures; empty if it has none."""
    if not suite_case.figures:
        return ()
    build = suite.build(suite_case)
    here = build if isinstance(build, str) else f"{build.distribution} {build.version}"
    versions = dict.fromkeys(
        f"{each.case.framework.spec.title} {each.framework_version}" for each in suite_case.figures
    )
    documents = dict.fromkeys(title_of(each.source) for each in suite_case.figures)
    version = DepartureLine("version", ", ".join(versions), here, ", ".join(documents))
    lines = (
        DepartureLine(each.about, each.published, each.here, str(each.source))
        for each in departures_of(suite_case.case)
    )
    return (version, *lines)


def _launch_commands(case: Case, job: JobSpec) -> tuple[LaunchCommand, ...]:
    """The commands that start the job, one for each node."""
    launcher = launcher_for(job)
    if case.nodes == 1:
        return (launcher.command(job, "PYTHON"),)
    places = [Place(node, case.nodes, f"NODE{node}", "NODE0:PORT") for node in range(case.nodes)]
    return tuple(launcher.command(job, "PYTHON", place) for place in places)


def _lines(table: SettingsTable, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[SettingLine, ...]:
    """A line for each setting. A whole group that was changed with ``--set`` is one line."""
    lines = []
    shown: set[str] = set()
    usual = plain_values(table)
    for key, decided in table.items():
        group = next((each for each in changes if key == each or key.startswith(f"{each}.")), key)
        if group in shown:
            continue
        shown.add(group)
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
        "model": case.model.spec.title,
        "precision": _PRECISIONS[case.precision],
        "batch": f"{counted(case.batch_size_per_card, 'image')} a card, {case.batch_size_per_card * case.cards} a step",
        "cards": _cards(case),
        "data": _DATA[case.data],
    }
    if case.execution is not None:
        words["execution"] = _EXECUTIONS[case.execution]
    if case.features:
        words["switched on"] = ", ".join(case.features)
    return words


def _cards(case: Case) -> str:
    cards = counted(case.cards_per_node, "card")
    return cards if case.nodes == 1 else f"{case.nodes} nodes of {cards}, {case.cards} in all"


@dataclass(frozen=True)
class FigureLine:
    """One published figure of the case; images/s of all cards."""

    samples_per_s: float
    status: str
    gpu: str
    framework_version: str
    precision_printed: str
    rule: str
    source: str
    table: str
    note: str


@dataclass(frozen=True)
class SettingLine:
    """One setting."""

    # The key, with dots between groups.
    key: str
    value: Any
    # The case's own value.
    usual: Any
    # The source of the usual value.
    source: str
    # The source's remark.
    reason: str = ""
    # Why a change does not affect the throughput; None if nothing is changed or if it may.
    neutral: str | None = None

    @property
    def changed(self) -> bool:
        return bool(self.value != self.usual)


@dataclass(frozen=True)
class FixedLine:
    """A property of the training that no setting changes."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class DepartureLine:
    """A difference of the suite's program from the publisher's."""

    about: str
    published: str
    here: str
    # The source for the publisher's program.
    source: str


@dataclass(frozen=True)
class RecordedLine:
    """This machine's recorded figure of the case."""

    samples_per_s: float
    rule: str
    runs: int
    date: str
    commit: str


@dataclass(frozen=True)
class CaseSheet:
    """One case on one target. Tolerances are fractions."""

    case_id: str
    target: str
    # The device for which settings and command are.
    device: str
    # The case's dimensions, each with its title.
    words: Mapping[str, str]
    figures: tuple[FigureLine, ...]
    protocol: str
    warmup_steps: int
    most_warmup_steps: int
    window_steps: int
    runs: int
    published_tolerance: float
    recorded_tolerance: float
    settings: tuple[SettingLine, ...]
    fixed: tuple[FixedLine, ...]
    environment: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]
    # Why this machine does not run the case; None if it does.
    here: str | None
    machine: str
    # Why there are no settings, or what the trainer refuses in them.
    problem: str | None = None
    # Why there is no command.
    not_launched: str | None = None
    recorded: RecordedLine | None = None
    # In words, how many images a comparison with the published figure needs; empty if the case reads none.
    images_needed: str = ""
    # Empty for a case without a published figure.
    departures: tuple[DepartureLine, ...] = ()
    # What users acknowledged of its nights, also what they took back, in words.
    acknowledged: tuple[str, ...] = ()
    # None if nobody knows the program behind its figures.
    program: ProgramLine | None = None

    @property
    def changed(self) -> tuple[SettingLine, ...]:
        return tuple(each for each in self.settings if each.changed)

    @property
    def comparable(self) -> bool:
        """Whether a result with these settings may be compared with a published figure."""
        return all(each.neutral is not None for each in self.changed)

    def to_record(self) -> dict[str, Any]:
        return {**to_record(self), "comparable": self.comparable}


def render(sheet: CaseSheet, width: int = WIDTH) -> str:
    """The sheet as text of at most ``width`` columns; longer words are not broken."""
    sections = (
        ("case", _named(sheet.words, width)),
        ("published", _figures(sheet, width)),
        ("protocol", _protocol(sheet, width)),
        ("changed with --set", _changes(sheet, width)),
        (f"settings on a {sheet.device.upper()}, by source", _settings(sheet, width)),
        ("the same whatever the settings say", _fixed(sheet, width)),
        ("departures from the program behind the published figures", _departed(sheet, width)),
        ("operators of the program of one rank", _operators(sheet, width)),
        ("environment of every rank, by source", _environment(sheet, width)),
        ("command of one run (RUN: its folder, PYTHON: the framework's interpreter)", _commands(sheet, width)),
        ("on this machine", _here(sheet, width)),
    )
    lines = [f"{sheet.case_id} [{sheet.target}]"]
    for title, body in sections:
        if body:
            lines += ["", title, *(_INDENT + line for line in body)]
    return "\n".join(printable(line).rstrip() for line in lines)


def render_sheets(sheets: Sequence[CaseSheet], width: int) -> str:
    return "\n\n\n".join(render(sheet, width) for sheet in sheets)


def render_json(sheets: Sequence[CaseSheet], _width: int) -> str:
    return json_text({"schema_version": SHOW_SCHEMA_VERSION, "cases": [sheet.to_record() for sheet in sheets]})


FORMATS: Formats[Sequence[CaseSheet]] = {TEXT: render_sheets, JSON: render_json}


def _figures(sheet: CaseSheet, width: int) -> list[str]:
    if not sheet.figures:
        return ["none"]
    lines = []
    for each in sheet.figures:
        rate = f"{each.samples_per_s} {rate_unit(sheet.case_id)}"
        what = f"{rate} on {each.gpu}, {each.framework_version}; status {each.status}"
        lines += _wrapped(f"{what}; by {each.rule}", width, _INDENT)
        text = f'printed as {each.precision_printed} in "{each.table}" of {title_of(each.source)}'
        lines += _wrapped(_INDENT + (f"{text}; {each.note}" if each.note else text), width, _INDENT)
    return lines + (_wrapped(f"needs {sheet.images_needed}", width, _INDENT) if sheet.images_needed else [])


def _protocol(sheet: CaseSheet, width: int) -> list[str]:
    steps = f"{_warm_up(sheet)} steps of warm-up, {sheet.window_steps} measured"
    runs = f"{counted(sheet.runs, 'run')} in fresh processes"
    published = f"-{sheet.published_tolerance:.1%} against a published figure"
    recorded = f"±{sheet.recorded_tolerance:.1%} is the smallest change that counts against the reference build"
    return [
        *_wrapped(f"{sheet.protocol}: {steps}, {runs}", width, _INDENT),
        *_wrapped(f"tolerance: {published}; {recorded}", width, _INDENT),
    ]


def _warm_up(sheet: CaseSheet) -> str:
    if sheet.most_warmup_steps <= sheet.warmup_steps:
        return str(sheet.warmup_steps)
    return f"{sheet.warmup_steps} to {sheet.most_warmup_steps} (until steady)"


def _changes(sheet: CaseSheet, width: int) -> list[str]:
    lines = []
    for each in sheet.changed:
        lines.append(f"{each.key}: {value_text(each.usual)} → {value_text(each.value)}")
        text = f"does not matter: {each.neutral}" if each.neutral else "may matter to the throughput"
        lines += _wrapped(_INDENT + text, width, _INDENT)
    if lines and sheet.figures:
        lines.append(
            "a result is still compared with the published figure"
            if sheet.comparable
            else "a result is INCOMPARABLE with the published figure"
        )
    if lines:
        text = "a recorded figure is only for the case as it stands: a result enters no baseline"
        lines += _wrapped(text + (" and is INCOMPARABLE with the recorded one" if sheet.recorded else ""), width)
    return lines


def _settings(sheet: CaseSheet, width: int) -> list[str]:
    lines = _wrapped(sheet.problem, width) if sheet.problem else []
    return lines + _by_source([each for each in sheet.settings if not each.key.startswith(_ENVIRONMENT)], width)


def _environment(sheet: CaseSheet, width: int) -> list[str]:
    own = [each for each in sheet.settings if each.key.startswith(_ENVIRONMENT)]
    lines = _by_source([replace(each, key=each.key.removeprefix(_ENVIRONMENT)) for each in own], width)
    names = {each.key.removeprefix(_ENVIRONMENT) for each in own}
    launcher = {name: value for name, value in sheet.environment.items() if name not in names}
    if launcher:
        lines += ["the launcher", *(_INDENT + line for line in _named(launcher, width - len(_INDENT)))]
    return lines


def _by_source(settings: Sequence[SettingLine], width: int) -> list[str]:
    """The settings grouped by source, each with the source's remark."""
    lines: list[str] = []
    for source in dict.fromkeys(each.source for each in settings):
        mine = [each for each in settings if each.source == source]
        key_width = max(len(each.key) for each in mine)
        value_width = min(max(len(_shown(each)) for each in mine), _WIDEST_VALUE)
        lines.append(source)
        for each in mine:
            text = f"{_INDENT}{each.key:{key_width}}  {_shown(each):{value_width}}"
            if len(_shown(each)) <= value_width:
                lines += _wrapped(f"{text}  {each.reason}".rstrip(), width, " " * (key_width + value_width + 6))
            else:
                lines += [text, *_wrapped(_INDENT * 3 + each.reason, width, _INDENT * 3)]
    return lines


def _shown(setting: SettingLine) -> str:
    return value_text(setting.value) + (" (changed)" if setting.changed else "")


def _fixed(sheet: CaseSheet, width: int) -> list[str]:
    return [
        line for each in sheet.fixed for line in _wrapped(f"{each.name}: {each.value} ({each.source})", width, _INDENT)
    ]


def _departed(sheet: CaseSheet, width: int) -> list[str]:
    lines = []
    for each in sheet.departures:
        lines.append(each.about)
        lines += _wrapped(f"{_INDENT}published: {each.published} ({each.source})", width, _INDENT * 2)
        lines += _wrapped(f"{_INDENT}here: {each.here}", width, _INDENT * 2)
    return lines


def _operators(sheet: CaseSheet, width: int) -> list[str]:
    if sheet.program is None:
        return []
    table, texts = operator_lines(sheet.program)
    return table + [line for text in texts for line in _wrapped(text, width, _INDENT)]


def _commands(sheet: CaseSheet, width: int) -> list[str]:
    lines = _wrapped(f"none: {sheet.not_launched}", width) if sheet.not_launched else []
    for command in sheet.commands:
        lines += _continued(command, width)
    return lines


def _here(sheet: CaseSheet, width: int) -> list[str]:
    lines = _wrapped(sheet.machine, width)
    lines += ["runs"] if sheet.here is None else _wrapped(f"not run: {sheet.here}", width)
    if (recorded := sheet.recorded) is not None:
        rate = f"{number(recorded.samples_per_s)} {rate_unit(sheet.case_id)}"
        text = f"recorded: {rate} by {recorded.rule}, {recorded.runs} runs"
        lines.append(f"{text}, {recorded.date[:10]}, {recorded.commit[:12]}")
    else:
        lines.append("recorded: nothing")
    for text in sheet.acknowledged:
        lines += _wrapped(f"acknowledged: {text}", width, _INDENT)
    return lines


def _named(values: Mapping[str, str], width: int) -> list[str]:
    if not values:
        return []
    widest = max(map(len, values))
    lines: list[str] = []
    for name, value in values.items():
        first, *rest = _wrapped(value, width - widest - 2) or [""]
        lines += [f"{name:{widest}}  {first}", *(" " * (widest + 2) + line for line in rest)]
    return lines


def _continued(command: Sequence[str], width: int) -> list[str]:
    """A command on several lines, each except the last ended by a backslash; an option and its value stay together."""
    lines: list[str] = []
    current = ""
    for group in _groups([shlex.quote(word) for word in command]):
        if current and len(_INDENT + current) + 1 + len(group) + 2 > width:
            lines.append(f"{current} \\")
            current = _INDENT + group
        else:
            current = f"{current} {group}" if current else group
    return [*lines, current]


def _groups(words: Sequence[str]) -> list[str]:
    """The words of a command; an option is joined with its value."""
    groups: list[str] = []
    takes_value = False
    for word in words:
        is_option = word.startswith("-")
        if takes_value and not is_option:
            groups[-1] += f" {word}"
            takes_value = False
        else:
            groups.append(word)
            # Python's -u takes no value.
            takes_value = is_option and word != "-u"
    return groups


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


def _wrapped(text: str, width: int, rest: str = "") -> list[str]:
    """The section's indentation is kept free."""
    return hanging(text, width - len(_INDENT), "", rest)
