"""The nodes of this process's Slurm job, and how the suite's program is started on them as a job step."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from helpers.common.inherited import may_pass
from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.trainers.contract.errors import LaunchError

# Variables that Slurm sets for all processes of a job on its nodes.
JOB, NODE, NODES, NODE_LIST = "SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST"
# Slurm's commands repeat their question while the controller is being restarted.
COMMAND_SECONDS = 60.0


def in_job(variables: Mapping[str, str]) -> bool:
    """Whether this process runs on a node of a Slurm job; a shell of ``salloc`` does not."""
    return JOB in variables and NODE in variables


def with_hosts_of_job(nodes: NodesConfig, variables: Mapping[str, str]) -> NodesConfig:
    """``nodes`` with the hosts of this process's Slurm job, this node first.

    Raises LaunchError if Slurm does not answer or names no address of a node, this node is not of the job, or two of
    its nodes have one address.
    """
    own = variables[NODE]
    addresses = {own: own} if variables.get(NODES) == "1" else _addresses(variables)
    if own not in addresses:
        raise LaunchError("Slurm", field=NODE, got=own, expected=f"one of the job's nodes {', '.join(addresses)}")
    names = sorted(addresses, key=lambda name: name != own)
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


def step_words(host: HostConfig) -> tuple[str, ...]:
    """What runs a command on a node as a step of this process's job. Slurm ends a step with all processes in it, and
    grants it the cards of the job on that node."""
    return (
        "srun", f"--jobid={os.environ[JOB]}", "--nodes=1", "--ntasks=1", f"--nodelist={host.name}",
        # Beside the step or script that runs the suite, with all that the job has on that node.
        "--overlap", "--mem=0", "--cpu-bind=none",
        "--kill-on-bad-exit=1", "--unbuffered", "--quiet",
        # Slurm would pass on everything, passwords too.
        f"--export={','.join(sorted(filter(may_pass, os.environ)))}",
    )  # fmt: skip
