"""Made sessions, for pages: some cases over some nights, with a story for each status."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.stored import CaseNights, Exclusion, StoredNight
from helpers.judging.case.evidence import Build, Compared, Stage
from helpers.judging.case.verdict import PairStanding, Reason, Standing, Status, SubVerdict, Verdict
from helpers.judging.finding import Code, found
from helpers.judging.night.verdict import NightVerdict
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK
from helpers.judging.statistics import EffectSize
from helpers.report.reasons import outcome_text
from helpers.report.results import SessionReport
from helpers.report.row import row_of
from helpers.report.scaling import scalings
from helpers.session.case_details import CaseDetails
from helpers.session.gate import Gated, Needs, effect, gate_reason
from helpers.session.gate_verdict import NOT_REACHED, GateCase, GateState, GateVerdict
from helpers.session.outcome import CaseEffect, CaseOutcome, Gating, GoodBuild
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
# What a case of a story gains or loses.
_CHANGES = {
    Status.REGRESSION: -0.031,
    Status.SLOWER: -0.082,
    Status.IMPROVEMENT: 0.024,
    Status.INCONCLUSIVE: -0.011,
}
_PAIRED = (Status.REGRESSION, Status.IMPROVEMENT, Status.INCONCLUSIVE)
_GATED = Gated(Needs.RECORDED, has_published=True)
_WORDS = {
    Status.NOT_RUN: "no such device: 16 cards asked, 8 found",
    Status.INFRA_ERROR: "rank 0 ended with exit code 1; the log's tail says more",
    Status.INVALID: "3 of 3 runs are invalid: others used 12% of the leased cores",
    Status.NO_BASELINE: "nothing recorded for this case here; record it: pytest perf_tests --update-baselines",
}
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
    maker = _Maker(nights, steps, hostile, random.Random(19))
    made = [maker.case(place) for place in range(cases)]
    outcomes = [outcome for outcome, _ in made]
    details = {outcome.key: each for outcome, each in made}
    rows = [row_of(each) for each in outcomes]
    lost: tuple[GateCase, ...] = ()
    if hostile:
        # Of another version of the suite, and of a case of which nothing is known.
        rows.append(replace(rows[0], case_id=f"a-case{hostile}", target=f"v100{hostile}"))
        lost = (GateCase(f"lost{hostile}", "v100", NOT_REACHED, hostile, hostile),)
    failed = lost + tuple(
        GateCase(each.case.id, each.target, each.status.value, outcome_text(each), each.owner)
        for each in outcomes
        if each.gating.effect is not CaseEffect.PASS
    )
    state = GateState.FAILED if failed else GateState.PASSED
    return SessionReport(
        rows,
        session=SESSION,
        exit_code=1 if failed else 0,
        machine={"host": f"v100-3{hostile}", "found": "8 x Tesla V100-SXM2-32GB"},
        command=("pytest", "perf_tests", "--gate", f"--build=paddle.whl{hostile}"),
        not_reached=0,
        scaling=scalings(rows),
        night=NightVerdict(Status.PASS, Reason("quiet", f"no group of cases fell together{hostile}"), cases),
        gate=GateVerdict(state, len(outcomes) - len(failed), 0, failed, ()),
        outcomes=outcomes,
        details=lambda outcome: details[outcome.key],
        header=lambda: (
            f"build: paddle 3.4.0.dev20261123 @0123456789ab (nightly.whl{hostile})",
            "history: sqlite:///runs/h.sqlite",
        ),
    )


@dataclass(frozen=True)
class _Maker:
    """Makes the cases of one session."""

    nights: int
    steps: int
    hostile: str
    numbers: random.Random

    def case(self, place: int) -> tuple[CaseOutcome, CaseDetails]:
        case = Case.parse(_IDS[place])
        status = _STORIES[place % len(_STORIES)] if place < 2 * len(_STORIES) else Status.PASS
        level = math.log(370.0 * case.cards * self.numbers.uniform(0.6, 3.5))
        runs = self._runs(case, status, level + _CHANGES.get(status, 0.0))
        outcome = self._outcome(case, status, level, runs)
        stored = [self._stored(case, at, level, status) for at in range(self.nights)]
        known = CaseNights(
            tuple(stored),
            tuple(each.record.log_rates for each in stored),
            before=replace(runs[0], environment={**_ENVIRONMENT, "driver": "535.104.05"}, session="the-night-before")
            if runs
            else None,
        )  # fmt: skip
        sources = {
            "layout": "PaddleClas: ResNet50_fp16.yaml",
            "learning_rate": f"suite's choice{self.hostile}",
            "dali.threads": "DLPerf",
        }
        command = f"pytest 'perf_tests/test_a.py::test_v100[{case.id}]' --gate{self.hostile}"
        return outcome, CaseDetails(known, sources, command)

    def _runs(self, case: Case, status: Status, rate: float) -> tuple[RunResult, ...]:
        if status is Status.NOT_RUN:
            return ()
        runs = [self._run(case, at, rate, self.steps) for at in range(3)]
        if status is Status.INFRA_ERROR:
            failure, tail = f"rank 0 ended with exit code 1{self.hostile}", f"Traceback\nboom{self.hostile}"
            return (replace(runs[-1], failure=failure, figures={}, step_seconds=(), log_tail=tail),)
        if status is Status.INVALID:
            invalid = f"contended: 12% went to others{self.hostile}"
            return tuple(replace(each, invalid=invalid, foreign_share=0.12) for each in runs)
        if status in _PAIRED:
            # By turns the reference build, at the level from which the case has changed, and the one under test.
            for at in range(3, 3 + 2 * 6, 2):
                good, new = self._run(case, at, rate - _CHANGES[status], 5), self._run(case, at + 1, rate, 5)
                runs += [replace(good, role=Build.REFERENCE.value), new]
            runs[3:] = [replace(each, stage=Stage.CONFIRM.value) for each in runs[3:]]
        return tuple(runs)

    def _run(self, case: Case, replicate: int, rate: float, steps: int) -> RunResult:
        log_rate = self.numbers.gauss(rate, _SIGMA)
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
                "source": f"n.whl{self.hostile}",
            },
            settings=_SETTINGS,
            environment={**_ENVIRONMENT, "flags": self.hostile},
            facts={**_FACTS, "note": self.hostile},
            system=_SYSTEM,
            figures={
                MEDIAN_STEP: math.exp(log_rate),
                WALL_CLOCK: math.exp(log_rate - 0.002),
                "dlperf-log": "too short",
            },
            step_seconds=tuple(self.numbers.gauss(second, second * 0.01) for _ in range(steps)),
            samples_per_step=(samples,) * steps,
            wall_seconds=93.0,
            start_up_seconds=21.0,
            training_seconds=60.0,
            reader_share=self.numbers.uniform(0.002, 0.14),
            foreign_share=self.numbers.uniform(0, 0.02),
            contention="0.4% of the leased cores' time went to others",
            peak_host_bytes=6 << 30,
            peak_device_bytes=14 << 30,
        )

    def _outcome(self, case: Case, status: Status, level: float, runs: tuple[RunResult, ...]) -> CaseOutcome:
        change = _CHANGES.get(status, 0.0)
        made = Reason("made", "made")
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
                effect=EffectSize(math.expm1(change) or 0.0008, math.expm1(change) - 0.006, math.expm1(change) + 0.006),
                pairs=PairStanding(6, 3062.0) if status in _PAIRED else None,
                smallest_drop=0.012,
            )
            recorded = SubVerdict(
                status, made, MEDIAN_STEP, math.exp(level + change), math.exp(level), 0.005,
                "recorded 2026-08-20, 0123456789ab",
            )  # fmt: skip
        below = status is Status.BELOW_PUBLISHED
        published = SubVerdict(
            status if below else Status.PASS, made, WALL_CLOCK, math.exp(level),
            math.exp(level) * (1.09 if below else 0.97), 0.05, "ResNet50, V100-SXM2, paddle 1.8",
        )  # fmt: skip
        shown = (published,) if runs and status not in (Status.INFRA_ERROR, Status.INVALID) else ()
        words = f"{_WORDS.get(status, 'the verdict, with every number that it rests on')}{self.hostile}"
        reason = Reason("made", words)
        if status is Status.INCONCLUSIVE:
            reason = Reason.of(found(Code.PAIRS_USED_UP, found(Code.STILL_OPEN), pairs=6))
        return CaseOutcome(
            case,
            "v100",
            Verdict(status, reason, None, shown, recorded, standing),
            Gating(effect(status, _GATED), rule=gate_reason(status, _GATED) or ""),
            rule=WALL_CLOCK,
            runs=runs,
            run_folders=tuple(f"nowhere/r{run.replicate}" for run in runs),
            good=GoodBuild("paddle 3.3.1 @7688495538f4") if standing else GoodBuild(why_none="none is pinned"),
            owner=f"{'vision team' if case.model.value == 'vgg16' else '@data-loading'}{self.hostile}",
        )

    def _day(self, at: int) -> str:
        return (datetime(2026, 11, 23, 2, tzinfo=UTC) - timedelta(days=self.nights - 1 - at)).isoformat()

    def _stored(self, case: Case, at: int, level: float, status: Status) -> StoredNight:
        numbers, hostile, tonight, old = self.numbers, self.hostile, at == self.nights - 1, at < self.nights // 4
        # An older segment, a month of a better build, and what tonight's story is.
        middle = level - (0.05 if old else 0.0) + (_CHANGES.get(status, 0.0) if tonight else 0.0)
        rates = tuple(numbers.gauss(middle, _SIGMA) for _ in range(3 if tonight else 1))
        lost = not tonight and numbers.random() < 0.02
        excluded = not tonight and numbers.random() < 0.02
        shown = status if tonight else Status.INFRA_ERROR if lost else Status.PASS
        good = tuple(numbers.gauss(level + 0.001, _SIGMA) for _ in range(6))
        paired = (tonight and status is Status.REGRESSION) or at % 30 == 20
        day = self._day(at)
        record = NightRecord(
            session=SESSION if tonight else f"{day[:10].replace('-', '')}-020000-{numbers.randrange(16**4):04x}",
            case_id=case.id,
            target="v100",
            created=day,
            date=day[:10],
            segment={"host": "5818", "driver": "535" if old else "550"},
            status=shown.value,
            code="made",
            reason="made",
            cards=case.cards,
            log_rates=() if shown in (Status.INFRA_ERROR, Status.NOT_RUN) else rates,
            standing=Standing(
                rates[0], 1.0, 1.0, True, _SIGMA, 0.002, 40, len(rates), EffectSize(*[rates[0] - level] * 3)
            ),
            build={"version": "3.4.0.dev", "commit": f"{(at // 3) * 7919:07x}{hostile}"},
            compared=Compared("paddle 3.3.1", good, good) if paired else None,
        )
        why = Exclusion("night", "u", f"ada{hostile}", "2026-11-01", f"a broken fan{hostile}") if excluded else None
        return StoredNight(f"{case.id}-{at}", record, "old" if old else "new", exclusion=why)
