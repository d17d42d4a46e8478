"""``perfgate bisect`` in whole sessions, with a runner that draws rates instead of training, and a real history."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import helpers.plan.installed
from helpers.builds.naming import BuildUnavailable, Why
from helpers.commands import bisect
from helpers.commands.main import EXIT_INTERRUPTED, commands, parser_of
from helpers.common.wall_clock import utc_now
from helpers.history import default_url, open_history
from helpers.history.results import RETRIABLE_FACT
from helpers.judging.case.evidence import Build
from helpers.machine.devices import Machine
from helpers.session.bisect import STATE_FILE
from helpers.session.builds import NamedBuilds
from helpers.session.measuring.examination import ExaminationIO
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import ConfigError
from tests.helpers.commands.conftest import MACHINE, Builds
from tests.helpers.commands.drawn_runner import DrawnRunner, MakeRun
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.history.made import night
from tests.helpers.session.measuring.test_disturbance import looking

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("machine")]

SYNTHETIC = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
OTHER = "paddle-resnet50v1.5-fp32-bs4-1x1-native-dynamic"
NOT_JUDGED, RANGE = 6, 7
NAMES = tuple(f"paddlepaddle==3.{minor}.0" for minor in range(9))


@dataclass
class Bench:
    runner: DrawnRunner
    runs: Path
    baselines: Path
    # Builds that cannot be had.
    unavailable: dict[str, Why] = field(default_factory=dict)
    prepared: list[str] = field(default_factory=list)
    io: ExaminationIO | None = None
    now: float = 0.0

    def bisect(self, *argv: str, list_of: tuple[str, ...] = NAMES) -> tuple[int, str]:
        given = ["bisect", *argv, "--runs-dir", str(self.runs), "--baselines", str(self.baselines)]
        if "--resume" not in argv:
            file = self.runs / "builds.txt"
            file.write_text("\n".join(list_of))
            given += ["--good", list_of[0], "--bad", list_of[-1], "--builds", str(file)]
        out = io.StringIO()
        arguments = parser_of(commands()).parse_args(given)
        status = bisect.run(arguments, out, load=self._load, prepare=self._prepare, clock=lambda: self.now)
        return status, out.getvalue()

    @contextmanager
    def _prepare(self, build: str, good: str) -> Iterator[NamedBuilds]:
        self.prepared.append(build)
        if build in self.unavailable:
            raise BuildUnavailable(build, self.unavailable[build], "no such wheel")
        yield {Build.CANDIDATE.value: record(build), Build.REFERENCE.value: {**record(good), "pinned": ""}}

    def _load(self, options: SuiteOptions) -> Suite:
        self.runner.session = options.session
        suite = Suite.load(options, runner=self.runner, machine=MACHINE)
        suite.io = self.io
        return suite

    @property
    def session(self) -> str:
        (found,) = [each.parent.name for each in self.runs.glob(f"*/{STATE_FILE}")]
        return found

    def written(self, name: str) -> str:
        return (self.runs / self.session / name).read_text()


def record(build: str) -> dict[str, str]:
    return {
        "interpreter": f"{sys.executable}",
        "digest": f"digest of {build}",
        "name": f"paddlepaddle {build[-5:]}",
        "version": build[-5:],
        "commit": "",
        "source_text": build,
        "framework": "paddle",
        "made": "yes",
        "frameworks": "paddle",
        "kind": "requirement",
    }


@pytest.fixture
def bench(machine: Machine, make_run: MakeRun, tmp_path: Path, empty_baselines: Path, monkeypatch: Any) -> Bench:
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: Builds())
    runs = tmp_path / "runs"
    runs.mkdir()
    # Builds from the sixth on are 5% slower.
    drops = dict.fromkeys(NAMES[5:], 0.05)
    return Bench(DrawnRunner(make_run, runs, 0.004, 5, drops), runs, empty_baselines)


def test_the_first_bad_of_nine_builds_is_found_written_and_kept(bench: Bench) -> None:
    status, text = bench.bisect("--case", SYNTHETIC)
    assert status == 0, text
    first = text.splitlines()[0]
    assert re.match(r"FIRST BAD: paddlepaddle==3.5.0 \((99\.\d|>99\.9)%\), ", first), first
    made = len(bench.runner.made)
    assert f"{made} runs of " in first and "; the next likeliest: paddlepaddle==3." in first
    change = float(first.split("), ")[1].split("%")[0])
    assert change == pytest.approx(-5.0, abs=0.6)
    # Good is good and bad is bad before anything between them is measured.
    order = list(dict.fromkeys(each.source for each in bench.runner.made if each.build is Build.CANDIDATE))
    assert order[:2] == [NAMES[0], NAMES[-1]]
    # Each build beside the good one, in turn.
    assert sum(each.build is Build.REFERENCE for each in bench.runner.made) == made // 2
    with open_history(default_url(bench.runs)) as history:
        assert len(history.results_of(case_id=SYNTHETIC)) == made
        nights = history.series(SYNTHETIC)
        assert {night.record.code for night in nights} == {"bisect"}
        past = history.past(SYNTHETIC, "cpu", nights[-1].record.segment, 1, "tonight")
    assert past.nights == () and past.compared == ()
    markdown = bench.written("bisect.md")
    assert "FIRST BAD: paddlepaddle==3.5.0" in markdown and all(name in markdown for name in NAMES)
    picture = ElementTree.fromstring(bench.written("bisect.svg"))
    assert len(picture.findall(".//{*}circle")) == len(order)


def test_pairs_decide_whatever_the_stack_and_what_changed_with_the_build_is_told(bench: Bench) -> None:
    """From the sixth build on, of another line of the framework, a job has another number of threads."""
    stack = {**ENVIRONMENT.to_mapping(), "framework_version": "3.4.0", "threads": "8", "data": "synthetic"}
    bench.runner.always = {name: {"environment": stack} for name in NAMES[5:]}
    status, text = bench.bisect("--case", SYNTHETIC)
    assert (status, text.startswith(f"FIRST BAD: {NAMES[5]}")) == (0, True), text
    changed = ["framework line: framework framework_version → framework 3.4", "threads: threads → 8"]
    assert f"what changed with it, besides the build: {'; '.join(changed)}\n" in text, text
    (case,) = json.loads(bench.bisect("--resume", bench.session, "--json")[1])["cases"]
    assert case["changed"] == changed


def test_where_they_hide_the_change_the_answer_is_the_range(bench: Bench) -> None:
    bench.unavailable = {NAMES[4]: Why.NOT_FETCHED}
    bench.runner.always = {NAMES[5]: {"failure": "killed", "figures": {}, "facts": {RETRIABLE_FACT: "yes"}}}
    status, text = bench.bisect("--case", SYNTHETIC)
    assert status == RANGE, text
    hidden = (f"3: {NAMES[4]} … {NAMES[6]} (", f"2: {NAMES[5]} … {NAMES[6]} (")
    assert text.removeprefix("FIRST BAD IS ONE OF ").startswith(hidden), text
    assert "cannot be tested" in text and "attempt 2 of 2" in text
    # A crash is tried once more, and no oftener.
    assert sum(made.source == NAMES[5] for made in bench.runner.made) == 2
    assert "×" in bench.written("bisect.svg")
    # Resumed, only what may be there by now is tried again.
    bench.unavailable, made = {}, len(bench.runner.made)
    bench.prepared.clear()
    status, text = bench.bisect("--resume", bench.session)
    assert NAMES[4] in bench.prepared and NAMES[5] not in bench.prepared
    assert len(bench.runner.made) > made


def test_a_budget_that_is_spent_leaves_a_range_and_a_larger_one_goes_on(bench: Bench) -> None:
    status, text = bench.bisect("--case", SYNTHETIC, "--most-runs", "14")
    assert status == RANGE, text
    assert "the budget is spent" in text
    assert len(bench.runner.made) <= 14
    made = list(bench.runner.made)
    status, text = bench.bisect("--resume", bench.session, "--most-runs", "200")
    assert (status, text.startswith(f"FIRST BAD: {NAMES[5]}")) == (0, True), text
    assert bench.runner.made[: len(made)] == made


def test_an_interrupted_search_goes_on_from_its_runs(bench: Bench) -> None:
    at = 5
    bench.runner.answers = {at: KeyboardInterrupt()}
    status, text = bench.bisect("--case", SYNTHETIC, list_of=NAMES[3:7])
    assert status == EXIT_INTERRUPTED
    assert text.startswith("STILL OPEN: ")
    kept = {path: path.read_bytes() for path in bench.runs.glob("*/*/r*/spec.json")}
    finished = sorted(bench.runs.glob("*/*/r*/result.json"))
    assert len(finished) == at
    bench.runner.answers = {}
    status, text = bench.bisect("--resume", bench.session)
    assert (status, text.startswith(f"FIRST BAD: {NAMES[5]}")) == (0, True), text
    assert all(path.read_bytes() == content for path, content in kept.items())
    # Nothing but the run in progress was made again.
    runs = len(list(bench.runs.glob("*/*/r*/result.json")))
    assert f"{runs} runs of" in text and runs == len(bench.runner.made) - 1


def test_a_good_build_that_crashes_ends_the_search(bench: Bench) -> None:
    bench.runner.always = {NAMES[0]: {"failure": "exit 1", "figures": {}}}
    status, text = bench.bisect("--case", SYNTHETIC)
    assert (status, text.startswith("NOT JUDGED: the search at ")) == (NOT_JUDGED, True), text


def test_a_second_case_is_looked_for_where_the_first_was_found(bench: Bench) -> None:
    bench.runner.drops = {NAMES[8]: 0.05}
    status, text = bench.bisect("--case", SYNTHETIC, "--case", OTHER, list_of=NAMES[3:])
    assert (status, text.count(f"FIRST BAD: {NAMES[8]}")) == (0, 2), text
    # After the ends, the first search begins in the middle, and the second at the change that the first found.
    order = [
        list(dict.fromkeys(each.source for each in made))
        for _, made in groupby(bench.runner.made, attrgetter("case_id"))
    ]
    assert order[0][2] in NAMES[5:7] and order[1][2] == NAMES[7]
    assert "bisect-2.svg" in bench.written("bisect.md")


def test_the_cases_that_regressed_last_night_are_searched(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="without a judged night"):
        bench.bisect()
    now = utc_now().isoformat()
    with open_history(default_url(bench.runs)) as history:
        for case_id, status in ((SYNTHETIC, "REGRESSION"), (OTHER, "PASS")):
            judged = replace(night(1, 4.5, session="tonight"), case_id=case_id, target="cpu", status=status)
            history.add_night(replace(judged, created=now))
    status, text = bench.bisect()
    assert (status, text.startswith(f"FIRST BAD: {NAMES[5]}")) == (0, True), text
    assert {made.case_id for made in bench.runner.made} == {SYNTHETIC}
    # The search's own nights are no judged ones.
    bench.runs.joinpath(bench.session, STATE_FILE).unlink()
    assert bench.bisect()[0] == 0


def test_a_busy_machine_is_told_before_anything_is_made(bench: Bench, tmp_path: Path) -> None:
    bench.io = looking(tmp_path, 1.0, 1.0, machine=MACHINE).io
    status, text = bench.bisect("--case", SYNTHETIC)
    assert (status, bench.prepared, text.startswith("NOT JUDGED: The machine is busy")) == (NOT_JUDGED, [], True)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--case", "paddle-resnet50v1.5-fp32-bs4-1x1"), "case id"),
        (("--case", "*nothing-like-it*"), "a pattern that a case matches"),
        (("--resume", "nobody"), "expected a session of bisect in"),
    ],
)
def test_bad_input_is_refused_before_a_build_is_made(argv: tuple[str, ...], message: str, bench: Bench) -> None:
    with pytest.raises(ConfigError, match=message):
        bench.bisect(*argv)
    assert bench.prepared == []


def test_a_search_is_resumed_as_it_was_begun(bench: Bench) -> None:
    bench.bisect("--case", SYNTHETIC, "--most-runs", "8")
    with pytest.raises(ConfigError, match="--resume alone"):
        bench.bisect("--resume", bench.session, "--case", SYNTHETIC)
    state = bench.runs / bench.session / STATE_FILE
    whole = state.read_text()
    for damaged in (whole[:-20], "[]", whole.replace('"schema_version": 1', '"schema_version": 9'), '{"a": 1}'):
        state.write_text(damaged)
        with pytest.raises(ConfigError, match=r"what perfgate bisect wrote"):
            bench.bisect("--resume", bench.session)
    state.write_text(whole.replace(MACHINE.host_id, "another"))
    with pytest.raises(ConfigError, match="of another machine"):
        bench.bisect("--resume", bench.session)


def test_what_signs_a_caller_in_stands_in_no_answer(bench: Bench) -> None:
    at = "https://me:secret@wheels.example/{}/paddlepaddle-3.{}.0-cp311-cp311-linux_x86_64.whl?token=hidden{}"
    urls = tuple(at.format(number, number, number) for number in range(3))
    bench.runner.drops = dict(zip(urls, (0.0, 0.0, 0.05), strict=True))
    status, text = bench.bisect("--case", SYNTHETIC, list_of=urls)
    assert (status, "/2/paddlepaddle-3.2.0-cp311" in text.splitlines()[0]) == (0, True), text
    shown = text + bench.written("bisect.md") + bench.written("bisect.svg")
    assert "secret" not in shown and "hidden" not in shown
