"""The nodes of one case. They are connected before its first run, prepared when its cards are leased, and released at
its end."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import LaunchCommand, Place
from helpers.launch.nodes.job import OUTPUT, node_files
from helpers.launch.nodes.link import NodeLink, Starter
from helpers.launch.nodes.others import OtherNodes, Share
from helpers.launch.nodes.wire import Frame, NodeOrder, boot_id, flag_texts, node_facts, node_record, variables_along
from helpers.machine.devices import Card, Machine
from helpers.machine.environment import Environment, differences
from helpers.machine.watch import Norm
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.plan.small_dataset import RECORD
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

NormOfCards = Callable[[Sequence[str], int], Norm | None]


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
    """This machine, which is the first node, and the links to the other nodes (none for a case of one node)."""

    def __init__(
        self,
        hosts: Sequence[HostConfig] = (),
        links: Sequence[NodeLink] = (),
        port: int | None = None,
        starter: Starter | None = None,
    ) -> None:
        self._starter = starter or Starter()
        self._hosts = tuple(hosts)
        self._links = tuple(links)
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
        framework, cards, driver or data differ from those of this node.
        """
        each = needs.case.cards_per_node
        shares = [tuple(cards[start : start + each]) for start in range(0, len(cards), each)]
        given = dict(zip((link.node for link in self._here()), shares[1:], strict=True))
        for link in self._links:
            assigned = tuple(card.id for card in given.get(link.node, ()))
            link.send("prepare", **self._order(needs, link, assigned).to_mapping())
        described = needs.data.describe() if needs.data else "none"
        here = node_facts(needs.build, needs.machine, shares[0], needs.target, described)
        records = [node_record(needs.machine, shares[0], self._own_variables(), needs.case.framework.value)]
        for link in self._links:
            ready = link.wait_for("ready", needs.wait_seconds, on_wait, self._stay_in_touch)
            if unlike := differences(here, ready["facts"]):
                raise LaunchError(
                    f"node {link.name}",
                    got=f"another machine than this one, {'; '.join(unlike)}",
                    expected="the same on every node",
                    remedy="Make them alike, or correct the host in perf.yaml",
                )
            records.append(ready)
        self._note(records, flag_texts(os.environ, needs.case.framework.value))
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
        self, spec: JobSpec, interpreter: str, grace_seconds: float, norm: NormOfCards = lambda cards, first: None
    ) -> tuple[LaunchCommand, OtherNodes]:
        """The command that starts this node's share of a job, and the other nodes with their shares.

        ``norm`` takes the UUIDs of a node's GPUs and the number of the first among those of all nodes.
        """
        launcher = launcher_for(spec)
        if not self._links:
            return launcher.command(spec, interpreter), OtherNodes()
        places = self._places()
        command = launcher.command(spec, interpreter, places[0])
        folder = Path(spec.run_folder)
        files = [self._files(spec, command, folder, place.node) for place in places[1:]]
        own_names = [Path(log).name for log in command.rank_logs]
        logs = [each[name] for each in files for name in own_names]
        command = replace(
            command,
            environment={**command.environment, **self._hosts[0].environment},
            rank_logs=(*command.rank_logs, *map(str, logs)),
            hosts=self._names(),
            outputs=(str(folder / OUTPUT), *(str(each[OUTPUT]) for each in files)),
        )
        shares = [
            Share(link, spec, place, each, grace_seconds, self._norm(spec, place.node, norm))
            for link, place, each in zip(self._links, places[1:], files, strict=True)
        ]
        return command, OtherNodes(shares, self._starter.end, self._starter.explain)

    def _note(self, records: Sequence[Frame], caller_flags: Sequence[str]) -> None:
        """Record the nodes in rank order. Flags that the caller set for all nodes are not repeated."""
        texts = []
        for host, record in zip(self._hosts, records, strict=False):
            interface = [f"interface={host.interface}"] if host.interface else []
            own = [each for each in record["flags"] if each not in caller_flags]
            texts.append(" ".join([record["host_id"], *interface, *own]))
        self._nodes = tuple(texts)
        self._card_ids = tuple(each for record in records for each in record["card_ids"])

    def _norm(self, spec: JobSpec, node: int, norm: NormOfCards) -> Norm | None:
        first = node * spec.case.cards_per_node
        cards = self._card_ids[first : first + spec.case.cards_per_node]
        # A processor's clock is recorded for the first node alone.
        return norm(cards, first) if cards else None

    def _own_variables(self) -> dict[str, str]:
        return {**os.environ, **(self._hosts[0].environment if self._hosts else {})}

    def _stay_in_touch(self) -> None:
        for link in self._links:
            link.show_life()

    def _names(self) -> tuple[str, ...]:
        return tuple(f"{host.name} ({host.address})" for host in self._hosts)

    def _here(self) -> list[NodeLink]:
        own = boot_id() if self._links else ""
        return [link for link in self._links if link.hello["boot_id"] == own]

    def _order(self, needs: CaseNeeds, link: NodeLink, assigned: tuple[str, ...]) -> NodeOrder:
        framework, host = needs.case.framework.value, link.host
        # Another machine makes the suite's small dataset itself; a node on this machine reads the same folder.
        made_here = needs.data is not None and (needs.data.root / RECORD).exists()
        small = made_here and host.data is None and link not in self._here()
        root = None if needs.data is None or small else host.data or str(needs.data.root)
        return NodeOrder(
            case_id=needs.case.id,
            framework=framework,
            target=needs.target,
            address=self._addresses[link.node],
            cards=needs.case.cards_per_node,
            lease_seconds=needs.wait_seconds / 2,
            data_root=root,
            small_data=small,
            assigned=assigned,
            exclusive_machine=needs.exclusive_machine,
            environment={**variables_along(os.environ, framework), **host.environment},
            cpu_cards=host.cpu_cards,
        )

    def _places(self) -> tuple[Place, ...]:
        master = f"{self._addresses[0]}:{open_port(self._hosts[0], self._addresses[0], self._port)}"
        return tuple(
            Place(node, len(self._hosts), self._addresses[node], master, host.interface)
            for node, host in enumerate(self._hosts)
        )

    def _files(self, spec: JobSpec, command: LaunchCommand, folder: Path, node: int) -> dict[str, Path]:
        """The places of a node's files: its ranks' logs go beside those of this node, its other files into a folder of
        their own."""
        ranks = set(node_files(spec, node, ())) - {OUTPUT}
        names = node_files(spec, node, command.rank_logs)
        return {name: folder / name if name in ranks else folder / f"node{node}" / name for name in names}


@contextlib.contextmanager
def connect_nodes(case: Case, nodes: NodesConfig, interpreter: str) -> Generator[ConnectedNodes, None, None]:
    """Connect to every node of the case; all connections are closed at the end.

    Raises LaunchError, naming the host, if it cannot be reached, has another checkout, or is the same machine as
    another host.
    """
    if case.nodes == 1:
        yield ConnectedNodes()
        return
    hosts, starter = nodes.hosts[: case.nodes], _starter(nodes)
    with contextlib.ExitStack() as closing:
        links = []
        for node, host in list(enumerate(hosts))[1:]:
            links.append(starter.start(host, node, interpreter))
            closing.callback(links[-1].close)
        connected = ConnectedNodes(hosts, links, nodes.port, starter)
        # The configured port is opened only after the cards are leased; until then another session may use it.
        open_port(hosts[0], resolve(hosts[0]), None)
        deadline = time.monotonic() + nodes.connect_seconds
        for link in links:
            link.greet(max(0.1, deadline - time.monotonic()))
        _refuse_one_machine_twice(links)
        yield connected


def _starter(nodes: NodesConfig) -> Starter:
    if not nodes.of_slurm:
        return Starter()
    from helpers.launch.nodes.slurm import JOB, JobStep

    step = JobStep(os.environ[JOB])
    return Starter(step.words, step.cut, step.explain)


def _refuse_one_machine_twice(links: Sequence[NodeLink]) -> None:
    """Each node leases cards of its machine, so two nodes on one machine would wait for each other for ever."""
    seen: dict[str, NodeLink | None] = {boot_id(): None}
    for link in links:
        machine = link.hello["boot_id"]
        other = seen.setdefault(machine, link)
        if other is not None and other is not link:
            raise LaunchError(
                f"node {link.name}",
                got=f"the machine of node {other.name}",
                expected="a machine of its own",
                remedy="Only the first host's machine can be several nodes",
            )


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
