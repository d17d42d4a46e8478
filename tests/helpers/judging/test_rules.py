"""Measuring rules: ours and the publishers', on logs whose figure is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.judging.rules.own import (
    MEDIAN_STEP,
    RULES,
    WALL_CLOCK,
    CaseFigure,
    case_figure,
    figures,
    median_step,
    over_runs,
    reader_share,
    samples_per_step,
    step_seconds,
    wall_clock,
    window_seconds,
)
from helpers.judging.rules.publishers import PUBLISHERS_RULES, RuleError
from helpers.trainers.contract.steplog import WARMUP, WINDOW, Step, StepLog
from tests.helpers.judging.step_logs import log_of, logs_of

# --- every rule


@settings(max_examples=10)
@given(seconds=st.floats(1e-3, 10), batch=st.integers(1, 1024), cards=st.integers(1, 3), warmup=st.integers(0, 300))
def test_at_a_constant_rate_all_rules_agree(seconds: float, batch: int, cards: int, warmup: int) -> None:
    logs = logs_of(*([seconds] * 1510 for _ in range(cards)), batch=batch, warmup=warmup)
    found = figures(logs)
    assert found.keys() == RULES.keys()
    assert found == {rule: pytest.approx(batch * cards / seconds) for rule in RULES}


@settings(max_examples=4)
@given(
    seed=st.integers(0, 2**32),
    batch=st.integers(1, 1024),
    cards=st.integers(2, 8),
    processes=st.integers(1, 2),
    wait=st.floats(0, 0.9),
)
def test_processes_that_drive_several_cards_count_as_one_rank_a_card_with_the_same_steps(
    seed: int, batch: int, cards: int, processes: int, wait: float
) -> None:
    draw = Random(seed)
    nodes = [[draw.uniform(1.0, 2.0) for _ in range(1510)] for _ in range(processes)]
    warmup, same = draw.randrange(1500), {"batch": batch, "reader_seconds": wait}
    driven = logs_of(*nodes, cards_per_process=cards, warmup=warmup, **same)
    single = logs_of(*(seconds for seconds in nodes for _ in range(cards)), warmup=warmup, **same)
    assert figures(driven) == pytest.approx(figures(single))
    assert samples_per_step(driven) == samples_per_step(single)
    assert step_seconds(driven) == step_seconds(single)
    assert window_seconds(driven) == window_seconds(single)
    assert reader_share(driven) == pytest.approx(reader_share(single))


def test_processes_that_drive_different_numbers_of_cards_are_no_run() -> None:
    logs = [log_of([1.0] * 5, rank=rank, world_size=2, cards_per_process=rank + 1) for rank in (0, 1)]
    with pytest.raises(RuleError, match=r"'cards_per_process': got \[1, 2\], expected as many cards a process"):
        figures(logs)


def test_a_rule_that_does_not_apply_gives_its_reason_and_no_number() -> None:
    found = figures([log_of([0.5] * 20)])
    assert found.pop(WALL_CLOCK) == found.pop(MEDIAN_STEP) == 512.0
    assert set(found) == set(RULES) - {WALL_CLOCK, MEDIAN_STEP}
    assert all(isinstance(reason, str) and "20 steps" in reason for reason in found.values())


def test_a_rate_beyond_all_numbers_is_a_reason() -> None:
    assert "expected a finite rate" in str(figures([log_of([5e-324])])[WALL_CLOCK])


@pytest.mark.parametrize(
    "ranks", [(), (0,), (1,), (1, 0), (0, 0), (0, 2)], ids=["none", "lost", "first lost", "swapped", "twice", "foreign"]
)
def test_logs_that_are_not_one_run_of_two_ranks_are_refused(ranks: tuple[int, ...]) -> None:
    with pytest.raises(RuleError, match="one log a rank"):
        figures([log_of([1.0] * 5, rank=rank, world_size=2) for rank in ranks])


def test_logs_of_two_jobs_are_refused() -> None:
    one, other = logs_of([1.0] * 5, [1.0] * 5)
    with pytest.raises(RuleError, match="one job"):
        figures([one, replace(other, header=replace(other.header, job_id="j2"))])


# --- wall-clock: samples of all ranks / wall time of the slowest rank over the window


def test_the_slowest_rank_decides() -> None:
    logs = logs_of([1.0, 1.0, 1.0], [1.0, 2.0, 2.0], batch=8, warmup=1)
    assert window_seconds(logs) == 4.0
    assert samples_per_step(logs) == (16, 16)
    assert wall_clock(logs) == 2 * 16 / 4.0


def test_clocks_of_two_hosts_are_never_mixed() -> None:
    near = log_of([1.0] * 4, rank=0, world_size=2)
    far = log_of([1.0] * 4, rank=1, world_size=2, clock_origin=86_400.0)
    assert wall_clock([near, far]) == 256 * 2
    assert window_seconds([near, far]) == 4.0


def test_ranks_that_measured_different_windows_are_refused() -> None:
    with pytest.raises(RuleError, match="same number of window steps"):
        wall_clock(logs_of([1.0] * 5, [1.0] * 6))
    assert "same number" in str(figures(logs_of([1.0] * 5, [1.0] * 6))[WALL_CLOCK])


def test_a_log_without_a_window_is_refused() -> None:
    with pytest.raises(RuleError, match="window"):
        wall_clock([log_of([1.0] * 5, warmup=5)])


def test_the_reader_share_is_that_of_the_rank_that_waited_most() -> None:
    one = log_of([1.0] * 4, rank=0, world_size=2, reader_seconds=0.25, warmup=2)
    other = log_of([1.0] * 4, rank=1, world_size=2, reader_seconds=0.5, warmup=2)
    assert reader_share([one, other]) == 0.5


# --- how the rules relate, whatever the steps were

LONG = st.tuples(st.integers(), st.integers(1500, 1520)).map(
    lambda drawn: [Random(drawn[0]).uniform(0.1, 0.5) for _ in range(drawn[1])]
)
FEW = settings(max_examples=10)
AFTER_20 = ("fleetx-20-100-median7", "dlperf-log", "dlperf-time")
FROM_RANK_0 = tuple(rule.name for rule in PUBLISHERS_RULES if rule.name != "fleetx-20-100-median7")


def rates(logs: list[StepLog]) -> dict[str, float]:
    found = figures(logs)
    return {rule: figure for rule, figure in found.items() if not isinstance(figure, str)}


@FEW
@given(seconds=LONG, factor=st.floats(0.01, 100))
def test_a_machine_that_takes_k_times_as_long_has_a_kth_of_the_rate(seconds: list[float], factor: float) -> None:
    slower = rates([log_of([each * factor for each in seconds])])
    assert slower == {rule: pytest.approx(rate / factor) for rule, rate in rates([log_of(seconds)]).items()}
    assert slower.keys() == RULES.keys()


@FEW
@given(seconds=LONG, slower=st.floats(1.1, 3))
def test_which_rank_is_slow_matters_only_to_rules_that_read_rank_0(seconds: list[float], slower: float) -> None:
    slow = [each * slower for each in seconds]
    second_slow, first_slow = rates(logs_of(seconds, slow)), rates(logs_of(slow, seconds))
    for rule in RULES:
        if rule in FROM_RANK_0:
            assert first_slow[rule] == pytest.approx(second_slow[rule] / slower)
        else:
            assert first_slow[rule] == pytest.approx(second_slow[rule])


@FEW
@given(seconds=LONG, steps=st.one_of(st.sampled_from([109, 309, 499, 599, 1499]), st.integers(1, 1500)))
def test_a_log_too_short_for_a_rule_has_the_reason_and_never_a_figure(seconds: list[float], steps: int) -> None:
    found = figures([log_of(seconds[:steps])])
    for rule, figure in found.items():
        assert isinstance(figure, str) == (steps < RULES[rule].steps)


def test_the_steps_that_each_rule_needs_are_its_publishers() -> None:
    assert {rule.name: rule.steps for rule in RULES.values()} == {
        WALL_CLOCK: 0, MEDIAN_STEP: 0, "paddleclas-trimmed": 310, "paddleclas-mean": 110,
        "fleetx-20-100-median7": 121, "dlperf-log": 120, "dlperf-time": 120, "dlperf-tf2": 600,
        **dict.fromkeys(("ngc-tf-mean", "ngc-tf-average", "ngc-tf-summary"), 500),
        **dict.fromkeys(("ngc-pytorch-mean", "ngc-pytorch-summary", "ngc-pytorch-summary-compute"), 100),
        "ngc-mxnet-epochs": 1500,
    }  # fmt: skip


@pytest.mark.parametrize("rule", AFTER_20)
def test_a_rule_that_counts_from_the_first_step_takes_the_same_steps_however_long_warm_up_was(rule: str) -> None:
    seconds = [1.0 + number / 100 for number in range(320)]
    least = figures([log_of(seconds[: RULES[rule].steps], warmup=20)])[rule]
    assert isinstance(least, float)
    for warmup in (20, 60, 220):
        steps = max(RULES[rule].steps, warmup + 100)
        assert figures([log_of(seconds[:steps], warmup=warmup)])[rule] == least


# --- median-step: images of all ranks / the median step of the slowest rank


def test_half_of_the_steps_may_stall_without_the_median_knowing() -> None:
    assert median_step([log_of([9.0, 2.0, 50.0, 2.0, 2.0, 90.0], batch=8, warmup=1)]) == 4.0
    assert median_step([log_of([1.0, 3.0], batch=8)]) == 4.0


def test_the_median_is_of_each_steps_slowest_rank() -> None:
    assert median_step(logs_of([1.0, 1.0, 4.0], [1.0, 2.0, 1.0], batch=8)) == 2 * 8 / 2.0


# --- over runs

# DLPerf's document: its runs of ResNet50 v1.5 FP32, batch size 128, with the average and the median it gives.
DLPERF_RUNS = [
    ([362.05, 362.43, 362.28, 362.78, 362.45, 362.45], 362.41, 362.44),
    ([1391.53, 1393.31, 1392.25, 1390.17, 1391.03, 1389.73], 1391.34, 1391.28),
    ([2737.81, 2696.33, 2718.0, 2715.18, 2725.96, 2727.71], 2720.16, 2721.98),
    ([5097.79, 5018.54, 5063.02, 5107.27, 5125.81, 5101.06], 5085.58, 5099.42),
    ([9403.78, 9477.39, 9574.57, 9551.9, 9631.24, 9342.6], 9496.91, 9514.64),
]


def over(rule: str, runs: list[dict[str, float | str]]) -> CaseFigure:
    return next(each for each in over_runs(runs) if each.rule == rule)


@pytest.mark.parametrize(("runs", "average", "median"), DLPERF_RUNS)
def test_dlperf_s_average_and_median_come_out_of_its_runs(runs: list[float], average: float, median: float) -> None:
    found = over("dlperf-log", [{"dlperf-log": rate} for rate in runs])
    assert found.average_samples_per_s == pytest.approx(average, abs=0.00501)
    assert found.samples_per_s == pytest.approx(median, abs=0.00501)
    assert (found.run_samples_per_s, found.reason) == (tuple(runs), "")


@pytest.mark.parametrize(("rule", "runs"), [("fleetx-20-100-median7", 7), ("dlperf-log", 5), ("dlperf-time", 5)])
def test_fewer_runs_than_the_publisher_s_give_no_figure(rule: str, runs: int) -> None:
    told = [{rule: 100.0 + number} for number in range(runs)]
    assert over(rule, told).samples_per_s == 100.0 + (runs - 1) / 2
    short = over(rule, told[1:])
    assert (short.samples_per_s, short.average_samples_per_s, len(short.run_samples_per_s)) == (None, None, runs - 1)
    assert short.reason == f"rule {rule} is the median of {runs} runs, {runs - 1} were made"


@pytest.mark.parametrize("bad", ["too short", None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_run_without_a_figure_leaves_the_case_without_one(bad: float | str | None) -> None:
    runs = [{WALL_CLOCK: 5.0}, {} if bad is None else {WALL_CLOCK: bad}]
    found = over(WALL_CLOCK, runs)
    assert (found.samples_per_s, found.run_samples_per_s) == (None, (5.0,))
    told = "was not computed" if bad is None else f"gave {bad}, which is not a throughput"
    assert found.reason == (bad if isinstance(bad, str) else f"rule {WALL_CLOCK} {told}")


def test_a_rule_that_nobody_computes_has_no_figure_of_a_case() -> None:
    found = case_figure("ngc-tf-mean", [{WALL_CLOCK: 5.0}])
    assert (found.samples_per_s, found.reason) == (None, "rule ngc-tf-mean was not computed")


def test_every_rule_is_told_over_runs_and_none_for_no_runs() -> None:
    assert [each.rule for each in over_runs([{}])] == list(RULES)
    assert over_runs([]) == ()


# --- by hand


def test_two_cards_by_hand() -> None:
    # Rank 0: warm-up 0–5, window 5.0–5.4, 5.5–6.0, 6.0–6.4. Rank 1 in another clock: 105–105.5–106–106.6.
    def step(number: int, phase: str, start: float, end: float, reader: float = 0.0) -> Step:
        return Step(0, number, phase, start, end, 4, reader)

    rank0 = (
        step(1, WARMUP, 0.0, 5.0),
        step(2, WINDOW, 5.0, 5.4, 0.1),
        step(3, WINDOW, 5.5, 6.0, 0.1),
        step(4, WINDOW, 6.0, 6.4, 0.15),
    )
    rank1 = (
        step(1, WARMUP, 100.0, 105.0),
        step(2, WINDOW, 105.0, 105.5),
        step(3, WINDOW, 105.5, 106.0),
        step(4, WINDOW, 106.0, 106.6),
    )
    logs = [replace(log, steps=steps) for log, steps in zip(logs_of([1], [1]), (rank0, rank1), strict=True)]
    assert wall_clock(logs) == pytest.approx(24 / 1.6)
    assert step_seconds(logs) == pytest.approx((0.5, 0.5, 0.6))
    assert reader_share(logs) == pytest.approx(0.35 / 1.4)
