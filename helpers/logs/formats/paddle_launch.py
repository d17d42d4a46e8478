"""Cards, nodes and options from what Paddle's launcher and a command line leave in a log.

Source: PaddlePaddle's paddle.distributed.launch, fleetrun and their ancestors of 1.8, which print their arguments
(``gpus: 0,1,2,3``, ``nnodes: 4``) and what they start (``PADDLE_TRAINERS_NUM  32``, ``Run Pod: ..., replicas 8``).
``ips: None`` and ``ips: 127.0.0.1`` among them are addresses of hosts, and no rates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from helpers.logs.formats.dllogger import count, quoted
from helpers.logs.record import Context, Said, Setting

# How many cards of all nodes, the surest first.
_CARDS = (
    re.compile(r"\bPADDLE_TRAINERS_NUM['\"]?(?: *[:=] *| +)['\"]?(\d+)\b"),
    re.compile(r"\bnumber of gpu is (\d+) in current training"),
    re.compile(r"\bnum_nodes: \d{1,9} ?,.{0,300} nranks: (\d{1,9})"),
    re.compile(r"\bnccl context nranks: (\d+) ", re.IGNORECASE),
    re.compile(r"_worker': (\d+)\}"),
)
# How many of one node.
_REPLICAS = re.compile(r"\bRun Pod: \w+, replicas (\d+), status")
_DEVICES = re.compile(
    r"(?:^|\s)(?:devices|gpus|selected_gpus|selected_devices): (\d+(?:,\d+)*)\s*$"
    r"|--(?:gpus|devices|selected_gpus|selected_devices)[= ]+['\"]?(\d+(?:,\d+)*)(?![\w.:])"
)
_NODES = (
    re.compile(r"(?:^|\s)nnodes: (\d+)(?::\d+)?\s*$"),
    re.compile(r"--nnodes[= ]+['\"]?(\d+)(?::\d+)?(?![\w.])"),
    re.compile(r"\bPADDLE_NNODES['\"]?(?: *[:=] *| +)['\"]?(\d+)\b"),
    re.compile(r"\bnum_nodes: (\d+) ?,"),
    re.compile(r"\bmode collective, replicas (\d+)\["),
)
_HOSTS = re.compile(
    r"(?:(?:^|\s)(?:ips|cluster_node_ips): |--(?:ips|cluster_node_ips)[= ]+['\"]?)"
    r"((?:[\w-]+\.)+[\w-]+(?:,(?:[\w-]+\.)+[\w-]+)*)(?![\w.])"
)
_OPTION = re.compile(r"-o['\",\s]+['\"]?([A-Za-z_][\w.]*)=([^\s'\",\]]+)")
_ARGUMENT = re.compile(r"(?:^|\s|')--(\w+)(?:=['\"]?|['\",\s]+)([^\s'\",\]-][^\s'\",\]]*)")
_CONFIG = re.compile(r"(?:^|[\s'\[])-c['\",\s]+([\w./-]+\.ya?ml)")
_VERSION = re.compile(r"\btrain with paddle (\d[\w.+]*) and device|^(?:PaddlePaddle|paddle) version:? (\d[\w.+]*)")


@dataclass(frozen=True)
class Launch:
    """What the lines tell of the job; each is None where they are silent."""

    cards: Said | None
    nodes: Said | None
    cards_per_node: int | None


def launch_of(context: Context) -> Launch:
    """Raises nothing: what contradicts itself or is no whole number is not said."""
    replicas = count(first(context, _REPLICAS))
    devices = first(context, _DEVICES)
    per_node = replicas or (Said(str(len(set(devices.value.split(",")))), devices.where) if devices else None)
    nodes = count(first(context, *_NODES)) or _hosts(context)
    cards = count(first(context, *_CARDS))
    if cards is None and per_node is not None:
        of_all = int(per_node.value) * (int(nodes.value) if nodes else 1)
        cards = Said(str(of_all), per_node.where + (f"; {nodes.where}" if nodes else ""))
    if nodes is None and cards is not None and per_node is not None and int(cards.value) % int(per_node.value) == 0:
        nodes = Said(str(int(cards.value) // int(per_node.value)), f"{cards.where}; {per_node.where}")
    if nodes is None and cards is not None and cards.value == "1":
        nodes = Said("1", cards.where)
    return Launch(cards, nodes, int(per_node.value) if per_node else None)


def _hosts(context: Context) -> Said | None:
    """Several hosts: one alone is what the launcher prints on every node of some of its versions."""
    said = first(context, _HOSTS)
    hosts = set(said.value.split(",")) if said else set()
    return Said(str(len(hosts)), said.where) if said and len(hosts) > 1 else None


def first(context: Context, *patterns: re.Pattern[str]) -> Said | None:
    """The first pattern's group in the first line that has it, then the next pattern's."""
    for pattern in patterns:
        for line in context.lines:
            if match := pattern.search(line.text):
                value = next((each for each in match.groups() if each is not None), match[0])
                return Said(value, f"line {line.number}: {quoted(match[0])}")
    return None


def options_of(context: Context) -> dict[str, Said]:
    """PaddleClas' ``-o KEY=VALUE``; of a key that is given twice the last, as its script takes it."""
    return dict(_pairs(context, _OPTION))


def arguments_of(context: Context) -> dict[str, Said]:
    """``--KEY=VALUE`` and ``--KEY VALUE`` of command lines."""
    return dict(_pairs(context, _ARGUMENT))


def config_file(context: Context) -> Said | None:
    return first(context, _CONFIG)


def framework_version(context: Context) -> Said | None:
    return first(context, _VERSION)


def _pairs(context: Context, pattern: re.Pattern[str]) -> Iterator[tuple[str, Said]]:
    for line in context.lines:
        if "-" in line.text and ("python" in line.text or "args" in line.text or " -o" in line.text):
            for match in pattern.finditer(line.text):
                yield match[1], Said(match[2], f"line {line.number}: {quoted(match[0])}")


def present(said: Mapping[Setting, Said | None]) -> dict[Setting, Said]:
    return {setting: value for setting, value in said.items() if value is not None}
