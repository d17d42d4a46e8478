"""The job array of a fleet, with a task pinned to each node: its nodes and their cards, its script, its submission, and
the wait for its end."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from helpers.commands.fleets.gres import devices
from helpers.commands.fleets.hostlist import hostlist
from helpers.commands.submission.job import FORGOTTEN_JOB, Ask, Clock, JobState, NoAnswer, submit
from helpers.commands.submission.script import JobRequest, head_of
from helpers.commands.submission.waiting import Patience, Say, cancel_each
from helpers.history.stored import place_of_session, session_of_place
from helpers.launch.nodes.slurm import ask_slurm
from helpers.plan.clusters import ClusterConfig
from helpers.trainers.contract.errors import ConfigError, LaunchError

_ANSWER_SECONDS = 30.0
# With many nodes an answer of Slurm is long, so it is asked less often.
_POLL_SECONDS, _POLL_SECONDS_A_NODE = 1.0, 0.01
# A pinned task whose node Slurm calls unavailable for so long is cancelled. Slurm holds a task that its node could not
# launch, and would never begin it again by itself.
_UNAVAILABLE_SECONDS = 60.0
_UNAVAILABLE = ("ReqNodeNotAvail", "NodeDown", "BadConstraints", "launch_failed", "JobHoldMaxRequeue")
# A node with one of these words in its state gets no job, nor one with a star, which does not respond. A node that
# Slurm has powered down (POWERED_DOWN) gets one, and is powered up for it.
_NOT_USABLE = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVALID_REG", "MAINT"),
    *("NOT_RESPONDING", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "UNKNOWN"),
}
_TASK = re.compile(r"(?:^| )ArrayTaskId=(\d+)(?: |$)")


@dataclass(frozen=True)
class SlurmNode:
    """A node, by ``scontrol show node``."""

    name: str
    address: str
    state: str
    reason: str = ""
    # Its devices as Slurm lists them, such as ``gpu:a100:8(S:0-1)``.
    gres: str = ""

    def cards(self, gres: str) -> int:
        """How many devices of ``gres`` (``gpu``, ``gpu:a100``) it has. Raises ConfigError if Slurm's list cannot be
        read."""
        return devices(self.gres, gres, self.name)

    @property
    def problem(self) -> str:
        """Why it gets no job; empty if it may get one."""
        if "*" not in self.state and _NOT_USABLE.isdisjoint(re.findall(r"[A-Z_]+", self.state)):
            return ""
        return f"Slurm says {self.state}{f' ({self.reason})' if self.reason else ''}"


def chosen_nodes(pattern: str, partition: str | None, ask: Ask = ask_slurm) -> tuple[SlurmNode, ...]:
    """The nodes of the partition that ``pattern`` means: Slurm's list (``n[00-17]``) or a shell pattern with ``*`` or
    ``?``. Raises ConfigError if it means none, or a node that the partition does not have."""
    known = {each.name: each for each in _known_nodes(partition, ask)}
    if any(sign in pattern for sign in "*?"):
        found = [each for name, each in known.items() if fnmatchcase(name, pattern)]
    else:
        names = ask("scontrol", "show", "hostnames", pattern, seconds=_ANSWER_SECONDS).split()
        if absent := [name for name in names if name not in known]:
            where = f"partition {partition}" if partition else "this Slurm"
            raise ConfigError("--nodes", got=", ".join(absent[:5]), expected=f"nodes of {where}")
        found = [known[name] for name in dict.fromkeys(names)]
    if mistaken := [each.name for each in found if place_of_session(f".{each.name}")[1]]:
        raise ConfigError("--nodes", got=mistaken[0], expected="no name that ends as a card's session does (.card0)")
    if not found:
        shown = ", ".join([*list(known)[:10], *(["…"] if len(known) > 10 else [])])
        raise ConfigError("--nodes", got=pattern, expected=f"a pattern that a node has: {shown or 'there is none'}")
    return tuple(found)


def _known_nodes(partition: str | None, ask: Ask) -> list[SlurmNode]:
    found = []
    for line in ask("scontrol", "--oneliner", "show", "node", seconds=_ANSWER_SECONDS).splitlines():
        fields: dict[str, str] = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
        if "NodeName" not in fields:
            continue
        if partition is not None and partition not in fields.get("Partitions", "").split(","):
            continue
        reason = re.search(r" Reason=(.*?)(?: \[|$)", line)
        name = fields["NodeName"]
        found.append(
            SlurmNode(
                name,
                fields.get("NodeAddr", name),
                fields.get("State", "UNKNOWN"),
                str(reason[1]) if reason else "",
                fields.get("Gres", ""),
            )
        )
    return found


def cards_of_all(nodes: Sequence[SlurmNode], gres: str) -> int:
    """How many cards each of the nodes has by Slurm's list. Raises ConfigError if a node has none or not as many as the
    others, or if the list cannot be read."""
    counts: dict[int, list[str]] = {}
    for node in nodes:
        counts.setdefault(node.cards(gres), []).append(node.name)
    if len(counts) == 1 and 0 not in counts:
        return next(iter(counts))
    raise ConfigError(
        "perfgate fleet",
        got="; ".join(f"{count} cards ({gres}) on {hostlist(names)}" for count, names in sorted(counts.items())),
        expected="as many cards on each node, by Slurm's list of its Gres",
        remedy="Name nodes of one kind, or say with --cards N on how many cards of each to measure",
    )


def is_here(address: str) -> bool:
    """Whether a node's address is one of this machine."""
    try:
        for family, kind, _, _, place in socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as probe:
                probe.bind(place)
                return True
    except OSError:
        return False
    return False


def array_script(request: JobRequest, cluster: ClusterConfig, fleet: str, nodes: Sequence[str]) -> str:
    """The script of the array. Task number K measures on the node at place K of ``nodes``, and refuses any other node.
    It has sessions of its own, which a second start of the task continues."""
    return "\n".join(
        [
            *head_of(replace(request, tasks=len(nodes)), cluster),
            f"set -- {shlex.join(nodes)}",
            'shift "$SLURM_ARRAY_TASK_ID"',
            "node=$1",
            'if [ "$node" != "$SLURMD_NODENAME" ]; then',
            '  echo "task $SLURM_ARRAY_TASK_ID is for node $node, and Slurm runs it on $SLURMD_NODENAME" >&2',
            "  exit 4",
            "fi",
            f'set -- --session={shlex.quote(session_of_place(fleet, ("", "")))}"$node"',
            # The shell is replaced, so that the command itself gets Slurm's signals, and its exit status is the task's.
            f'exec {shlex.join(request.command)} "$@" {shlex.join(request.options)}',
            "",
        ]
    )


def pin_commands(job: str, nodes: Sequence[str]) -> list[str]:
    """The commands for scontrol by which each task runs on its node and the array begins."""
    pins = [f"update JobId={job}_{task} ReqNodeList={node}" for task, node in enumerate(nodes)]
    return [*pins, f"release {job}"]


def submit_pinned(
    script: str,
    nodes: Sequence[str],
    find: Callable[[], str],
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
) -> str:
    """Submit the array, which waits, pin its tasks, and let it begin. Returns its id. ``find`` returns it if the answer
    to the submission was lost. Raises LaunchError, with nothing left of the array, if Slurm refuses a part of it."""
    try:
        job = submit(script, run)
    except NoAnswer:
        job = find()
    try:
        done = run(
            ["scontrol"],
            input="\n".join([*pin_commands(job, nodes), ""]),
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS + 0.1 * len(nodes),
        )
        said = " ".join((done.stderr + done.stdout).split())
        if done.returncode or "error" in said.lower():
            raise LaunchError("scontrol update", got=said or f"exit status {done.returncode}", expected="pinned tasks")
    except BaseException as error:
        left = _left_after_cancelling(job, run)
        if isinstance(error, (OSError, subprocess.TimeoutExpired, LaunchError)):
            got = error.got if isinstance(error, LaunchError) else str(error)
            raise LaunchError("scontrol update", got=got, expected="pinned tasks", remedy=left) from error
        raise
    return job


def _left_after_cancelling(job: str, run: Callable[..., subprocess.CompletedProcess[str]]) -> str | None:
    """Cancel the array, none of whose tasks has begun. Returns what the user must do if Slurm did not cancel it."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if not run(["scancel", job], capture_output=True, text=True, timeout=_ANSWER_SECONDS).returncode:
            return None
    return f"The array waits for ever; when Slurm answers: scancel {job}"


@dataclass
class WatchedArray:
    """A submitted array. A task's state is missing until Slurm has reported it."""

    job: str
    nodes: Sequence[str]
    states: dict[int, JobState] = field(default_factory=dict)
    # Why a task was cancelled here.
    given_up: dict[int, str] = field(default_factory=dict)
    # Whether Slurm answered when it was last asked.
    answered: bool = True
    cancelled: bool = False
    _unavailable_since: dict[int, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"job {self.job}"

    @property
    def for_scancel(self) -> str:
        return self.job

    @property
    def is_over(self) -> bool:
        return len(self.states) == len(self.nodes) and all(state.is_over for state in self.states.values())

    def look(self, ask: Ask = ask_slurm) -> str:
        """Ask Slurm for all tasks; returns what keeps it from answering, empty if it answers. A task that Slurm has
        forgotten counts as lost if it had not ended before."""
        self.answered = True
        try:
            shown = ask("scontrol", "--oneliner", "show", "job", self.job, seconds=_ANSWER_SECONDS)
        except LaunchError as error:
            if "Invalid job id" not in str(error):
                self.answered = False
                return f"Slurm does not answer ({error.got}); the nodes may go on without it"
            shown = ""
        seen = {int(found[1]): line for line in shown.splitlines() if (found := _TASK.search(line))}
        for task in range(len(self.nodes)):
            if task in seen:
                self.states[task] = JobState.of(seen[task])
            elif task in self.states and not self.states[task].is_over:
                self.states[task] = FORGOTTEN_JOB
        if not seen:
            for task in range(len(self.nodes)):
                self.states.setdefault(task, FORGOTTEN_JOB)
        return ""

    def progress(self) -> str:
        """How many tasks wait, run and have ended."""
        counts = Counter(
            "ended" if state.is_over else "waiting" if state.is_waiting else "running" for state in self.states.values()
        )
        counts["waiting"] += len(self.nodes) - len(self.states)
        return ", ".join(f"{counts[name]} {name}" for name in ("waiting", "running", "ended") if counts[name])

    def to_give_up(self, now: float, waited: float, most: float | None) -> dict[int, str]:
        """The waiting tasks that are to be cancelled: their node is unavailable, or ``waited`` seconds are more than
        ``most``."""
        found = {}
        for task, state in self.states.items():
            if not state.is_waiting or task in self.given_up:
                continue
            if state.reason.startswith(_UNAVAILABLE):
                since = self._unavailable_since.setdefault(task, now)
                if now - since >= _UNAVAILABLE_SECONDS:
                    found[task] = f"Slurm calls the node unavailable ({state.reason})"
            else:
                self._unavailable_since.pop(task, None)
            if most is not None and waited >= most:
                found.setdefault(task, f"it had not begun after {most / 60:.0f} min (--wait; {state.text})")
        return found

    def give_up(self, tasks: Mapping[int, str], ask: Ask = ask_slurm) -> str:
        """Cancel them; returns why they are not cancelled yet, empty if they are."""
        try:
            ask("scancel", *(f"{self.job}_{task}" for task in tasks), seconds=_ANSWER_SECONDS)
        except LaunchError as error:
            return f"Slurm does not cancel {len(tasks)} tasks that cannot begin ({error.got}); it is asked again"
        self.given_up.update(tasks)
        return ""

    def cancel(self, ask: Ask = ask_slurm) -> None:
        ask("scancel", self.job, seconds=_ANSWER_SECONDS)
        self.cancelled = True

    def problem(self, task: int, log: str) -> str:
        """Why a task did not end well; empty if it did."""
        if task in self.given_up:
            return self.given_up[task]
        state = self.states.get(task)
        if state is None:
            return "Slurm said nothing of it"
        status, why = state.exit_status()
        if why:
            return why
        return f"its command ended with {status} ({log})" if status else ""


def wait_for_array(
    array: WatchedArray,
    say: Say,
    patience: Patience,
    most_wait_seconds: float | None = None,
    *,
    cancelling: bool = False,
    ask: Ask = ask_slurm,
    sleep: Callable[[float], None] = time.sleep,
    clock: Clock = time.monotonic,
) -> bool:
    """Wait until all tasks are over; False if Slurm stayed away. ``say`` gets a line whenever their counts change, and
    one for each task that is given up or ended badly. With ``cancelling`` an array that could not be cancelled is
    cancelled as soon as Slurm answers."""
    began, told, ended = clock(), "", set[int]()
    while True:
        asked = patience.clock()
        line = array.look(ask) or array.progress()
        if line != told:
            told = line
            say(f"{array.name}: {line}")
        for task, state in sorted(array.states.items()):
            if state.is_over and task not in ended:
                ended.add(task)
                _, why = state.exit_status()
                if why and task not in array.given_up:
                    say(f"{array.nodes[task]}: {why}")
        if array.is_over:
            return True
        patience.note(array.answered, asked)
        if patience.is_over:
            return False
        if cancelling and array.answered and not array.cancelled:
            cancel_each([array], say)
        now = clock()
        if late := array.to_give_up(now, now - began, most_wait_seconds):
            if refused := array.give_up(late, ask):
                say(f"{array.name}: {refused}")
            for task in late.keys() & array.given_up.keys():
                say(f"{array.nodes[task]}: given up: {late[task]}")
        sleep(_POLL_SECONDS + _POLL_SECONDS_A_NODE * len(array.nodes))
