"""The suite's program on a node that is not the first: ``python -m helpers.launch.nodes.share``.

The first node starts it through the host's connect command, once for a case, and exchanges messages with it over its
standard input and output (``lines``). It leases the node's cards, and of each job starts this node's launcher under a
guard of its own and watches the cards. When the connection closes or is silent for too long, it ends the job.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.common.files import make_folder
from helpers.launch.guarded import GuardedProcess, end_orphans, start_guarded
from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import Place, job_environment, node_folder
from helpers.launch.nodes.lines import ALIVE_SECONDS, Lines, Lost, Message
from helpers.launch.signals import signals_interrupt, stop_signals
from helpers.launch.steplog_reader import read_step_log
from helpers.launch.tail import RankWatch
from helpers.machine.devices import Card, Machine, discover
from helpers.machine.environment import CPU, flag_variables, flags_of
from helpers.machine.frameworks import BuildFinder
from helpers.machine.host import oom_evidence, read_oom_kills
from helpers.machine.leases import Leases, default_folder
from helpers.machine.near_cores import cores_of
from helpers.machine.nvml import Gpu
from helpers.machine.watch import Norm
from helpers.machine.watch.meters import CardWatch, meter_for, window_of
from helpers.machine.watch.processes import JobProcesses, Processes
from helpers.plan.image_folder import check_dataset
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import DeviceError, LaunchError, StepLogError, SuiteError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec

OUTPUT = "output.log"
_POLL_SECONDS = 0.25
_SURVEY_SECONDS = 2.0
# What a file server needs at most to show a new file to another client.
_SEEN_SECONDS = 60.0
# Between two jobs the first node may be silent for so long. Then the cards are released.
_IDLE_SECONDS = 600.0


@dataclass(frozen=True)
class NodeOrder:
    """The order to a node to prepare for a case."""

    case_id: str
    framework: str
    # The framework's Python.
    interpreter: str
    target: str
    # How many cards of ``target`` the node leases, and how long it may wait for them.
    cards: int
    lease_seconds: float
    # The data folder on the node; None if the case reads no images.
    data_root: str | None = None
    # Ids of cards that the first node has leased for this node, if both are on one machine.
    assigned: Sequence[str] = ()
    exclusive_machine: bool = True
    # Variables of everything that is started on this node.
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_cards: int | None = None


@dataclass(frozen=True)
class _Ready:
    cards: tuple[Card, ...]
    # The cores of each card.
    cores: tuple[tuple[int, ...], ...]
    order: NodeOrder


def node_mark(job_id: str, node: int) -> str:
    """The mark of a node's processes, so that two nodes on one machine do not end each other's."""
    return f"{job_id}.node{node}"


class Share:
    """Serves the first node until it closes the connection."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._ready: _Ready | None = None

    def serve(self) -> None:
        """Answer message by message. Raises Lost when the first node is gone."""
        self._lines.send("hello", boot_id=boot_id(), suite=suite_digest())
        with contextlib.ExitStack() as held:
            while True:
                for message in self._lines.receive(ALIVE_SECONDS):
                    try:
                        self._answer(message, held)
                    except (SuiteError, OSError) as error:
                        self._lines.send("error", text=str(error))
                self._lines.check_silence(_IDLE_SECONDS if self._ready else math.inf)

    def _answer(self, message: Message, held: contextlib.ExitStack) -> None:
        kind = message.pop("kind")
        if kind == "prepare":
            self._prepare(NodeOrder(**message), held)
        elif kind == "job" and self._ready is not None:
            _Job(self._lines, self._ready, **message).run()

    def _prepare(self, order: NodeOrder, held: contextlib.ExitStack) -> None:
        os.environ.update(order.environment)
        build = BuildFinder().find_build(Framework(order.framework), order.interpreter)
        if isinstance(build, str):
            raise DeviceError(f"framework {order.framework}", got=build, expected="the build that the first node has")
        machine = discover(cpu_cards=order.cpu_cards)
        data = check_dataset(Path(order.data_root)).describe() if order.data_root else "none"
        cards = self._leased(order, machine, held)
        # By this machine's own NVML.
        cores = cores_of(cards, alone=order.exclusive_machine and not order.assigned)
        self._ready = _Ready(cards, cores.each, order)
        # While the data was checked, nobody listened to the first node.
        self._lines.listen_anew()
        versions = {"distribution": build.distribution, "version": build.version, "commit": build.commit}
        self._lines.send(
            "ready",
            facts=node_facts(versions, machine, cards, order.target, data),
            **node_record(machine, cards, os.environ, order.framework),
        )

    def _leased(self, order: NodeOrder, machine: Machine, held: contextlib.ExitStack) -> tuple[Card, ...]:
        candidates = machine.cards_of(order.target)
        if order.assigned:
            candidates = tuple(card for card in candidates if card.id in order.assigned)
        if len(candidates) < order.cards:
            raise DeviceError(
                f"case {order.case_id}",
                field="cards",
                got=machine.describe(),
                expected=", ".join(order.assigned) or f"{order.cards} cards of {order.target}",
            )
        if order.assigned:
            return candidates
        leases = Leases(default_folder(machine.host_id), sleep=self._sleep)
        lease = leases.lease(
            candidates, order.cards, order.case_id, exclusive_machine=order.exclusive_machine,
            timeout_seconds=order.lease_seconds, on_wait=lambda why: self._lines.send("waiting", obstacle=why),
        )  # fmt: skip
        return held.enter_context(lease)

    def _sleep(self, seconds: float) -> None:
        """Raises Lost as soon as the first node is gone; until it has an answer, it sends nothing but signs of life."""
        self._lines.receive(seconds)


class _Job:
    """One job's share on this node. Sends ``gone`` (a rank whose process ended before its log had a footer), and
    ``over``: the launcher's exit code (None if the first node ended the job), and what the cards did in the window."""

    def __init__(
        self, lines: Lines, ready: _Ready, *, spec: str, interpreter: str, place: dict[str, Any],
        grace_seconds: float, norm: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        given, self._place = JobSpec.from_json(spec), Place(**place)
        _wait_until_seen(given.spec_path, spec)
        self._lines = lines
        self._spec = replace(
            given,
            data_root=ready.order.data_root,
            cores=ready.cores,
            cards=tuple(card.uuid for card in ready.cards if isinstance(card, Gpu)),
        )
        self._folder = node_folder(self._spec, self._place)
        command = launcher_for(self._spec).command(self._spec, interpreter, self._place)
        # What perf.yaml gives this host passes under any name, and is in no file of the run.
        self._command = replace(command, environment={**ready.order.environment, **command.environment})
        self._grace_seconds = grace_seconds
        self._processes = Processes()
        self._mark = node_mark(given.job_id, self._place.node)
        self._ranks = [RankWatch(self._spec, rank) for rank in given.ranks_of_node(self._place.node)]
        self._meter = meter_for(
            ready.cards, norm=None if norm is None else Norm.from_mapping(norm), cores=ready.cores,
            cards_per_process=given.cards_per_process,
        )  # fmt: skip
        job = JobProcesses(self._processes, self._mark)
        self._cards = CardWatch(self._meter, job, time.monotonic, _SURVEY_SECONDS)
        self._asked_to_end = 0

    def run(self) -> None:
        make_folder(self._folder)
        (self._folder / "spec.json").write_text(self._spec.to_json(), encoding="utf-8")
        end_orphans(self._processes, self._grace_seconds)
        environment = job_environment(os.environ, self._spec, self._command, self._processes.marks(self._mark))
        kills, code = read_oom_kills(), None
        self._cards.look(survey=True)
        with stop_signals() as stop:
            with (self._folder / OUTPUT).open("xb") as output:
                process = start_guarded(self._command.argv, environment, output, self._folder, self._grace_seconds)
            try:
                code = self._watch(process)
            finally:
                stop.defer()
                process.end(lambda: stop.at_once() or self._asked_again())
        self._command.discard_files(self._spec)
        window = self._window()
        oom, oom_text = oom_evidence(kills, read_oom_kills())
        self._lines.send(
            "over", code=code, contention=asdict(self._meter.contention(window)),
            unhealthy=self._meter.unhealthy(window), oom=[oom, oom_text], facts=self._meter.facts(window),
        )  # fmt: skip

    def _watch(self, process: GuardedProcess) -> int | None:
        """The launcher's exit code; None when the first node asks to end."""
        while not self._asked_to_end:
            code = process.poll()
            self._cards.look(survey=code is not None)
            self._tell_gone()
            if code is not None:
                return code
            self._listen(_POLL_SECONDS)
            self._lines.check_silence()
            self._lines.show_life()
        return None

    def _listen(self, seconds: float) -> None:
        self._asked_to_end += sum(message["kind"] == "end" for message in self._lines.receive(seconds))

    def _asked_again(self) -> bool:
        """Whether the first node asked twice, which allows no grace, or is gone."""
        try:
            self._listen(0.0)
        except Lost:
            return True
        return self._asked_to_end > 1

    def _tell_gone(self) -> None:
        for rank in self._ranks:
            rank.poll(at := time.monotonic())
            if rank.pid is not None and rank.footer is None and rank.gone_at is None:
                process = self._processes.look(rank.pid)
                if process is None or not process.alive:
                    rank.gone_at = at
                    self._lines.send("gone", rank=rank.rank)

    def _window(self) -> tuple[float, float] | None:
        """The measured window of this node's ranks by this host's clock; None if a log is not whole, which the first
        node finds too."""
        spec = self._spec
        try:
            logs = [read_step_log(spec.step_log_path(each.rank), spec.job_id, each.rank) for each in self._ranks]
        except StepLogError:
            return None
        return window_of(logs)


def _wait_until_seen(path: Path, text: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until this node sees the file that the first node wrote. Raises LaunchError if it does not."""
    deadline = time.monotonic() + _SEEN_SECONDS
    while not path.is_file() or path.read_text(encoding="utf-8") != text:
        # Without the folder's own parent nothing is shared, and waiting does not help.
        if time.monotonic() >= deadline or not path.parent.parent.parent.is_dir():
            raise LaunchError(
                f"run folder {path.parent}",
                got="not the one that the first node has",
                expected="a file system that all nodes share",
                remedy="Put the runs on one (--runs-dir); without one, cases of several nodes cannot run",
            )
        sleep(0.5)


def suite_digest() -> str:
    """A digest of all source files of ``helpers``, which shows whether all nodes run the same suite."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "helpers").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def boot_id() -> str:
    """The kernel's boot id: the same in all containers of a running machine, different on any other machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def node_facts(
    build: Mapping[str, str], machine: Machine, cards: Sequence[Card], target: str, data: str
) -> dict[str, str]:
    """The facts that must be equal on all nodes of a job."""
    if target == CPU:
        of_device = {"processor": machine.facts.cpu_model}
    else:
        caps = sorted({card.power_limit_watts for card in cards if isinstance(card, Gpu)})
        of_device = {"driver": machine.driver, "power cap (W)": " ".join(map(str, caps))}
    return {
        "framework": " ".join(filter(None, (build.get(name, "") for name in ("distribution", "version", "commit")))),
        "card": " + ".join(sorted({card.name for card in cards})),
        **of_device,
        "data": data,
    }


def node_record(machine: Machine, cards: Sequence[Card], variables: Mapping[str, str], framework: str) -> Message:
    """A node's record: its host's id, its GPUs, and the variables that change results, each as text."""
    return {
        "host_id": machine.host_id,
        "card_ids": [card.uuid for card in cards if isinstance(card, Gpu)],
        "flags": flag_texts(variables, framework),
    }


def flag_texts(variables: Mapping[str, str], framework: str) -> list[str]:
    """``NAME=value`` for each variable that changes results, sorted."""
    chosen = sorted(flag_variables(variables, framework).items())
    return [flags_of({name: value}, framework) for name, value in chosen]


def main() -> int:
    # Messages go to the original standard output; other prints go to standard error, so that they do not mix.
    outgoing = os.dup(1)
    os.dup2(2, 1)
    try:
        with signals_interrupt():
            Share(Lines(0, outgoing)).serve()
    except Lost as lost:
        print(f"the first node: {lost}", file=sys.stderr)
    except KeyboardInterrupt as interrupt:
        print(f"ended by a signal {interrupt}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
