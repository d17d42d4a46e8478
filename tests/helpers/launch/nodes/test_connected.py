"""Four nodes of eight GPUs, as the first one sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import helpers.launch.nodes.connected
from helpers.launch.nodes.connected import CaseNeeds, ConnectedNodes
from helpers.launch.nodes.link import Message
from helpers.launch.nodes.node import Node
from helpers.launch.nodes.share import node_record
from helpers.machine.devices import CpuCard, Machine, environment_of
from helpers.machine.environment import Environment, differences, segment
from helpers.machine.host import Host
from helpers.machine.nvml import Gpu
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

CASE = Case.parse("paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static")
BUILD = {"interpreter": "/opt/python", "distribution": "paddlepaddle-gpu", "version": "2.6.2", "commit": "abc"}
HOSTS = (
    HostConfig("n0", "127.0.0.1", interface="eth0", environment={"NCCL_IB_HCA": "mlx5_0"}),
    *(HostConfig(f"n{node}", f"127.0.0.{node + 1}", ("ssh", f"n{node}")) for node in range(1, 4)),
)


class NodeStandIn(Node):
    """A node without a process behind it: what it says is given, what it is told is kept."""

    def __init__(self, host: HostConfig, number: int, said: Sequence[Message] = ()) -> None:
        self.host = host
        self.number = number
        self.name = f"{host.name} ({host.address})"
        self.boot_id = host.name
        self.lost = ""
        self.said = list(said)
        self.told: list[Message] = []

    def send(self, kind: str, **values: Any) -> None:
        self.told.append(json.loads(json.dumps({"kind": kind, **values})))

    def wait_for(self, kind: str, seconds: float, on_wait: Callable[[str], None]) -> Message:
        return self.said.pop(0)


def machine(node: int, watts: int = 400) -> Machine:
    gpus = tuple(
        Gpu(index, f"GPU-{node}{index}", "NVIDIA A100-SXM4-40GB", 40 * 1024**3, (8, 0), watts) for index in range(8)
    )
    host = Host(f"h{node}", f"{node}" * 16, "Linux", "6.1", "AMD EPYC", 64, 8 * 1024**3)
    return Machine(host, (CpuCard(0, (0,)),), gpus, "535.1", "12.2")


def connected(
    machines: tuple[Machine, ...] = tuple(machine(node) for node in range(4)), **variables: str
) -> tuple[ConnectedNodes, list[NodeStandIn]]:
    """A connected whose other nodes are these machines, with these variables of their own."""
    links = []
    for node, each in list(enumerate(machines))[1:]:
        ready = {"kind": "ready", **node_record({**BUILD, "framework": "paddle"}, each, each.gpus, "none", variables)}
        links.append(NodeStandIn(HOSTS[node], node, [ready]))
    return ConnectedNodes(HOSTS[: len(machines)], links), links


def prepared(found: ConnectedNodes, first: Machine | None = None) -> ConnectedNodes:
    first = first or machine(0)
    assert found.prepare(CaseNeeds(CASE, "a100", BUILD, first), first.gpus, print) == first.gpus
    return found


def environment(found: ConnectedNodes) -> Environment:
    first = machine(0)
    alone = environment_of(first, first.gpus, framework="paddle", framework_version="2.6.2", variables={})
    return found.environment(alone)


def test_a_result_of_several_nodes_names_every_host_and_every_card() -> None:
    found, _ = connected(NCCL_IB_HCA="mlx5_1", HOME="/root")
    told = environment(prepared(found))
    assert told.nodes == " + ".join(
        [
            "0" * 16 + " interface=eth0 NCCL_IB_HCA=mlx5_0",
            *(digit * 16 + " NCCL_IB_HCA=mlx5_1" for digit in "123"),
        ]
    )
    assert told.card_ids.split() == [f"GPU-{node}{index}" for node in range(4) for index in range(8)]
    assert told.cards == "8 x NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(
    "other",
    [
        connected((machine(0), machine(1), machine(2), machine(4)))[0],
        connected((machine(0), machine(2), machine(1), machine(3)))[0],
        connected(NCCL_P2P_DISABLE="1")[0],
    ],
    ids=["another host", "another order", "a variable of a host"],
)
def test_what_other_hosts_did_is_not_comparable(other: ConnectedNodes) -> None:
    found, _ = connected()
    apart = differences(segment(environment(prepared(found))), segment(environment(prepared(other))))
    assert "nodes" in [each.partition(":")[0] for each in apart]


def test_nodes_with_another_power_cap_are_refused() -> None:
    found, _ = connected((machine(0), machine(1, watts=300)))
    with pytest.raises(LaunchError, match=r"node n1 .*power cap \(W\): 400 → 300"):
        prepared(found)


def test_ports_that_a_firewall_leaves_open_are_the_same_on_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT_RANGE", "36000:36100")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    found, links = connected()
    prepared(found)
    assert [link.told[0]["environment"]["PORT_RANGE"] for link in links] == ["36000:36100"] * 3
    assert "SECRET_TOKEN" not in json.dumps([link.told for link in links])


def test_each_node_runs_eight_ranks_whose_files_have_their_places_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.launch.nodes.connected, "open_port", lambda host, address, port: port or 36000)
    found, links = connected()
    spec = JobSpec("j", CASE, 0, str(tmp_path), "gpu", 1, 2, cards=tuple("01234567"))
    command, others = prepared(found).start_of(spec, "/opt/python", 0.5)
    assert [Path(log).relative_to(tmp_path).as_posix() for log in command.rank_logs] == [
        f"{folder}launch_logs/workerlog.{rank}" for folder in ("", "node1/", "node2/", "node3/") for rank in range(8)
    ]
    assert command.hosts == ("n0 (127.0.0.1)", "n1 (127.0.0.2)", "n2 (127.0.0.3)", "n3 (127.0.0.4)")
    assert command.environment["NCCL_IB_HCA"] == "mlx5_0"
    others.start()
    places = [link.told[-1]["place"] for link in links]
    assert [(place["node"], place["nodes"], place["master"]) for place in places] == [
        (node, 4, "127.0.0.1:36000") for node in (1, 2, 3)
    ]
