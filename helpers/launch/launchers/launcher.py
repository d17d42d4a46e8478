"""Makes a job's command line: what starts its ranks, and with which variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import CARDS_PER_PROCESS_SETTING, JobSpec

# Another launcher may have set these for the suite; the job's ranks would take them for their own place in the job.
# PET_ variables are defaults of torch.distributed.run's own options.
# DMLC_ variables are those of MXNet's distributed kvstore.
_FOREIGN_PREFIXES = ("PADDLE_", "POD_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_", "PET_", "DMLC_")
_FOREIGN_NAMES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WITH_COVERAGE", "TF_CONFIG",
)  # fmt: skip


# The folder inside the run folder that takes what the ranks and their launcher print.
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
    """How a job is started."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    # The files that take each rank's own output, in rank order; empty where all print into the job's common output.
    rank_logs: tuple[str, ...] = ()
    # Patterns in the run folder of files that are removed after the job, because they repeat the whole environment,
    # tokens included.
    discard: tuple[str, ...] = ()
    # The name of each node's host, in node order; empty where there is one node.
    hosts: tuple[str, ...] = ()
    # The file of each launcher's output, in node order; empty where there is one node.
    outputs: tuple[str, ...] = ()
    # The ``HOST:PORT`` at which the nodes' launchers meet before they start any rank.
    rendezvous: str = ""


class Launcher(Protocol):
    def command(self, spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
        """What starts the job's ranks of one node; ``place`` is None where there is one node."""
        ...


def trainer_module(framework: Framework) -> str:
    return f"helpers.trainers.{framework.value}.trainer"


def trainer_argv(spec: JobSpec, interpreter: str) -> tuple[str, ...]:
    """The command of one rank; with ``-u`` the last lines of a killed rank are in its log."""
    return (interpreter, "-u", "-m", trainer_module(spec.case.framework), str(spec.spec_path))


def card_variables(spec: JobSpec) -> dict[str, str]:
    """Shows the job its GPUs, by index in NVML's order, or hides them all from a CPU job."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(spec.cards)}


def interface_variables(interface: str | None) -> dict[str, str]:
    """The variables that bind the ranks' traffic to an interface; none where ``interface`` is None."""
    return {} if interface is None else dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), interface)


def job_environment(
    inherited: Mapping[str, str], spec: JobSpec, command: LaunchCommand, marks: Mapping[str, str]
) -> dict[str, str]:
    """The variables that a job starts with: the caller's without those of another launcher, and the job's own."""
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.startswith(_FOREIGN_PREFIXES) and name not in _FOREIGN_NAMES
    }
    path = kept.get("PYTHONPATH", "")
    kept["PYTHONPATH"] = f"{ROOT}:{path}" if path else str(ROOT)
    return {**kept, **spec.environment, **command.environment, **marks}


class LocalLauncher:
    """Starts the trainer directly, as one process that drives all cards of the node; its output is the job's.

    On several nodes the processes find their place in variables, and meet as their framework does.
    """

    def command(self, spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
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
        return LaunchCommand(trainer_argv(spec, interpreter), variables)
