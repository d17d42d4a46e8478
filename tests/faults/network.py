"""Row 9: a port is taken, an address does not answer, or a name is unknown (dead_nodes.py has the dead nodes).

Two nodes are two loopback addresses of this machine, each with an agent, a launcher and ranks of its own.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from tests.faults.fault import Fault, Seen, expect
from tests.faults.handled import NO_PADDLE, infra_error
from tests.faults.traces import one_card
from tests.faults.workshop import LIMITS, TWO_CARDS, Finished, Workshop

CASE = one_card(1, nodes=2)
_FIRST, _SECOND = "127.0.0.2", "127.0.0.3"
N1 = f"n1 ({_SECOND})"
# Nobody has this address, which RFC 5737 keeps for documentation.
_NOBODY = "192.0.2.1"
# Paddle's launcher is imported on both nodes before they can meet.
_START_UP_SECONDS = 20.0
# The time to find out that nobody is there: ssh's ConnectTimeout here, a look or two, and the suite's end.
_AT_ONCE_SECONDS = 20.0


def two_nodes(
    second: dict[str, Any] | None = None, first: str = _FIRST, **more: Any
) -> Callable[[dict[str, Any]], None]:
    """perf.yaml with one case of two nodes; ``second`` changes the second host, ``more`` stands beside the hosts."""

    def change(config: dict[str, Any]) -> None:
        config["matrix"]["cpu"][0] |= {"nodes": 2, "cards": 1}
        config["short"] = [CASE]
        hosts = [
            {"name": "n0", "address": first},
            {"name": "n1", "address": _SECOND, "connect": ["env"]} | (second or {}),
        ]
        config["nodes"] = {"hosts": hosts, **more}
        config["limits"] |= {"start_up_seconds": _START_UP_SECONDS}
        config["budgets"] = {"retries": 0}

    return change


def _refused(change: Callable[[dict[str, Any]], None], *expected: str) -> Callable[[Workshop], Seen]:
    """Expects INFRA_ERROR with all ``expected`` texts within seconds, before anything is started."""

    def make(workshop: Workshop) -> Seen:
        workshop.configure(change)
        done = workshop.run(case=CASE)
        late = expect((done.seconds < _AT_ONCE_SECONDS, f"the session took {done.seconds:.0f} s"))
        return infra_error(workshop, done, *expected, words=False, also=late)

    return make


def _port_taken_before(workshop: Workshop) -> Seen:
    with socket.socket() as holder:
        holder.bind((_FIRST, 0))
        holder.listen()
        port = holder.getsockname()[1]
        return _refused(two_nodes(port=port), "host n0", f"{_FIRST}:{port}", "Address already in use", "nodes.port")(
            workshop
        )


def _never_answers(workshop: Workshop) -> Seen:
    """A listener takes connections and does not answer, as behind a firewall that drops everything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        connect = _ssh("-p", str(listener.getsockname()[1]), "127.0.0.1")
        return _refused(two_nodes({"connect": connect}), f"node {N1}", "timed out", "Try it: ssh")(workshop)


# ---- when the launchers, or the ranks, want to meet

_TAKES_THE_PORT = """
import socket, sys, threading

def in_launcher(spec_path):
    words = sys.orig_argv
    if words[words.index("--rank") + 1] != "0":
        return
    host, _, port = words[words.index("--master") + 1].partition(":")
    holder = socket.socket()
    holder.bind((host, int(port)))
    holder.listen()
    mark()
    threading.Event().wait()
"""
_LOOKS_ELSEWHERE = """
import sys

def in_launcher(spec_path):
    if "1" == sys.argv[sys.argv.index("--rank") + 1]:
        sys.argv[sys.argv.index("--master") + 1] = {master!r}
        mark()
"""
# Once Paddle is imported, and before it opens the port that its launcher has chosen for the ranks to meet at.
_RANKS_PORT = """
import os, socket, subprocess, sys, threading, time

def at_start(spec, rank):
    if rank == 0:
        threading.Thread(target=take, daemon=True).start()

def take():
    while not hasattr(sys.modules.get("paddle"), "disable_signal_handler"):
        time.sleep(0.001)
    host, _, port = os.environ["PADDLE_MASTER"].partition(":")
    with socket.socket() as holder:
        holder.bind((host, int(port)))
        holder.listen()
        subprocess.Popen(["sleep", "60"], pass_fds=[holder.fileno()])
    mark()
"""


def _cannot_meet(fault: str, *expected: str) -> Callable[[Workshop], Seen]:
    """The launchers wait for each other until the start-up limit; then the suite ends the job and says why."""

    def make(workshop: Workshop) -> Seen:
        workshop.configure(two_nodes())
        done = workshop.run(case=CASE, fault=fault)
        # The limit runs from the start of the job, a moment before the mark.
        return infra_error(workshop, done, *expected, limit_seconds=_START_UP_SECONDS, words=False, also=_marked(done))

    return make


def _marked(done: Finished) -> tuple[str, ...]:
    return expect((bool(done.marks), f"the fault was not made: {done.output[-600:]}"))


def _ranks_port_taken(workshop: Workshop) -> Seen:
    """The framework itself starts here and its ranks meet; nothing is trained."""
    with Workshop(workshop.folder / "real", real=True, python=workshop.python) as real:
        real.configure(lambda config: config.update(budgets={"retries": 0}, limits={**LIMITS, "start_up_seconds": 90}))
        done = real.run(case=TWO_CARDS, fault=_RANKS_PORT)
        return infra_error(real, done, "port in use", rank=0, words=False, also=_marked(done))


def _why_no_ssh() -> str:
    return "" if shutil.which("ssh") else "there is no ssh here"


def why_no_paddle() -> str:
    return "" if find_spec("paddle") else NO_PADDLE


def _closed_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ssh(*words: str) -> list[str]:
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=3", "-o", "StrictHostKeyChecking=no", *words]


FAULTS = [
    Fault(
        9, "host name not resolvable", "the second node's address is a name that nobody knows",
        _refused(two_nodes({"address": "no-such-host.invalid"}), "host n1", "no-such-host.invalid", "perf.yaml"),
    ),
    Fault(
        9, "first node is another machine", "the first node's address belongs to nobody here",
        _refused(two_nodes(first=_NOBODY), "host n0", _NOBODY, "Run the suite on the first host"),
    ),
    Fault(
        9, "node never answers", "ssh to the second node, where somebody listens and says nothing", _never_answers,
        needs=_why_no_ssh,
    ),
    Fault(
        9, "node at nobody's address", "ssh to the second node, at an address that nobody has",
        _refused(two_nodes({"address": _NOBODY, "connect": _ssh(_NOBODY)}), f"node n1 ({_NOBODY})", "Try it: ssh"),
        needs=_why_no_ssh,
    ),
    Fault(
        9, "node refuses the connection", "ssh to the second node, at a port where nobody listens",
        _refused(
            two_nodes({"connect": _ssh("-p", str(_closed_port()), "127.0.0.1")}), f"node {N1}", "Connection refused",
        ), needs=_why_no_ssh,
    ),
    Fault(
        9, "rendezvous port taken before", "another process listens at nodes.port when the session begins",
        _port_taken_before,
    ),
    Fault(
        9, "rendezvous port taken in between", "another one listens at the port between its choice and its use",
        _cannot_meet(_TAKES_THE_PORT, "rendezvous unreachable", f"at {_FIRST}:", "another program has"),
        needs=why_no_paddle,
    ),
    Fault(
        9, "rendezvous behind a blackhole", "the second node's launcher finds nobody at the rendezvous address",
        _cannot_meet(_LOOKS_ELSEWHERE.format(master=f"{_NOBODY}:36000"), "rendezvous unreachable", f"at {_FIRST}:"),
        needs=why_no_paddle,
    ),
    Fault(
        9, "rendezvous port closed", "the second node's launcher finds a closed port at the rendezvous address",
        _cannot_meet(
            _LOOKS_ELSEWHERE.format(master=f"{_FIRST}:{_closed_port()}"), "rendezvous unreachable", f"at {_FIRST}:",
        ), needs=why_no_paddle,
    ),
    Fault(
        9, "ranks' port taken in between", "another one listens where Paddle's ranks want to meet (Paddle itself)",
        _ranks_port_taken, needs=why_no_paddle,
    ),
 ]  # fmt: skip
