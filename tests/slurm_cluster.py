"""A real Slurm of two nodes on this machine, for tests: munge, slurmctld and two slurmd from the distribution's
packages, all in one temporary folder. If a test wants accounting, slurmdbd and its MariaDB are there, too."""

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
# What accounting needs besides.
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacct", "sstat")
ACCOUNTING_PACKAGES = "slurmdbd mariadb-server"
# Debian has the daemons where only root's shells look.
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
# The nodes, and the addresses of this machine that stand for theirs.
NODES = {"n0": "127.0.0.2", "n1": "127.0.0.3"}
# Two cards of each node, for jobs that request some: Slurm wants devices, and every machine has these.
_CARDS = ("/dev/null", "/dev/zero")
# Nodes that nobody serves, in no partition: what Slurm shows of the devices that slurm.conf gives them.
LISTED = {
    "listed0": "gpu:a100:no_consume:8",
    "listed1": "gpu:a100:4,gpu:v100:3,shard:16",
    "listed2": "gpu",
    "listed3": "gpu:a100",
    "listed4": "bandwidth:lustre:no_consume:4G,gpu:2K",
    "listed5": "gpu:nvidia_a100_3g.20gb:2,gpu:1g.5gb:4",
}
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
# The daemons' memory is no one's measure here.
_MARIADB = (
    "--skip-networking", "--performance-schema=off", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M",
    "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin",
)  # fmt: skip
_NODE_MIB = 8000
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

    def kill(self, name: str) -> None:
        """``kill -9`` of one daemon."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def wait_until_saved(self, seconds: float = _START_SECONDS) -> None:
        """Wait until the controller has written its jobs as they are now to disk. It does so every few seconds after a
        change; what it has not written is lost with it, and the number of a lost job is given again."""
        now = time.time()
        for job in self.command("squeue", "--noheader", "--format=%i").split():
            self.command("scontrol", "update", f"jobid={job}", "comment=saved")
        state = self.folder / "state" / "job_state"
        deadline = time.monotonic() + seconds
        while not state.is_file() or state.stat().st_mtime <= now:
            if time.monotonic() >= deadline:
                raise ClusterError(f"slurmctld has not saved its jobs within {seconds:g} s\n{self.logs()}")
            time.sleep(0.1)

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
        if name == "mariadbd":
            folder = self.folder
            return (
                "mariadbd", "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={folder / 'mariadb'}",
                f"--socket={folder / 'mariadb.socket'}", f"--pid-file={folder / 'mariadb.pid'}", *_MARIADB,
            )  # fmt: skip
        if name in ("slurmctld", "slurmdbd"):
            return (name, "-D")
        return ("slurmd", "-D", "-N", name.removeprefix("slurmd-"))


def missing_programs(*, accounting: bool = False) -> list[str]:
    wanted = (*PROGRAMS, *(ACCOUNTING_PROGRAMS if accounting else ()))
    return [name for name in wanted if shutil.which(name, path=_PATH) is None]


@contextlib.contextmanager
def slurm_cluster(
    folder: Path, *, control_groups: bool = False, accounting: bool = False, cards: Sequence[str] = ()
) -> Generator[SlurmCluster, None, None]:
    """A Slurm whose nodes are idle; it is ended, with all its jobs, at the end.

    With ``control_groups`` it holds each job to its cores and memory, and to its ``cards`` if devices are given, which
    needs root. With ``accounting`` it has slurmdbd and a MariaDB of its own.
    """
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    for node in NODES:
        (folder / f"spool-{node}").mkdir()
    (folder / "gres.conf").write_text(f"Name=gpu Flags=nvidia_gpu_env File={','.join(cards or _CARDS)}\n")
    if control_groups:
        held = "CgroupPlugin=autodetect\nConstrainCores=yes\nConstrainRAMSpace=yes\n"
        (folder / "cgroup.conf").write_text(held + ("ConstrainDevices=yes\n" if cards else ""))
    following = [*(_GROUPS if control_groups else _NO_GROUPS)]
    gather = "cgroup" if control_groups else "linux"
    following += [f"JobAcctGatherType=jobacct_gather/{gather if accounting else 'none'}"]
    if accounting:
        following += _accounting(folder)
    (folder / "slurm.conf").write_text(_configuration(folder, following))
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    own = {
        "PATH": _PATH,
        "SLURM_CONF": str(folder / "slurm.conf"),
        # Where slurmdbd finds its MariaDB, which listens to nobody else.
        "MYSQL_UNIX_PORT": str(folder / "mariadb.socket"),
    }
    cluster = SlurmCluster(folder, {**variables, **own})
    try:
        cluster.start("munged")
        _wait_for(folder / "munge.socket", cluster)
        if accounting:
            _start_accounting(cluster)
        for name in ("slurmctld", *(f"slurmd-{node}" for node in NODES)):
            cluster.start(name)
        cluster.wait_until_idle()
        yield cluster
    finally:
        cluster.stop()


def _accounting(folder: Path) -> Sequence[str]:
    """Write slurmdbd's configuration; returns what slurm.conf says of it."""
    (port,) = _free_ports(1)
    path = folder / "slurmdbd.conf"
    path.touch(0o600)
    path.write_text(
        "\n".join(
            [
                "AuthType=auth/munge",
                f"AuthInfo=socket={folder}/munge.socket",
                f"DbdHost={socket.gethostname()}",
                "DbdAddr=127.0.0.1",
                f"DbdPort={port}",
                f"SlurmUser={getpass.getuser()}",
                "StorageType=accounting_storage/mysql",
                "StorageHost=localhost",
                "StorageUser=root",
                "StorageLoc=slurm",
                f"LogFile={folder}/slurmdbd.log",
                f"PidFile={folder}/slurmdbd.pid",
                "",
            ]
        )
    )
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={port}",
        f"AccountingStoragePass={folder}/munge.socket",
        "JobAcctGatherFrequency=task=1",
    ]


def _start_accounting(cluster: SlurmCluster) -> None:
    folder = cluster.folder
    cluster.command(
        "mariadb-install-db", "--no-defaults", f"--user={getpass.getuser()}", f"--datadir={folder / 'mariadb'}",
        "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
    )  # fmt: skip
    cluster.start("mariadbd")
    _wait_for(folder / "mariadb.socket", cluster)
    cluster.start("slurmdbd")
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            cluster.command("sacctmgr", "--noheader", "list", "cluster", seconds=10.0)
            return
        except (ClusterError, subprocess.TimeoutExpired):
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)


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
    unserved = (
        f"NodeName={node} NodeHostname=nowhere NodeAddr=127.0.0.9 Port={number} CPUs=1 State=DOWN Gres={gres}"
        for number, (node, gres) in enumerate(LISTED.items(), start=1)
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
            "GresTypes=gpu,shard,bandwidth",
            # This machine may have fewer cores than the nodes together.
            "SlurmdParameters=config_overrides",
            "ReturnToService=2",
            "KillWait=5",
            "SlurmdTimeout=10",
            "SlurmctldTimeout=30",
            "MinJobAge=300",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=100000,bf_interval=1",
            *nodes,
            *unserved,
            "PreemptType=preempt/partition_prio",
            "PreemptMode=CANCEL",
            f"PartitionName=perf Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO",
            # Its jobs end those of the other partition.
            f"PartitionName=urgent Nodes={','.join(NODES)} MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=10",
            "",
        ]
    )


def _free_ports(count: int) -> Sequence[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]
