"""The hosts of multi-node cases, as perf.yaml names them under ``nodes:``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from helpers.plan.yaml_file import YamlValue

# How the suite reaches a host that does not say it: no password prompt, and a dead network is noticed in 15 s.
_SSH_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
SSH = ("ssh", *(word for option in _SSH_OPTIONS for word in ("-o", option)))

# As long as a host's name may be (RFC 1035).
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", re.ASCII)
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@^=,-]+", re.ASCII)
# As many nodes as a case of the matrix may have.
_MOST_HOSTS = 1024
# What this machine knows of itself; the first host is where pytest runs.
_NOT_FOR_THE_FIRST = ("connect", "root", "interpreter", "data", "cpu_cards")


@dataclass(frozen=True)
class HostConfig:
    """One host of multi-node cases.

    - ``address``: IPv4 address or name under which the other hosts reach it.
    - ``connect``: the command that runs what follows it on that host (empty for the first host).
    - ``root``, ``interpreter``: the checkout there and the Python that has the suite and the framework; None:
      the same paths as here.
    - ``data``: the data folder there; None: the same path as here, or a small dataset where that is used here.
    - ``environment``: variables of everything the suite starts there; ``interface``: the network interface of
      NCCL and gloo; ``cpu_cards``: CPU cards to make of its cores.
    """

    name: str
    address: str
    connect: tuple[str, ...] = ()
    root: str | None = None
    interpreter: str | None = None
    data: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    interface: str | None = None
    cpu_cards: int | None = None


@dataclass(frozen=True)
class NodesConfig:
    """``hosts`` in rank order, the first is this machine; a case of N nodes runs on the first N.

    ``port``: of the rendezvous on the first host; None: a free one. ``connect_seconds``: until a host's agent
    must have answered.
    """

    hosts: tuple[HostConfig, ...] = ()
    port: int | None = None
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
    """Ssh hands its words to a shell there, and another command does not: only what both take alike is let through."""
    text = _absolute(value)
    if shlex.quote(text) != text:
        raise value.refuse("a path of letters, digits and /._-+=@%:,", "Use a link without other characters")
    return text


def _absolute(value: YamlValue) -> str:
    text = value.text()
    if not text.startswith("/"):
        raise value.refuse("an absolute path of that host", "~ and relative paths mean nothing from here")
    return text
