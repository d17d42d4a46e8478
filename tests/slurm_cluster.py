"""A real Slurm of two nodes on this machine, for tests: munge, slurmctld and two slurmd from the distribution's
packages, all in one temporary folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# With this variable the tests fail where Slurm is missing, which are else skipped (.ci/run).
NAMED = "PERFGATE_TEST_SLURM"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "squeue")
PACKAGES = "munge slurm-client slurmctld slurmd"
# Debian has the daemons where only root's shells look.
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
# The nodes, and the addresses of this machine that stand for theirs.
NODES = {"n0": "127.0.0.2", "n1": "127.0.0.3"}
# Two cards of each node, for jobs that request some: Slurm wants devices, and every machine has these.
_CARDS = ("/dev/null", "/dev/zero")
# How processes are followed: by their parents, or by control groups, which need a machine of one's own.
_NO_GROUPS = (
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "SelectTypeParameters=CR_Core",
)
_GROUPS = (
    "ProctrackType=proctrack/cgroup",
    "TaskPlugin=task/cgroup",
    "SelectTypeParameters=CR_Core_Memory",
)
_NODE_MIB = 8000
# "sbatch --wait" looks at its job after 2, 4, 8, 16 and then every 32 s: a test would wait most of its time for that.
# The job does not inherit the variable.
_SHORT_SLEEPS = """
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void for_sbatch_alone(void) { unsetenv("LD_PRELOAD"); }
unsigned sleep(unsigned seconds) { usleep(200000); return 0; }
"""
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


class ClusterError(Exception):
    """Slurm did not start, or a command of it failed."""


@dataclass
class SlurmCluster:
    """A running Slurm. ``variables`` are what a process needs to reach it."""

    folder: Path
    variables: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def command(self, *words: str, seconds: float = 60.0) -> str:
        """What a command of Slurm prints; raises ClusterError where it fails."""
        done = subprocess.run(words, env=self.variables, capture_output=True, text=True, timeout=seconds)
        if done.returncode:
            raise ClusterError(f"{' '.join(words)} exited with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def states(self) -> dict[str, str]:
        """Each node's state, as ``idle`` or ``down``."""
        lines = self.command("sinfo", "--Node", "--noheader", "--format=%N %t").splitlines()
        return dict(line.split() for line in lines)

    def wait_until_idle(self, seconds: float = _START_SECONDS) -> None:
        """Wait until no job is there and all nodes take one; raises ClusterError where that takes longer."""
        deadline, last = time.monotonic() + seconds, ""
        while time.monotonic() < deadline:
            try:
                jobs, last = self.command("squeue", "--noheader"), str(self.states())
                if not jobs and set(self.states().values()) == {"idle"}:
                    return
            except ClusterError as error:
                last = str(error)
            time.sleep(0.2)
        raise ClusterError(f"Slurm is not idle within {seconds:g} s: {last}\n{self.logs()}")

    def mend(self) -> None:
        """Cancel all jobs, and take back what was said of nodes."""
        self.command("scancel", f"--user={getpass.getuser()}")
        for node, state in self.states().items():
            if state.startswith(("down", "drain")):
                self.command("scontrol", "update", f"nodename={node}", "state=resume")
        self.wait_until_idle()

    def start(self, name: str, **variables: str) -> None:
        """Start one daemon: ``munged``, ``slurmctld`` or ``slurmd-NODE``, with ``variables`` besides the cluster's. A
        controller knows the jobs that it had."""
        log = (self.folder / f"{name}.out").open("ab")
        with log:
            self.daemons[name] = subprocess.Popen(
                self._words(name), env={**self.variables, **variables}, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def stop(self) -> None:
        """End all jobs, then all daemons."""
        with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
            self.command("scancel", f"--user={getpass.getuser()}", seconds=_STOP_SECONDS)
            self.wait_until_idle(_STOP_SECONDS)
        for daemon in reversed(self.daemons.values()):
            if daemon.poll() is None:
                daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons.values():
            try:
                daemon.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def logs(self) -> str:
        """The last lines of each daemon's log."""
        found = []
        for path in sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")]):
            lines = path.read_text(errors="replace").splitlines()[-8:]
            found.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(found)

    def _words(self, name: str) -> tuple[str, ...]:
        if name == "munged":
            folder = self.folder
            return (
                # The folder is a user's own, and munged wants one that others may enter.
                "munged", "--foreground", "--force", "--num-threads=2",
                f"--socket={folder / 'munge.socket'}", f"--key-file={folder / 'munge.key'}",
                f"--pid-file={folder / 'munged.pid'}", f"--log-file={folder / 'munged.log'}",
                f"--seed-file={folder / 'munge.seed'}",
            )  # fmt: skip
        if name == "slurmctld":
            return (name, "-D")
        return ("slurmd", "-D", "-N", name.removeprefix("slurmd-"))


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


@contextlib.contextmanager
def slurm_cluster(folder: Path, *, control_groups: bool = False) -> Generator[SlurmCluster, None, None]:
    """A Slurm whose nodes are idle; it is ended, with all its jobs, at the end.

    With ``control_groups`` it holds each job to its cores and memory, which needs root.
    """
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    for node in NODES:
        (folder / f"spool-{node}").mkdir()
    (folder / "gres.conf").write_text(f"Name=gpu Flags=nvidia_gpu_env File={','.join(_CARDS)}\n")
    if control_groups:
        (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\nConstrainCores=yes\nConstrainRAMSpace=yes\n")
    following = [*(_GROUPS if control_groups else _NO_GROUPS)]
    following += ["JobAcctGatherType=jobacct_gather/none"]
    (folder / "slurm.conf").write_text(_configuration(folder, following))
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    own = {
        "PATH": f"{_impatient_sbatch(folder)}:{_PATH}",
        "SLURM_CONF": str(folder / "slurm.conf"),
    }
    cluster = SlurmCluster(folder, {**variables, **own})
    try:
        cluster.start("munged")
        _wait_for(folder / "munge.socket", cluster)
        for name in ("slurmctld", *(f"slurmd-{node}" for node in NODES)):
            cluster.start(name)
        cluster.wait_until_idle()
        yield cluster
    finally:
        cluster.stop()


def _impatient_sbatch(folder: Path) -> Path:
    """A folder with an sbatch that looks at its job five times a second; an empty one without a C compiler."""
    programs, library = folder / "bin", folder / "short_sleeps.so"
    programs.mkdir()
    sbatch, compiler = shutil.which("sbatch", path=_PATH), shutil.which("cc")
    if sbatch and compiler:
        words = [compiler, "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
        subprocess.run(words, input=_SHORT_SLEEPS, text=True, check=True)
        (programs / "sbatch").write_text(f'#!/bin/sh\nexec env LD_PRELOAD="{library}" {sbatch} "$@"\n')
        (programs / "sbatch").chmod(0o755)
    return programs


def _wait_for(path: Path, cluster: SlurmCluster) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not path.exists():
        if time.monotonic() >= deadline:
            raise ClusterError(f"{path} is not there within {_START_SECONDS:g} s\n{cluster.logs()}")
        time.sleep(0.05)


def _configuration(folder: Path, following: Sequence[str]) -> str:
    user, host = getpass.getuser(), socket.gethostname()
    ports = _free_ports(1 + len(NODES))
    nodes = (
        f"NodeName={node} NodeHostname={host} NodeAddr={address} Port={port} CPUs=2 "
        f"RealMemory={_NODE_MIB} Gres=gpu:{len(_CARDS)}"
        for (node, address), port in zip(NODES.items(), ports[1:], strict=True)
    )
    return "\n".join(
        [
            "ClusterName=perfgate-test",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ports[0]}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/munge",
            # A job that is started again waits until the credentials of its first start have expired.
            f"AuthInfo=socket={folder}/munge.socket,cred_expire=5",
            "CredType=cred/munge",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/slurmd-%n.log",
            *following,
            "SwitchType=switch/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "GresTypes=gpu",
            # This machine may have fewer cores than the nodes together.
            "SlurmdParameters=config_overrides",
            "ReturnToService=2",
            "KillWait=5",
            "SlurmdTimeout=10",
            "SlurmctldTimeout=30",
            "MinJobAge=300",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000,bf_interval=1",
            *nodes,
            f"PartitionName=perf Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO",
            "",
        ]
    )


def _free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]
