"""``perfgate compare`` on a real history: selectors, exit statuses, what is left out, and what is written."""

from __future__ import annotations

import io
import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import EXIT_USAGE, main
from helpers.history.results import IMPORTED
from helpers.judging.finding import Code, found
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK
from helpers.logs.results import SOURCE_FACT
from helpers.machine.devices import Machine
from helpers.plan.overrides import segment_of
from helpers.plan.proposals import Proposal, ProposalKind, write_recorded
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.session.gate import EXIT_OK
from tests.helpers.commands.known import CASE, GOOD, NEW, add_night, history_in, moment, rates, two_builds
from tests.helpers.history.made import ENVIRONMENT, SETTINGS, run
from tests.helpers.logs.made_logs import paddleclas_lines, tipc_line, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("machine")]

SLOWER, NOT_JUDGED = 1, 6
ROOT = Path(__file__).parents[3]


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


def record_entry(
    folder: Path,
    machine: Machine,
    rule: str = MEDIAN_STEP,
    rate: float = 90.0,
    case_id: str = CASE,
    device: str = "cpu",
) -> None:
    entry = RecordedEntry(
        case_id,
        rate,
        rule,
        (rate, rate * 1.001, rate * 0.999),
        None,
        ENVIRONMENT,
        segment_of(ENVIRONMENT, SETTINGS, "test"),
        Provenance("aaaa1111", "2026-10-01", "h", "first"),
    )
    key = machine.machine_key(device)
    proposal = Proposal(case_id, ProposalKind.CREATED, None, entry, "first")
    write_recorded(folder / "recorded" / f"{key}.json", key, [proposal])


def test_nights_against_the_recorded_baseline(runs: Path, machine: Machine, empty_baselines: Path) -> None:
    two_builds(runs, drop=0.08)
    record_entry(empty_baselines, machine)
    argv = ("baseline", "bbbb", "--baselines", str(empty_baselines))
    status, text = compared(runs, *argv)
    assert status == SLOWER, text
    assert "(n=3/1)" in text


def test_a_night_has_the_verdict_that_it_was_given_and_one_that_compared_nothing_is_judged_by_its_runs(
    runs: Path, machine: Machine, empty_baselines: Path
) -> None:
    with history_in(runs) as history:
        for day, rate in enumerate(rates(10), 1):
            add_night(history, day, [rate])
        slow = rates(8, 4.3)
        add_night(history, 12, slow, build=NEW, status="INCONCLUSIVE", code="unconfirmed-drop")
        add_night(history, 13, slow, build=NEW, status="PASS", code="calibrated", standing=None)
    record_entry(empty_baselines, machine)
    argv = ("--baselines", str(empty_baselines), "--json")
    found = [cases(runs, "baseline", f"session:night{day}", *argv)[0]["status"] for day in (12, 13)]
    assert found == ["INCONCLUSIVE", "SLOWER"]


def test_a_night_that_decided_keeps_its_own_tolerance(runs: Path, machine: Machine, empty_baselines: Path) -> None:
    below = found(Code.BELOW_TOLERANCE, what="slower", tolerance=0.02)
    with history_in(runs) as history:
        for day, rate in enumerate(rates(10), 1):
            add_night(history, day, [rate])
        for day, findings in ((12, (found(Code.NO_DROP, below),)), (13, ())):
            add_night(history, day, rates(8), build=NEW, status="PASS", findings=findings)
    record_entry(empty_baselines, machine)
    argv = ("--baselines", str(empty_baselines))
    told = [cases(runs, "baseline", f"session:night{day}", *argv)[0]["tolerance"] for day in (12, 13)]
    assert told == [0.02, 0.005]


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


# --- logs, from their lines to the verdict

SAMPLES = ROOT / "tests" / "helpers" / "logs" / "samples"
PADDLE_LOG = "resnet50_gpu2_fp32_bs32.txt"
PADDLE_CASE = "paddle-resnet50v1.5-fp32-bs32-1x2-native-static"
TENSORFLOW_CASE = "tensorflow-resnet50v1.5-amp-bs96-1x2-native-xla"


def stored(runs: Path, *logs: Path) -> None:
    runs.mkdir(exist_ok=True)
    argv = ["import-log", *map(str, logs), "--store", "--data-source", "native", "--runs-dir", str(runs)]
    assert main(argv, io.StringIO()) == EXIT_OK


def session_of(runs: Path, case_id: str, wall_clock: Sequence[float], median_step: float = 320.0) -> None:
    """A session with a night of the case."""
    with history_in(runs) as history:
        for number, rate in enumerate(wall_clock, 1):
            figures = {"figures": {WALL_CLOCK: rate, MEDIAN_STEP: median_step}}
            add_night(history, number, [math.log(median_step)], case_id=case_id, run_values=figures)


def paddle_logs(folder: Path, *seconds: float) -> list[Path]:
    """Logs of running means, of the sample's case; a step takes so long."""
    return [
        write(folder / f"{number}" / PADDLE_LOG, paddleclas_lines([each + step / 1e5 for step in range(40)]))
        for number, each in enumerate(seconds)
    ]


def test_two_logs_of_running_means_are_compared_by_images_and_seconds(runs: Path, tmp_path: Path) -> None:
    """Each is one run, so there is a difference, and neither an interval nor a verdict."""
    (other,) = paddle_logs(tmp_path, 0.22)
    stored(runs, SAMPLES / PADDLE_LOG, other)
    argv = (f"log:{SAMPLES / PADDLE_LOG}", f"log:{other}")
    (case,) = cases(runs, *argv)
    assert (case["case_id"], case["rule"]) == (PADDLE_CASE, "honest")
    assert (case["status"], case["reason"]["code"]) == ("INCONCLUSIVE", "too-few-runs")
    assert case["effect"] is case["e_drop"] is case["e_gain"] is None
    assert case["a"]["images_per_s"] == pytest.approx(310.361, abs=0.001)
    status, text = compared(runs, *argv)
    assert f"{case['b']['images_per_s'] / case['a']['images_per_s'] - 1:+.2%}" in text
    assert "compared by honest" in text and "means of many steps" in " ".join(text.split())
    assert (status, compared(runs, *argv, "--gate")[0]) == (EXIT_OK, NOT_JUDGED)


def test_a_log_and_a_session_have_images_and_seconds_in_common(runs: Path, tmp_path: Path) -> None:
    logs = paddle_logs(tmp_path, 0.22, 0.2201, 0.2202)
    stored(runs, *logs)
    session_of(runs, PADDLE_CASE, [280.0, 281.0, 279.0])
    (case,) = cases(runs, f"log:{logs[0]}", "aaaa")
    assert (case["rule"], case["status"], case["effect"]) == ("honest", "INCONCLUSIVE", None)
    assert case["b"]["images_per_s"] == pytest.approx(280.0)
    for argv in ((f"log:{PADDLE_LOG}", "aaaa"), ("aaaa", f"log:{PADDLE_LOG}")):
        (case,) = cases(runs, *argv)
        change = case["b"]["images_per_s"] / case["a"]["images_per_s"] - 1
        assert case["effect"]["low"] < case["effect"]["point"] < case["effect"]["high"]
        assert case["effect"]["point"] == pytest.approx(change, abs=0.003)
        assert case["status"] not in ("SLOWER", "REGRESSION")
    assert "(of a session's runs: wall-clock)" in " ".join(compared(runs, *argv)[1].split())


def test_a_log_of_single_steps_is_compared_by_the_median_step(
    runs: Path, machine: Machine, empty_baselines: Path
) -> None:
    log = "log:tf_gpu2.txt"
    stored(runs, SAMPLES / "tf_gpu2.txt")
    session_of(runs, TENSORFLOW_CASE, [180.0], median_step=190.0)
    (case,) = cases(runs, "aaaa", log)
    assert (case["rule"], case["a"]["images_per_s"]) == (MEDIAN_STEP, pytest.approx(190.0))
    rates = re.findall(r"total_ips : ([\d.]+)", (SAMPLES / "tf_gpu2.txt").read_text())[5:]
    assert case["b"]["images_per_s"] == pytest.approx(statistics.median(map(float, rates)), rel=1e-4)
    assert "compared by median-step" in " ".join(compared(runs, "aaaa", log)[1].split())
    record_entry(empty_baselines, machine, rate=190.0, case_id=TENSORFLOW_CASE, device="gpu")
    (case,) = cases(runs, "baseline", log, "--baselines", str(empty_baselines))
    assert (case["status"], case["a"]["images_per_s"]) == ("INCONCLUSIVE", pytest.approx(190.0))


def test_a_baseline_is_no_match_for_a_log_of_means(runs: Path) -> None:
    stored(runs, SAMPLES / PADDLE_LOG)
    status, text = compared(runs, "baseline", f"log:{PADDLE_LOG}")
    assert status == NOT_JUDGED
    assert "1 run left out: rule median-step: got 'records that are means of many steps'" in " ".join(text.split())


def test_a_summary_has_no_figure_to_compare(runs: Path, tmp_path: Path) -> None:
    logs = [write(tmp_path / f"{ips}.log", [tipc_line(ips)]) for ips in (310.5, 320.5)]
    runs.mkdir()
    argv = ["--execution", "static", "--store", "--runs-dir", str(runs)]
    assert main(["import-log", *map(str, logs), *argv], io.StringIO()) == EXIT_OK
    status, text = compared(runs, f"log:{logs[0]}", f"log:{logs[1]}")
    assert (status, " ".join(text.split()).count("got 'one figure for the whole run'")) == (NOT_JUDGED, 2)


def test_a_log_that_is_not_stored_is_to_be_imported_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(runs, SAMPLES / PADDLE_LOG)
    assert compared(runs, f"log:{PADDLE_LOG}", "log:other.log")[0] == EXIT_USAGE
    told = capsys.readouterr().err
    assert "not stored" in told and "perfgate import-log other.log --store" in told
    assert compared(runs, f"log:{PADDLE_LOG}", "aaaa", "--case", "mxnet*")[0] == EXIT_USAGE
    assert "no imported log of a case like 'mxnet*'" in capsys.readouterr().err
