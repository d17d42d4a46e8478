"""The starter of a node's ranks: what it tells each of them, how it meets other nodes, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.launch.failure import crash_reason, ended_by_launcher, failed_first, status_of
from helpers.trainers.common.start_ranks import _reserve, rank_environment
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError

MODULE = "helpers.trainers.common.start_ranks"
TELL = "import json, os; print(json.dumps({**os.environ}))"


def start(folder: Path, ranks: int, program: str, *words: str, **variables: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-u", "-m", MODULE, "--ranks", str(ranks), "--address", "127.0.0.1", *words]
    argv += ["--logs", str(folder), "--", sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder.parent
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def told(folder: Path, local: int) -> dict[str, Any]:
    return dict(json.loads((folder / f"rank{local}.log").read_text()))


def test_each_rank_finds_its_place_its_cards_and_all_addresses(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    variables = {"CUDA_VISIBLE_DEVICES": "4,5,6,7", "no_proxy": "example.org"}
    assert ended(start(logs, 2, TELL, **variables)) == (0, "")
    ranks = [told(logs, local) for local in (0, 1)]
    configurations = [json.loads(rank["TF_CONFIG"]) for rank in ranks]
    workers = configurations[0]["cluster"]["worker"]
    assert [each["cluster"] for each in configurations] == [{"worker": workers}] * 2
    assert [each["task"] for each in configurations] == [{"type": "worker", "index": index} for index in (0, 1)]
    assert len(set(workers)) == 2 and all(each.startswith("127.0.0.1:") for each in workers)
    places = [[rank[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")] for rank in ranks]
    assert places == [["0", "0", "2", "2"], ["1", "1", "2", "2"]]
    assert [rank["CUDA_VISIBLE_DEVICES"] for rank in ranks] == ["4,5", "6,7"]
    assert {rank["no_proxy"] for rank in ranks} == {"example.org,127.0.0.1"}


# A rank that looks at its own port as TensorFlow's server, and as another program, would bind it.
BINDS = """
import json, os, socket
port = int(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][0].rpartition(":")[2])
found = {"reuse": os.environ["TF_GRPC_REUSE_PORT"]}
for who, option in (("another program", None), ("another server", socket.SO_REUSEADDR), ("rank", socket.SO_REUSEPORT)):
    with socket.socket() as own:
        if option is not None:
            own.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            own.bind(("", port))
            own.listen()
            with socket.create_connection(("127.0.0.1", port), 10), own.accept()[0]:
                found[who] = "bound"
        except OSError as error:
            found[who] = os.strerror(error.errno)
print(json.dumps(found))
"""


def test_a_rank_s_port_is_held_for_it_until_it_binds_it(tmp_path: Path) -> None:
    assert ended(start(tmp_path / "logs", 1, BINDS)) == (0, "")
    in_use = "Address already in use"
    found = {"reuse": "true", "another program": in_use, "another server": in_use, "rank": "bound"}
    assert told(tmp_path / "logs", 0) == found


def test_another_starter_never_takes_a_port_that_is_held(tmp_path: Path) -> None:
    with _reserve("") as held:
        port = held.getsockname()[1]
        with pytest.raises(LaunchError, match="free ports"):
            _reserve(f"{port}:{port}")


def test_nodes_meet_and_agree_on_all_addresses_in_rank_order(tmp_path: Path) -> None:
    words = ("--nodes", "2", "--meet", str(tmp_path / "shared"))
    # The second node comes first, and finds nobody yet.
    started = [start(tmp_path / f"node{node}", 2, TELL, "--node", str(node), *words) for node in (1, 0)]
    assert [ended(each) for each in started] == [(0, "")] * 2
    ranks = [told(tmp_path / f"node{node}", local) for node in (0, 1) for local in (0, 1)]
    assert [rank["RANK"] for rank in ranks] == ["0", "1", "2", "3"]
    assert {rank["WORLD_SIZE"] for rank in ranks} == {"4"}
    clusters = {json.dumps(json.loads(rank["TF_CONFIG"])["cluster"]) for rank in ranks}
    assert len(clusters) == 1 and len(set(json.loads(clusters.pop())["worker"])) == 4


# Rank 1 fails at once; rank 0 waits for it until it is ended.
FAILS = "import os, sys, time, signal; {}if os.environ['RANK'] == '1' else time.sleep(60)"


@pytest.mark.parametrize(
    ("fails", "exit_code", "status", "reason"),
    [
        ("sys.exit(3) ", 3, 3, "rank 1 exited with 3"),
        ("os.kill(os.getpid(), signal.SIGKILL) ", 1, -9, "rank 1 ended by SIGKILL (killed from outside)"),
    ],
)
def test_the_rank_that_fails_first_is_named_and_the_others_are_ended(
    tmp_path: Path, fails: str, exit_code: int, status: int, reason: str
) -> None:
    code, output = ended(start(tmp_path / "logs", 2, FAILS.format(fails)))
    assert code == exit_code
    assert output.splitlines() == [
        f"rank 1 (local 1) failed first: exit status {status}", "rank 0 (local 0) was ended: exit status -15"
    ]  # fmt: skip
    # As the supervisor reads it.
    assert (failed_first(output), status_of(code, output), ended_by_launcher(output)) == (1, status, frozenset({0}))
    assert status_of(code, output, guilty=0) is None
    assert crash_reason(code, output) == reason


@pytest.mark.parametrize("given", ["36000", "9:1", "0:10", "1:70000"])
def test_a_port_range_that_is_none_is_an_error(given: str) -> None:
    with pytest.raises(LaunchError, match="'PORT_RANGE'"):
        _reserve(given)


def test_ports_are_taken_of_the_range_that_a_firewall_allows(tmp_path: Path) -> None:
    assert ended(start(tmp_path / "logs", 2, TELL, PORT_RANGE="36000:36999")) == (0, "")
    workers = json.loads(told(tmp_path / "logs", 0)["TF_CONFIG"])["cluster"]["worker"]
    assert all(36000 <= int(each.rpartition(":")[2]) <= 36999 for each in workers)


def test_cards_that_cannot_be_shared_evenly_are_an_error() -> None:
    with pytest.raises(LaunchError, match=r"'CUDA_VISIBLE_DEVICES': got '0,1,2', expected as many cards"):
        rank_environment({"CUDA_VISIBLE_DEVICES": "0,1,2"}, ["h:1", "h:2"], 0, 2, 0)
