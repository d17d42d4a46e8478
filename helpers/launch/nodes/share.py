"""The suite's program on a node that is not the first: ``python -m helpers.launch.nodes.share``.

The first node starts it through the host's connect command, once for a case, and exchanges messages with it over its
standard input and output (``link``). It leases the node's cards, and of each job starts this node's launcher under a
guard of its own and watches the cards. When the connection closes or is silent for too long, it ends the job.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.launch.guarded import end_orphans, start_guarded
from helpers.launch.launchers import launch_command
from helpers.launch.launchers.launcher import Place, job_environment, node_folder
from helpers.launch.nodes.link import ALIVE_SECONDS, Link, Lost, Message
from helpers.launch.signals import signals_interrupt, stop_signals
from helpers.launch.steplog_reader import read_step_log
from helpers.launch.tail import RankWatch
from helpers.machine.devices import Card, Machine, discover
from helpers.machine.environment import CPU, flag_variables, flags_of
from helpers.machine.framework_builds import BuildFinder
from helpers.machine.host import oom_evidence, read_oom_kills
from helpers.machine.leases import Leases, default_folder
from helpers.machine.near_cores import cores_of
from helpers.machine.nvml import Gpu
from helpers.machine.watch import norm_of
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


def node_mark(job_id: str, node: int) -> str:
    """The mark of a node's processes, so that two nodes on one machine do not end each other's."""
    return f"{job_id}.node{node}"


def serve(link: Link) -> None:
    """Answer the first node message by message. Raises Lost when it is gone."""
    link.send("hello", boot_id=boot_id())
    with contextlib.ExitStack() as held:
        node: _PreparedNode | None = None
        while True:
            for message in link.receive(ALIVE_SECONDS):
                kind = message.pop("kind")
                try:
                    if kind == "prepare":
                        node = _PreparedNode(link, NodeOrder(**message), held)
                    elif kind == "job" and node is not None:
                        node.run(**message)
                except (SuiteError, OSError) as error:
                    link.send("error", text=str(error))


class _PreparedNode:
    """This node with the cards of one case, until ``held`` is closed."""

    def __init__(self, link: Link, order: NodeOrder, held: contextlib.ExitStack) -> None:
        self._link = link
        self._order = order
        self._asked_to_end = 0
        os.environ.update(order.environment)
        build = BuildFinder().find_build(Framework(order.framework), order.interpreter)
        if isinstance(build, str):
            raise DeviceError(f"framework {order.framework}", got=build, expected="the build that the first node has")
        machine = discover(cpu_cards=order.cpu_cards)
        data = check_dataset(Path(order.data_root)).describe() if order.data_root else "none"
        self._cards = self._leased(machine, held)
        # By this machine's own NVML.
        self._cores = cores_of(self._cards, alone=order.exclusive_machine and not order.assigned).each
        versions = {name: getattr(build, name) for name in ("distribution", "version", "commit")}
        about = {**versions, "framework": order.framework}
        link.send("ready", **node_record(about, machine, self._cards, data, os.environ))

    def _leased(self, machine: Machine, held: contextlib.ExitStack) -> tuple[Card, ...]:
        order = self._order
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
        # While it waits it listens, so that it notices if the first node is gone.
        leases = Leases(default_folder(machine.host_id), sleep=self._listen)
        lease = leases.lease(
            candidates, order.cards, order.case_id, exclusive_machine=order.exclusive_machine,
            timeout_seconds=order.lease_seconds, on_wait=lambda why: self._link.send("waiting", obstacle=why),
        )  # fmt: skip
        return held.enter_context(lease)

    def run(
        self, *, spec: str, interpreter: str, place: dict[str, Any], grace_seconds: float,
        recorded: Mapping[str, str] | None, to_record: bool,
    ) -> None:  # fmt: skip
        """Run this node's share of a job to its end. Sends ``gone`` (a rank whose process ended before its log had a
        footer), and ``over``: the launcher's exit code (None if the first node ended the job), and what the cards did
        in the window."""
        given, here = JobSpec.from_json(spec), Place(**place)
        own = replace(
            given,
            data_root=self._order.data_root,
            cores=self._cores,
            cards=tuple(card.uuid for card in self._cards if isinstance(card, Gpu)),
        )
        _wait_until_seen(own.spec_path)
        folder = node_folder(own, here)
        folder.mkdir(mode=0o700)
        (folder / "spec.json").write_text(own.to_json(), encoding="utf-8")
        command = launch_command(own, interpreter, here)
        # What perf.yaml gives this host passes under any name, and is in no file of the run.
        command = replace(command, environment={**self._order.environment, **command.environment})
        # A processor's clock is recorded for the first node alone.
        to_record = to_record or own.device == CPU
        norm = norm_of(recorded, self._cards, to_record, first=here.node * own.case.cards_per_node)
        meter = meter_for(self._cards, norm=norm, cores=self._cores, cards_per_process=own.cards_per_process)
        processes, mark = Processes(), node_mark(own.job_id, here.node)
        end_orphans(processes, grace_seconds)
        environment = job_environment(os.environ, own, command, processes.marks(mark))
        kills, ranks = read_oom_kills(), [RankWatch(own, rank) for rank in own.ranks_of_node(here.node)]
        cards = CardWatch(meter, JobProcesses(processes, mark), time.monotonic, _SURVEY_SECONDS)
        cards.look(survey=True)
        code, self._asked_to_end = None, 0
        with stop_signals() as stop:
            with (folder / OUTPUT).open("xb") as output:
                process = start_guarded(command.argv, environment, output, folder, grace_seconds)
            try:
                while code is None and not self._asked_to_end:
                    self._listen(_POLL_SECONDS)
                    code = process.poll()
                    cards.look(survey=code is not None)
                    self._tell_gone(ranks, processes)
            finally:
                stop.defer()
                process.end(lambda: stop.at_once() or self._asked_again())
        command.discard_files(own)
        window = _window(own, ranks)
        self._link.send(
            "over", code=code, contention=asdict(meter.contention(window)), unhealthy=meter.unhealthy(window),
            oom=oom_evidence(kills, read_oom_kills()), facts=meter.facts(window),
        )  # fmt: skip

    def _listen(self, seconds: float) -> None:
        self._asked_to_end += sum(message["kind"] == "end" for message in self._link.receive(seconds))

    def _asked_again(self) -> bool:
        """Whether the first node asked twice, which allows no grace, or is gone."""
        try:
            self._listen(0.0)
        except Lost:
            return True
        return self._asked_to_end > 1

    def _tell_gone(self, ranks: Sequence[RankWatch], processes: Processes) -> None:
        for rank in ranks:
            rank.poll(at := time.monotonic())
            if rank.pid is not None and rank.footer is None and rank.gone_at is None:
                process = processes.look(rank.pid)
                if process is None or not process.alive:
                    rank.gone_at = at
                    self._link.send("gone", rank=rank.rank)


def _window(spec: JobSpec, ranks: Sequence[RankWatch]) -> tuple[float, float] | None:
    """The measured window of this node's ranks by this host's clock; None if a log is not whole, which the first node
    finds too."""
    try:
        return window_of([read_step_log(rank.log_path, spec.job_id, rank.rank) for rank in ranks])
    except StepLogError:
        return None


def _wait_until_seen(path: Path) -> None:
    """Wait until this node sees a file that the first node wrote. Raises LaunchError if it does not."""
    deadline = time.monotonic() + _SEEN_SECONDS
    while not path.is_file():
        if time.monotonic() >= deadline:
            raise LaunchError(
                f"run folder {path.parent}",
                got="not the one that the first node has",
                expected="a file system that all nodes share",
                remedy="Put the runs on one (--runs-dir); without one, cases of several nodes cannot run",
            )
        time.sleep(0.5)


def suite_digest() -> str:
    """A digest of all source files of ``helpers``, which shows whether all nodes run the same suite."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "helpers").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def boot_id() -> str:
    """The kernel's boot id: the same in all containers of a running machine, different on any other machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def node_record(
    build: Mapping[str, str], machine: Machine, cards: Sequence[Card], data: str, variables: Mapping[str, str]
) -> Message:
    """A node's record: the facts that must be equal on all nodes of a job, its host's id, its GPUs, and the variables
    that change results, each as text."""
    gpus = [card for card in cards if isinstance(card, Gpu)]
    if gpus:
        caps = sorted({card.power_limit_watts for card in gpus})
        of_device = {"driver": machine.driver, "power cap (W)": " ".join(map(str, caps))}
    else:
        of_device = {"processor": machine.facts.cpu_model}
    facts = {
        "suite": suite_digest(),
        "framework": " ".join(filter(None, (build.get(name, "") for name in ("distribution", "version", "commit")))),
        "card": " + ".join(sorted({card.name for card in cards})),
        **of_device,
        "data": data,
    }
    flags = flag_texts(variables, build["framework"])
    return {"facts": facts, "host_id": machine.host_id, "card_ids": [card.uuid for card in gpus], "flags": flags}


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
            serve(Link(0, outgoing))
    except Lost as lost:
        print(f"the first node: {lost}", file=sys.stderr)
    except KeyboardInterrupt as interrupt:
        print(f"ended by a signal {interrupt}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
