"""Whether GPUs were fit to be measured: throttling, heat, ECC, power cap and clocks over the window.

Everything is what NVML tells without root. Xid errors stand in the kernel's log, which needs root: one that stops
the job is seen as the job's crash, any other is not seen.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from helpers.environment import MEMORY_MHZ, SM_MHZ
from helpers.launch.norm import GPU_CLOCK_SHARE, Norm
from helpers.nvml import Gpu, GpuSettings, GpuState

# NVML's clocks-event reasons (nvml.h, nvmlClocksEventReasons) that mean the card ran below what it can.
THROTTLE_REASONS = {
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}
# A card without work, one at its applications clocks, one at its power cap: a V100 or A100 under full load sits at
# the cap by design, so that only another cap than usual is a fault.
_IDLE, _AT_POWER_CAP = 0x01, 0x04
_OTHER_REASONS = {_IDLE: "idle", 0x02: "applications clocks setting", _AT_POWER_CAP: "software power cap"}
# So near to it a card slows itself down with the next gust of warm air; its sensor shows whole degrees.
_NEAR_SLOWDOWN_C = 3


@dataclass(frozen=True)
class HealthSample:
    """One look at one GPU, ``at`` in monotonic seconds; ``settings`` at some looks only."""

    at: float
    uuid: str
    state: GpuState
    settings: GpuSettings | None = None


@dataclass(frozen=True)
class CardLooks:
    """The looks at one GPU up to the window's end. ``settings`` are those of the window, ``before`` the first look's
    state: an error on the way to the window (a page about to be retired) counts, too."""

    gpu: Gpu
    place: int
    before: GpuState
    states: Sequence[GpuState]
    settings: Sequence[GpuSettings] = field(default_factory=tuple)

    @property
    def working(self) -> list[GpuState]:
        """An idle card's clock says nothing about the card: it is the loader's fault, or the build's."""
        return [state for state in self.states if not state.throttle_reasons & _IDLE]

    @property
    def hottest_c(self) -> int:
        return max(state.temperature_c for state in self.states)


def looks_at(samples: Sequence[HealthSample], gpu: Gpu, place: int, window: tuple[float, float]) -> CardLooks | None:
    """What was seen of a card in the window; None when nothing was."""
    seen = [sample for sample in samples if sample.uuid == gpu.uuid and sample.at <= window[1]]
    states = [sample.state for sample in seen if sample.at >= window[0]]
    if not states:
        return None
    told = [(sample.at, sample.settings) for sample in seen if sample.settings is not None]
    # The last ones before the window still hold at its beginning.
    first = max((number for number, (at, _) in enumerate(told) if at <= window[0]), default=0)
    return CardLooks(gpu, place, seen[0].state, states, [settings for _, settings in told[first:]])


def unhealthy_reasons(
    samples: Sequence[HealthSample],
    gpus: Sequence[Gpu],
    window: tuple[float, float] | None,
    norm: Norm | None = None,
) -> tuple[str, ...]:
    """Why cards were not fit during the window, each with its numbers and what to do; empty when they were."""
    if window is None:
        return ()
    reasons: list[str] = []
    for place, gpu in enumerate(gpus):
        looks = looks_at(samples, gpu, place, window)
        if looks is None:
            reasons.append(f"{gpu.uuid}: no look at it during the window")
            continue
        found = [*_throttled(looks), *_hot(looks), *_memory(looks)]
        if norm is not None:
            found += [*_power_cap(looks, norm), *_clocks(looks, norm)]
        reasons += [f"{gpu.uuid}: {reason}" for reason in found]
    return tuple(reasons)


def window_facts(
    samples: Sequence[HealthSample], gpus: Sequence[Gpu], window: tuple[float, float] | None
) -> dict[str, str]:
    """Of each card in order, over the window: median clocks, power and temperature, the hottest look, the limits."""
    looks = [window and looks_at(samples, gpu, place, window) for place, gpu in enumerate(gpus)]
    cards = [each for each in looks if each]
    if not cards or len(cards) < len(gpus):
        return {}

    def each(values: Sequence[object]) -> str:
        return " ".join(str(value) for value in values)

    found = {
        SM_MHZ: each([f"{_median([s.sm_clock_mhz for s in card.working or card.states]):.0f}" for card in cards]),
        MEMORY_MHZ: each([f"{_median([s.memory_clock_mhz for s in card.states]):.0f}" for card in cards]),
        "gpu_temperature_c": each([f"{_median([s.temperature_c for s in card.states]):.0f}" for card in cards]),
        "gpu_hottest_c": each([card.hottest_c for card in cards]),
        "gpu_power_watts": each([f"{_median([s.power_watts for s in card.states]):.0f}" for card in cards]),
        "gpu_uncorrected_ecc": each([card.states[-1].uncorrected_ecc for card in cards]),
        "gpu_clocks_held_by": _held_by(cards),
        "not_measured": _not_measured(cards),
    }
    limits = [card.settings[-1].power_limit_watts for card in cards if card.settings]
    if limits and None not in limits:
        found["gpu_power_limit_watts"] = each(limits)
    # A driver that tells no memory clock has none to be held against.
    if "0" in found[MEMORY_MHZ].split():
        del found[MEMORY_MHZ]
    return found


def _throttled(looks: CardLooks) -> list[str]:
    found = []
    for bit, name in THROTTLE_REASONS.items():
        hits = sum(1 for state in looks.states if state.throttle_reasons & bit)
        if hits:
            slowest = min(state.sm_clock_mhz for state in looks.states)
            text = f"{name} in {hits} of {len(looks.states)} looks, down to {slowest} MHz, up to {looks.hottest_c} °C"
            found.append(f"{text} (nvidia-smi -q -d PERFORMANCE,TEMPERATURE)")
    return found


def _hot(looks: CardLooks) -> list[str]:
    limits = [each.slowdown_c for each in looks.settings if each.slowdown_c is not None]
    if not limits or looks.hottest_c < min(limits) - _NEAR_SLOWDOWN_C:
        return []
    return [f"{looks.hottest_c} °C, and it slows down at {min(limits)} °C (check fans and air flow)"]


def _memory(looks: CardLooks) -> list[str]:
    found = []
    rise = looks.states[-1].uncorrected_ecc - looks.before.uncorrected_ecc
    if rise > 0:
        found.append(f"{rise} uncorrected ECC errors during the run (reset the card; if they come back, replace it)")
    if any(each.pages_pending for each in looks.settings):
        found.append("memory pages wait to be retired or remapped after ECC errors (reset the card or reboot)")
    return found


def _power_cap(looks: CardLooks, norm: Norm) -> list[str]:
    """Another cap than recorded; without an entry one below the card's default that also held it back."""
    limits = [each.power_limit_watts for each in looks.settings if each.power_limit_watts is not None]
    found = []
    if len(set(limits)) > 1:
        found.append(f"power cap changed during the run: {' W, '.join(map(str, limits))} W")
    if not limits:
        return found
    now, index = limits[-1], looks.gpu.index
    if norm.recorded and norm.power_limits_watts and now not in norm.power_limits_watts:
        usual = ", ".join(map(str, sorted(norm.power_limits_watts)))
        set_back = f"sudo nvidia-smi -i {index} -pl {max(norm.power_limits_watts)}"
        found.append(f"power cap {now} W, recorded at {usual} W ({set_back}, or record with --update-baselines)")
    elif not norm.recorded:
        default = looks.settings[-1].default_power_limit_watts
        held = any(state.throttle_reasons & _AT_POWER_CAP for state in looks.states)
        if held and default is not None and now < default:
            set_back = f"sudo nvidia-smi -i {index} -pl {default}"
            found.append(
                f"held back by a power cap of {now} W, by default {default} W ({set_back}, or record with"
                " --update-baselines)"
            )
    return found


def _clocks(looks: CardLooks, norm: Norm) -> list[str]:
    """Another clock than recorded, where neither idling nor the power cap explains it; without an entry
    applications clocks below the card's default."""
    index = looks.gpu.index
    if not norm.recorded:
        told = [(s.applications_clock_mhz, s.default_applications_clock_mhz) for s in looks.settings]
        low = [(now, usual) for now, usual in told if now is not None and usual is not None and now < usual]
        text = "applications clock {} MHz, by default {} MHz (sudo nvidia-smi -i {} -rac, or record with {})"
        return [text.format(*low[-1], index, "--update-baselines")] if low else []
    free = [state for state in looks.working if not state.throttle_reasons & _AT_POWER_CAP]
    # Under the power cap most of the time the clock follows the load, and so the build.
    free = free if len(free) * 2 >= len(looks.working) else []
    found = []
    for name, title, values in (
        (SM_MHZ, "SM", [state.sm_clock_mhz for state in free]),
        (MEMORY_MHZ, "memory", [state.memory_clock_mhz for state in looks.working]),
    ):
        usual = norm.clock(name, looks.place)
        if usual is None or not values:
            continue
        now = _median(values)
        if abs(now - usual) > GPU_CLOCK_SHARE * usual:
            found.append(
                f"median {title} clock {now:.0f} MHz, recorded at {usual:.0f} MHz (sudo nvidia-smi -i {index} -rac,"
                " -rgc and -rmc, or record with --update-baselines)"
            )
    return found


def _held_by(cards: Sequence[CardLooks]) -> str:
    """NVML's reasons over all cards, by the share of the looks: ``software power cap 98%``."""
    states = [state for card in cards for state in card.states]
    names = {**_OTHER_REASONS, **THROTTLE_REASONS}
    shares = {name: sum(1 for s in states if s.throttle_reasons & bit) / len(states) for bit, name in names.items()}
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share)


def _not_measured(cards: Sequence[CardLooks]) -> str:
    unseen = ["Xid errors (the kernel's log needs root)"]
    settings = [each for card in cards for each in card.settings]
    for name, values in (
        ("power cap", [each.power_limit_watts for each in settings]),
        ("slowdown temperature", [each.slowdown_c for each in settings]),
        ("pending memory pages", [each.pages_pending for each in settings]),
    ):
        if not values or None in values:
            unseen.append(f"{name} (NVML does not tell)")
    return "; ".join(unseen)


def _median(values: Sequence[float]) -> float:
    return float(statistics.median(values))
