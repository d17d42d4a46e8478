"""``perfgate compare`` on a real history: selectors, exit statuses, what is left out, and what is written."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import EXIT_USAGE, main
from helpers.history.results import IMPORTED
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.logs.results import SOURCE_FACT
from helpers.machine.devices import Machine
from helpers.plan.overrides import segment_of
from helpers.plan.proposals import Proposal, ProposalKind, write_recorded
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.session.gate import EXIT_OK
from tests.helpers.commands.known import CASE, GOOD, NEW, add_night, history_in, moment, rates, two_builds
from tests.helpers.history.made import ENVIRONMENT, SETTINGS, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("machine")]

SLOWER, NOT_JUDGED = 1, 6


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def compared(runs: Path, *argv: str) -> tuple[int, str]:
    out = io.StringIO()
    status = main(["compare", *argv, "--runs-dir", str(runs)], out)
    return status, out.getvalue()


def cases(runs: Path, *argv: str) -> list[dict[str, Any]]:
    return list(json.loads(compared(runs, *argv, "--json")[1])["cases"])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("aaaa1111", "bbbb2222"),
        ("aaaa", "commit:bbbb"),
        ("2026-11-01..2026-11-10", "2026-11-11..2026-11-14"),
        ("..2026-11-10", "date:2026-11-11.."),
        ("3.3.0", "build:3.3.1"),
    ],
)
def test_a_slower_side_is_exit_1_however_the_sides_are_named(runs: Path, a: str, b: str) -> None:
    two_builds(runs, drop=0.08)
    status, text = compared(runs, a, b)
    assert status == SLOWER, text
    assert "SLOWER" in text and CASE in text and "nights apart" in text
    assert compared(runs, b, a)[0] == EXIT_OK


def test_interleaved_pairs_of_two_builds_decide(runs: Path) -> None:
    """By its nights the new build looks as fast; beside the good one it is 3% slower."""
    with history_in(runs) as history:
        for day, rate in enumerate(rates(6), 1):
            add_night(history, day, [rate])
        add_night(history, 7, [4.5], build=NEW, pairs=[-0.03, -0.031, -0.029, -0.03, -0.03, -0.031], reference=GOOD)
        add_night(history, 8, [4.5], build=NEW)
        add_night(history, 9, [4.5], build=NEW)
    status, text = compared(runs, "aaaa", "bbbb")
    assert (status, "6 interleaved pairs" in text) == (SLOWER, True)
    (case,) = cases(runs, "aaaa", "bbbb")
    assert (case["basis"], case["pairs"], case["a"]["runs"], case["b"]["runs"]) == ("pairs", 6, 6, 6)
    assert case["effect"]["point"] == pytest.approx(-0.0296, abs=0.0005)
    (back,) = cases(runs, "bbbb", "aaaa")
    assert (back["status"], back["effect"]["point"] > 0) == ("IMPROVEMENT", True)


def test_pairs_with_a_third_build_are_not_taken_for_these_two(runs: Path) -> None:
    third = {**GOOD, "version": "3.2.0", "commit": "cccc3333"}
    with history_in(runs) as history:
        for day, rate in enumerate(rates(6), 1):
            add_night(history, day, [rate])
        add_night(history, 7, [4.5], build=NEW, pairs=[-0.03, -0.031, -0.029, -0.03], reference=third)
    status, text = compared(runs, "aaaa", "bbbb")
    assert "interleaved" not in text
    assert status != SLOWER


def test_another_segment_is_incomparable_and_exit_6(runs: Path) -> None:
    with history_in(runs) as history:
        for day in range(1, 5):
            add_night(history, day, [4.5])
            add_night(history, day + 4, [4.0], build=NEW, environment={"threads": "8"})
    status, text = compared(runs, "aaaa", "bbbb")
    assert (status, "INCOMPARABLE" in text, "threads: threads → 8" in " ".join(text.split())) == (
        NOT_JUDGED,
        True,
        True,
    )


def test_what_stays_open_is_exit_0_and_6_as_a_gate(runs: Path) -> None:
    with history_in(runs) as history:
        add_night(history, 1, [4.5])
        add_night(history, 2, [4.48], build=NEW)
    assert compared(runs, "aaaa", "bbbb")[0] == EXIT_OK
    status, text = compared(runs, "aaaa", "bbbb", "--gate")
    assert (status, "INCONCLUSIVE" in text) == (NOT_JUDGED, True)


def test_excluded_results_and_nights_are_left_out_and_told(runs: Path) -> None:
    two_builds(runs, drop=0.0)
    with history_in(runs) as history:
        slow = [add_night(history, day, [4.0], build=NEW, session=f"slow{day}")[0] for day in (15, 16)]
        (last,) = history.nights_of("slow16")
    assert "B: bbbb, 6 runs in 6 sessions" in compared(runs, "aaaa", "bbbb")[1]
    with history_in(runs) as history:
        history.exclude(slow[0].uuid, "ada", moment(17), "the fan was broken")
        history.exclude(last.uuid, "ada", moment(17), "and stayed so")
    status, text = compared(runs, "aaaa", "bbbb")
    flat = " ".join(text.split())
    assert status == EXIT_OK, text
    assert "B: bbbb, 4 runs in 4 sessions" in text
    assert "1 run left out: excluded (the fan was broken)" in flat
    assert f"the night slow16 of {CASE} left out: excluded (and stayed so)" in flat


def test_disturbed_runs_are_left_out_unless_allowed(runs: Path) -> None:
    with history_in(runs) as history:
        for day, rate in enumerate(rates(10), 1):
            build, slower = (GOOD, 0.0) if day <= 6 else (NEW, 0.08)
            add_night(history, day, [rate - slower], build=build, run_values={"marks": ("contended",)})
    status, text = compared(runs, "aaaa", "bbbb")
    assert (status, "contended" in text) == (NOT_JUDGED, True)
    assert compared(runs, "aaaa", "bbbb", "--allow-contention")[0] == SLOWER


def test_a_selector_that_matches_nothing_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_builds(runs, drop=0.0)
    assert compared(runs, "aaaa", "deadbeef")[0] == EXIT_USAGE
    told = capsys.readouterr().err
    for part in ("deadbeef", "perfgate history CASE"):
        assert part in told


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        ("aaaa", "aaaa", "on both sides"),
        ("baseline", "baseline", "baseline twice"),
        ("branch:main", "bbbb", "commit, date, build, session"),
        ("commit:", "bbbb", "Before a colon"),
    ],
)
def test_sides_that_mean_nothing_are_refused(
    runs: Path, capsys: pytest.CaptureFixture[str], a: str, b: str, told: str
) -> None:
    two_builds(runs, drop=0.0)
    assert compared(runs, a, b)[0] == EXIT_USAGE
    assert told in capsys.readouterr().err


# --- the recorded baseline


def record_entry(folder: Path, machine: Machine, rule: str = MEDIAN_STEP, rate: float = 90.0) -> None:
    entry = RecordedEntry(
        CASE,
        rate,
        rule,
        (rate, rate * 1.001, rate * 0.999),
        None,
        ENVIRONMENT,
        segment_of(ENVIRONMENT, SETTINGS, "test"),
        Provenance("aaaa1111", "2026-10-01", "h", "first"),
    )
    key = machine.machine_key("cpu")
    proposal = Proposal(CASE, ProposalKind.CREATED, None, entry, "first")
    write_recorded(folder / "recorded" / f"{key}.json", key, [proposal])


def test_nights_against_the_recorded_baseline(runs: Path, machine: Machine, empty_baselines: Path) -> None:
    two_builds(runs, drop=0.08)
    record_entry(empty_baselines, machine)
    argv = ("baseline", "bbbb", "--baselines", str(empty_baselines))
    status, text = compared(runs, *argv)
    assert status == SLOWER, text
    assert "(n=3/1)" in text


def test_a_baseline_by_another_rule_is_incomparable(runs: Path, machine: Machine, empty_baselines: Path) -> None:
    two_builds(runs, drop=0.08)
    record_entry(empty_baselines, machine, rule="wall-clock")
    status, text = compared(runs, "baseline", "bbbb", "--baselines", str(empty_baselines))
    assert (status, "recorded by wall-clock" in text) == (NOT_JUDGED, True)


def test_without_a_recorded_entry_nothing_is_compared(runs: Path, empty_baselines: Path) -> None:
    two_builds(runs, drop=0.08)
    status, text = compared(runs, "baseline", "bbbb", "--baselines", str(empty_baselines))
    assert (status, "--update-baselines records it" in " ".join(text.split())) == (NOT_JUDGED, True)
    assert "A: baseline, nothing recorded here of these cases" in text
    assert "(n=4/4)" in text, "B's own figure is shown all the same"


def test_a_session_is_compared_with_imported_logs_which_fail_nothing(runs: Path) -> None:
    """A log has a card in words of its own, and no stack."""
    with history_in(runs) as history:
        for number, rate in enumerate(rates(4, 4.6)):
            facts = {SOURCE_FACT: f"/logs/train{number}.log"}
            log = {"origin": IMPORTED, "target": "unstated", "environment": {}, "settings": {}, "facts": facts}
            history.add_result(run(f"log{number}", rate, session=IMPORTED, case_id=CASE, **log))
        for day, rate in enumerate(rates(4), 1):
            add_night(history, day, [rate])
    (case,) = cases(runs, "log:train*.log", "aaaa")
    assert (case["status"], case["basis"], case["a"]["runs"]) == ("INCONCLUSIVE", "nights", 4)
    assert case["effect"]["point"] == pytest.approx(-0.095, abs=0.01)
    assert compared(runs, "log:train0.log", "aaaa")[0] == EXIT_OK
    assert compared(runs, "log:other.log", "aaaa")[0] == EXIT_USAGE
