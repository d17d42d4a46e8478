"""``perfgate history CASE``: the nights of a case, one line each, as text, JSON or a plot."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from helpers.commands.formats import add_printed_formats, print_answer
from helpers.commands.history_text import FORMATS, CaseHistory, ShownSeries, night_lines
from helpers.commands.loading import add_history, find_cases, history_of, load_suite, write_answer
from helpers.history.stored import KnownCase, StoredNight
from helpers.judging.evidence import Build
from helpers.plan.matrix import TARGETS
from helpers.session.policy import EXIT_OK
from helpers.trainers.contract.errors import ConfigError, HistoryError, printable

if TYPE_CHECKING:
    from helpers.history.history import History

NAME = "history"
HELP = "Show a case's nights: throughput, verdict, effect, segments, exclusions and acknowledgements"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="Case id, as perfgate cases lists them")
    parser.add_argument("--target", choices=TARGETS, help="Show only this target's nights")
    parser.add_argument("--last", type=_count, metavar="N", help="Show the newest N nights. Default: all")
    parser.add_argument("--all-segments", action="store_true", help="Show nights of earlier segments too")
    parser.add_argument("--plot", type=_svg, metavar="FILE.svg", help="Draw the nights into FILE.svg, too")
    add_printed_formats(parser, FORMATS)
    add_history(parser)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of nights: expected 1 or more")
    return int(text)


def _svg(text: str) -> Path:
    if not text.endswith(".svg"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a name that ends in .svg, which every browser shows")
    return Path(text).expanduser().absolute()


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the nights of the case on each target, and the results that were imported from logs.

    Raises ConfigError on an unknown case, HistoryError on one without nights.
    """
    # Not at the top: every command would load the readers of logs, and numpy, with it.
    from helpers.logs.results import stored_of

    with history_of(arguments) as history:
        imported = stored_of(history, arguments.case, arguments.target)
        known = history.cases(arguments.case, arguments.target)
        if not known and (not imported or arguments.plot is not None):
            raise _nothing_known(arguments)
        if arguments.plot is not None and len(known) > 1:
            raise ConfigError("--plot", got=f"{len(known)} targets", expected="one", remedy="Choose it with --target")
        shown = tuple(_shown(history, each, arguments) for each in known)
    print_answer(arguments, FORMATS, CaseHistory(shown, imported), out)
    if arguments.plot is not None:
        _plot(arguments.plot, shown[0])
        if not arguments.json:
            print("\n" + printable(f"drawn into {arguments.plot}"), file=out)
    return EXIT_OK


def _nothing_known(arguments: argparse.Namespace) -> HistoryError:
    """Of a case without nights (one may have left perf.yaml and still have its own); ConfigError for no case."""
    find_cases(load_suite(arguments).cases, arguments.case, arguments.target)
    return HistoryError(
        f"history of {arguments.case}", got="no nights", expected="one", remedy="Measure it: pytest perf_tests -k CASE"
    )


def _shown(history: History, case: KnownCase, arguments: argparse.Namespace) -> ShownSeries:
    every = [
        night
        for night in history.series(case.case_id, case.target)
        if night.record.segment.get("host", "") == case.host
    ]
    chosen = [night for night in every if arguments.all_segments or night.current]
    lines = night_lines(
        chosen if arguments.last is None else chosen[-arguments.last :],
        lambda night: _rates(history, night),
        history.acknowledgements(case.case_id),
        history.segment_starts(case.case_id, case.target),
    )
    title = f"{case.case_id} [{case.target}] on {case.host}: {case.nights} nights"
    return ShownSeries(case.case_id, case.target, title, lines, len(every) - len(chosen))


def _rates(history: History, night: StoredNight) -> Sequence[float]:
    """The log rates that it was judged by, else those of its runs, from which later nights learn nothing."""
    if night.record.log_rates or not night.record.run_uuids:
        return night.record.log_rates
    runs = [each.result for each in history.results_of(uuids=night.record.run_uuids)]
    return [
        run.log_rate for run in runs if run.measured and run.role == Build.CANDIDATE.value and run.log_rate is not None
    ]


def _plot(path: Path, series: ShownSeries) -> None:
    # pygal takes a quarter of a second to import, which no other command should wait for.
    from helpers.commands.history_plot import plot_history

    write_answer("--plot", path, plot_history(series.title, series.lines))
