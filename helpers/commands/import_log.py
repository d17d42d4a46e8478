"""``perfgate import-log FILE|FOLDER...``: reads training logs of other programs, and prints their figures by every rule
that applies."""

from __future__ import annotations

import argparse
import enum
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from helpers.commands.loading import LINES, TEXT, add_history, add_json, history_url, print_answer, say, width_of
from helpers.commands.main import EXIT_USAGE
from helpers.commands.option_types import count_of
from helpers.common.words import counted
from helpers.judging.rules.rates import key_of, rate_unit_of_model
from helpers.judging.statistics import number
from helpers.logs.settings import OPTIONS, LogSetting, Stated
from helpers.report.table import GAP, Align, Column, Table
from helpers.report.text import hanging
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.trainers.contract.case import DataSource, Execution, Precision
from helpers.trainers.contract.errors import HistoryUnreachable, SuiteError, printable
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model

if TYPE_CHECKING:
    # Not imported at run time: it would import numpy, even for commands that read no log.
    from helpers.logs.importer import ImportBatch, ToImport
    from helpers.logs.record import Imported, RateSpread, RuleFigure
    from helpers.logs.scaling import CardCount

NAME = "import-log"
HELP = "Read training logs of PaddleClas, FleetX, DLPerf or NVIDIA's scripts; print their figures by every rule"
EXITS = {
    0: "every log was read",
    6: "a figure cannot be computed by the rule",
}

IMPORT_SCHEMA_VERSION = 1
# A file could not be read.
EXIT_UNREAD = EXIT_USAGE
AUTO = "auto"
_INDENT = "  "
_HASH_DIGITS = 12
_MOST_COUNT = 1_000_000
_LEFT_OUT = "left out"
_SETTING_NAMES: Mapping[LogSetting, str] = {
    LogSetting.BATCH_SIZE_PER_CARD: "batch size a card",
    LogSetting.FRAMEWORK_VERSION: "framework version",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE|FOLDER",
        nargs="+",
        type=Path,
        help="Read this log (- for standard input), which may be a .gz, or every log in this folder, by its "
        "INDEX.csv if it has one",
    )
    parser.add_argument(
        "--log-format", default=AUTO, metavar="NAME", help="Read logs as format NAME. Default: found from content"
    )
    parser.add_argument(
        "--rule", default=AUTO, metavar="NAME", help="Take the figure of rule NAME[:skip=N]. Default: its publisher's"
    )
    # They cannot correct a log: a contradiction is an error.
    for setting, (values, text) in _ASKED.items():
        option, text = OPTIONS[setting], f"{text}, if the log does not say"
        if isinstance(values, str):
            counts = {"B": "images", "N": setting.value}
            kind = count_of(counts[values], 1, _MOST_COUNT) if values in counts else str
            parser.add_argument(option, dest=setting.value, type=kind, metavar=values, help=text)
        else:
            choices = [each.value for each in values]
            parser.add_argument(option, dest=setting.value, choices=choices, help=text)
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=(TEXT, LINES),
        help=f"Print the answer in this format: {TEXT} (default), {LINES} (default for a folder)",
    )
    add_json(parser)
    parser.add_argument("--store", action="store_true", help="Put the runs into history, each file once")
    add_history(parser)


# What a log may not say: the setting, its values or the name of its value, and the help.
_ASKED: Mapping[LogSetting, tuple[type[enum.Enum] | str, str]] = {
    LogSetting.FRAMEWORK: (Framework, "Framework"),
    LogSetting.MODEL: (Model, "Model"),
    LogSetting.PRECISION: (Precision, "Precision"),
    LogSetting.BATCH_SIZE_PER_CARD: ("B", "Images a card and step"),
    LogSetting.CARDS: ("N", "Cards of all nodes"),
    LogSetting.NODES: ("N", "Machines"),
    LogSetting.GPU: ("NAME", "Model of the cards, for example V100"),
    LogSetting.DATA: (DataSource, "Source of the images"),
    LogSetting.EXECUTION: (Execution, "How Paddle ran the program"),
}


def asked_of(arguments: argparse.Namespace) -> Mapping[LogSetting, Stated]:
    """The settings that the options state, each with its option as the place."""
    values = {setting: getattr(arguments, setting.value) for setting in OPTIONS}
    return {setting: Stated(str(value), OPTIONS[setting]) for setting, value in values.items() if value is not None}


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print all runs of all files. Exit status 4 if a log cannot be read; 6 if, for a run, the figure of ``--rule``
    (without it, every figure) cannot be computed.

    Raises LogError on an unknown rule or format.
    """
    from helpers.logs.importer import import_each

    wanted, left_out = _wanted(arguments.files)
    batch = import_each(wanted, asked_of(arguments), arguments.log_format, arguments.rule)
    batch = replace(batch, notes=(*left_out, *batch.notes))
    stored, refusal = _store(batch.imported, arguments) if arguments.store else ((), "")
    as_lines = arguments.format == LINES if arguments.format else any(map(Path.is_dir, arguments.files))
    width = width_of(out)
    parts = [render_lines(batch, stored)] if as_lines else [render_imported(each, width) for each in batch.imported]
    parts += render_by_cards(batch.imported, width)
    notes = [] if as_lines else [printable(each) for each in (*batch.notes, *stored)]
    notes += _cases_of(batch.imported) if stored else []
    parts += ["\n".join(notes)] if notes else []
    print_answer(arguments, out, "\n\n".join(parts), _record(batch, stored))
    errors = [*(each.error for each in batch.unread), *([refusal] if refusal else [])]
    for error in errors:
        say(f"perfgate {NAME}: error: {error}")
    if errors:
        return EXIT_UNREAD
    wanting = any(_lacks_its_figure(each, arguments.rule) for each in batch.imported)
    return EXIT_NOT_JUDGED if wanting else EXIT_OK


def _wanted(paths: Sequence[Path]) -> tuple[list[ToImport], list[str]]:
    """The files to read, and those of folders that are no logs, with the reasons. Raises LogError."""
    from helpers.logs.folder import logs_of
    from helpers.logs.importer import ToImport

    wanted: list[ToImport] = []
    left_out: list[str] = []
    for path in paths:
        if not path.is_dir():
            wanted.append(ToImport(path))
            continue
        logs, others = logs_of(path)
        wanted += logs
        left_out += others
    return wanted, left_out


def _lacks_its_figure(found: Imported, rule: str) -> bool:
    """Whether the run lacks the figure of ``rule``; for AUTO, whether it has none at all."""
    wanted = (*found.figures, found.honest) if rule == AUTO else (found.usual_figure,)
    return all(figure is None or figure.samples_per_s is None for figure in wanted)


def render_lines(batch: ImportBatch, stored: Sequence[str]) -> str:
    """One line a run, and a last one that counts."""
    runs = batch.imported
    lines = list(Table.of(_LINE_COLUMNS, runs).grid().lines)
    kept = Counter(next(each for each in _STORED if text.startswith(each)) for text in stored)
    counts = [
        counted(len(runs), "run"),
        *(f"{number} {word}" for word, number in kept.items()),
        *([f"{counted(len(batch.unread), 'log')} not read"] if batch.unread else []),
        *([f"{len(batch.notes)} left out (--json names them)"] if batch.notes else []),
    ]
    return "\n".join([*lines, ", ".join(counts)])


def _configured(found: Imported) -> str:
    """``paddle resnet50v1.5 fp32 bs32, 2 V100``."""
    stated = {each: printable(value.value) for each, value in found.settings.items()}
    names = (LogSetting.FRAMEWORK, LogSetting.MODEL, LogSetting.PRECISION)
    number = stated.get(LogSetting.CARDS, "?")
    cards = f"{number} {stated.get(LogSetting.GPU) or ('card' if number == '1' else 'cards')}"
    batch = stated.get(LogSetting.BATCH_SIZE_PER_CARD, "?")
    return f"{' '.join(stated.get(each, '?') for each in names)} bs{batch}, {cards}"


def _rate(found: Imported) -> str:
    usual = found.usual_figure
    return f"{rate_text(None if usual is None else usual.samples_per_s)} {found.unit}"


def render_by_cards(runs: Sequence[Imported], width: int) -> list[str]:
    """A table of speed-up and efficiency for each configuration that was run on several numbers of cards."""
    from helpers.logs.scaling import by_cards

    found = by_cards(runs)
    tables = []
    for configuration, rule in dict.fromkeys((each.configuration, each.rule) for each in found):
        rows = [each for each in found if (each.configuration, each.rule) == (configuration, rule)]
        framework, model, precision, batch, gpu = map(printable, configuration)
        title = " ".join(filter(None, (framework, model, precision, f"bs{batch}", gpu)))
        grid = Table.of(_CARD_COLUMNS, rows).grid()
        lines = [
            *hanging(f"{title}: {rate_unit_of_model(model)} by {printable(rule)}", width, "", _INDENT),
            grid.heading,
        ]
        lines += ["-" * grid.text_width, *grid.lines]
        notes = {f"{each.cards}: {each.shortfall}" for each in rows if each.shortfall}
        tables.append("\n".join([*lines, *(f"{_INDENT}{each}" for each in sorted(notes))]))
    return tables


_CARD_COLUMNS: tuple[Column[CardCount], ...] = (
    Column("cards", lambda each: str(each.cards), Align.RIGHT),
    Column("runs", lambda each: str(each.runs), Align.RIGHT),
    Column("median", lambda each: rate_text(each.samples_per_s), Align.RIGHT),
    Column("spread", lambda each: "-" if each.spread is None else f"{each.spread:.2%}", Align.RIGHT),
    Column("speed-up", lambda each: "-" if each.speedup is None else f"{each.speedup:.2f}", Align.RIGHT),
    Column("efficiency", lambda each: "-" if each.efficiency is None else f"{each.efficiency:.0%}", Align.RIGHT),
)


# The first words of what became of a run in the history, the longest first (helpers.logs.results).
_STORED = ("stored already", "stored", "replaced")
_LINE_COLUMNS: tuple[Column[Imported], ...] = (
    Column("date", lambda each: each.began[:10] or "-"),
    Column("rate", _rate, Align.RIGHT),
    Column("rule", lambda each: printable(each.usual)),
    Column("configuration", _configured),
    Column("log", lambda each: printable(each.source) + (f" run {each.number}" if each.runs_in_file > 1 else "")),
)


def _record(batch: ImportBatch, stored: Sequence[str]) -> dict[str, object]:
    from helpers.logs.scaling import by_cards

    return {
        "schema_version": IMPORT_SCHEMA_VERSION,
        "runs": [imported_record(each) for each in batch.imported],
        "by_cards": [{**_plain(each), "efficiency": each.efficiency} for each in by_cards(batch.imported)],
        "unread": [{"source": each.source, "error": each.error} for each in batch.unread],
        "notes": list(batch.notes),
        "stored": list(stored),
    }


def _cases_of(found: Sequence[Imported]) -> list[str]:
    """Where each case of the stored runs is shown."""
    from helpers.logs.results import case_of

    ids = dict.fromkeys(case_of(each.settings, each.source).id for each in found)
    return [f"stored as {each}: perfgate history {each} shows it" for each in ids]


def _store(found: Sequence[Imported], arguments: argparse.Namespace) -> tuple[tuple[str, ...], str]:
    """Put the runs into the history. Returns a message on each run, or why they could not be stored. The figures are
    printed anyway."""
    from helpers.logs.results import store

    try:
        return store(found, history_url(arguments)), ""
    except HistoryUnreachable as error:
        return (), f"--store: nothing was stored, import the logs again later: {error}"
    except SuiteError as error:
        return (), f"--store: {error}"


def render_imported(found: Imported, width: int) -> str:
    """One run as text: its file and lines, its configuration with the place of each value, its figures, and the
    warnings."""
    lines = [*hanging(_title(found), width, "", _INDENT), *_settings(found.settings, width), ""]
    lines += _figures(found, width)
    lines += [line for each in found.figures if each.samples_per_s is None for line in _missing(each, width)]
    if found.honest.samples_per_s is None:
        lines += _missing(found.honest, width)
    lines += hanging(_data(found), width, _INDENT, _INDENT * 2)
    if found.began:
        lines.append(f"{_INDENT}date: {found.began.replace('T', ' ')}, by the log's clock")
    if found.spread is not None:
        lines += hanging(_spread(found.spread, found.unit), width, _INDENT, _INDENT * 2)
    for each in found.warnings:
        lines += hanging(f"warning: {each}", width, _INDENT, _INDENT * 2)
    return "\n".join(lines)


def imported_record(found: Imported) -> dict[str, Any]:
    """The run as plain values; a setting has its value and its place."""
    usual = found.usual_figure
    return {**_plain(found), "images_per_s": None if usual is None else usual.samples_per_s}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {key_of(each.name): _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    # JSON has no NaN and no infinity.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _title(found: Imported) -> str:
    run = f"run {found.number} of {found.runs_in_file}, " if found.runs_in_file > 1 else ""
    return (
        f"{found.source}: {found.format}, {run}lines {found.first_line} to {found.last_line}, "
        f"sha256 {found.sha256[:_HASH_DIGITS]}"
    )


def _settings(settings: Mapping[LogSetting, Stated], width: int) -> list[str]:
    shown = [(_SETTING_NAMES.get(each, each.value), settings[each]) for each in LogSetting if each in settings]
    rows = [(name, printable(stated.value), printable(stated.where)) for name, stated in shown]
    lines = Table.of_texts(("", "", ""), rows).grid(_INDENT).lines
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _figures(found: Imported, width: int) -> list[str]:
    """The computed figures, the publisher's first. The column ``against`` is the difference from the publisher's
    figure."""
    usual = found.usual_figure
    known = [each for each in (*found.figures, found.honest) if each.samples_per_s is not None]
    if not known:
        return [f"{_INDENT}no figure can be computed"]
    known.sort(key=lambda each: (each is not usual, each is found.honest))
    base = usual.samples_per_s if usual is not None else None
    grid = Table.of(_columns(base, usual, found.unit), known).grid(_INDENT)
    lines = [f"{grid.heading.ljust(grid.text_width)}{GAP}{_LEFT_OUT}", _INDENT + "-" * (width - len(_INDENT))]
    for each, line in zip(known, grid.lines, strict=True):
        text = line.ljust(grid.text_width)
        left_out = "; ".join(printable(part) for part in each.unused)
        if len(text) + len(GAP) + len(left_out) <= width:
            lines.append((text + GAP + left_out).rstrip())
        else:
            lines += [text.rstrip(), *hanging(f"{_LEFT_OUT}: {left_out}", width, _INDENT * 3, _INDENT * 4)]
    return lines


def _columns(base: float | None, usual: RuleFigure | None, unit: str) -> tuple[Column[RuleFigure], ...]:
    def against(each: RuleFigure) -> str:
        if each is usual or not base or each.samples_per_s is None:
            return ""
        return f"{each.samples_per_s / base - 1:+.2%}"

    return (
        Column("rule", lambda each: printable(each.rule)),
        Column(unit, lambda each: rate_text(each.samples_per_s), Align.RIGHT),
        Column("against", against, Align.RIGHT),
        Column("used", lambda each: str(each.used), Align.RIGHT),
    )


def rate_text(samples_per_s: float | None) -> str:
    """A rate with three decimals, as in the published tables."""
    return "-" if samples_per_s is None else f"{samples_per_s:.3f}"


def _missing(each: RuleFigure, width: int) -> list[str]:
    reason = each.reason.removeprefix(f"rule {each.rule}").removeprefix(":").strip()
    return hanging(f"{each.rule}: not computed: {reason}", width, _INDENT, _INDENT * 2)


def _data(found: Imported) -> str:
    if found.reader_share is None:
        return f"data: the records of {found.format} do not state the waits for data"
    return f"data: {found.reader_share:.1%} of a step spent waiting for data"


def _spread(spread: RateSpread, unit: str) -> str:
    return (
        f"spread: {spread.records} records after warm-up, median {number(spread.median_samples_per_s)} {unit}, "
        f"variation {spread.variation:.2%}, {number(spread.lowest_samples_per_s)} to "
        f"{number(spread.highest_samples_per_s)}"
    )
