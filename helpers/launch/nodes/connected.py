"""The nodes of one case. They are connected before its first run, prepared when its cards are leased, and released at
its end."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from helpers.launch.launchers import launch_command
from helpers.launch.launchers.launcher import LaunchCommand, Place, node_folder
from helpers.launch.nodes.node import Node, OtherNodes
from helpers.launch.nodes.share import OUTPUT, NodeOrder, boot_id, flag_texts, node_record
from helpers.launch.nodes.slurm import step_words
from helpers.machine.devices import Card, Machine
from helpers.machine.environment import Environment, differences, flag_variables
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

# Passed to all nodes like the caller's flags: the ports on which a firewall allows the launcher and its ranks to
# listen.
_PORTS = ("PORT_RANGE",)


@dataclass(frozen=True)
class CaseNeeds:
    """What every node of a case must have."""

    case: Case
    target: str
    # Distribution, version and commit.
    build: Mapping[str, str]
    # The first node's machine; the others must have equal cards.
    machine: Machine
    data: DatasetFacts | None = None
    exclusive_machine: bool = True
    # How long a node may take to check its data and to lease its cards.
    wait_seconds: float = 600.0


class ConnectedNodes:
    """This machine, which is the first node, and the other nodes (none for a case of one node)."""

    def __init__(self, hosts: Sequence[HostConfig] = (), others: Sequence[Node] = (), port: int | None = None) -> None:
        self._hosts = tuple(hosts)
        self._others = tuple(others)
        self._addresses = tuple(map(resolve, hosts))
        self._port = port
        self._nodes: tuple[str, ...] = ()
        self._card_ids: tuple[str, ...] = ()

    @property
    def nodes_here(self) -> int:
        """Nodes on this machine, for which this process leases the cards."""
        return 1 + len(self._here())

    def prepare(self, needs: CaseNeeds, cards: Sequence[Card], on_wait: Callable[[str], None]) -> tuple[Card, ...]:
        """Have every node check its framework, cards and data, and lease its cards. Of the leased ``cards``, returns
        those that this node itself uses.

        ``on_wait`` is called with a text on what a node waits for. Raises LaunchError, naming the node, if its
        checkout, framework, cards, driver or data differ from those of this node.
        """
        each = needs.case.cards_per_node
        shares = [tuple(cards[start : start + each]) for start in range(0, len(cards), each)]
        given = dict(zip((node.number for node in self._here()), shares[1:], strict=True))
        for node in self._others:
            assigned = tuple(card.id for card in given.get(node.number, ()))
            node.send("prepare", **asdict(self._order(needs, node, assigned)))
        framework = needs.case.framework.value
        described = needs.data.describe() if needs.data else "none"
        own = {**os.environ, **(self._hosts[0].environment if self._hosts else {})}
        records = [node_record({**needs.build, "framework": framework}, needs.machine, shares[0], described, own)]
        for node in self._others:
            ready = node.wait_for("ready", needs.wait_seconds, on_wait)
            if unlike := differences(records[0]["facts"], ready["facts"]):
                raise LaunchError(
                    f"node {node.name}",
                    got=f"another machine than this one, {'; '.join(unlike)}",
                    expected="the same on every node",
                    remedy=f"Make them alike ({ROOT} is one checkout for all), or correct the host in perf.yaml",
                )
            records.append(ready)
        self._note(records, flag_texts(os.environ, framework))
        return shares[0]

    @property
    def nodes(self) -> str:
        """The value of Environment.nodes for results of these nodes; empty until they are prepared."""
        return " + ".join(self._nodes)

    def environment(self, of_this_node: Environment) -> Environment:
        """The environment of a result that all nodes measured."""
        return (
            replace(of_this_node, nodes=self.nodes, card_ids=" ".join(self._card_ids)) if self.nodes else of_this_node
        )

    def facts(self) -> dict[str, str]:
        """The facts of a result that name its hosts, in node order; empty for a single node."""
        return {"nodes": ", ".join(self._names())} if self._hosts else {}

    def start_of(
        self,
        spec: JobSpec,
        interpreter: str,
        grace_seconds: float,
        recorded: Mapping[str, str] | None = None,
        *,
        to_record: bool = False,
    ) -> tuple[LaunchCommand, OtherNodes]:
        """The command that starts this node's share of a job, and the other nodes with their shares.

        ``recorded`` and ``to_record`` are as in ``norm_of``.
        """
        if not self._others:
            return launch_command(spec, interpreter), OtherNodes()
        places = self._places()
        command, *theirs = (launch_command(spec, interpreter, place) for place in places)
        command = replace(
            command,
            environment={**command.environment, **self._hosts[0].environment},
            rank_logs=(*command.rank_logs, *(log for each in theirs for log in each.rank_logs)),
            hosts=self._names(),
            outputs=tuple(str(node_folder(spec, place) / OUTPUT) for place in places),
        )
        terms = {"grace_seconds": grace_seconds, "recorded": recorded, "to_record": to_record}
        for node, place in zip(self._others, places[1:], strict=True):
            order = {"spec": spec.to_json(), "interpreter": interpreter, "place": asdict(place), **terms}
            node.assign(spec.ranks_of_node(place.node), order)
        return command, OtherNodes(self._others)

    def _note(self, records: Sequence[Mapping[str, Any]], caller_flags: Sequence[str]) -> None:
        """Record the nodes in rank order. Flags that the caller set for all nodes are not repeated."""
        texts = []
        for host, record in zip(self._hosts, records, strict=False):
            interface = [f"interface={host.interface}"] if host.interface else []
            own = [each for each in record["flags"] if each not in caller_flags]
            texts.append(" ".join([record["host_id"], *interface, *own]))
        self._nodes = tuple(texts)
        self._card_ids = tuple(each for record in records for each in record["card_ids"])

    def _names(self) -> tuple[str, ...]:
        return tuple(f"{host.name} ({host.address})" for host in self._hosts)

    def _here(self) -> list[Node]:
        own = boot_id() if self._others else ""
        return [node for node in self._others if node.boot_id == own]

    def _order(self, needs: CaseNeeds, node: Node, assigned: tuple[str, ...]) -> NodeOrder:
        framework, host = needs.case.framework.value, node.host
        flags = flag_variables(os.environ, framework)
        ports = {name: os.environ[name] for name in _PORTS if name in os.environ}
        return NodeOrder(
            case_id=needs.case.id,
            framework=framework,
            interpreter=needs.build["interpreter"],
            target=needs.target,
            cards=needs.case.cards_per_node,
            lease_seconds=needs.wait_seconds / 2,
            data_root=None if needs.data is None else host.data or str(needs.data.root),
            assigned=assigned,
            exclusive_machine=needs.exclusive_machine,
            environment={**flags, **ports, **host.environment},
            cpu_cards=host.cpu_cards,
        )

    def _places(self) -> tuple[Place, ...]:
        master = f"{self._addresses[0]}:{open_port(self._hosts[0], self._addresses[0], self._port)}"
        return tuple(
            Place(node, len(self._hosts), self._addresses[node], master, host.interface)
            for node, host in enumerate(self._hosts)
        )


@contextlib.contextmanager
def connect_nodes(case: Case, nodes: NodesConfig) -> Generator[ConnectedNodes, None, None]:
    """Connect to every node of the case; all connections are closed at the end.

    Raises LaunchError, naming the host, if it cannot be reached.
    """
    if case.nodes == 1:
        yield ConnectedNodes()
        return
    hosts = nodes.hosts[: case.nodes]
    with contextlib.ExitStack() as closing:
        others = []
        for number, host in list(enumerate(hosts))[1:]:
            others.append(Node(host, number, step_words(host) if nodes.of_slurm else host.connect))
            closing.callback(others[-1].close)
        connected = ConnectedNodes(hosts, others, nodes.port)
        # The configured port may be another session's until the cards are leased.
        open_port(hosts[0], resolve(hosts[0]), None)
        deadline = time.monotonic() + nodes.connect_seconds
        for node in others:
            seconds = max(0.1, deadline - time.monotonic())
            node.boot_id = node.wait_for("hello", seconds, lambda obstacle: None)["boot_id"]
        yield connected


def resolve(host: HostConfig) -> str:
    """The host's IPv4 address; Paddle's launcher supports no other kind."""
    try:
        found = socket.getaddrinfo(host.address, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise LaunchError(
            f"host {host.name}",
            field="address",
            got=f"{host.address} ({error})",
            expected="an IPv4 address, or a name that resolves to one",
            remedy="Correct the address in perf.yaml",
        ) from error
    return str(found[0][4][0])


def open_port(host: HostConfig, address: str, port: int | None) -> int:
    """``port`` if it is free on this machine; any free port if it is None.

    Raises LaunchError if the port is taken or ``address`` is not one of this machine's.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port or 0))
        except OSError as error:
            raise LaunchError(
                f"host {host.name}",
                field="address",
                got=f"{address}:{port or 'any port'} ({error})",
                expected="an address of this machine, the first host, and a free port",
                remedy="Run the suite on the first host of nodes.hosts, and set nodes.port to a free port",
            ) from error
        return int(probe.getsockname()[1])
