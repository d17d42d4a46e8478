"""The hosts of multi-node cases, as perf.yaml names them under ``nodes:``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from helpers.plan.yaml_file import YamlValue

# These reach a host whose entry has no ``connect``: without a password prompt, and a dead network is noticed in 15 s.
_SSH_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
SSH = ("ssh", *(word for option in _SSH_OPTIONS for word in ("-o", option)))

# As long as a host's name may be (RFC 1035).
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", re.ASCII)
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@^=,-]+", re.ASCII)
# As many nodes as a case of the matrix may have.
_MOST_HOSTS = 1024
# pytest runs on the first host, so its entry has none of these.
_NOT_FOR_THE_FIRST = ("connect", "root", "interpreter", "data", "cpu_cards")


@dataclass(frozen=True)
class HostConfig:
    """One host of multi-node cases."""

    name: str
    # The IPv4 address or name under which the other hosts reach it.
    address: str
    # The command that runs on that host what follows it; empty for the first host.
    connect: tuple[str, ...] = ()
    # The checkout there; None for the same path as here.
    root: str | None = None
    # The Python there that has the suite and the framework; None for the same path as here.
    interpreter: str | None = None
    # The data folder there; None for the same path as here, or for a small dataset where one is used here.
    data: str | None = None
    # The variables of everything that the suite starts there.
    environment: Mapping[str, str] = field(default_factory=dict)
    # The network interface of NCCL and gloo.
    interface: str | None = None
    # The number of CPU cards to make of its cores.
    cpu_cards: int | None = None


@dataclass(frozen=True)
class NodesConfig:
    """The hosts, and how they meet."""

    # In rank order; the first is this machine, and a case of N nodes runs on the first N.
    hosts: tuple[HostConfig, ...] = ()
    # The port of the rendezvous on the first host; None for a free one.
    port: int | None = None
    # Within this time a host's agent has to answer.
    connect_seconds: float = 30.0


def read_nodes(section: YamlValue | None) -> NodesConfig:
    """``nodes:`` of perf.yaml; ConfigError where a host stands twice or could not be reached as written."""
    if section is None:
        return NodesConfig()
    keys = section.mapping(required=("hosts",), optional=("port", "connect_seconds"))
    hosts: list[HostConfig] = []
    for entry in keys["hosts"].sequence():
        if len(hosts) == _MOST_HOSTS:
            raise entry.refuse(f"up to {_MOST_HOSTS} hosts", got="one more")
        host = _host(entry, first=not hosts)
        for other in hosts:
            if host.name == other.name or host.address == other.address:
                raise entry.refuse("every name and address once", f"It is host {other.name} already", got=host.address)
        hosts.append(host)
    port = keys["port"].whole(1024, 65535) if "port" in keys and keys["port"].value is not None else None
    seconds = keys["connect_seconds"].number(0, 3600) if "connect_seconds" in keys else NodesConfig.connect_seconds
    return NodesConfig(tuple(hosts), port, seconds)


def _host(entry: YamlValue, first: bool) -> HostConfig:
    keys = entry.mapping(required=("name", "address"), optional=("environment", "interface", *_NOT_FOR_THE_FIRST))
    if first:
        for name in _NOT_FOR_THE_FIRST:
            if name in keys:
                raise keys[name].refuse("no such key: the first host is this machine", "Remove it")
    address = _matching(keys["address"], _NAME, "an IPv4 address or a host name")
    connect = tuple(word.text() for word in keys["connect"].sequence(least=1)) if "connect" in keys else (*SSH, address)
    variables = keys["environment"].named() if "environment" in keys else {}
    return HostConfig(
        name=_matching(keys["name"], _NAME, "a name of letters, digits, '_', '.' and '-'"),
        address=address,
        connect=() if first else connect,
        root=_remote_path(keys["root"]) if "root" in keys else None,
        interpreter=_remote_path(keys["interpreter"]) if "interpreter" in keys else None,
        data=_absolute(keys["data"]) if "data" in keys else None,
        environment=MappingProxyType({name: value.text() for name, value in variables.items()}),
        interface=_matching(keys["interface"], _INTERFACE, "a network interface") if "interface" in keys else None,
        cpu_cards=keys["cpu_cards"].whole(1, 1024) if "cpu_cards" in keys else None,
    )


def _matching(value: YamlValue, pattern: re.Pattern[str], expected: str) -> str:
    text = value.text()
    if not pattern.fullmatch(text):
        raise value.refuse(expected)
    return text


def _remote_path(value: YamlValue) -> str:
    """A path that means the same with and without a shell: ssh hands its words to one, and another command does not."""
    text = _absolute(value)
    if shlex.quote(text) != text:
        raise value.refuse("a path of letters, digits and /._-+=@%:,", "Use a link without other characters")
    return text


def _absolute(value: YamlValue) -> str:
    text = value.text()
    if not text.startswith("/"):
        raise value.refuse("an absolute path of that host", "~ and relative paths mean nothing from here")
    return text
