"""Row 9: a port is taken, an address does not answer, or a name is unknown (dead_nodes.py has the dead nodes).

Two nodes are two loopback addresses of this machine, each with a launcher and ranks of its own.
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
from tests.faults.workshop import Finished, Workshop

CASE = one_card(1, nodes=2)
_FIRST, _SECOND = "127.0.0.2", "127.0.0.3"
N1 = f"n1 ({_SECOND})"
# Paddle's launcher is imported on both nodes before they can meet.
_START_UP_SECONDS = 20.0
# The time to find out that nobody is there: ssh's ConnectTimeout here, a look or two, and the suite's end.
_AT_ONCE_SECONDS = 20.0


def two_nodes(second: dict[str, Any] | None = None) -> Callable[[dict[str, Any]], None]:
    """perf.yaml with one case of two nodes; ``second`` changes the second host."""

    def change(config: dict[str, Any]) -> None:
        config["matrix"]["cpu"][0] |= {"nodes": 2, "cards": 1}
        config["short"] = [CASE]
        hosts = [
            {"name": "n0", "address": _FIRST},
            {"name": "n1", "address": _SECOND, "connect": ["env"]} | (second or {}),
        ]
        config["nodes"] = {"hosts": hosts}
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


def _why_no_ssh() -> str:
    return "" if shutil.which("ssh") else "there is no ssh here"


def why_no_paddle() -> str:
    return "" if find_spec("paddle") else NO_PADDLE


def _ssh(*words: str) -> list[str]:
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=3", "-o", "StrictHostKeyChecking=no", *words]


FAULTS = [
    Fault(
        9, "host name not resolvable", "the second node's address is a name that nobody knows",
        _refused(two_nodes({"address": "no-such-host.invalid"}), "host n1", "no-such-host.invalid", "perf.yaml"),
    ),
    Fault(
        9, "node never answers", "ssh to the second node, where somebody listens and says nothing", _never_answers,
        needs=_why_no_ssh,
    ),
    Fault(
        9, "rendezvous port taken in between", "another one listens at the port between its choice and its use",
        _cannot_meet(_TAKES_THE_PORT, "rendezvous unreachable", f"at {_FIRST}:", "another program has"),
        needs=why_no_paddle,
    ),
]  # fmt: skip
