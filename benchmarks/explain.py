"""Whether planted causes are named: ``python -m benchmarks.explain``; hours on an idle core.

Something in a framework's training is made slower on purpose, by a share of a step. Runs of the unchanged build and of
the changed one are made in turn with the framework's profiler, and helpers.judging.parts.explanation says which part of
the step it is. Counted is how often the right part is named first, and how often a wrong one is named. What was not
planted may differ all the same: what is planted takes memory, and other operators then find theirs in another place.
Such a part is a side effect, and not wrong, if it also differs in the rounds of all other repeats and is small beside
what was planted: a larger one may be an error of the reader or of the method, which is there in all rounds, too.

A round is one run of the unchanged build and one of each change; a repeat takes the next ``--pairs`` rounds, which no
other repeat has. The unchanged build's runs are compared with each other, too, two rounds a pair. The runs stay in
``--folder``, and the next call goes on from them; ``--count`` only counts them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from scipy.special import bdtrc

from benchmarks.explain_changes import CAST_LAYER, LAYER
from benchmarks.explain_runs import FRAMEWORKS, REFERENCE, Recorder, Setup, working
from helpers.judging.parts.beyond_chance import LEAST_PAIRS, MOST_PAIRS, USUAL_PAIRS
from helpers.judging.parts.differences import Difference, Kind
from helpers.judging.parts.explanation import Explanation, explain
from helpers.judging.parts.ranks import parts_and_ranks
from helpers.judging.parts.shared_speed import differences_beside
from helpers.judging.parts.step_parts import Grain, Part, ProfiledPair
from helpers.machine.environment import CPU, GPU
from helpers.plan.grown_dataset import GrownDataset
from helpers.report.table import Align, Column, Table
from helpers.report.unforeseen import ended
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.step_profile import Phase

# Its backward pass is the next after that of CAST_LAYER.
CAST_READER = "blocks.0.expand.convolution"
# A part that was not planted differs if so clear a majority of other pairs has the probability of this by chance: 7 or
# more pairs can show it.
_SIDE_EFFECT = 0.01
# A part that was not planted and differs by as much of the plant, or more, is wrong in any case.
_MOST_SIDE_EFFECT = 0.1
SAME = "same-build"


@dataclass(frozen=True)
class Cause:
    """Something that is made slower. ``right`` says whether a named part is it, ``follows`` whether a part is a
    consequence that may be named after it."""

    setup: Setup
    right: Callable[[Difference], bool]
    follows: Callable[[Difference], bool] = lambda difference: False
    # Whether its size can be chosen.
    sized: bool = True
    # The facts of which one must be told apart, if the answer is no part.
    facts: tuple[str, ...] = ()


def _in_layer(layer: str, phase: Phase, operator: str) -> Callable[[Difference], bool]:
    def right(difference: Difference) -> bool:
        part = difference.part
        place = (part.layer, part.phase) == (layer, phase)
        return part.level is Grain.ROW and place and operator in part.operator.lower()

    return right


def _cast(difference: Difference) -> bool:
    part = difference.part
    in_place = part.layer == CAST_LAYER or part.level is Grain.OPERATOR
    return in_place and any(word in part.operator.lower() for word in ("::to", "cast"))


def _beside_cast(difference: Difference) -> bool:
    """What takes the values that the cast wrote, in another place of the memory than without it."""
    part = difference.part
    return part.level is Grain.ROW and part.layer in (CAST_LAYER, CAST_READER)


def _norm_parts(difference: Difference) -> bool:
    part = difference.part
    return part.level is Grain.OPERATOR or (part.level is Grain.ROW and part.layer.endswith(".norm"))


def _follows_norm_parts(difference: Difference) -> bool:
    """What is called more or less often, as autograd's nodes that belong to no layer: nothing else changes how often
    something is called. And the host's code that calls operators, of which there are more."""
    in_model = difference.part.phase in (Phase.FORWARD, Phase.BACKWARD)
    return in_model and difference.kind in (Kind.HOST, Kind.NEW, Kind.GONE, Kind.MORE_CALLS, Kind.FEWER_CALLS)


def _of_phase(phase: Phase) -> Callable[[Difference], bool]:
    return lambda difference: difference.part.phase is phase and difference.part.level is not Grain.RANK


def _last_rank(difference: Difference) -> bool:
    """As a whole, or one of its phases."""
    return difference.part.level is Grain.RANK and difference.part.rank == 1


def _host(difference: Difference) -> bool:
    """Between the parts of a step, as a phase or as a row."""
    return difference.kind is Kind.HOST and difference.part.phase in (Phase.HOST_GAP, Phase.OTHER)


# Two ranks differ from each other by what happens beside them, which more steps make up for; the product profiles 10.
ONE, TWO, LINKED = Setup(), Setup(cards=2, explained_steps=8), Setup(cards=2, explained_steps=8, link=True)
# During warm-up cuDNN chooses its algorithms, and a card reaches its clock.
ON_A_CARD = Setup(batch=128, precision="tf32", device=GPU, warmup_steps=10, window_steps=8, explained_steps=4)
# What makes the card's own work longer: the host's is hidden behind it.
CAUSES_ON_A_CARD = ("slow-backward", "called-twice", "cast", "norm-parts")
THREADS = ("threads", "torch_threads")
CAUSES: Mapping[str, Cause] = {
    "slow-backward": Cause(ONE, _in_layer(LAYER, Phase.BACKWARD, "conv")),
    "called-twice": Cause(ONE, _in_layer(LAYER, Phase.FORWARD, "conv")),
    "cast": Cause(ONE, _cast, _beside_cast),
    "norm-parts": Cause(ONE, _norm_parts, _follows_norm_parts),
    "python-work": Cause(ONE, _host),
    "slow-network": Cause(LINKED, _of_phase(Phase.ALL_REDUCE)),
    "slow-rank": Cause(TWO, _last_rank, lambda each: each.part.phase is Phase.RANK_WAIT),
    "slow-decoder": Cause(Setup(data="native", batch=2), _of_phase(Phase.DATA_WAIT)),
    "half-threads": Cause(Setup(threads=2), lambda each: True, lambda each: True, sized=False, facts=THREADS),
}


@dataclass(frozen=True)
class Repeat:
    """One answer, and the pairs that no part of it comes from."""

    explanation: Explanation
    others: tuple[ProfiledPair, ...] = ()

    def differs_elsewhere(self, difference: Difference) -> bool:
        """Whether this part differs in the same direction in the other pairs, beyond chance by their signs."""
        alike = [each * difference.seconds.mean > 0 for each in self._elsewhere.get(difference.part, ())]
        return bool(alike) and float(bdtrc(sum(alike) - 1, len(alike), 0.5)) <= _SIDE_EFFECT

    @cached_property
    def _elsewhere(self) -> Mapping[Part, Sequence[float]]:
        """The differences of each part in the other pairs."""
        if not self.others:
            return {}
        parts = parts_and_ranks(self.others)
        differences = differences_beside(parts, [0.0] * len(self.others))
        return {each.part: found for each, found in zip(parts, differences, strict=True)}


@dataclass(frozen=True)
class Tally:
    """The repeats of one cause."""

    cause: str
    framework: str
    percent: float
    repeats: tuple[Repeat, ...]

    @property
    def explanations(self) -> list[Explanation]:
        return [each.explanation for each in self.repeats]

    @property
    def right(self) -> int:
        return sum(self._is_right(each) for each in self.explanations)

    @property
    def wrong(self) -> int:
        return self._repeats_that_name(self.is_wrong)

    @property
    def side_effects(self) -> int:
        return self._repeats_that_name(lambda one, repeat: self._is_other(one) and not self.is_wrong(one, repeat))

    def _repeats_that_name(self, holds: Callable[[Difference, Repeat], bool]) -> int:
        return sum(any(holds(one, each) for one in each.explanation.named) for each in self.repeats)

    @property
    def named_nothing(self) -> int:
        return sum(not each.named for each in self.explanations)

    @property
    def drop(self) -> float:
        """The median over the repeats of the unprofiled drop, as a fraction of the step."""
        drops = [each.drop.mean / each.step_seconds for each in self.explanations]
        return statistics.median(drops) if drops else 0.0

    def _is_right(self, explanation: Explanation) -> bool:
        if self.cause == SAME:
            return not explanation.named
        cause = CAUSES[self.cause]
        if cause.facts:
            return any(name in cause.facts for name, _, _ in explanation.facts)
        return bool(explanation.named) and cause.right(explanation.named[0])

    def is_wrong(self, difference: Difference, repeat: Repeat) -> bool:
        if not self._is_other(difference):
            return False
        planted = self.percent / 100 * repeat.explanation.step_seconds
        is_small = abs(difference.seconds.mean) < _MOST_SIDE_EFFECT * planted
        return self.cause == SAME or not (is_small and repeat.differs_elsewhere(difference))

    def _is_other(self, difference: Difference) -> bool:
        """Whether this is neither what was planted nor what follows from it."""
        if self.cause == SAME:
            return True
        cause = CAUSES[self.cause]
        return not cause.right(difference) and not cause.follows(difference)


def _repeats(made: Sequence[ProfiledPair], pairs: int) -> Iterator[Repeat]:
    """So many pairs each, none of them twice; what is left at the end is no repeat."""
    for first in range(0, len(made) - pairs + 1, pairs):
        yield Repeat(explain(made[first : first + pairs], is_slower=True), (*made[:first], *made[first + pairs :]))


def percents_of(cause: str, percents: Sequence[float]) -> Sequence[float]:
    return percents if CAUSES[cause].sized else (0.0,)


def tallies(recorder: Recorder, pairs: int) -> Iterator[Tally]:
    """All that ``recorder`` has, in repeats of so many pairs."""
    for cause, percent in recorder.changes():
        same = cause == REFERENCE
        made = list(recorder.same_build() if same else recorder.pairs(cause, percent))
        yield Tally(SAME if same else cause, recorder.framework, percent, tuple(_repeats(made, pairs)))


_COLUMNS = [
    Column[Tally]("framework", lambda each: each.framework),
    Column[Tally]("cause", lambda each: each.cause),
    Column[Tally]("planted", lambda each: f"{each.percent:g}%" if each.percent else "", Align.RIGHT),
    Column[Tally]("longer", lambda each: f"{each.drop:+.1%}", Align.RIGHT),
    Column[Tally]("right first", lambda each: f"{each.right} of {len(each.repeats)}", Align.RIGHT),
    Column[Tally]("nothing", lambda each: str(each.named_nothing), Align.RIGHT),
    Column[Tally]("side effect", lambda each: str(each.side_effects), Align.RIGHT),
    Column[Tally]("wrong", lambda each: str(each.wrong), Align.RIGHT),
]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _options(arguments)
    if not LEAST_PAIRS <= given.pairs <= MOST_PAIRS:
        raise ConfigError("explain", field="--pairs", got=given.pairs, expected=f"from {LEAST_PAIRS} to {MOST_PAIRS}")
    if given.python is not None and given.device == CPU and len(given.framework or FRAMEWORKS) > 1:
        raise ConfigError("explain", field="--python", got=given.python, expected="one --framework, whose Python it is")
    on = "on a GPU " if given.device == GPU else ""
    frameworks = [each for each in FRAMEWORKS if causes_of(each, given.device)]
    _refuse("--framework", given.framework, on, frameworks)
    for chosen in [[each] for each in given.framework or ()] or [frameworks]:
        possible = dict.fromkeys(cause for each in chosen for cause in causes_of(each, given.device))
        _refuse("--cause", given.cause, f"{on}in {' or '.join(chosen)} ", list(possible))
    end = time.monotonic() + 3600 * given.hours

    def time_is_over() -> bool:
        return time.monotonic() > end

    given.folder.mkdir(parents=True, exist_ok=True)
    data = given.folder / "data"
    found: list[Tally] = []
    for framework in given.framework or frameworks:
        possible = causes_of(framework, given.device)
        wanted = [each for each in given.cause or possible if each in possible]
        for setup, causes in setups_of(wanted, given.device, given.steps).items():
            images = data if setup.data == "synthetic" else GrownDataset(data).first(32).root
            folder = given.folder / f"{framework}-{setup.folder}"
            folder.mkdir(exist_ok=True)
            recorder = Recorder(framework, setup, folder, images, given.cores)
            recorder.check()
            changes = [(cause, percent) for cause in causes for percent in percents_of(cause, given.percent)]
            if not given.count:
                with working(framework, given.folder, given.image_size, setup.threads, given.python) as worker:
                    recorder.rounds(worker, changes, time_is_over, given.repeats * given.pairs)
            found += tallies(recorder, given.pairs)
    table = Table.of(_COLUMNS, found).grid()
    print("\n".join([table.heading, *table.lines]))
    return 0


def causes_of(framework: str, device: str) -> Sequence[str]:
    """What can be planted in a framework on that device."""
    if device == GPU:
        return CAUSES_ON_A_CARD if framework == "pytorch" else ()
    return tuple(CAUSES)


def setups_of(causes: Sequence[str], device: str, steps: int | None) -> dict[Setup, list[str]]:
    """The causes by the kind of job in which they are planted, with so many profiled steps."""
    setups: dict[Setup, list[str]] = {}
    for name in causes:
        setup = CAUSES[name].setup if device == CPU else ON_A_CARD
        setups.setdefault(replace(setup, explained_steps=steps or setup.explained_steps), []).append(name)
    return setups


def _refuse(option: str, given: Sequence[str] | None, where: str, possible: Sequence[str]) -> None:
    if impossible := [each for each in given or () if each not in possible]:
        raise ConfigError("explain", field=option, got=impossible[0], expected=where + " or ".join(possible))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cause", action="append", choices=CAUSES, help="Plant this; may be given several times (all)")
    parser.add_argument("--framework", action="append", choices=FRAMEWORKS, help="Train in it (all)")
    parser.add_argument("--percent", type=float, nargs="+", default=[5.0], help="Make a step so much longer (5)")
    parser.add_argument("--repeats", type=int, default=1, help="Explain so often, each time with other runs (1)")
    parser.add_argument(
        "--pairs", type=int, default=USUAL_PAIRS, help=f"Explain from so many pairs of runs ({USUAL_PAIRS})"
    )
    parser.add_argument("--hours", type=float, default=24.0, help="Begin no round after so many hours (24)")
    parser.add_argument("--image-size", type=int, default=224, help="Train on images of so many pixels (224)")
    parser.add_argument(
        "--steps",
        type=int,
        choices=range(1, 101),
        metavar="N",
        help="Profile so many steps of a run (3; 8 of two ranks, 4 on a GPU)",
    )
    parser.add_argument("--device", choices=(CPU, GPU), default=CPU, help="Train there; on a gpu only PyTorch (cpu)")
    parser.add_argument("--python", type=Path, help="Train with this Python (that of the framework's environment)")
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1], help="Use these cores (0 1)")
    parser.add_argument("--folder", type=Path, required=True, help="Keep the runs there, and go on from them")
    parser.add_argument("--count", action="store_true", help="Make no runs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(ended(main, "explain"))
