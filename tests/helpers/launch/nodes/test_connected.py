"""Four nodes of eight GPUs, as the first one sees them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import helpers.launch.nodes.connected
from helpers.launch.nodes.connected import CaseNeeds, ConnectedNodes
from helpers.launch.nodes.wire import node_facts, node_record
from helpers.machine.devices import CpuCard, Machine, environment_of
from helpers.machine.environment import Environment, Host, differences, segment
from helpers.machine.nvml import Gpu
from helpers.machine.watch import norm_of
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch.link_stand_in import LinkStandIn

CASE = Case.parse("paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static")
BUILD = {"distribution": "paddlepaddle-gpu", "version": "2.6.2", "commit": "abc"}
HOSTS = (
    HostConfig("n0", "127.0.0.1", interface="eth0", environment={"NCCL_IB_HCA": "mlx5_0"}),
    *(HostConfig(f"n{node}", f"127.0.0.{node + 1}", ("ssh", f"n{node}")) for node in range(1, 4)),
)


def machine(node: int, watts: int = 400) -> Machine:
    gpus = tuple(
        Gpu(index, f"GPU-{node}{index}", "NVIDIA A100-SXM4-40GB", 40 * 1024**3, (8, 0), watts) for index in range(8)
    )
    host = Host(f"h{node}", f"{node}" * 16, "Linux", "6.1", "AMD EPYC", 64, 8 * 1024**3)
    return Machine(host, (CpuCard(0, (0,)),), gpus, "535.1", "12.2")


def connected(
    machines: tuple[Machine, ...] = tuple(machine(node) for node in range(4)), **variables: str
) -> tuple[ConnectedNodes, list[LinkStandIn]]:
    """A connected whose other nodes are these machines, with these variables of their own."""
    links = []
    for node, each in list(enumerate(machines))[1:]:
        ready = {
            "kind": "ready",
            "facts": node_facts(BUILD, each, each.gpus, "a100", "none"),
            **node_record(each, each.gpus, variables, "paddle"),
        }
        links.append(LinkStandIn(HOSTS[node], node, [ready]))
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


def test_what_the_callers_shell_says_on_every_node_is_not_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG_SUBSYS", "ALL")
    found, links = connected(NCCL_DEBUG_SUBSYS="ALL")
    assert "NCCL_DEBUG_SUBSYS" not in environment(prepared(found)).nodes
    assert links[0].told[0]["environment"]["NCCL_DEBUG_SUBSYS"] == "ALL"


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


def test_while_one_node_gets_ready_the_others_hear_that_the_first_lives() -> None:
    found, links = connected()
    prepared(found)
    assert [link.signs_of_life for link in links] == [3, 3, 3]


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
        f"{folder}/workerlog.{rank}" for folder in ("launch_logs", "node1", "node2", "node3") for rank in range(8)
    ]
    assert command.hosts == ("n0 (127.0.0.1)", "n1 (127.0.0.2)", "n2 (127.0.0.3)", "n3 (127.0.0.4)")
    assert command.environment["NCCL_IB_HCA"] == "mlx5_0"
    others.start()
    places = [link.told[-1]["place"] for link in links]
    assert [(place["node"], place["nodes"], place["master"]) for place in places] == [
        (node, 4, "127.0.0.1:36000") for node in (1, 2, 3)
    ]


def test_each_other_node_gets_the_recorded_clocks_of_its_own_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.launch.nodes.connected, "open_port", lambda host, address, port: port or 36000)
    cards = [f"GPU-{node}{index}" for node in range(4) for index in range(8)]
    clocks = " ".join(str(1400 + number) for number in range(32))
    entry = {"card_ids": " ".join(cards), "power_limit_watts": "400", "sm_clock_mhz": clocks}
    found, links = connected()
    spec = JobSpec("j", CASE, 0, str(tmp_path), "gpu", 1, 2, cards=tuple("01234567"))
    norm = partial(norm_of, entry, to_record=False)
    _, others = prepared(found).start_of(spec, "/opt/python", 0.5, lambda cards, first: norm(cards, first=first))
    others.start()
    told = [link.told[-1]["norm"] for link in links]
    assert [each["clocks"]["sm_clock_mhz"][:2] for each in told] == [[1408, 1409], [1416, 1417], [1424, 1425]]
    assert all((each["recorded"], each["power_limits_watts"]) == (True, [400]) for each in told)
    # While the case is recorded there is none.
    _, others = prepared(connected()[0]).start_of(spec, "/opt/python", 0.5)
    assert others.facts() == ({}, {}, {})


@pytest.mark.parametrize(
    ("case_id", "each", "ranks"),
    [
        ("pytorch-resnet50v1.5-amp-bs256-4x8-dali", 1, 8),
        ("tensorflow-resnet50v1.5-amp-bs256-4x8-native-xla", 1, 8),
        ("tensorflow-resnet50v1.5-amp-bs256-4x8-native-xla", 8, 1),
    ],
)
def test_the_output_of_every_node_s_ranks_has_a_place_here_whatever_their_launcher_calls_it(
    case_id: str, each: int, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.launch.nodes.connected, "open_port", lambda host, address, port: port or 36000)
    settings = {"cards_per_process": each} if each > 1 else {}
    gpus = tuple("01234567")
    spec = JobSpec("j", Case.parse(case_id), 0, str(tmp_path), "gpu", 1, 2, cards=gpus, settings=settings)
    found, _ = connected()
    command, _ = prepared(found).start_of(spec, "/opt/python", 0.5)
    assert [Path(log).relative_to(tmp_path).as_posix() for log in command.rank_logs] == [
        f"{folder}/rank{rank}.log" for folder in ("launch_logs", "node1", "node2", "node3") for rank in range(ranks)
    ]


def test_a_case_takes_as_many_of_the_hosts_as_it_has_nodes() -> None:
    found, _ = connected((machine(0), machine(1)))
    needs = replace(CaseNeeds(CASE, "a100", BUILD, machine(0)), case=replace(CASE, nodes=2))
    found.prepare(needs, machine(0).gpus, print)
    assert found.facts() == {"nodes": "n0 (127.0.0.1), n1 (127.0.0.2)"}
    assert found.nodes.count(" + ") == 1
