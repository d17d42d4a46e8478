"""The suite's agent on a node that is not the first: ``python -m helpers.launch.nodes.agent``.

The first node starts the agent through the host's ``connect`` command and exchanges frames with it over standard input
and output (``wire``). The agent leases the node's cards for a case and runs this node's share of each job. When its
input ends or nothing comes for too long, the suite was killed or the network broke; the agent then ends the job on this
node.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import Place
from helpers.launch.nodes.job import NodeJob, node_mark
from helpers.launch.nodes.stream import ALIVE_SECONDS, FrameStream, Hangup
from helpers.launch.nodes.wire import Frame, NodeOrder, boot_id, node_facts, node_record, suite_digest
from helpers.launch.signals import signals_interrupt, stop_signals
from helpers.launch.supervisor import SupervisorIO
from helpers.machine.devices import Card, discover
from helpers.machine.frameworks import BuildFinder
from helpers.machine.leases import Leases, default_folder
from helpers.machine.near_cores import cores_of
from helpers.machine.nvml import Gpu
from helpers.machine.watch import Norm
from helpers.machine.watch.meters import meter_for
from helpers.machine.watch.processes import JobProcesses, Processes, end_processes
from helpers.plan.image_folder import DatasetFacts, check_dataset
from helpers.plan.small_dataset import make_small_dataset
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import DeviceError, LaunchError, SuiteError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec

# Relative to the checkout, as for the suite itself.
SMALL_DATASET = Path(".cache") / "imagenet-small"
_POLL_SECONDS = 0.25
# Between two jobs the first node may be silent for so many times SILENCE_SECONDS. Then it is taken for dead, and the
# cards are released.
_IDLE_SILENCES = 20.0


@dataclass(frozen=True)
class Ready:
    """A node that is prepared for a case."""

    cards: tuple[Card, ...]
    # None if the case reads no images.
    data_root: str | None
    # The cores of each card.
    cores: tuple[tuple[int, ...], ...]


class Agent:
    """Serves the first node until it closes the connection."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream
        self.send = stream.send
        self._ready: Ready | None = None

    def serve(self) -> None:
        """Answer frame by frame; raises Hangup when the first node is gone."""
        self.send("hello", suite=suite_digest(), boot_id=boot_id(), step=step_of(os.environ))
        with contextlib.ExitStack() as held:
            while True:
                frame = self._stream.next(ALIVE_SECONDS)
                if frame is None:
                    self._stream.check_silence(_IDLE_SILENCES if self._ready else math.inf)
                    continue
                try:
                    self._answer(frame, held)
                except (SuiteError, OSError) as error:
                    self.send("error", text=str(error))

    def _answer(self, frame: Frame, held: contextlib.ExitStack) -> None:
        kind = frame.pop("kind")
        if kind == "prepare":
            self._prepare(NodeOrder(**frame), held)
        elif kind == "job":
            self._run(frame)
        elif kind == "sweep":
            processes = JobProcesses(Processes(), node_mark(frame["job_id"], frame["node"]))
            end_processes(processes.find_with_guard, frame["grace_seconds"], about=f"job {frame['job_id']}")
            if (folder := _folder(frame["job_id"], frame["node"])).exists():
                shutil.rmtree(folder)
            self.send("swept")
        # An order to end may arrive after the job has already ended.
        elif kind != "end":
            raise LaunchError("the first node", got=kind, expected="prepare, job, sweep or end")

    def _prepare(self, order: NodeOrder, held: contextlib.ExitStack) -> None:
        os.environ.update(order.environment)
        _check_address(order.address)
        framework = Framework(order.framework)
        build = BuildFinder().find_build(framework)
        if isinstance(build, str):
            raise DeviceError(f"framework {framework.value}", got=build, expected="the build that the first node has")
        machine = discover(cpu_cards=order.cpu_cards)
        data = _data(order)
        candidates = machine.cards_of(order.target)
        if len(candidates) < order.cards:
            raise DeviceError(
                f"case {order.case_id}",
                field="cards",
                got=machine.describe(),
                expected=f"{order.cards} cards of {order.target}",
            )
        if order.assigned:
            cards = tuple(card for card in candidates if card.id in order.assigned)
            if len(cards) != order.cards:
                raise DeviceError(
                    f"case {order.case_id}", field="cards", got=machine.describe(), expected=", ".join(order.assigned)
                )
        else:
            leases = Leases(default_folder(machine.host_id), sleep=self._stream.read)
            lease = leases.lease(
                candidates, order.cards, order.case_id, exclusive_machine=order.exclusive_machine,
                timeout_seconds=order.lease_seconds, on_wait=lambda obstacle: self.send("waiting", obstacle=obstacle),
            )  # fmt: skip
            cards = held.enter_context(lease).cards
        # By this machine's own NVML.
        cores = cores_of(cards, alone=order.exclusive_machine and not order.assigned)
        self._ready = Ready(cards, str(data.root) if data else None, cores.each)
        # While the data was checked, nothing was read from the first node; that is not its silence.
        self._stream.expect_frames()
        versions = {"distribution": build.distribution, "version": build.version, "commit": build.commit}
        described = data.describe() if data else "none"
        self.send(
            "ready",
            facts=node_facts(versions, machine, cards, order.target, described),
            **node_record(machine, cards, os.environ, order.framework),
        )

    def _run(self, frame: Frame) -> None:
        """Run one job until it ends, the first node ends it, or the first node falls silent."""
        if self._ready is None:
            raise LaunchError("the first node", got="a job", expected="the order to prepare for it before")
        place, ready = Place(**frame["place"]), self._ready
        given = JobSpec.from_json(frame["spec"])
        folder = _folder(given.job_id, place.node)
        folder.mkdir(mode=0o700)
        try:
            spec = replace(
                given,
                run_folder=str(folder / "run"),
                data_root=ready.data_root,
                cores=ready.cores,
                cards=tuple(card.uuid for card in ready.cards if isinstance(card, Gpu)),
            )
            command = launcher_for(spec).command(spec, sys.executable, place)
            norm = None if frame["norm"] is None else Norm.from_mapping(frame["norm"])
            each = spec.cards_per_process
            meter = meter_for(ready.cards, norm=norm, cores=ready.cores, cards_per_process=each)
            with stop_signals() as stop:
                job = NodeJob(spec, command, place.node, meter, self.send, SupervisorIO(), frame["grace_seconds"])
                try:
                    while job.look():
                        if self._told_to_end(_POLL_SECONDS):
                            job.end(self._told_again)
                        self._stream.check_silence()
                        self._stream.show_life()
                finally:
                    stop.defer()
                    with contextlib.suppress(Hangup):
                        job.end(stop.at_once)
        finally:
            # If this agent was slow to end, another one may have removed the folder already.
            shutil.rmtree(folder, ignore_errors=True)

    def _told_to_end(self, timeout_seconds: float) -> bool:
        frame = self._stream.next(timeout_seconds)
        return frame is not None and frame["kind"] == "end"

    def _told_again(self) -> bool:
        """Whether the first node sent a second order to end, which allows no grace, or is gone."""
        try:
            return self._told_to_end(0.0)
        except Hangup:
            return True


def _folder(job_id: str, node: int) -> Path:
    """Where a node keeps a job's files until they are sent. The name is fixed, so that another agent finds the folder
    if this one dies."""
    return Path(tempfile.gettempdir()) / f"perfgate-{node_mark(job_id, node)}"


def step_of(variables: Mapping[str, str]) -> str:
    """The job step of Slurm in which this process runs, as ``7.1``; empty outside of one."""
    named = [variables.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    return ".".join(named) if all(named) else ""


def _check_address(address: str) -> None:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise DeviceError(
                f"address {address}",
                got=str(error),
                expected="an address of this host",
                remedy="Correct address or connect of the host in perf.yaml",
            ) from error


def _data(order: NodeOrder) -> DatasetFacts | None:
    if order.data_root is not None:
        return check_dataset(Path(order.data_root))
    return make_small_dataset(ROOT / SMALL_DATASET) if order.small_data else None


def main() -> int:
    # Frames go to the original standard output. All other prints are redirected to standard error, so that they do not
    # mix with frames.
    outgoing = os.dup(1)
    os.dup2(2, 1)
    try:
        with signals_interrupt():
            Agent(FrameStream("the first node", 0, outgoing)).serve()
    except Hangup as hangup:
        print(f"node agent: {hangup}", file=sys.stderr)
    except KeyboardInterrupt as interrupt:
        print(f"node agent: interrupted {interrupt}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
