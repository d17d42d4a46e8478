"""Whether a reader's time grows in proportion to its input, over families of growing inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from helpers.plan import yaml_file
from tests.fuzz.strategies import linear_families
from tests.fuzz.targets import Target

# For 4 times as much input; a quadratic reader needs 16 times as long.
MOST_GROWTH = 8.0
# PyYAML's own numbers of base 60 are quadratic: that one is bounded by the size a file may have.
_BASE_60, _MOST_GROWTH_BASE_60 = ":1", 16.0
# Below this a ratio is the clock's.
LEAST_SECONDS = 0.05
_ROUNDS = 3


@dataclass(frozen=True)
class Growth:
    """How many times as long a reader takes for 4 times as much of one family; ``most`` is what it may be."""

    target: str
    family: str
    ratio: float
    most: float

    @property
    def too_fast(self) -> bool:
        return not self.ratio < self.most

    def __str__(self) -> str:
        return f"{self.target}, {self.family}: {self.ratio:.1f} times as long, at most {self.most:g}"


def growths(readers: Mapping[str, Target], clock: Callable[[], float] = time.process_time) -> Iterator[Growth]:
    """Of every family of the given readers, in processor time."""
    for name, family, before, part, after in linear_families():
        if name not in readers:
            continue
        # PyYAML needs a second for what the others read in a hundredth.
        small, large = (16_000, 64_000) if name == "config" else (32_000, 128_000)
        seconds = [_seconds(readers[name], _document(before, part, after, size), clock) for size in (small, large)]
        most = _MOST_GROWTH_BASE_60 if part == _BASE_60 else MOST_GROWTH
        yield Growth(name, family, seconds[1] / max(seconds[0], LEAST_SECONDS), most)


def _document(before: str, part: str, after: str, size: int) -> bytes:
    count = size // len(part % 0 if "%d" in part else part)
    middle = "".join(part % number for number in range(count)) if "%d" in part else part * count
    return (before + middle + after).encode()


def _seconds(target: Target, data: bytes, clock: Callable[[], float]) -> float:
    """The least of some rounds: what else the machine does only adds."""
    took = []
    for _ in range(_ROUNDS):
        # A text of perf.yaml is read once and kept.
        yaml_file._parsed.cache_clear()
        begin = clock()
        target.check(data)
        took.append(clock() - begin)
    return min(took)
