"""From a job to a command line: what starts its ranks, and with which variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import helpers
from helpers.case import Case, Framework
from helpers.errors import LaunchError
from helpers.job import JobSpec

ROOT = Path(helpers.__file__).resolve().parent.parent

# Set by whatever started the suite, they would tell the ranks a wrong place in a wrong job. PET_ are defaults of
# torch.distributed.run's own options.
_FOREIGN_PREFIXES = ("PADDLE_", "POD_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_", "PET_")
_FOREIGN_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "WITH_COVERAGE")


# In the run folder, for what the ranks and their launcher print.
LOG_FOLDER = "launch_logs"


@dataclass(frozen=True)
class Place:
    """A node's place in a job of several nodes.

    ``address`` is its own IPv4 address, ``master`` the ``HOST:PORT`` of the rendezvous on node 0, ``interface``
    the network interface of NCCL and gloo (None: they choose).
    """

    node: int
    nodes: int
    address: str
    master: str
    interface: str | None = None


@dataclass(frozen=True)
class LaunchCommand:
    """How a job is started.

    ``rank_logs`` are the files that take a rank's own output, in rank order (empty: the job's common
    output). ``discard`` are patterns in the run folder of files removed after the job, because they
    repeat the whole environment, tokens included. ``hosts`` name each node's host and ``outputs`` are the
    files of its launcher's output, both in node order and empty where there is one node. ``rendezvous`` is the
    ``HOST:PORT`` at which the nodes' launchers meet before they start any rank.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    rank_logs: tuple[str, ...] = ()
    discard: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    rendezvous: str = ""


class Launcher(Protocol):
    def command(self, spec: JobSpec, interpreter: str, place: Place | None = None) -> LaunchCommand:
        """What starts the job's ranks of one node; ``place`` is None where there is one node."""
        ...


def launcher_for(case: Case) -> Launcher:
    """What starts this case's ranks; LaunchError where nothing does yet."""
    from helpers.launch.local import LocalLauncher
    from helpers.launch.paddle_launch import PaddleLauncher
    from helpers.launch.torch_launch import TorchLauncher

    if case.cards == 1:
        return LocalLauncher()
    of_several: dict[Framework, type[Launcher]] = {
        Framework.PADDLE: PaddleLauncher,
        Framework.PYTORCH: TorchLauncher,
    }
    if case.framework in of_several:
        return of_several[case.framework]()
    raise LaunchError(
        f"case {case.id}", field="cards", got=case.cards, expected=f"1 card for {case.framework.value}",
        remedy=f"Only {' and '.join(each.value for each in of_several)} have a launcher for several cards",
    )  # fmt: skip


def trainer_module(framework: Framework) -> str:
    return f"helpers.trainers.{framework.value}_trainer"


def trainer_argv(spec: JobSpec, interpreter: str) -> tuple[str, ...]:
    """The command of one rank; ``-u`` so that a killed rank's last words are in its log."""
    return (interpreter, "-u", "-m", trainer_module(spec.case.framework), str(spec.spec_path))


def card_variables(spec: JobSpec) -> dict[str, str]:
    """Shows the job its GPUs, by index in NVML's order, or hides them all from a CPU job."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(spec.cards)}


def interface_variables(interface: str | None) -> dict[str, str]:
    """Where the ranks' traffic goes; nothing for None, and they choose."""
    return {} if interface is None else dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), interface)


def job_environment(
    inherited: Mapping[str, str], spec: JobSpec, command: LaunchCommand, marks: Mapping[str, str]
) -> dict[str, str]:
    """The variables a job starts with: the caller's, less those of another launcher, plus its own."""
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.startswith(_FOREIGN_PREFIXES) and name not in _FOREIGN_NAMES
    }
    path = kept.get("PYTHONPATH", "")
    kept["PYTHONPATH"] = f"{ROOT}:{path}" if path else str(ROOT)
    return {**kept, **spec.environment, **command.environment, **marks}
