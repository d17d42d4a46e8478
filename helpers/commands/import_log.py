"""``perfgate import-log FILE...``: training logs of other programs as results, by every rule that applies."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from helpers.commands.formats import json_text
from helpers.commands.loading import add_history, history_url, say, width_of
from helpers.commands.main import EXIT_USAGE
from helpers.session.policy import EXIT_NOT_JUDGED, EXIT_OK
from helpers.trainers.contract.case import DataSource, Execution, Precision
from helpers.trainers.contract.errors import HistoryUnreachable, SuiteError, printable
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model

if TYPE_CHECKING:
    # At run time it would import numpy, also for a command that reads no log.
    from helpers.logs.imported import Imported
    from helpers.logs.importer import ImportBatch
    from helpers.logs.settings import LogSetting, Stated

NAME = "import-log"
HELP = "Read training logs of PaddleClas, FleetX, DLPerf, NVIDIA's scripts or ours; print their figures by every rule"

# 1: first format.
IMPORT_SCHEMA_VERSION = 1
# One of the files gave nothing.
EXIT_UNREAD = EXIT_USAGE
AUTO = "auto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="Read this log; it may be in .gz or .zip")
    parser.add_argument(
        "--format", default=AUTO, metavar="NAME", help="Read it as format NAME. Default: found from content"
    )
    parser.add_argument(
        "--rule", default=AUTO, metavar="NAME", help="Take the figure of rule NAME[:skip=N]. Default: its publisher's"
    )
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="Print JSON")
    parser.add_argument("--store", action="store_true", help="Put the runs into history, each file once")
    add_history(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Options for what a log may not say. They correct nothing: what contradicts the log is an error."""
    parser.add_argument(
        "--framework", choices=[each.value for each in Framework], help="Framework, if the log does not name it"
    )
    parser.add_argument("--model", choices=[each.value for each in Model], help="Model, if the log does not name it")
    parser.add_argument(
        "--precision", choices=[each.value for each in Precision], help="Precision, if the log does not name it"
    )
    parser.add_argument(
        "--batch-size", type=_count, metavar="B", help="Images a card and step, if the log does not say"
    )
    parser.add_argument("--cards", type=_count, metavar="N", help="Cards of all nodes, if the log does not say")
    parser.add_argument("--nodes", type=_count, metavar="N", help="Machines, if the log does not say")
    parser.add_argument("--gpu", metavar="NAME", help="Model of the cards, for example V100, if the log does not say")
    parser.add_argument(
        "--data", choices=[each.value for each in DataSource], help="Source of the images, if the log does not say"
    )
    parser.add_argument(
        "--execution",
        choices=[each.value for each in Execution],
        help="How Paddle ran the program, if the log does not say",
    )


def _count(text: str) -> str:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1 on")
    return str(int(text))


def asked_of(arguments: argparse.Namespace) -> Mapping[LogSetting, Stated]:
    """What the options say of the configuration, each with its option as the place."""
    from helpers.logs.settings import LogSetting, Stated

    options = {
        LogSetting.FRAMEWORK: "framework",
        LogSetting.MODEL: "model",
        LogSetting.PRECISION: "precision",
        LogSetting.BATCH_SIZE_PER_CARD: "batch-size",
        LogSetting.CARDS: "cards",
        LogSetting.NODES: "nodes",
        LogSetting.GPU: "gpu",
        LogSetting.DATA: "data",
        LogSetting.EXECUTION: "execution",
    }
    values = {each: (name, getattr(arguments, name.replace("-", "_"))) for each, name in options.items()}
    return {each: Stated(value, f"--{name}") for each, (name, value) in values.items() if value is not None}


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print every run of every file; 4 where a log cannot be read, 6 where ``--rule``, or without it every rule, cannot
    be computed of one.

    Raises LogError on a rule or a format that is not known.
    """
    from helpers.logs.importer import import_files

    batch = import_files(arguments.files, asked_of(arguments), arguments.format, arguments.rule)
    stored, refusal = _store(batch.imported, arguments) if arguments.store else ((), "")
    if arguments.json:
        print(json_text(_record(batch, stored)), file=out)
    else:
        _print(batch, stored, out)
    errors = [*(each.lines or (each.error,) for each in batch.unread), *([(refusal,)] if refusal else [])]
    for lines in errors:
        print_error(NAME, lines)
    if errors:
        return EXIT_UNREAD
    wanting = any(_lacks_its_figure(each, arguments.rule) for each in batch.imported)
    return EXIT_NOT_JUDGED if wanting else EXIT_OK


def print_error(command: str, lines: Sequence[str]) -> None:
    """On standard error: what is wrong behind the command's name, then why."""
    first, *rest = lines
    print(printable(f"perfgate {command}: error: {first}"), file=sys.stderr)
    for line in rest:
        print(f"  {printable(line)}", file=sys.stderr)


def _lacks_its_figure(found: Imported, rule: str) -> bool:
    """The one that ``rule`` names; of AUTO, any."""
    wanted = (*found.figures, found.honest) if rule == AUTO else (found.figure(found.usual),)
    return all(figure is None or figure.samples_per_s is None for figure in wanted)


def _print(batch: ImportBatch, stored: Sequence[str], out: TextIO) -> None:
    from helpers.commands.import_log_text import render_imported

    width = width_of(out)
    parts = [render_imported(each, width) for each in batch.imported]
    notes = [printable(each) for each in (*batch.notes, *stored)]
    if parts or notes:
        print("\n\n".join([*parts, *(["\n".join(notes)] if notes else [])]), file=out)


def _record(batch: ImportBatch, stored: Sequence[str]) -> dict[str, object]:
    from helpers.commands.import_log_text import imported_record

    return {
        "schema_version": IMPORT_SCHEMA_VERSION,
        "runs": [imported_record(each) for each in batch.imported],
        "unread": [{"source": each.source, "error": each.error, "lines": list(each.lines)} for each in batch.unread],
        "notes": list(batch.notes),
        "stored": list(stored),
    }


def _store(found: Sequence[Imported], arguments: argparse.Namespace) -> tuple[tuple[str, ...], str]:
    """Put the runs into history: what became of each, in words; or why nothing did. The figures are printed anyway.

    What a history that is away, or held by another process, could not take is kept on disk for it.
    """
    from helpers.logs.results import keep, store

    try:
        url = history_url(arguments)
        try:
            return store(found, url, say), ""
        except HistoryUnreachable as error:
            return (), f"--store: {error}. {keep(found, arguments.runs_dir.expanduser(), url)}"
    except SuiteError as error:
        return (), f"--store: {error}"
