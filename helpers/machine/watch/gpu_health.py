"""Checks whether GPUs were fit for measuring during the window: throttling, heat, ECC, power cap and clocks.

It uses only NVML queries that need no root rights. Xid errors are in the kernel's log, which is not read here: an Xid
error that stops the job shows as the job's crash; others are not noticed.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from helpers.common.unknown import Unknown, known
from helpers.machine.environment import MEMORY_MHZ, SM_MHZ
from helpers.machine.nvml import Gpu, GpuSettings, GpuState
from helpers.machine.watch import GPU_CLOCK_SHARE, Norm

# NVML's clocks-event reasons (nvml.h, nvmlClocksEventReasons) that mean that the card was slowed down.
THROTTLE_REASONS = {
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}
_SLOWED_DOWN = sum(THROTTLE_REASONS)
# A run is throttled if a reason is seen in a larger share of the window's looks (two a second). A card that reaches its
# limit at one look of thousands loses almost nothing: even at half its clock, 2% of the looks are 1% of the time, which
# is less than runs differ (docs/verdicts.md, "How much speeds vary": 1.41% at the 90th percentile), and the
# median step does not change. The same share holds for heat close to the limit and for a power cap. A result's facts
# have the share of each.
MOST_THROTTLED_SHARE = 0.02
# So close to its limit, a card slows down as soon as the air is slightly warmer. Its sensor shows whole degrees.
_NEAR_SLOWDOWN_C = 3
# The reasons of an idle card and of a card at its power cap. A V100 or A100 under full load is at the cap by design, so
# only a cap other than usual is a fault.
_IDLE, _AT_POWER_CAP = 0x01, 0x04
_OTHER_REASONS = {_IDLE: "idle", 0x02: "applications clocks setting", _AT_POWER_CAP: "software power cap"}
# The fact with what lowered the clocks in the window.
HELD_BY_FACT = "gpu_clocks_held_by"
# The facts with each card's links in the window, and the word for a card of which NVML does not say it.
PCIE_FACT, NVLINKS_FACT, NOT_SAID = "gpu_pcie_link", "gpu_nvlinks_active", "unknown"
# The facts with a value for each card.
_OF_EACH_CARD = (
    SM_MHZ, MEMORY_MHZ, PCIE_FACT, NVLINKS_FACT, "gpu_temperature_c", "gpu_hottest_c", "gpu_power_watts",
    "gpu_uncorrected_ecc", "gpu_power_limit_watts",
)  # fmt: skip


@dataclass(frozen=True)
class HealthSample:
    """The state of one GPU at one look."""

    # In monotonic seconds.
    at: float
    uuid: str
    state: GpuState
    # Read at some looks only.
    settings: GpuSettings | None = None


@dataclass(frozen=True)
class CardLooks:
    """The looks at one GPU up to the end of the window."""

    gpu: Gpu
    # The card's index among the leased cards.
    place: int
    # The state at the first look. An error after it but before the window (a page to be retired) counts too.
    before: GpuState
    # The states in the window.
    states: Sequence[GpuState]
    # The settings that held in the window.
    settings: Sequence[GpuSettings] = field(default_factory=tuple)

    @property
    def working(self) -> list[GpuState]:
        """The states in which the card worked. The low clock of an idle card is caused by the loader or the build, not
        by the card."""
        return [state for state in self.states if not state.throttle_reasons & _IDLE]

    @property
    def hottest_c(self) -> int:
        return max(state.temperature_c for state in self.states)


def looks_at(samples: Sequence[HealthSample], gpu: Gpu, place: int, window: tuple[float, float]) -> CardLooks | None:
    """The looks at a card in the window; None if there were none."""
    seen = [sample for sample in samples if sample.uuid == gpu.uuid and sample.at <= window[1]]
    states = [sample.state for sample in seen if sample.at >= window[0]]
    if not states:
        return None
    settings = [(sample.at, sample.settings) for sample in seen if sample.settings is not None]
    # The last settings read before the window are those at its beginning.
    first = max((number for number, (at, _) in enumerate(settings) if at <= window[0]), default=0)
    return CardLooks(gpu, place, seen[0].state, states, [each for _, each in settings[first:]])


def unhealthy_reasons(
    samples: Sequence[HealthSample],
    gpus: Sequence[Gpu],
    window: tuple[float, float] | None,
    norm: Norm | None = None,
) -> tuple[str, ...]:
    """Why cards were not fit for measuring during the window, with numbers and remedies; empty if they were."""
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


def gpu_facts(
    samples: Sequence[HealthSample], gpus: Sequence[Gpu], window: tuple[float, float] | None
) -> dict[str, str]:
    """The facts of the window. Each has a value for every card, in order: median clocks, power and temperature, highest
    temperature, limits."""
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
        HELD_BY_FACT: _held_by(cards),
        "not_measured": _not_measured(cards),
    }
    limits = [card.settings[-1].power_limit_watts for card in cards if card.settings]
    if limits and len(known(limits)) == len(limits):
        found["gpu_power_limit_watts"] = each(limits)
    found[PCIE_FACT] = each([_usual([_pcie(settings) for settings in card.settings]) for card in cards])
    found[NVLINKS_FACT] = each([_usual([_nvlinks(settings) for settings in card.settings]) for card in cards])
    # A memory clock of 0 means that the driver does not report it, so it is left out.
    if "0" in found[MEMORY_MHZ].split():
        del found[MEMORY_MHZ]
    return found


def facts_of_nodes(nodes: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The facts of the window of all nodes, from those of each in node order: a fact with a value for each card goes on
    with the other nodes' cards. One that some node lacks, and any other fact, is the first node's alone."""
    first, *others = nodes
    return {
        name: " ".join([value, *(each[name] for each in others)])
        if name in _OF_EACH_CARD and all(name in each for each in others)
        else value
        for name, value in first.items()
    }


def _usual(values: Sequence[str]) -> str:
    """What most looks of a card in the window say: a link may be changed for a moment only."""
    return statistics.mode(values) if values else NOT_SAID


def _pcie(settings: GpuSettings) -> str:
    """Such as ``gen4-x16``."""
    if isinstance(settings.pcie_generation, Unknown) or isinstance(settings.pcie_width, Unknown):
        return NOT_SAID
    return f"gen{settings.pcie_generation}-x{settings.pcie_width}"


def _nvlinks(settings: GpuSettings) -> str:
    """Such as ``11-of-12``."""
    links = settings.nvlinks
    return NOT_SAID if isinstance(links, Unknown) else f"{sum(links)}-of-{len(links)}"


def _throttled(looks: CardLooks) -> list[str]:
    # All reasons are counted together: a card that changes from one to another is slowed all the time.
    if not _often([state for state in looks.states if state.throttle_reasons & _SLOWED_DOWN], looks):
        return []
    found = []
    for bit, name in THROTTLE_REASONS.items():
        slowed = [state for state in looks.states if state.throttle_reasons & bit]
        if slowed:
            slowest = min(state.sm_clock_mhz for state in slowed)
            text = f"{name} in {_share(slowed, looks)}, down to {slowest} MHz, up to {looks.hottest_c} °C"
            found.append(f"{text} (nvidia-smi -q -d PERFORMANCE,TEMPERATURE)")
    return found


def _often(seen: Sequence[GpuState], looks: CardLooks) -> bool:
    return len(seen) > MOST_THROTTLED_SHARE * len(looks.states)


def _share(seen: Sequence[GpuState], looks: CardLooks) -> str:
    share = len(seen) / len(looks.states)
    return f"{share:.1%} of the looks ({len(seen)} of {len(looks.states)}; {MOST_THROTTLED_SHARE:.0%} may be)"


def _hot(looks: CardLooks) -> list[str]:
    limits = known([each.slowdown_c for each in looks.settings])
    if not limits:
        return []
    from_c = min(limits) - _NEAR_SLOWDOWN_C
    near = [state for state in looks.states if state.temperature_c >= from_c]
    if not _often(near, looks):
        return []
    heat = f"{looks.hottest_c} °C, and it slows down at {min(limits)} °C"
    return [f"{heat}; within {_NEAR_SLOWDOWN_C} °C of that in {_share(near, looks)} (check fans and air flow)"]


def _memory(looks: CardLooks) -> list[str]:
    found = []
    rise = looks.states[-1].uncorrected_ecc - looks.before.uncorrected_ecc
    if rise > 0:
        found.append(f"{rise} uncorrected ECC errors during the run (reset the card; if they come back, replace it)")
    if any(known([each.pages_pending for each in looks.settings])):
        found.append("memory pages wait to be retired or remapped after ECC errors (reset the card or reboot)")
    return found


def _power_cap(looks: CardLooks, norm: Norm) -> list[str]:
    """Reasons, if the power cap is not the recorded one; without a recorded entry, if a cap below the card's default
    slowed the card down."""
    limits = known([each.power_limit_watts for each in looks.settings])
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
        held = [state for state in looks.states if state.throttle_reasons & _AT_POWER_CAP]
        if _often(held, looks) and not isinstance(default, Unknown) and now < default:
            set_back = f"sudo nvidia-smi -i {index} -pl {default}"
            found.append(
                f"held back by a power cap of {now} W, by default {default} W ({set_back}, or record with"
                " --update-baselines)"
            )
    return found


def _clocks(looks: CardLooks, norm: Norm) -> list[str]:
    """Reasons, if a clock differs from the recorded one although the card was neither idle nor at its power cap;
    without a recorded entry, if applications clocks are below the card's default."""
    index = looks.gpu.index
    if not norm.recorded:
        for each in looks.settings:
            now, usual = each.applications_clock_mhz, each.default_applications_clock_mhz
            if not isinstance(now, Unknown) and not isinstance(usual, Unknown) and now < usual:
                remedy = f"sudo nvidia-smi -i {index} -rac, or record with --update-baselines"
                return [f"applications clock {now} MHz, by default {usual} MHz ({remedy})"]
        return []
    free = [state for state in looks.working if not state.throttle_reasons & _AT_POWER_CAP]
    # If a card is at its power cap most of the time, its clock follows the load and so depends on the build; it is not
    # compared.
    free = free if len(free) * 2 >= len(looks.working) else []
    found = []
    for name, title, values in (
        (SM_MHZ, "SM", [state.sm_clock_mhz for state in free]),
        (MEMORY_MHZ, "memory", [state.memory_clock_mhz for state in looks.working]),
    ):
        recorded = norm.clock(name, looks.place)
        median = _median(values) if values else None
        if recorded is not None and median is not None and abs(median - recorded) > GPU_CLOCK_SHARE * recorded:
            found.append(
                f"median {title} clock {median:.0f} MHz, recorded at {recorded:.0f} MHz (sudo nvidia-smi -i {index}"
                " -rac, -rgc and -rmc, or record with --update-baselines)"
            )
    return found


def _held_by(cards: Sequence[CardLooks]) -> str:
    """NVML's reasons for lower clocks on all cards, with their share of the looks: ``software power cap 98%``."""
    states = [state for card in cards for state in card.states]
    names = {**_OTHER_REASONS, **THROTTLE_REASONS}
    shares = {name: sum(1 for s in states if s.throttle_reasons & bit) / len(states) for bit, name in names.items()}
    shown = {name: f"{share:.0%}" if share >= 0.01 else f"{share:.2%}" for name, share in shares.items() if share}
    return ", ".join(f"{name} {share}" for name, share in shown.items())


def _not_measured(cards: Sequence[CardLooks]) -> str:
    settings = [each for card in cards for each in card.settings or [GpuSettings()]]
    unseen = {name for each in settings for name, value in vars(each).items() if isinstance(value, Unknown)}
    names = [f"{name.replace('_', ' ')} (NVML does not say)" for name in sorted(unseen)]
    return "; ".join(["Xid errors (the suite does not read the kernel's log)", *names])


def _median(values: Sequence[float]) -> float:
    return float(statistics.median(values))
