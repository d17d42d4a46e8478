"""Looks, before the first case of a session, whether others use the machine so that every run would be disturbed.

It is slow to import, because it needs the doctor's checks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from helpers.common.unknown import Unknown
from helpers.history.run_folders import ResultStore
from helpers.machine.devices import Card, CpuCard, Machine
from helpers.machine.doctor.cpu_checks import others_on_the_cores
from helpers.machine.doctor.gpu_checks import foreign_processes
from helpers.machine.doctor.issue import Context, Severity
from helpers.machine.environment import CPU, GPU
from helpers.machine.facts import SystemFacts, gather
from helpers.machine.nvml import Gpu
from helpers.machine.watch.contention import ContentionSample
from helpers.machine.watch.processes import Process, family
from helpers.plan.case_plan import SuiteCase
from helpers.session.measuring.examination import ExaminationIO, cores_of, held_cards, names_of_users, watch
from helpers.session.measuring.quiet import OPTION
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import SuiteError

# The second look checks a suspicion: use that is over by then was a short spike.
LOOK_SECONDS = (1.0, 2.0)


def disturbance_of(
    runnable: Iterable[SuiteCase], suite: Suite, wait: Callable[[Callable[[], str]], str] = lambda look: look()
) -> str:
    """Why every run would be INVALID because others use the machine, and how to go on; empty if nobody does. ``wait``
    may look more than once (session/quiet.py).

    It takes about a second, and 3 s if it finds somebody, because then it looks twice. It ignores cases that may be
    disturbed (``--allow-contention``, unless a gate judges them) and cases that are finished (``--resume``).
    """
    options, gate = suite.options, suite.gate
    judged = [each for each in runnable if gate.judges(each) or not options.allow_contention]
    cases = [each for each in judged if not (options.resume and _done(each, suite.store))]
    if not cases:
        return ""
    needs: dict[str, int] = {}
    for each in cases:
        needs[each.device] = min(each.case.cards_per_node, needs.get(each.device, each.case.cards_per_node))
    limit = suite.config.contention.max_foreign_share
    look = QuickLook(suite.machine, limit, suite.io or ExaminationIO())
    if not (found := wait(lambda: look.disturbance(needs))):
        return ""
    remedy = ", or measure anyway with --allow-contention, which marks the figures and keeps them out of baselines"
    if any(map(gate.judges, cases)):
        remedy = "; a gate judges no disturbed run, whatever is allowed"
    return (
        f"The machine is busy, nothing was measured: {found}. A run of which others take more than {limit:.0%} is "
        f"INVALID (contention.max_foreign_share). End them, wait for them with {OPTION} MINUTES{remedy}"
    )


def _done(suite_case: SuiteCase, store: ResultStore) -> bool:
    try:
        runs = store.results(suite_case.case.id)
    except SuiteError:
        return False
    return bool(runs) and runs[-1].verdict is not None


def disturbs_cards(machine: Machine, device: str, cards: Sequence[Card], limit: float, io: ExaminationIO) -> str:
    """Who would disturb a run on these leased cards just now; empty if nobody does. ``limit`` is perf.yaml's."""
    cpu_cards = tuple(each for each in cards if isinstance(each, CpuCard))
    gpus = tuple(each for each in cards if isinstance(each, Gpu))
    leased = replace(machine, cpu_cards=cpu_cards or machine.cpu_cards, gpus=gpus or machine.gpus)
    return QuickLook(leased, limit, io, leased=True).disturbance({device: len(cards)})


@dataclass(frozen=True)
class QuickLook:
    """The doctor's quick checks. What they cannot see stops nothing, because each run checks for itself."""

    machine: Machine
    # perf.yaml's limit.
    max_foreign_share: float
    io: ExaminationIO = field(default_factory=ExaminationIO)
    # Whether this process holds all cards of ``machine`` itself.
    leased: bool = False
    # The root of the session's processes.
    own: Callable[[], int] = os.getpid

    def disturbance(self, needs: Mapping[str, int]) -> str:
        """Who would disturb even the case that needs the fewest cards; empty if nobody does.

        ``needs`` has the fewest cards that a case needs, by device. It looks a second time before it names anybody. The
        cores are not watched while another session of the suite holds cards, because the cases wait for that session.
        """
        found = ""
        for seconds in LOOK_SECONDS:
            found = self._look(needs, seconds)
            if not found:
                break
        return found

    def _look(self, needs: Mapping[str, int], seconds: float) -> str:
        try:
            leases = () if self.leased else held_cards(self.machine, self.io)
            sample = ContentionSample(0.0)
            if CPU in needs and not leases:
                sample = watch(self.machine.cpu_cards, seconds, self.io, self._session)
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

    def _session(self, everyone: Sequence[Process]) -> list[int]:
        """The processes of this session; pytest-xdist's workers start at this moment."""
        return [process.pid for process in family({self.own()}, everyone)]

    def _leaves_too_little(self, sample: ContentionSample, cards: int) -> bool:
        """Whether others use more than the cores that a case of ``cards`` cards does not need."""
        total = len(cores_of(self.machine.cpu_cards))
        needed = len(cores_of(self.machine.cpu_cards[:cards]))
        if sample.foreign_share is None or not needed:
            return False
        return sample.foreign_share * total - (total - needed) > self.max_foreign_share * needed

    def _on_cards(self, context: Context, cards: int) -> list[str]:
        """Who uses cards, if fewer than ``cards`` are free of others. Whether its cards are healthy each run checks
        itself."""
        blocked: dict[str, list[str]] = {}
        context = replace(context, process_names=names_of_users(context.facts, self.io))
        for gpu in self.machine.gpus:
            alone = replace(context, facts=replace(context.facts, machine=replace(self.machine, gpus=(gpu,))))
            found = [each for each in foreign_processes(alone) if each.severity is Severity.BLOCKER]
            if found:
                blocked[gpu.uuid] = [f"{each.name}: {each.found}" for each in found]
        if len(self.machine.gpus) - len(blocked) >= cards:
            return []
        return [text for each in blocked.values() for text in each]
