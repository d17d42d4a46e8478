"""What is said of planted causes: the right row first, of the right kind, and what it explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from helpers.judging.parts.differences import Kind
from helpers.judging.parts.explanation import Explanation, explain
from helpers.judging.parts.step_parts import Grain, Part, ProfiledPair, ProfiledRun
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase, StepProfile

pytestmark = pytest.mark.slow

LAYERS = tuple(f"blocks.{number}" for number in range(8))
# Phase, layer, operator and, on a card, kernel.
Key = tuple[Phase, str, str] | tuple[Phase, str, str, str]


@dataclass
class Build:
    """What a step of a build takes: seconds and calls of its rows, and the phases that have no rows."""

    rows: dict[Key, tuple[float, float]]
    phases: dict[Phase, float] = field(default_factory=lambda: {Phase.DATA_WAIT: 0.002, Phase.HOST_GAP: 0.001})
    threads: int = 2


def _usual() -> Build:
    rows: dict[Key, tuple[float, float]] = {}
    for number, layer in enumerate(LAYERS):
        rows[Phase.FORWARD, layer, "conv2d"] = (0.004 + 0.001 * number, 1)
        rows[Phase.FORWARD, layer, "batch_norm"] = (0.001, 1)
        rows[Phase.BACKWARD, layer, "conv2d_grad"] = (0.008 + 0.002 * number, 1)
        rows[Phase.BACKWARD, layer, "batch_norm_grad"] = (0.002, 1)
    rows[Phase.FORWARD, "", HOST] = (0.002, 1)
    rows[Phase.OPTIMIZER, "", "momentum"] = (0.01, 161)
    return Build(rows)


def _run(build: Build, random: np.random.Generator) -> ProfiledRun:
    """A run: 2% noise that all rows share, and 3% of each row's own."""
    shared = random.normal(1.0, 0.02)
    rows = tuple(
        _row(key, calls, seconds * shared * random.normal(1.0, 0.03)) for key, (seconds, calls) in build.rows.items()
    )
    phases = {phase: seconds * shared * random.normal(1.0, 0.03) for phase, seconds in build.phases.items()}
    for row in rows:
        phases[row.phase] = phases.get(row.phase, 0.0) + row.seconds_per_step
    step = sum(phases.values()) * random.normal(1.0, 0.002)
    first = StepProfile(
        "paddle", 0, 5, sum(phases.values()) * 1.05, step, phases, 0.0, rows, build.threads, "a profiler"
    )
    return ProfiledRun(step, (first,), {"instructions": "avx512"})


def _row(key: Key, calls: float, seconds: float) -> OperatorRow:
    phase, layer, operator, *kernel = key
    return OperatorRow(phase, layer, operator, "".join(kernel), "", "cpu", calls, seconds)


def explained(
    change: Callable[[Build], None], pairs: int = 6, seed: int = 3, both: Callable[[Build], None] = lambda build: None
) -> Explanation:
    """What is said of a build with this change; ``both`` builds are other than the usual ones."""
    random, good, bad = np.random.default_rng(seed), _usual(), _usual()
    both(good)
    both(bad)
    change(bad)
    return explain([ProfiledPair(_run(good, random), _run(bad, random)) for _ in range(pairs)])


GRADIENT: Key = (Phase.BACKWARD, "blocks.2", "conv2d_grad")


def slower(build: Build) -> None:
    seconds, calls = build.rows[GRADIENT]
    build.rows[GRADIENT] = (seconds + 0.009, calls)


def _twice(build: Build) -> None:
    seconds, calls = build.rows[Phase.FORWARD, "blocks.5", "conv2d"]
    build.rows[Phase.FORWARD, "blocks.5", "conv2d"] = (2 * seconds, 2 * calls)


def _cast(build: Build) -> None:
    build.rows[Phase.FORWARD, "blocks.1", "cast"] = (0.006, 2)


def _replaced(build: Build) -> None:
    seconds, calls = build.rows.pop((Phase.FORWARD, "blocks.3", "conv2d"))
    build.rows[Phase.FORWARD, "blocks.3", "conv2d_naive"] = (seconds + 0.01, calls)


def split(build: Build) -> None:
    for layer in LAYERS:
        del build.rows[Phase.FORWARD, layer, "batch_norm"]
        for part in ("mean", "subtract", "multiply"):
            build.rows[Phase.FORWARD, layer, part] = (0.001, 1)


KERNELS = ("wgrad", "dgrad", "nchwToNhwc")


def in_kernels(build: Build) -> None:
    """As on a card, where the gradient of a convolution is several kernels."""
    for layer in LAYERS:
        seconds, _ = build.rows.pop((Phase.BACKWARD, layer, "conv2d_grad"))
        for kernel in KERNELS:
            build.rows[Phase.BACKWARD, layer, "conv2d_grad", kernel] = (seconds / len(KERNELS), 1)


def slower_kernels(build: Build, kernels: Sequence[str] = KERNELS) -> None:
    for kernel in kernels:
        seconds, calls = build.rows[*GRADIENT, kernel]
        build.rows[*GRADIENT, kernel] = (seconds + 0.009 / len(kernels), calls)


def another_algorithm(build: Build) -> None:
    seconds, calls = build.rows.pop((*GRADIENT, "wgrad"))
    for kernel, share in (("gemm", 1.5), ("set_up", 0.5)):
        build.rows[*GRADIENT, kernel] = (share * seconds, calls)


def _loader(build: Build) -> None:
    build.phases[Phase.DATA_WAIT] += 0.01


def _python(build: Build) -> None:
    build.phases[Phase.HOST_GAP] += 0.01


def _python_in_forward(build: Build) -> None:
    build.rows[Phase.FORWARD, "", HOST] = (0.012, 1)


def test_a_slower_gradient_of_one_layer_is_named_first_with_what_it_explains() -> None:
    found = explained(slower)
    (first,) = found.named
    assert (first.part.phase, first.part.layer, first.part.operator) == GRADIENT
    assert first.kind is Kind.SLOWER
    assert first.seconds.low < 0.009 < first.seconds.high
    order = [Phase.DATA_WAIT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.HOST_GAP]
    assert [each.part.phase for each in found.phases] == order
    assert found.not_explained_seconds == pytest.approx(found.drop.mean - first.seconds.mean)
    assert found.cost == (pytest.approx(0.05, abs=0.01), pytest.approx(0.05, abs=0.01))


def test_on_a_card_an_operator_is_named_once_with_all_its_kernels() -> None:
    (first,) = explained(slower_kernels, both=in_kernels).named
    assert first.part == Part(Grain.ROW, *GRADIENT)
    assert (first.kind, first.reference.calls) == (Kind.SLOWER, len(KERNELS))
    assert first.seconds.low < 0.009 < first.seconds.high


def test_on_a_card_another_algorithm_is_a_replaced_operator_by_its_longest_kernels() -> None:
    (first,) = explained(another_algorithm, both=in_kernels).named
    assert (first.part, first.kind) == (Part(Grain.ROW, *GRADIENT), Kind.REPLACED)
    assert first.exchange.of("kernel") == ("wgrad", "gemm")


@pytest.mark.parametrize(
    ("change", "kind", "level", "name"),
    [
        (_twice, Kind.MORE_CALLS, Grain.ROW, "conv2d"),
        (_cast, Kind.MOVED, Grain.ROW, "cast"),
        (_replaced, Kind.NEW, Grain.ROW, "conv2d_naive"),
        (_loader, Kind.LOADER, Grain.PHASE, ""),
        (_python, Kind.HOST, Grain.PHASE, ""),
        (_python_in_forward, Kind.HOST, Grain.ROW, HOST),
    ],
)
def test_a_cause_is_named_first_by_its_kind(
    change: Callable[[Build], None], kind: Kind, level: Grain, name: str
) -> None:
    first = explained(change).named[0]
    assert (first.kind, first.part.level, first.part.operator) == (kind, level, name)


def test_an_operator_that_only_some_runs_of_the_build_have_is_called_more_often() -> None:
    random, usual, other = np.random.default_rng(3), _usual(), _usual()
    _cast(other)
    pairs = [ProfiledPair(_run(usual, random), _run(usual if number == 4 else other, random)) for number in range(8)]
    found = explain(pairs)
    (cast,) = [each for each in (*found.named, *found.unnamed) if each.part.operator == "cast"]
    assert cast.kind is Kind.MORE_CALLS


def test_of_operators_that_came_for_another_each_is_named_over_all_layers_and_their_sum_is_the_change() -> None:
    found = explained(split, pairs=8)
    kinds = {each.part.operator: (each.part.level, each.kind) for each in found.named}
    assert kinds == {
        **dict.fromkeys(("mean", "multiply", "subtract"), (Grain.OPERATOR, Kind.NEW)),
        "batch_norm": (Grain.OPERATOR, Kind.GONE),
    }
    assert found.explained_seconds == pytest.approx(8 * 0.002, rel=0.2)


def test_an_operator_that_is_slower_in_all_layers_is_named_once() -> None:
    def change(build: Build) -> None:
        for key, (seconds, calls) in build.rows.items():
            if key[2] == "conv2d_grad":
                build.rows[key] = (seconds * 1.15, calls)

    (first,) = explained(change).named
    assert (first.part.level, first.part.operator, first.part.layer) == (Grain.OPERATOR, "conv2d_grad", "")


def test_of_builds_that_do_not_differ_nothing_is_named_and_nothing_is_explained() -> None:
    found = explained(lambda build: None)
    assert (found.named, found.is_slower, found.explained_seconds) == ((), False, 0)
    assert found.not_explained_seconds == found.drop.mean
    assert len(found.unnamed) == 5


def test_facts_in_which_the_builds_differ_in_all_runs_are_told() -> None:
    def change(build: Build) -> None:
        build.threads = 1

    assert explained(change).facts == (("threads", "2", "1"),)
    assert explained(lambda build: None).facts == ()


def _with_clocks(mhz: float, pairs: int) -> Explanation:
    """What is said if the candidate's cores run at ``mhz`` and the reference's at 3000 MHz, within 10 MHz."""
    random, build = np.random.default_rng(5), _usual()

    def run(usual: float) -> ProfiledRun:
        made = _run(build, random)
        return replace(made, facts={**made.facts, "cpu_mhz": f"{random.normal(usual, 10):.0f}"})

    return explain([ProfiledPair(run(3000), run(mhz)) for _ in range(pairs)])


def test_clocks_that_differ_in_all_runs_are_told() -> None:
    ((name, old, new),) = _with_clocks(2700, 6).facts
    assert name == "cpu_mhz"
    assert float(old) == pytest.approx(3000, rel=0.01)
    assert new.endswith("MHz (-10.1%)")


@pytest.mark.parametrize(("mhz", "pairs"), [(3000, 12), (2990, 14)])
def test_clocks_that_are_alike_are_not(mhz: float, pairs: int) -> None:
    assert _with_clocks(mhz, pairs).facts == ()


def test_what_is_faster_is_named_too_and_comes_last() -> None:
    def change(build: Build) -> None:
        slower(build)
        _, calls = build.rows[Phase.OPTIMIZER, "", "momentum"]
        build.rows[Phase.OPTIMIZER, "", "momentum"] = (0.004, calls)

    named = explained(change).named
    assert [each.part.operator for each in named] == ["conv2d_grad", "momentum"]
    assert named[1].kind is Kind.FASTER


def test_a_large_part_that_is_not_well_known_stands_behind_a_smaller_one_that_is() -> None:
    momentum = (Phase.OPTIMIZER, "", "momentum")

    def large(build: Build) -> None:
        build.rows[momentum] = (0.1, 161)

    def change(build: Build) -> None:
        _cast(build)
        build.rows[momentum] = (0.108, 161)

    cast, optimizer = explained(change, pairs=8, both=large).named
    assert (cast.part.operator, optimizer.part.operator) == ("cast", "momentum")
    assert cast.seconds.mean < optimizer.seconds.mean
    assert cast.seconds.low > optimizer.seconds.low


def test_what_is_beyond_chance_and_explains_nothing_is_not_named() -> None:
    """A row that is longer by 0.15 ms in a step of 226 ms."""
    relu = (Phase.FORWARD, "head", "relu")

    def small(build: Build) -> None:
        build.rows[relu] = (0.0003, 1)

    def change(build: Build) -> None:
        build.rows[relu] = (0.00045, 1)

    assert explained(change, pairs=12, both=small).named == ()

    def larger(build: Build) -> None:
        build.rows[relu] = (0.0007, 1)

    assert [each.part.operator for each in explained(larger, pairs=12, both=small).named] == ["relu"]
