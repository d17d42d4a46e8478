"""How fast the releases of a distribution train one case here: ``python -m benchmarks.releases``.

Every round runs each release once, each run in fresh processes as a session makes them; the order turns from round to
round, so a machine that gets slower during a round does not always favour the same release. A release's difference
from the newest one is the mean of the rounds' log ratios, with a 95% interval by Student's t over the rounds. Prints a
Markdown table. The runs stay in the runs folder, and ``--resume`` goes on from them. Exits 6 where a release could not
be measured; the others are printed all the same.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.builds.cache import cache_of
from helpers.builds.naming import NONE, BuildUnavailable
from helpers.builds.series import series_of_releases
from helpers.commands.loading import find_cases, new_session, say
from helpers.judging.calibrate import calibrating
from helpers.judging.rates import rate_unit
from helpers.judging.statistics import number as digits
from helpers.launch.launchers import CHOICES
from helpers.plan.installed import CANDIDATE
from helpers.plan.perf_yaml import load_config
from helpers.report.table import Align, Column, Table
from helpers.report.unforeseen import ended
from helpers.session import SuiteOptions
from helpers.session.builds import NamedBuilds, named_builds
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.lockstep import ratio_of
from helpers.session.suite import Suite

CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
ROUNDS = 6


@dataclass(frozen=True)
class Speed:
    """One release: samples/s by the median step of each round's run, or why there are none."""

    build: str
    rates: tuple[float, ...] = ()
    problem: str = ""

    @property
    def rate(self) -> float:
        return statistics.fmean(self.rates)

    def beside(self, newest: Speed) -> tuple[float, float, float]:
        """The difference from ``newest`` as a fraction, and its 95% interval, from the rounds that both have."""
        ratio = ratio_of(mine / other for mine, other in zip(self.rates, newest.rates, strict=False))
        return ratio.centre - 1, ratio.low - 1, ratio.high - 1


@dataclass
class Rounds:
    """Runs every build once a round. ``options`` are those of the whole; each build has a session of its own."""

    options: SuiteOptions
    case_id: str
    builds: tuple[str, ...]
    runs: dict[str, list[float]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def run(self, rounds: int) -> tuple[Speed, ...]:
        """Every build's speed after ``rounds`` rounds, in the builds' order."""
        for number in range(1, rounds + 1):
            for build in turned(self.builds, number):
                if build not in self.problems:
                    self._run(build, number)
        return tuple(Speed(each, tuple(self.runs.get(each, ())), self.problems.get(each, "")) for each in self.builds)

    def _run(self, build: str, number: int) -> None:
        """Add one run of ``build``, so that it has ``number``."""
        try:
            with self._prepared(build) as named:
                session = f"{self.options.session}.{self.builds.index(build):03d}"
                options = replace(self.options, session=session, builds=named, resume=True, same_build=True)
                suite = Suite.load(options)
                (suite_case,) = find_cases(suite.cases, self.case_id, "cpu")
                suite.prepare([suite_case])
                result = suite.calibrate(suite_case, calibrating(number, two_builds=False))
        except BuildUnavailable as error:
            self.problems[build] = str(error)
            return
        rates = [math.exp(run.log_rate) for run in result.runs if run.measured and run.log_rate is not None]
        if len(rates) < number:
            self.problems[build] = f"{result.verdict.status.value}: {result.verdict.reason.message}"
            return
        self.runs[build] = rates
        say(f"round {number}: {build}: {rates[number - 1]:.4g} {rate_unit(self.case_id)}")

    @contextmanager
    def _prepared(self, build: str) -> Iterator[NamedBuilds]:
        """The build's environment, for as long as its run lasts."""
        options = replace(self.options, build=build, reference_build=NONE, same_build=True)
        suite = Suite.load(replace(self.options, build=None))
        cache = cache_of(suite.config.path.parent, suite.config.builds.most_gigabytes)
        found = named_builds(options, suite.config, cache, say)
        try:
            yield found
        finally:
            cache.release(found[CANDIDATE]["digest"])


def turned(builds: Sequence[str], number: int) -> Iterator[str]:
    """The order of a round: each build takes another place every round, and every second round runs backwards."""
    ordered = [*builds[number % len(builds) :], *builds[: number % len(builds)]]
    return iter(ordered if number % 2 else reversed(ordered))


def table_of(speeds: Sequence[Speed], case_id: str) -> list[str]:
    """Lines of Markdown: each release, its speed, and its difference from the last one that was measured."""
    measured = [each for each in speeds if not each.problem and len(each.rates) > 1]
    newest = measured[-1] if measured else None
    columns: Sequence[Column[Speed]] = (
        Column("release", lambda each: each.build),
        Column(rate_unit(case_id), lambda each: digits(each.rate) if each in measured else "-", Align.RIGHT),
        Column("runs", lambda each: str(len(each.rates)), Align.RIGHT),
        Column("against the newest (95%)", lambda each: _beside(each, newest, measured)),
    )
    return Table.of(columns, speeds).markdown()


def _beside(each: Speed, newest: Speed | None, measured: Sequence[Speed]) -> str:
    if newest is None or each not in measured:
        return each.problem or "one run has no interval"
    if each is newest:
        return "-"
    point, low, high = each.beside(newest)
    return f"{point:+.1%} ({low:+.1%} to {high:+.1%})"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", default="paddlepaddle==2.6.2", help="The oldest release. Default: %(default)s")
    parser.add_argument("--last", default="paddlepaddle==3.3.1", help="The newest release. Default: %(default)s")
    parser.add_argument("--case", default=CASE, help="The case of target cpu. Default: %(default)s")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="Runs of each release. Default: %(default)s")
    parser.add_argument("--config", type=Path, default=Path("perf.yaml"))
    parser.add_argument("--baselines", type=Path, default=Path("baselines"))
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--allow-contention", action="store_true", help="Measure beside other work")
    parser.add_argument("--resume", metavar="SESSION", help="Go on with an earlier measurement")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 2:
        parser.error(f"--rounds {arguments.rounds}: expected 2 or more, because an interval needs two")
    runs_folder = arguments.runs_dir.absolute()
    # Each release has a session of its own below this name, so there is no folder of this name itself to look for.
    session = arguments.resume or new_session("releases")
    options = SuiteOptions(
        arguments.config.absolute(),
        arguments.baselines.absolute(),
        runs_folder,
        session,
        allow_contention=arguments.allow_contention,
    )
    config = load_config(options.config_path, CHOICES)
    series = series_of_releases(arguments.first, arguments.last, Path.cwd(), config)
    say(f"{len(series.builds)} releases, {arguments.rounds} rounds, session {session} (--resume goes on with it)")
    speeds = Rounds(options, arguments.case, series.builds).run(arguments.rounds)
    print(f"{arguments.case}, {arguments.rounds} rounds\n")
    print(*table_of(speeds, arguments.case), sep="\n")
    return EXIT_NOT_JUDGED if any(each.problem for each in speeds) else EXIT_OK


if __name__ == "__main__":
    sys.exit(ended(main, "releases"))
