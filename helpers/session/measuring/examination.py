"""Looks at this machine for the doctor. A look takes about a second, most of it spent watching the cores.

It is slow to import, because it needs the doctor's checks.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from helpers.common.files import named_by_user, open_regular
from helpers.common.unknown import Unknown, ask
from helpers.launch.nodes.connected import open_port, resolve
from helpers.machine.devices import CpuCard, Machine, discover, hides_all_gpus
from helpers.machine.doctor.issue import Context
from helpers.machine.facts import SystemFacts, gather, nvidia_cards_on_bus
from helpers.machine.framework_builds import BuildFinder, find_framework
from helpers.machine.host import probe_host_state, space
from helpers.machine.leases import Leases, default_folder
from helpers.machine.nvml import Nvml, open_nvml
from helpers.machine.watch.contention import ContentionSample, CpuMeter, Meter, owner_of
from helpers.machine.watch.processes import Process, Processes
from helpers.plan.image_folder import TRAIN_LIST
from helpers.plan.perf_yaml import Config, HostConfig, NodesConfig
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.frameworks import Framework

WATCH_SECONDS = 1.0
# The clock of a file server may differ from this machine's by so many seconds.
_CLOCK_BEHIND_SECONDS = 60.0
# A path and a number.
_LONGEST_LINE = 2**16
# ssh gives up sooner.
_SHARING_SECONDS = 15.0
# A name service that takes longer is a problem.
_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class ExaminationIO:
    """What the examination reads from outside the process; tests replace it."""

    root: Path = Path("/")
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    open_nvml: Callable[[], Nvml | str] = open_nvml
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
    runs_bytes_on: Callable[[Machine], int] = lambda machine: 0,
    history_problem: Callable[[], str] = lambda: "",
    io: ExaminationIO | None = None,
) -> Context:
    """Look at the machine. A check that fails becomes an issue or an Unknown; only a wrong perf.yaml raises
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
    contention = _watched(machine, io)
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
        leases=leases if isinstance(leases, tuple) else (),
        orphans=orphans if isinstance(orphans, tuple) else (),
        framework_problems=_framework_problems(config, io.builds),
        process_names=names_of_users(facts, io),
        runs_needed_bytes=runs_bytes_on(machine),
        node_problems=(*node_problems(config.nodes), *sharing_problems(config.nodes, _nearest(runs_folder))),
        history_problem=history_problem(),
        files_from_the_future=_from_the_future(runs_folder, io.wall()),
    )


def _machine(config: Config, io: ExaminationIO) -> tuple[Machine, Nvml | str, SuiteError | None]:
    """The machine, its NVML, and why its cards cannot be used if NVML is there but fails."""
    try:
        nvml = io.open_nvml()
        machine = discover(nvml, variables=io.variables, root=io.root)
        configured = config.machine_for(platform.node(), machine.card_ids)
        if configured is not None and configured.cpu_cards is not None:
            machine = discover(nvml, configured.cpu_cards, variables=io.variables, root=io.root)
    except SuiteError as error:
        note = "NVML fails" if error.about.startswith("NVML") else f"{error.about}: {error.got}"
        machine = discover(note, None, variables=io.variables, root=io.root)
        return machine, str(error), None if hides_all_gpus(io.variables) else error
    return machine, nvml, None


def watch(
    cards: Sequence[CpuCard],
    seconds: float,
    io: ExaminationIO,
    own: Callable[[Sequence[Process]], Collection[int]] = lambda everyone: (),
) -> ContentionSample:
    """How much others use the cores of ``cards`` in the next ``seconds``. ``own`` gets all processes and returns the
    ids of those that are not others."""
    meter = io.meter(cores_of(cards))

    def sample() -> float:
        at, everyone = io.clock(), io.processes.all()
        meter.sample(at, own(everyone), everyone)
        return at

    start = sample()
    io.sleep(seconds)
    return meter.contention((start, sample()))


def _watched(machine: Machine, io: ExaminationIO) -> ContentionSample:
    try:
        return watch(machine.cpu_cards, WATCH_SECONDS, io)
    except (SuiteError, OSError, ValueError) as error:
        return ContentionSample(None, note=str(error))


def cores_of(cards: Sequence[CpuCard]) -> frozenset[int]:
    return frozenset(core for card in cards for core in card.cores)


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


def node_problems(
    nodes: NodesConfig,
    resolve: Callable[[HostConfig], str] = resolve,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> tuple[str, ...]:
    """Why configured hosts cannot be used: a name does not resolve in time, the rendezvous port is taken, or the first
    host is not this machine. All names are resolved in parallel. Nobody reaches the only node of a Slurm job."""
    if nodes.of_slurm and len(nodes.hosts) == 1:
        return ()
    answers: dict[str, str] = {}
    addresses: dict[str, str] = {}

    def look_up(host: HostConfig) -> None:
        try:
            addresses[host.name] = resolve(host)
        except SuiteError as error:
            answers[host.name] = str(error)

    # Daemon threads, so that a name service that hangs does not hold up the doctor.
    threads = [threading.Thread(target=look_up, args=(host,), daemon=True) for host in nodes.hosts]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + patience_seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    problems = []
    for host in nodes.hosts:
        if host.name in answers:
            problems.append(answers[host.name])
        elif host.name not in addresses:
            problems.append(f"host {host.name}: {host.address} is not resolved within {patience_seconds:g} s")
    if nodes.hosts and (first := nodes.hosts[0]).name in addresses:
        try:
            open_port(first, addresses[first.name], nodes.port)
        except SuiteError as error:
            problems.append(str(error))
    return tuple(problems)


def sharing_problems(nodes: NodesConfig, folder: Path, patience_seconds: float = _SHARING_SECONDS) -> tuple[str, ...]:
    """Which hosts do not see ``folder``, that of the runs, under the same path as this machine, so that cases of
    several nodes cannot run there. All hosts are asked in parallel."""
    others = nodes.hosts[1:]
    if not others or not os.access(folder, os.W_OK):
        return ()
    with tempfile.NamedTemporaryFile("w", prefix="perfgate-shared-", dir=folder) as file:
        file.write(text := uuid.uuid4().hex)
        file.flush()
        with ThreadPoolExecutor(len(others)) as pool:
            seen = pool.map(lambda host: _what_is_seen(host, file.name, patience_seconds), others)
            told = zip(others, seen, strict=True)
            return tuple(f"host {host.name} does not see {folder}: {why}" for host, why in told if why != text)


def _what_is_seen(host: HostConfig, path: str, patience_seconds: float) -> str:
    try:
        done = subprocess.run(
            (*host.connect, "cat", path), capture_output=True, text=True, errors="replace", timeout=patience_seconds,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout.strip()[-200:] or " ".join(done.stderr.split())[-200:] or f"exit status {done.returncode}"
