"""Made sessions, for pages: some cases over some nights, with a story for each status."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.stored import Acknowledgement, CaseNights, Exclusion, StoredNight
from helpers.judging.evidence import Build, Compared, Stage
from helpers.judging.night import NightVerdict
from helpers.judging.rules import MEDIAN_STEP, WALL_CLOCK
from helpers.judging.verdict import Question, Reason, Standing, Status, SubVerdict, Verdict
from helpers.report.results import SessionReport
from helpers.report.row import row_of
from helpers.report.scaling import scalings
from helpers.session.case_details import CaseDetails
from helpers.session.gate import Gated, Needs, effect
from helpers.session.gate_verdict import NOT_REACHED, GateCase, GateState, GateVerdict
from helpers.session.outcome import CaseEffect, CaseOutcome
from helpers.trainers.contract.case import Case

SESSION = "20261123-020000-abcd"
_IDS = [
    f"{framework}-{model}-{precision}-bs{size}-1x{cards}-{data}{execution}"
    for model, precision, (framework, execution), size, (cards, data) in product(
        ("resnet50v1.5", "vgg16"),
        ("fp32", "amp_o2"),
        (("paddle", "-static"), ("paddle", "-dynamic"), ("pytorch", "")),
        (128, 256, 64),
        ((1, "dali"), (8, "dali"), (1, "synthetic")),
    )
]
_STORIES = (
    Status.REGRESSION,
    Status.PASS,
    Status.INFRA_ERROR,
    Status.PASS,
    Status.SLOWER,
    Status.IMPROVEMENT,
    Status.PASS,
    Status.INCONCLUSIVE,
    Status.BELOW_PUBLISHED,
    Status.NO_BASELINE,
    Status.NOT_RUN,
    Status.INVALID,
)
_SIGMA = 0.004
_ENVIRONMENT = {"host": "v100-3", "host_id": "5818", "device": "gpu", "driver": "550.54.15", "kernel": "6.8.0-45"}
_SYSTEM = {
    "CPU": {"CPU": "Intel Xeon Gold 6148 * 80", "governor": "performance"},
    "GPU": {"GPU": "8 x Tesla V100-SXM2-32GB", "power limit": "300 W", "driver": "550.54.15"},
    "memory": {"memory": "377 GiB", "transparent huge pages": "madvise"},
    "system": {"host": "v100-3", "kernel": "6.8.0-45", "suite": "perfgate, commit abc"},
}
_SETTINGS: Mapping[str, Any] = {
    "layout": "NHWC",
    "learning_rate": 0.1,
    "optimizer": "momentum",
    "dali": {"threads": 4, "prefetch_queue_depth": 2, "seed": 42},
    "build_strategy": {"fuse_elewise_add_act_ops": True, "enable_addto": True},
    "environment": {"FLAGS_cudnn_exhaustive_search": "1"},
}
_FACTS = {
    "loader": "DALI 2.4.0, 4 threads",
    "sm_clock_mhz": "1530",
    "temperature": "61 C",
    "throttled": "no",
    "tf32": "off",
    "precision": "float16",
}


def session_of(cases: int, nights: int, *, steps: int = 300, hostile: str = "") -> SessionReport:
    """A gate's session; ``hostile`` stands wherever text comes from outside."""
    random_numbers = random.Random(19)
    made = [_case(place, nights, steps, hostile, random_numbers) for place in range(cases)]
    outcomes = [outcome for outcome, _ in made]
    details = {outcome.key: each for outcome, each in made}
    rows = [row_of(each) for each in outcomes]
    lost: tuple[GateCase, ...] = ()
    if hostile:
        # Of another version of the suite, and of a case of which nothing is known.
        rows.append(replace(rows[0], case_id=f"a-case{hostile}", target=f"v100{hostile}"))
        lost = (GateCase(f"lost{hostile}", "v100", NOT_REACHED, hostile, hostile),)
    failed = lost + tuple(
        GateCase(each.case.id, each.target, each.status.value, each.reason, each.owner)
        for each in outcomes
        if each.effect is not CaseEffect.PASS
    )
    state = GateState.FAILED if failed else GateState.PASSED
    return SessionReport(
        rows,
        session=SESSION,
        exit_code=1 if failed else 0,
        machine={"host": f"v100-3{hostile}", "found": "8 x Tesla V100-SXM2-32GB"},
        command=("pytest", "perf_tests", "--gate", f"--build=paddle.whl{hostile}"),
        not_reached=0,
        scaling=scalings(rows, lambda target, case_id: None),
        night=NightVerdict(Status.PASS, Reason("quiet", f"no group of cases fell together{hostile}"), cases),
        gate=GateVerdict(state, len(outcomes) - len(failed), 0, failed, ()),
        outcomes=outcomes,
        details=lambda outcome: details[outcome.key],
        header=lambda: (
            f"build: paddle 3.4.0.dev20261123 @0123456789ab (nightly.whl{hostile})",
            "history: sqlite:///runs/h.sqlite",
        ),
    )


def _case(place: int, nights: int, steps: int, hostile: str, numbers: random.Random) -> tuple[CaseOutcome, CaseDetails]:
    case = Case.parse(_IDS[place])
    status = _STORIES[place % len(_STORIES)] if place < 2 * len(_STORIES) else Status.PASS
    level = math.log(370.0 * case.cards * numbers.uniform(0.6, 3.5))
    change = {Status.REGRESSION: -0.031, Status.SLOWER: -0.082, Status.IMPROVEMENT: 0.024, Status.BELOW_PUBLISHED: 0.0}
    runs = _runs(case, status, level + change.get(status, 0.0), steps, hostile, numbers)
    outcome = _outcome(case, status, level, change.get(status, 0.0), runs, hostile)
    stored = [
        _stored(case, at, nights, level, status, change.get(status, 0.0), hostile, numbers) for at in range(nights)
    ]
    known = CaseNights(
        tuple(stored),
        tuple(each.record.log_rates for each in stored),
        (
            Acknowledgement(
                case.id,
                _day(nights // 2, nights),
                _day(nights // 2, nights),
                "0123",
                f"new kernels{hostile}",
                "ada",
                "",
            ),
            Acknowledgement(
                case.id,
                _day(nights // 3, nights),
                _day(nights // 3, nights),
                "",
                "it was the room's heat",
                "ada",
                "",
                taken_back=_day(nights // 2, nights),
                taken_back_by=f"bob{hostile}",
                taken_back_reason=f"the fan was as fast{hostile}",
            ),
        ),
        before=replace(runs[0], environment={**_ENVIRONMENT, "driver": "535.104.05"}, session="the-night-before")
        if runs
        else None,
    )
    sources = {
        "layout": "PaddleClas: ResNet50_fp16.yaml",
        "learning_rate": f"suite's choice{hostile}",
        "dali.threads": "DLPerf",
    }
    return outcome, CaseDetails(known, sources, f"pytest 'perf_tests/test_a.py::test_v100[{case.id}]' --gate{hostile}")


def _runs(
    case: Case, status: Status, rate: float, steps: int, hostile: str, numbers: random.Random
) -> tuple[RunResult, ...]:
    if status is Status.NOT_RUN:
        return ()
    pairs = 6 if status in (Status.REGRESSION, Status.IMPROVEMENT) else 0
    shift = 0.031 if status is Status.REGRESSION else -0.024
    runs = [_run(case, at, rate, steps, hostile, numbers) for at in range(3)]
    for pair in range(pairs):
        runs.append(
            replace(
                _run(case, 3 + 2 * pair, rate + shift, 5, hostile, numbers),
                role=Build.REFERENCE.value,
                stage=Stage.CONFIRM.value,
            )
        )
        runs.append(replace(_run(case, 4 + 2 * pair, rate, 5, hostile, numbers), stage=Stage.CONFIRM.value))
    if status is Status.INFRA_ERROR:
        failure = f"rank 0 ended with exit code 1{hostile}"
        runs[-1] = replace(runs[-1], failure=failure, figures={}, step_seconds=(), log_tail=f"Traceback\nboom{hostile}")
        return tuple(runs[-1:])
    if status is Status.INVALID:
        runs = [replace(each, invalid=f"contended: 12% went to others{hostile}", foreign_share=0.12) for each in runs]
    return tuple(runs)


def _run(case: Case, replicate: int, rate: float, steps: int, hostile: str, numbers: random.Random) -> RunResult:
    log_rate = numbers.gauss(rate, _SIGMA)
    samples = case.batch_size_per_card * case.cards
    second = samples / math.exp(log_rate)
    return RunResult(
        uuid=f"{case.id}-{replicate}",
        session=SESSION,
        case_id=case.id,
        target="v100",
        replicate=replicate,
        created=f"2026-11-23T02:{replicate:02}:00+00:00",
        build={
            "framework": case.framework.value,
            "version": "3.4.0.dev",
            "commit": "0123456789abcdef",
            "source": f"n.whl{hostile}",
        },
        settings=_SETTINGS,
        environment={**_ENVIRONMENT, "flags": hostile},
        facts={**_FACTS, "note": hostile},
        system=_SYSTEM,
        figures={MEDIAN_STEP: math.exp(log_rate), WALL_CLOCK: math.exp(log_rate - 0.002), "dlperf-log": "too short"},
        step_seconds=tuple(numbers.gauss(second, second * 0.01) for _ in range(steps)),
        samples_per_step=(samples,) * steps,
        wall_seconds=93.0,
        start_up_seconds=21.0,
        training_seconds=60.0,
        reader_share=numbers.uniform(0.002, 0.14),
        foreign_share=numbers.uniform(0, 0.02),
        contention="0.4% of the leased cores' time went to others",
        peak_host_bytes=6 << 30,
        peak_device_bytes=14 << 30,
    )


def _outcome(
    case: Case, status: Status, level: float, change: float, runs: tuple[RunResult, ...], hostile: str
) -> CaseOutcome:
    standing = recorded = None
    if status not in (Status.NOT_RUN, Status.INFRA_ERROR, Status.INVALID, Status.NO_BASELINE):
        standing = Standing(
            log_rate=level + change,
            e_drop=3.0,
            evidence=3062.0 if status is Status.REGRESSION else 0.8,
            accepted=True,
            sigma=_SIGMA,
            tau=0.002,
            nights=40,
            runs=3,
            effect=math.expm1(change) or 0.0008,
            low=math.expm1(change) - 0.006,
            high=math.expm1(change) + 0.006,
            pairs=6 if status in (Status.REGRESSION, Status.IMPROVEMENT) else 0,
            smallest_drop=0.012,
        )
        figures = math.exp(level + change), math.exp(level)
        recorded = SubVerdict(
            Question.RECORDED,
            status,
            Reason("made", "made"),
            MEDIAN_STEP,
            *figures,
            0.005,
            "recorded 2026-08-20, 0123456789ab",
        )
    published = SubVerdict(
        Question.PUBLISHED,
        Status.BELOW_PUBLISHED if status is Status.BELOW_PUBLISHED else Status.PASS,
        Reason("made", "made"),
        WALL_CLOCK,
        math.exp(level),
        math.exp(level) * (1.09 if status is Status.BELOW_PUBLISHED else 0.97),
        0.05,
        "ResNet50, V100-SXM2, paddle 1.8",
    )
    shown = (published,) if runs and status not in (Status.INFRA_ERROR, Status.INVALID) else ()
    words = {
        Status.NOT_RUN: "no such device: 16 cards asked, 8 found",
        Status.INFRA_ERROR: "rank 0 ended with exit code 1; the log's tail says more",
        Status.INVALID: "3 of 3 runs are invalid: others used 12% of the leased cores",
        Status.NO_BASELINE: "nothing recorded for this case here; record it: pytest perf_tests --update-baselines",
        Status.INCONCLUSIVE: "a drop of 1.1% is suspected (evidence 9.7), and the budget of 24 runs did not settle it",
    }
    reason = Reason("made", f"{words.get(status, 'the verdict, with every number that it rests on')}{hostile}")
    verdict = Verdict(status, reason, None, shown, recorded, standing)
    return CaseOutcome(
        case,
        "v100",
        verdict,
        effect(status, Gated(Needs.RECORDED, has_published=True)),
        rule=WALL_CLOCK,
        runs=runs,
        run_folders=tuple(f"nowhere/r{run.replicate}" for run in runs),
        reference_build="paddle 3.3.1 @7688495538f4" if standing else "",
        why_no_reference="" if standing else "none is pinned",
        owner=f"{'vision team' if case.model.value == 'vgg16' else '@data-loading'}{hostile}",
    )


def _day(at: int, nights: int) -> str:
    start = datetime(2026, 11, 23, 2, tzinfo=UTC)
    return (start - timedelta(days=nights - 1 - at)).isoformat()


def _stored(
    case: Case, at: int, nights: int, level: float, status: Status, change: float, hostile: str, numbers: random.Random
) -> StoredNight:
    tonight = at == nights - 1
    # An older segment, a month of a better build, and what tonight's story is.
    middle = level - (0.05 if at < nights // 4 else 0.0) + (change if tonight else 0.0)
    rates = tuple(numbers.gauss(middle, _SIGMA) for _ in range(3 if tonight else 1))
    lost = not tonight and numbers.random() < 0.02
    excluded = not tonight and numbers.random() < 0.02
    shown = status if tonight else Status.INFRA_ERROR if lost else Status.PASS
    good = tuple(numbers.gauss(level + 0.001, _SIGMA) for _ in range(6))
    pairs = Compared("paddle 3.3.1", good, good) if (tonight and status is Status.REGRESSION) or at % 30 == 20 else None
    session = SESSION if tonight else f"{_day(at, nights)[:10].replace('-', '')}-020000-{numbers.randrange(16**4):04x}"
    record = NightRecord(
        session=session,
        case_id=case.id,
        target="v100",
        created=_day(at, nights),
        segment={"host": "5818", "driver": "535" if at < nights // 4 else "550"},
        status=shown.value,
        code="made",
        reason="made",
        cards=case.cards,
        log_rates=() if lost or shown in (Status.INFRA_ERROR, Status.NOT_RUN) else rates,
        standing=Standing(rates[0], 1.0, 1.0, True, _SIGMA, 0.002, 40, len(rates), effect=rates[0] - level),
        build={"version": "3.4.0.dev", "commit": f"{(at // 3) * 7919:07x}{hostile}"},
        compared=pairs,
    )
    exclusion = Exclusion("night", "u", f"ada{hostile}", "2026-11-01", f"a broken fan{hostile}") if excluded else None
    return StoredNight(f"{case.id}-{at}", record, rates, "old" if at < nights // 4 else "new", exclusion=exclusion)
