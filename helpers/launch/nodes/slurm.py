"""The nodes of this process's Slurm job, and how the suite's program is started on them as a job step.

It is imported only in a Slurm job.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from helpers.launch.nodes.link import NodeLink
from helpers.launch.nodes.starter import END_SECONDS, agent_words, sweep
from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.trainers.contract.errors import LaunchError

# Variables that Slurm sets for all processes of a job on its nodes.
JOB, NODE, NODES, NODE_LIST = "SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST"
# Slurm's commands repeat their question while the controller is being restarted.
COMMAND_SECONDS = 60.0
_POLL_SECONDS = 0.2
_REMEDY = "See the job: scontrol show job"


def in_job(variables: Mapping[str, str]) -> bool:
    """Whether this process runs on a node of a Slurm job; a shell of ``salloc`` does not."""
    return JOB in variables and NODE in variables


def with_hosts_of_job(nodes: NodesConfig, variables: Mapping[str, str]) -> NodesConfig:
    """``nodes`` with the hosts of this process's Slurm job, this node first.

    Raises LaunchError if Slurm does not answer, or two nodes of the job have one address.
    """
    own = variables[NODE]
    addresses = {own: own} if variables.get(NODES) == "1" else _addresses(variables)
    if own not in addresses:
        raise LaunchError("Slurm", field=NODE, got=own, expected=f"one of the job's nodes {', '.join(addresses)}")
    names = [own, *(name for name in addresses if name != own)]
    taken: dict[str, str] = {}
    for name in names:
        other = taken.setdefault(addresses[name], name)
        if other != name:
            raise LaunchError(
                f"node {name} of Slurm",
                field="NodeAddr",
                got=f"{addresses[name]}, the address of node {other}",
                expected="an address of its own: ranks on both would wait for each other",
                remedy=f"Leave one of them out: perfgate submit --exclude {name}",
            )
    hosts = [
        HostConfig(name, addresses[name], environment=nodes.environment, interface=nodes.interface) for name in names
    ]
    return replace(nodes, hosts=tuple(hosts), of_slurm=True)


def _addresses(variables: Mapping[str, str]) -> dict[str, str]:
    """The address of each node of the job, in Slurm's order."""
    listed = variables[NODE_LIST]
    names = ask_slurm("scontrol", "show", "hostnames", listed).split()
    shown = ask_slurm("scontrol", "--oneliner", "show", "node", listed)
    found = dict(re.findall(r"^NodeName=(\S+) .*?\bNodeAddr=(\S+)", shown, re.MULTILINE))
    if missing := [name for name in names if name not in found]:
        raise LaunchError("scontrol show node", got=f"no address of {', '.join(missing)}", expected="one of each node")
    return {name: found[name] for name in names}


def ask_slurm(*words: str, seconds: float = COMMAND_SECONDS) -> str:
    """The output of a command of Slurm. Raises LaunchError if it fails or does not answer in time."""
    about = " ".join(words[:3])
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise LaunchError(about, got=f"no answer within {seconds:g} s", expected="an answer of slurmctld") from None
    except OSError as error:
        raise LaunchError(about, got=str(error), expected="Slurm's commands on PATH") from error
    if done.returncode:
        raise LaunchError(
            about, got=" ".join(done.stderr.split()) or f"exit status {done.returncode}", expected="an answer"
        )
    return done.stdout


@dataclass(frozen=True)
class SlurmStarter:
    """Starts each node's agent as a step of this process's job. Implements NodeStarter.

    Slurm ends a step with all processes in it, and grants it the cards of the job on that node.
    """

    job: str

    def start(self, host: HostConfig, node: int, interpreter: str) -> NodeLink:
        return NodeLink(host, node, self._argv(host, agent_words(host, interpreter)))

    def end(self, link: NodeLink, job_id: str, grace_seconds: float) -> None:
        self._end_step(_step_name(link.argv))
        # The step's processes ended with it. Its files on the node's disk are still there.
        sweep(NodeLink(link.host, link.node, link.argv), job_id, grace_seconds)

    def _argv(self, host: HostConfig, words: Sequence[str]) -> tuple[str, ...]:
        return (
            "srun", f"--jobid={self.job}", "--nodes=1", "--ntasks=1", f"--nodelist={host.name}",
            f"--job-name=perfgate-{secrets.token_hex(4)}",
            # Beside the step or script that runs the suite, with all that the job has on that node.
            "--overlap", "--mem=0", "--cpu-bind=none",
            "--kill-on-bad-exit=1", "--unbuffered", "--quiet",
            *words,
        )  # fmt: skip

    def _end_step(self, name: str) -> None:
        """Kill the step of this name; raises LaunchError if Slurm still has it afterwards."""
        deadline = time.monotonic() + END_SECONDS
        while steps := self._steps(name):
            if time.monotonic() >= deadline:
                raise LaunchError(f"step {steps[0]} of Slurm", got="running", expected="its end", remedy=_REMEDY)
            ask_slurm("scancel", "--signal=KILL", *steps)
            time.sleep(_POLL_SECONDS)

    def _steps(self, name: str) -> list[str]:
        listed = ask_slurm("squeue", "--noheader", "--steps", f"--jobs={self.job}", "--format=%i %j")
        return [step for step, _, found in (line.partition(" ") for line in listed.splitlines()) if found == name]


def _step_name(argv: Sequence[str]) -> str:
    option = "--job-name="
    return next(word.removeprefix(option) for word in argv if word.startswith(option))
