"""A session that is killed while it records: an entry and the segment that it begins are one decision."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

import helpers.plan.proposals
from helpers.common.wall_clock import utc_now
from helpers.history import default_url, open_history, taking_in
from helpers.history.codec import utc
from helpers.history.decisions import DecisionFiles
from helpers.history.run_folders import ResultStore, read_night
from helpers.history.stored import SegmentStart
from helpers.judging.case.verdict import Status
from helpers.plan.proposals import parse_accepted
from helpers.plan.recorded import RecordedEntry
from helpers.report.reasons import reason_text
from helpers.session.outcome import CaseOutcome
from helpers.session.suite import Suite
from tests.helpers.session.workshop import SYNTHETIC, Bench, case_of

DAY_SECONDS = 86_400.0


def killed(*_: Any, **__: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


# Where a session is killed that records 85 after 100, and whether the entry is written by then.
PLACES = {
    "before the entry is written": ((helpers.plan.proposals, "write_document"), False),
    "between the entry and its start": ((DecisionFiles, "write"), True),
    "between the start and the database": ((taking_in, "take_in"), True),
}


@pytest.fixture
def lab(bench: Bench) -> Bench:
    """A bench with a real history, on which each run has a uuid of its own."""
    make_run = bench.runner.make_run

    def unique(plan: Any, replicate: int, **values: Any) -> Any:
        return make_run(plan, replicate, **{**values, "uuid": f"{bench.runner.store.session}-{replicate}"})

    bench.memory, bench.runner.make_run = None, unique
    return bench


def session(bench: Bench, day: int, samples_per_s: float) -> tuple[Suite, CaseOutcome]:
    """One session of the case, ``day`` days after the last."""
    bench.runner.usual = {"samples_per_s": samples_per_s}
    bench.runner.store = ResultStore(bench.folder / "runs", f"s{day}")
    suite = bench.suite(to_record=True)
    suite.measurer.prepare([case_of(suite, SYNTHETIC)])
    return suite, suite.measurer.measure(case_of(suite, SYNTHETIC))


def recorded(bench: Bench, day: int, samples_per_s: float) -> None:
    suite, outcome = session(bench, day, samples_per_s)
    suite.recorder.write(
        [outcome], suite.recorder.propose([outcome], parse_accepted([f"{SYNTHETIC}=checks every image"]))
    )


def in_another_process(work: Callable[[], object]) -> int:
    """How a process ended that did this: the signal, or 0."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_session_killed_while_it_records_has_recorded_all_or_nothing(
    lab: Bench, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    first = utc_now._offset_seconds

    def on_day(day: int) -> int:
        monkeypatch.setattr(utc_now, "_offset_seconds", first + day * DAY_SECONDS)
        return day

    recorded(lab, on_day(0), 100.0)
    assert {session(lab, on_day(day), 100.0)[1].status for day in (1, 2, 3)} == {Status.PASS}
    (owner, name), written = PLACES[place]
    on_day(4)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        assert in_another_process(lambda: recorded(lab, 4, 85.0)) == signal.SIGKILL
    entry = entry_of(lab)
    assert entry.samples_per_s == (85.0 if written else 100.0)
    _, outcome = session(lab, on_day(5), entry.samples_per_s)
    assert outcome.status is Status.PASS, outcome.told(reason_text)
    standing = outcome.verdict.standing
    assert standing is not None and (standing.nights == 0) is written
    with open_history(default_url(lab.folder / "runs")) as history:
        starts = history.segment_starts(SYNTHETIC)
    assert len(starts) == (2 if written else 1)
    assert starts[-1].created == utc(entry.provenance.begins, "entry")
    # The night that was recorded is before the segment, whatever date its session has.
    recording = read_night(lab.folder / "runs" / f"s{4 if written else 0}" / SYNTHETIC / "night.json")
    assert utc(recording.created, "night") < starts[-1].created
    on_file = [each for each in DecisionFiles(lab.folder / "runs").read()[0] if isinstance(each, SegmentStart)]
    assert on_file == list(starts)
    # The next sessions find everything there.
    assert session(lab, on_day(6), entry.samples_per_s)[1].status is Status.PASS
    assert len(DecisionFiles(lab.folder / "runs").read()[0]) == len(starts)


def entry_of(bench: Bench) -> RecordedEntry:
    return bench.suite().baselines.load("cpu").entries[SYNTHETIC]
