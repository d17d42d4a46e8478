"""The sheet of one case on one target that ``perfgate show`` prints: its values, and the text made of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.commands.formats import JSON, TEXT, Formats, json_text
from helpers.judging.rates import rate_unit, to_record
from helpers.judging.statistics import number
from helpers.plan.published import title_of
from helpers.report.text import hanging, printable

# 1: first format.
SHOW_SCHEMA_VERSION = 1

WIDTH = 100
_INDENT = "  "
_ENVIRONMENT = "environment."
# A longer value is not padded to, so that the other remarks stay near their values.
_WIDEST_VALUE = 26


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

    # With dots between the groups.
    key: str
    value: Any
    # The case's own value.
    usual: Any
    # Where the usual value comes from.
    source: str
    # The source's remark.
    reason: str = ""
    # Why a change leaves the throughput alone; None where nothing is changed or where the change may matter.
    neutral: str | None = None

    @property
    def changed(self) -> bool:
        return bool(self.value != self.usual)


@dataclass(frozen=True)
class FixedLine:
    """Something that no setting changes."""

    name: str
    value: str
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
    """One case on one target. Tolerances are shares."""

    case_id: str
    target: str
    # What settings and command are for.
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
    # None where this machine runs the case, else the reason.
    here: str | None
    machine: str
    # Why there are no settings, or what the trainer refuses in them.
    problem: str | None = None
    # Why there is no command.
    not_launched: str | None = None
    recorded: RecordedLine | None = None
    # How many images a published comparison takes; empty where it reads none.
    images_needed: str = ""

    @property
    def changed(self) -> tuple[SettingLine, ...]:
        return tuple(each for each in self.settings if each.changed)

    @property
    def comparable(self) -> bool:
        """Whether a result with these settings may be held against a published figure."""
        return all(each.neutral is not None for each in self.changed)

    def to_record(self) -> dict[str, Any]:
        return {**to_record(self), "comparable": self.comparable}


def render(sheet: CaseSheet, width: int = WIDTH) -> str:
    """The sheet as text of at most ``width`` columns; longer words stay whole."""
    sections = (
        ("case", _named(sheet.words, width)),
        ("published", _figures(sheet, width)),
        ("protocol", _protocol(sheet, width)),
        ("changed with --set", _changes(sheet, width)),
        (f"settings on a {sheet.device.upper()}, by source", _settings(sheet, width)),
        ("the same whatever the settings say", _fixed(sheet, width)),
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
    runs = f"{sheet.runs} run{'s' if sheet.runs > 1 else ''} in fresh processes"
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
            "a result is still held against the published figure"
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
    """Settings under the source they share, each with the source's remark on it."""
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
    """A command over as many lines as it needs, each but the last ended by a backslash; options keep their values."""
    lines: list[str] = []
    current = ""
    for group in _groups([shlex.quote(word) for word in command]):
        if current and len(_INDENT + current) + 1 + len(group) + 2 > width:
            lines.append(f"{current} \\")
            current = _INDENT + group
        else:
            current = f"{current} {group}" if current else group
    return [*lines, current]


def _groups(words: Sequence[str]) -> Iterator[str]:
    """An option with the value after it stays on one line."""
    waiting: str | None = None
    for word in words:
        if waiting is not None and not word.startswith("-"):
            yield f"{waiting} {word}"
            waiting = None
            continue
        if waiting is not None:
            yield waiting
        waiting = word if word.startswith("-") and word != "-u" else None
        if waiting is None:
            yield word
    if waiting is not None:
        yield waiting


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
