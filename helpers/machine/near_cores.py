"""The cores to which the process of each card is pinned. Of GPUs each gets cores near it, and no two share one."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.machine.devices import Card, CpuCard
from helpers.machine.host import siblings_of, tightest_quota
from helpers.machine.nvml import Gpu, Nvml, open_again, open_nvml

NEAR = "near the cards, by NVML"
EVENLY = "evenly, as NVML names no cores that suit"
TOO_FEW = "all cores, as there are fewer than cards"
# A rank and its readers (8 workers, or DALI's 4 threads) keep about so many CPUs busy. If the nearest are fewer, and
# less than half of an even share, more CPUs that are far serve the readers better.
_ENOUGH_CPUS = 8


@dataclass(frozen=True)
class Cores:
    """The logical CPUs of each card of a job, in the cards' order."""

    each: tuple[tuple[int, ...], ...]
    # How they were chosen: NEAR, EVENLY or TOO_FEW; empty for CPU cards, which are cores.
    how: str = ""


def cores_of(
    cards: Sequence[Card],
    nvml: Callable[[], Nvml | str] = open_nvml,
    *,
    alone: bool = True,
    allowed: Callable[[], Collection[int]] = lambda: os.sched_getaffinity(0),
    root: Path = Path("/"),
) -> Cores:
    """The cores of the leased ``cards``. Of GPUs each has as many of the CPUs that this process may use, within the CPU
    quota of its control groups: whole cores, with all their threads. GPUs that are not ``alone`` leave the other GPUs
    of the machine theirs.

    Raises DeviceError if NVML or a card is gone.
    """
    gpus = [card for card in cards if isinstance(card, Gpu)]
    if not gpus:
        return Cores(tuple(card.cores for card in cards if isinstance(card, CpuCard)))
    library, usable = open_again(nvml), frozenset(allowed())
    good = [gpu for gpu in library.gpus() if not gpu.fault]
    near = {gpu.uuid: library.near_cpus(gpu) & usable for gpu in (gpus if alone else good)}
    cores = list(dict.fromkeys(tuple(sorted(siblings_of(cpu, root) & usable)) for cpu in sorted(usable)))
    shares, how = divided(near, cores, tightest_quota(root))
    return Cores(tuple(shares[gpu.uuid] for gpu in gpus), how)


def divided(
    near: Mapping[str, Collection[int]], cores: Sequence[tuple[int, ...]], quota: float | None = None
) -> tuple[dict[str, tuple[int, ...]], str]:
    """Divide ``cores``, each given by its logical CPUs: as many for each card, and how they were chosen. ``near`` has
    the CPUs near each card, empty if unknown; ``quota`` is how many CPUs may be busy at a time."""
    usable = {cpu for core in cores for cpu in core}
    if len(cores) < len(near):
        return dict.fromkeys(near, tuple(sorted(usable))), TOO_FEW
    how, shares = EVENLY, _in_groups([(usable, list(near))], cores)
    if all(near.values()):
        close = _in_groups(_groups({card: _whole(cpus, cores) for card, cpus in near.items()}), cores)
        if _least(close) >= min(_ENOUGH_CPUS, len(usable) / len(near) / 2):
            how, shares = NEAR, close
    most = _least(shares)
    if quota is not None:
        # More CPUs than the quota allows would only be stopped together.
        most = max(1, min(most, int(quota / len(near))))
    return {card: tuple(sorted(share[:most])) for card, share in shares.items()}, how


def _least(shares: Mapping[str, Collection[int]]) -> int:
    return min(map(len, shares.values()))


def _whole(cpus: Collection[int], cores: Sequence[tuple[int, ...]]) -> set[int]:
    """All threads of the cores that any of ``cpus`` is on."""
    return {cpu for core in cores if not set(core).isdisjoint(cpus) for cpu in core}


def _groups(near: Mapping[str, Collection[int]]) -> list[tuple[set[int], list[str]]]:
    """The cards whose CPUs overlap, together with all these CPUs."""
    groups: list[tuple[set[int], list[str]]] = []
    for card, cpus in near.items():
        mine, cards = set(cpus), [card]
        for other in [each for each in groups if each[0] & mine]:
            groups.remove(other)
            mine, cards = mine | other[0], [*other[1], *cards]
        groups.append((mine, cards))
    return groups


def _in_groups(
    groups: Sequence[tuple[set[int], list[str]]], cores: Sequence[tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """The CPUs of each card: the first thread of each of its cores, then the second ones."""
    shares = {}
    for cpus, cards in groups:
        here = [core for core in cores if cpus & set(core)]
        each = len(here) // len(cards)
        for place, card in enumerate(cards):
            mine = here[place * each : (place + 1) * each]
            depth = max(map(len, mine), default=0)
            shares[card] = tuple(core[thread] for thread in range(depth) for core in mine if thread < len(core))
    return shares
