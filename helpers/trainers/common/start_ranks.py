"""Starts the ranks of a job on one node: ``python -m helpers.trainers.common.start_ranks OPTIONS -- COMMAND...``.

It is the launcher for a framework that has none. It finds a free port of this node for each rank, exchanges ports with
the starters of the other nodes through files in a folder that all share, starts the ranks and waits for them. Each rank
finds its place in the variables that torch.distributed.run would set, and the addresses of all ranks in TF_CONFIG, as
tf.distribute reads it. Each rank sees only its own GPUs.

When a rank fails, the starter names it, ends the other ranks of its node and restarts none, since a run that began
twice is not a measurement. Exit status: 0 if all ranks ended with 0; else that of the first rank that failed, or 1 if a
signal ended that rank.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

from helpers.trainers.contract.errors import LaunchError

# A rank that was asked to end is killed after this time. The supervisor's grace is longer.
_GRACE_SECONDS = 5.0
# The time between two looks for the other nodes' files.
_LOOK_SECONDS = 0.2
_PORT_ATTEMPTS = 200
# Without these, gRPC would connect to the other ranks through the caller's proxy.
_NO_PROXY = ("NO_PROXY", "no_proxy", "no_grpc_proxy")


def main(argv: Sequence[str]) -> int:
    given = _arguments(argv)
    started: Dict[int, subprocess.Popen[bytes]] = {}
    with contextlib.ExitStack() as reserved:
        among = os.environ.get("PORT_RANGE", "")
        # Held until the ranks have ended: a rank binds its port only after an import of some seconds.
        ports = [reserved.enter_context(_reserve(among)) for _ in range(given.ranks)]
        workers = [f"{given.address}:{port.getsockname()[1]}" for port in ports]
        if given.nodes > 1:
            workers = meet(given.meet, given.node, given.nodes, workers)
        given.logs.mkdir(parents=True, exist_ok=True)
        try:
            for local in range(given.ranks):
                environment = rank_environment(os.environ, workers, given.node * given.ranks, given.ranks, local)
                with (given.logs / f"rank{local}.log").open("ab") as output:
                    started[local] = subprocess.Popen(
                        given.command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                    )
            return _watch(started, given.node * given.ranks)
        finally:
            for process in started.values():
                if process.poll() is None:
                    process.kill()


def rank_environment(
    inherited: Mapping[str, str], workers: Sequence[str], first: int, ranks: int, local: int
) -> Dict[str, str]:
    """The environment of rank number ``local`` of this node's ``ranks``; ``first`` is the node's first rank in the job.

    ``workers`` are the HOST:PORT of all ranks of the job.
    """
    rank = first + local
    task = {"cluster": {"worker": list(workers)}, "task": {"type": "worker", "index": rank}}
    hosts = sorted({worker.rpartition(":")[0] for worker in workers})
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(len(workers)),
        "LOCAL_WORLD_SIZE": str(ranks),
        "TF_CONFIG": json.dumps(task),
        # Its server may then bind the port that the starter holds for it (_reserve).
        "TF_GRPC_REUSE_PORT": "true",
        "CUDA_VISIBLE_DEVICES": ",".join(_share(inherited.get("CUDA_VISIBLE_DEVICES", ""), ranks, local)),
    }
    direct = {name: ",".join(filter(None, [inherited.get(name, ""), *hosts])) for name in _NO_PROXY}
    return {**inherited, **direct, **own}


def _share(visible: str, ranks: int, local: int) -> List[str]:
    cards = [card for card in visible.split(",") if card]
    if len(cards) % ranks:
        raise LaunchError(
            "starter", field="CUDA_VISIBLE_DEVICES", got=visible, expected=f"as many cards for each of {ranks} ranks"
        )
    each = len(cards) // ranks
    return cards[local * each : (local + 1) * each]


def meet(folder: Path, node: int, nodes: int, own: Sequence[str]) -> List[str]:
    """The HOST:PORT of all ranks of the job, in rank order; ``own`` are those of this ``node``.

    Returns when the starters of all nodes have called it with the same ``folder``, which is the job's own. There is no
    time limit here; the supervisor limits the start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"node{node}.unfinished"
    unfinished.write_text("\n".join(own), encoding="utf-8")
    unfinished.rename(folder / f"node{node}.workers")
    files = [folder / f"node{each}.workers" for each in range(nodes)]
    while not all(each.exists() for each in files):
        time.sleep(_LOOK_SECONDS)
    return [worker for each in files for worker in each.read_text(encoding="utf-8").split("\n")]


def _reserve(port_range: str) -> socket.socket:
    """A socket on a port that is free on all addresses of this node, since tf.distribute's servers listen on all.

    While it is open, only a socket of the same user with SO_REUSEPORT gets the port. The rank's server is one; another
    starter is none, as it sets that option after it has bound. The socket never listens, so it takes no connection.

    ``port_range`` is ``FIRST:LAST``, the allowed ports; empty allows all.
    """
    first, _, last = port_range.partition(":")
    if port_range and not (first.isdigit() and last.isdigit() and 0 < int(first) <= int(last) < 2**16):
        raise LaunchError("starter", field="PORT_RANGE", got=port_range, expected="FIRST:LAST, such as 36000:36999")
    for _ in range(_PORT_ATTEMPTS):
        found = socket.socket()
        try:
            found.bind(("", random.randint(int(first), int(last)) if port_range else 0))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return found
        except OSError as error:
            found.close()
            if error.errno != errno.EADDRINUSE:
                raise
    raise LaunchError("starter", field="PORT_RANGE", got=port_range or "any port", expected="free ports among them")


def _watch(started: Mapping[int, "subprocess.Popen[bytes]"], first: int) -> int:
    """Wait for all ranks; end the others when one fails. Returns the exit status."""
    running, failed = dict(started), 0
    while running and not failed:
        # Wait for any child: asking the ranks one by one would not show which ended first.
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        local = next((each for each, process in running.items() if ended and process.pid == ended.si_pid), None)
        if local is None:
            # An orphan of a rank: in a container the launcher may be the first process, which inherits orphans.
            os.waitpid(ended.si_pid if ended else -1, 0)
            continue
        status = running.pop(local).wait()
        if status:
            _tell(first, local, f"failed first: exit status {status}")
            failed = status if status > 0 else 1
    for local, process, asked in _end(running):
        how = "was ended" if asked else "failed too"
        if asked or process.returncode:
            _tell(first, local, f"{how}: exit status {process.returncode}")
    return failed


def _end(running: Mapping[int, "subprocess.Popen[bytes]"]) -> "List[Tuple[int, subprocess.Popen[bytes], bool]]":
    """End the ranks. Returns each with whether it had to be ended, or had already ended by itself."""
    asked = {local: process.poll() is None for local, process in running.items()}
    for local, process in running.items():
        if asked[local]:
            process.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for process in running.values():
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return [(local, process, asked[local]) for local, process in running.items()]


def _tell(first: int, local: int, words: str) -> None:
    print(f"rank {first + local} (local {local}) {words}", flush=True)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="start_ranks")
    parser.add_argument("--ranks", type=int, required=True, help="the ranks of this node")
    parser.add_argument("--logs", type=Path, required=True, help="the folder of the ranks' output")
    parser.add_argument("--address", required=True, help="this node's address, by which other ranks reach it")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--node", type=int, default=0, help="this node's number")
    parser.add_argument("--meet", type=Path, help="the folder through which the nodes' starters meet")
    parser.add_argument("command", nargs="+", help="the program of each rank")
    return parser.parse_args(argv)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (LaunchError, OSError) as error:
        print(f"starter: {error}", file=sys.stderr)
        sys.exit(1)
