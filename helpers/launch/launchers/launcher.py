"""Makes the command that starts the ranks of a job, with its environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.common.inherited import passed_on
from helpers.machine.libraries import with_libraries
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import CARDS_PER_PROCESS_SETTING, JobSpec

# The folder inside a node's folder for the output of the ranks and their launcher.
LOG_FOLDER = "launch_logs"


@dataclass(frozen=True)
class Place:
    """A node's place in a job of several nodes."""

    # Counts from 0.
    node: int
    nodes: int
    # The node's own IPv4 address.
    address: str
    # The ``HOST:PORT`` of the rendezvous on node 0.
    master: str
    # The network interface that NCCL and gloo use; None leaves the choice to them.
    interface: str | None = None


@dataclass(frozen=True)
class LaunchCommand:
    """The command that starts a job, and where its files will be."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    # The file of each rank's own output, in rank order; empty if all ranks print into the job's common output.
    rank_logs: tuple[str, ...] = ()
    # Patterns of files in the run folder that are removed after the job, because they contain its whole environment.
    discard: tuple[str, ...] = ()
    # The name of each node's host, in node order; empty for a single node.
    hosts: tuple[str, ...] = ()
    # The file of each launcher's output, in node order; empty for a single node.
    outputs: tuple[str, ...] = ()
    # The ``HOST:PORT`` at which the nodes' launchers meet before they start any rank.
    rendezvous: str = ""

    def discard_files(self, spec: JobSpec) -> None:
        for pattern in self.discard:
            for path in Path(spec.run_folder).glob(pattern):
                path.unlink(missing_ok=True)


def trainer_module(framework: Framework) -> str:
    return f"helpers.trainers.{framework.value}.trainer"


def node_folder(spec: JobSpec, place: Place | None) -> Path:
    """The folder of a node's own files: below the run folder, which all nodes share, unless it is the first node."""
    folder = Path(spec.run_folder)
    return folder if place is None or place.node == 0 else folder / f"node{place.node}"


def log_folder(spec: JobSpec, place: Place | None) -> Path:
    """The folder of the output of a node's ranks, and of what its launcher keeps."""
    return node_folder(spec, place) / LOG_FOLDER


def trainer_argv(spec: JobSpec, interpreter: str, place: Place | None = None) -> tuple[str, ...]:
    """The command of one rank. With ``-u`` the log of a killed rank has its last lines."""
    path = node_folder(spec, place) / spec.spec_path.name
    return (interpreter, "-u", "-m", trainer_module(spec.case.framework), str(path))


def card_variables(spec: JobSpec) -> dict[str, str]:
    """The variables that show the job its GPUs, or hide all GPUs from a CPU job."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(spec.cards)}


def interface_variables(interface: str | None) -> dict[str, str]:
    """The variables that bind the ranks' traffic to an interface; empty if ``interface`` is None."""
    return {} if interface is None else dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), interface)


def job_environment(
    inherited: Mapping[str, str], spec: JobSpec, command: LaunchCommand, marks: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a job: the caller's variables that may pass, the job's own, and the CUDA libraries of its
    interpreter's environment before all others."""
    own = {**spec.environment, **command.environment, **marks}
    return with_libraries({**passed_on(inherited), **own}, command.argv[0])


def local_command(spec: JobSpec, interpreter: str, place: Place | None) -> LaunchCommand:
    """Starts the trainer directly, as one process that drives all cards of the node. Its output is that of the job.

    On several nodes each process reads its place from variables, and the framework connects them.
    """
    if spec.ranks_per_node != 1:
        raise LaunchError(
            f"case {spec.case.id}",
            field=CARDS_PER_PROCESS_SETTING,
            got=spec.cards_per_process,
            expected=f"{spec.case.cards_per_node}, all cards of a node: this launcher starts one process there",
            remedy="Choose a launcher of several processes, or have one process drive all cards",
        )
    variables = card_variables(spec)
    if place is not None:
        host, _, port = place.master.rpartition(":")
        variables.update(interface_variables(place.interface))
        variables.update(
            RANK=str(place.node), LOCAL_RANK="0", WORLD_SIZE=str(place.nodes), LOCAL_WORLD_SIZE="1",
            MASTER_ADDR=host, MASTER_PORT=port,
        )  # fmt: skip
    return LaunchCommand(trainer_argv(spec, interpreter, place), variables)
