"""The doctor's quick checks before the first case is trained: would others disturb every run of a session just now?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from helpers.machine.devices import CpuCard, Machine
from helpers.machine.doctor.cpu_checks import others_on_the_cores
from helpers.machine.doctor.finding import Context, Severity
from helpers.machine.doctor.gpu_checks import foreign_processes
from helpers.machine.environment import CPU, GPU
from helpers.machine.facts.gathered import SystemFacts, gather
from helpers.machine.unknown import Unknown
from helpers.machine.watch.contention import ContentionSample
from helpers.machine.watch.processes import family
from helpers.session.examination import ExaminationIO, held_cards, names_of_users
from helpers.trainers.contract.errors import SuiteError

# The second look is at a suspicion: what is over by then was a spike.
LOOK_SECONDS = (1.0, 2.0)


@dataclass(frozen=True)
class QuickLook:
    """``machine`` is the session's, ``max_foreign_share`` perf.yaml's limit. What cannot be seen stops nothing: each
    run looks for itself."""

    machine: Machine
    max_foreign_share: float
    io: ExaminationIO = field(default_factory=ExaminationIO)
    own: Callable[[], int] = os.getpid

    def disturbance(self, needs: Mapping[str, int]) -> str:
        """Who would disturb even the case that needs the fewest cards, in words; empty where nobody does.

        ``needs``: by device the fewest cards of a case. Asks a second time before it says so, and never while
        another session of the suite holds cards: for that one the cases wait.
        """
        told = ""
        for seconds in LOOK_SECONDS:
            told = self._look(needs, seconds)
            if not told:
                break
        return told

    def _look(self, needs: Mapping[str, int], seconds: float) -> str:
        try:
            leases = held_cards(self.machine, self.io)
            sample = self._watch(seconds) if CPU in needs and not leases else ContentionSample(0.0)
            context = Context(self._facts(), sample, self.max_foreign_share, self.io.variables, leases=leases)
        except (SuiteError, OSError, ValueError):
            return ""
        parts = []
        if CPU in needs and self._leaves_too_little(sample, needs[CPU]):
            parts += [each.found for each in others_on_the_cores(context) if each.severity is Severity.BLOCKER]
            if parts and not isinstance(context.facts.host.load_1m, Unknown):
                parts.append(f"load average {context.facts.host.load_1m:.1f}")
        if GPU in needs:
            parts += self._on_cards(context, needs[GPU])
        return "; ".join(parts)

    def _facts(self) -> SystemFacts:
        nvml = self.io.open_nvml() if self.machine.gpus else "not asked"
        return gather(
            self.machine,
            nvml,
            self.io.builds,
            interpreters={},
            data="",
            folders={},
            root=self.io.root,
            variables=self.io.variables,
        )

    def _watch(self, seconds: float) -> ContentionSample:
        """What others than this session used of the cores that cases are pinned to."""
        meter = self.io.meter(_cores(self.machine.cpu_cards))
        start = self.io.clock()
        self._sample(meter.sample, start)
        self.io.sleep(seconds)
        end = self.io.clock()
        self._sample(meter.sample, end)
        return meter.contention((start, end))

    def _sample(self, sample: Callable[..., None], at: float) -> None:
        everyone = self.io.processes.all()
        # pytest-xdist's workers start at this moment.
        own = [process.pid for process in family({self.own()}, everyone)]
        sample(at, own, everyone)

    def _leaves_too_little(self, sample: ContentionSample, cards: int) -> bool:
        """Whether others use more than the cores that a case of so many cards leaves to them."""
        total = len(_cores(self.machine.cpu_cards))
        needed = len(_cores(self.machine.cpu_cards[:cards]))
        if sample.foreign_share is None or not needed:
            return False
        return sample.foreign_share * total - (total - needed) > self.max_foreign_share * needed

    def _on_cards(self, context: Context, cards: int) -> list[str]:
        """Who sits on cards, where fewer than so many are left; that a card is unhealthy, each run tells."""
        blocked: dict[str, list[str]] = {}
        context = replace(context, process_names=names_of_users(context.facts, self.io))
        for gpu in self.machine.gpus:
            alone = replace(context, facts=replace(context.facts, machine=replace(self.machine, gpus=(gpu,))))
            found = [each for each in foreign_processes(alone) if each.severity is Severity.BLOCKER]
            if found:
                blocked[gpu.uuid] = [f"{each.name}: {each.found}" for each in found]
        if len(self.machine.gpus) - len(blocked) >= cards:
            return []
        return [told for each in blocked.values() for told in each]


def _cores(cards: tuple[CpuCard, ...]) -> frozenset[int]:
    return frozenset(core for card in cards for core in card.cores)
