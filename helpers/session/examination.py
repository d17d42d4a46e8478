"""Looks at this machine: for the doctor, and once before the first case of a session, to see whether others would
disturb every run just now. A look takes about a second, most of it spent watching the cores.

It is slow to import, because it needs the doctor's checks.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.history.run_folders import ResultStore
from helpers.machine.devices import CpuCard, Machine, discover
from helpers.machine.doctor.cpu_checks import others_on_the_cores
from helpers.machine.doctor.finding import Context, Severity
from helpers.machine.doctor.gpu_checks import foreign_processes
from helpers.machine.environment import CPU, GPU
from helpers.machine.facts import SystemFacts, gather, nvidia_cards_on_bus
from helpers.machine.files import named_by_user, open_regular
from helpers.machine.frameworks import BuildFinder, find_framework
from helpers.machine.host import probe_host_state, space
from helpers.machine.leases import Leases, default_folder
from helpers.machine.nvml_details import DetailedNvml, open_details
from helpers.machine.unknown import Unknown, ask
from helpers.machine.watch.contention import ContentionSample, CpuMeter, Meter, owner_of
from helpers.machine.watch.processes import Processes, family
from helpers.plan.case_plan import SuiteCase
from helpers.plan.image_folder import TRAIN_LIST
from helpers.plan.perf_yaml import Config
from helpers.session import SuiteOptions
from helpers.session.gate import Gate
from helpers.session.node_problems import loopback_problem, node_problems
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.frameworks import Framework

WATCH_SECONDS = 1.0
# The clock of a file server may differ from this machine's by so many seconds.
_CLOCK_BEHIND_SECONDS = 60.0
# A path and a number.
_LONGEST_LINE = 2**16


@dataclass(frozen=True)
class ExaminationIO:
    """What the examination reads from outside the process; tests replace it."""

    root: Path = Path("/")
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    open_nvml: Callable[[], DetailedNvml | str] = open_details
    builds: BuildFinder = field(default_factory=BuildFinder)
    processes: Processes = field(default_factory=Processes)
    meter: Callable[[frozenset[int]], Meter] = CpuMeter
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time
    owner: Callable[[int], str] = owner_of


def examine(
    config: Config,
    *,
    data_root: Path | None,
    runs_folder: Path,
    largest_batch_on: Callable[[Machine], int] = lambda machine: 0,
    runs_bytes_on: Callable[[Machine], int] = lambda machine: 0,
    history_problem: Callable[[], str] = lambda: "",
    io: ExaminationIO | None = None,
) -> Context:
    """Look at the machine. A check that fails becomes a finding or an Unknown; only a wrong perf.yaml raises
    (ConfigError).

    ``history_problem`` says why the history's database does not answer; empty if it does.
    """
    io = io or ExaminationIO()
    machine, nvml, failure = _machine(config, io)
    interpreters = {each: config.frameworks[each].interpreter for each in Framework}
    facts = gather(
        machine,
        nvml,
        io.builds,
        interpreters=interpreters,
        data=str(data_root) if data_root else "the small dataset: 256 images of 8 classes",
        folders={"runs": runs_folder, "data": data_root or config.path.parent},
        root=io.root,
        host=probe_host_state(io.root, variables=io.variables),
        variables=io.variables,
    )
    leases = ask(lambda: held_cards(machine, io))
    orphans = ask(lambda: tuple(f"{p.name} (pid {p.pid})" for p in io.processes.orphans()))
    wall, steady = io.wall(), io.clock()
    contention = _watch(machine, io)
    jump = (io.wall() - wall) - (io.clock() - steady)
    return Context(
        facts=facts,
        contention=contention,
        max_foreign_share=config.contention.max_foreign_share,
        variables=io.variables,
        gpu_failure=failure,
        gpus_on_bus=nvidia_cards_on_bus(io.root),
        runs=ask(lambda: space(_nearest(runs_folder))),
        runs_problem=_runs_problem(runs_folder),
        data_root=data_root,
        data_problem=_data_problem(data_root) if data_root else "",
        largest_batch=largest_batch_on(machine),
        leases=leases if isinstance(leases, tuple) else (),
        orphans=orphans if isinstance(orphans, tuple) else (),
        framework_problems=_framework_problems(config, io.builds),
        loopback_problem=loopback_problem(),
        process_names=names_of_users(facts, io),
        runs_needed_bytes=runs_bytes_on(machine),
        node_problems=node_problems(config.nodes),
        history_problem=history_problem(),
        clock_jump_seconds=jump,
        files_from_the_future=_from_the_future(runs_folder, io.wall()),
    )


def _machine(config: Config, io: ExaminationIO) -> tuple[Machine, DetailedNvml | str, str]:
    """The machine, its NVML, and why its cards cannot be used if NVML is there but fails."""
    try:
        nvml = io.open_nvml()
        machine = discover(nvml, variables=io.variables, root=io.root)
        configured = config.machine_for(platform.node(), machine.card_ids)
        if configured is not None and configured.cpu_cards is not None:
            machine = discover(nvml, configured.cpu_cards, variables=io.variables, root=io.root)
    except SuiteError as error:
        reason = str(error)
        return discover("NVML fails", None, variables=io.variables, root=io.root), reason, reason
    return machine, nvml, ""


def _watch(machine: Machine, io: ExaminationIO) -> ContentionSample:
    """How much others use the cores that cases would be pinned to, watched for a second."""
    cores = frozenset(core for card in machine.cpu_cards for core in card.cores)
    try:
        meter = io.meter(cores)
        start = io.clock()
        meter.sample(start, (), io.processes.all())
        io.sleep(WATCH_SECONDS)
        end = io.clock()
        meter.sample(end, (), io.processes.all())
        return meter.contention((start, end))
    except (SuiteError, OSError, ValueError) as error:
        return ContentionSample(None, note=str(error))


def names_of_users(facts: SystemFacts, io: ExaminationIO) -> dict[int, str]:
    """The names of the processes on the cards; a process of another container has no name here."""
    pids = {pid for each in facts.details.values() if not isinstance(each.processes, Unknown) for pid in each.processes}
    found = {}
    for pid in sorted(pids):
        process = io.processes.look(pid)
        user = io.owner(pid)
        name = process.name if process is not None else "of another container"
        found[pid] = f"{name} (pid {pid}{f', user {user}' if user else ''})"
    return found


def _from_the_future(runs_folder: Path, now: float) -> str:
    """The newest file of this checkout and of the results, if it is dated after now: then the clock was set back."""
    sessions = ask(lambda: list(runs_folder.iterdir()))
    suspects = [Path(__file__), *([] if isinstance(sessions, Unknown) else sessions)]
    newest = max(suspects, key=_changed_at)
    ahead = _changed_at(newest) - now
    return f"{newest.name}, by {ahead:.0f} s" if ahead > _CLOCK_BEHIND_SECONDS else ""


def _changed_at(path: Path) -> float:
    """The file's time in seconds since the epoch; 0 if it is gone, because a running session makes and removes files
    here."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def held_cards(machine: Machine, io: ExaminationIO) -> tuple[str, ...]:
    """The sessions of the suite that hold cards of the machine."""
    leases = Leases(default_folder(machine.host_id, io.variables))
    return leases.held((*machine.cpu_cards, *machine.gpus))


def _framework_problems(config: Config, builds: BuildFinder) -> dict[str, str]:
    """Why a framework cannot run, for Paddle and for those to which perf.yaml gives an interpreter."""
    wanted = [each for each in Framework if config.frameworks[each].interpreter or each is Framework.PADDLE]
    found = {each.value: find_framework(each, config.frameworks[each], builds) for each in wanted}
    return {name: build for name, build in found.items() if isinstance(build, str)}


def _runs_problem(folder: Path) -> str:
    try:
        nearest = _nearest(folder)
        if not nearest.is_dir():
            return f"{nearest} is no folder"
    except OSError as error:
        return f"{folder} cannot be reached: {error}"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} cannot be written"


def _data_problem(root: Path) -> str:
    """What is wrong with the list of images or the first of them; a session checks the whole folder when it starts."""
    listing = root / TRAIN_LIST
    try:
        with open_regular(named_by_user(listing)) as lines:
            first = lines.readline(_LONGEST_LINE).decode("utf-8").strip()
        image, _, label = first.rpartition(" ")
        is_there = (root / image).is_file()
    except (OSError, UnicodeDecodeError) as error:
        return f"{listing} cannot be read: {error}"
    if not image or not label.isdigit():
        return f"{listing} begins with {first[:80]!r}, expected PATH LABEL"
    return "" if is_there else f"{listing} names {image!r}, which is not in {root}"


def _nearest(folder: Path) -> Path:
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


# ---- before the first case


# The second look checks a suspicion: use that is over by then was a short spike.
LOOK_SECONDS = (1.0, 2.0)


def disturbance_of(
    runnable: Iterable[SuiteCase],
    options: SuiteOptions,
    config: Config,
    machine: Machine,
    gate: Gate,
    store: ResultStore,
    io: ExaminationIO | None = None,
) -> str:
    """Why every run would be INVALID because others use the machine, and how to go on; empty if nobody does.

    It takes about a second, and 3 s if it finds somebody, because then it looks twice. It ignores cases that may be
    disturbed (``--allow-contention``, unless a gate judges them) and cases that are finished (``--resume``).
    """
    cases = [
        each for each in runnable if not _may_be_disturbed(each, options, gate) and not _done(each, options, store)
    ]
    if not cases:
        return ""
    needs: dict[str, int] = {}
    for each in cases:
        needs[each.device] = min(each.case.cards_per_node, needs.get(each.device, each.case.cards_per_node))
    limit = config.contention.max_foreign_share
    look = QuickLook(machine, limit) if io is None else QuickLook(machine, limit, io)
    if not (found := look.disturbance(needs)):
        return ""
    remedy = "measure anyway with --allow-contention, which marks the figures and keeps them out of baselines"
    if any(map(gate.judges, cases)):
        remedy = "leave out --gate: a gate judges no disturbed run, whatever is allowed"
    return (
        f"The machine is busy, nothing was measured: {found}. A run of which others take more than {limit:.0%} is "
        f"INVALID. End them or wait (perfgate doctor looks again), or {remedy}"
    )


def _may_be_disturbed(suite_case: SuiteCase, options: SuiteOptions, gate: Gate) -> bool:
    return options.allow_contention and not gate.judges(suite_case)


def _done(suite_case: SuiteCase, options: SuiteOptions, store: ResultStore) -> bool:
    if not options.resume:
        return False
    try:
        runs = store.results(suite_case.case.id)
    except SuiteError:
        return False
    return bool(runs) and runs[-1].verdict is not None


@dataclass(frozen=True)
class QuickLook:
    """The doctor's quick checks. What they cannot see stops nothing, because each run checks for itself."""

    machine: Machine
    # perf.yaml's limit.
    max_foreign_share: float
    io: ExaminationIO = field(default_factory=ExaminationIO)
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
        """How much others than this session used the cores that cases are pinned to."""
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
        """Whether others use more than the cores that a case of ``cards`` cards does not need."""
        total = len(_cores(self.machine.cpu_cards))
        needed = len(_cores(self.machine.cpu_cards[:cards]))
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


def _cores(cards: tuple[CpuCard, ...]) -> frozenset[int]:
    return frozenset(core for card in cards for core in card.cores)
