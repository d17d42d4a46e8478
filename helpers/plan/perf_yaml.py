"""perf.yaml, which a user writes, over the shipped defaults.yaml: frameworks, protocols, tolerances, limits, the
matrix, machines, nodes.

Loading is strict: an unknown key, a wrong type or a number out of range raises ConfigError with file and field. Only
the two files are read: whether a path exists is checked by the code that uses it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from helpers.common.masking import remember
from helpers.common.own_folder import own_folder
from helpers.common.records import matching, member_of, one_of
from helpers.judging.case.evidence import Budget
from helpers.judging.parts.beyond_chance import LEAST_PAIRS, MOST_PAIRS, USUAL_PAIRS
from helpers.machine.framework_builds import FrameworkConfig
from helpers.plan.case_patterns import Owner, Quarantine, Target
from helpers.plan.clusters import ClusterConfig, refuse_own_options
from helpers.plan.matrix import (
    ByCase,
    MatrixCase,
    MeasuringProtocol,
    Tolerances,
    checked_protocols,
    read_by_case,
    read_matrix,
)
from helpers.plan.yaml_file import Name, Pattern, Text, read_section, read_yaml
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

# This command reaches a host whose entry has no ``connect``. It never asks for a password, and notices a dead network
# in 15 s.
_SSH_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
SSH = ("ssh", *(word for option in _SSH_OPTIONS for word in ("-o", option)))

# The most characters of a host's name (RFC 1035).
_HostName = Annotated[
    str,
    matching(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,252}$(?!\n)", "an IPv4 address or a host name"),
]
_Interface = Annotated[str, matching(r"^[A-Za-z0-9_.:@^=,-]+$(?!\n)", "a network interface")]
_FarPath = Annotated[str, matching(r"^/[^\0]*$(?!\n)", "an absolute path of that host")]
_Cards = Annotated[int, Meta(ge=1, le=1024)]
_MOST_SECONDS = 7 * 24 * 3600.0
_Seconds = Annotated[float, Meta(gt=0, lt=_MOST_SECONDS)]
_MOST_MINUTES = 7 * 24 * 60


@dataclass(frozen=True)
class HostConfig:
    """One host of multi-node cases."""

    name: _HostName
    # The IPv4 address or name under which the other hosts reach it.
    address: _HostName
    # A command that runs, on that host, the command that is appended to it; empty for the first host.
    connect: tuple[Text, ...] = ()
    # The data folder on that host; None means the same path as here.
    data: _FarPath | None = None
    # The variables of everything that the suite starts on that host.
    environment: Mapping[Name, Text] = field(default_factory=dict)
    # The network interface of NCCL and gloo.
    interface: _Interface | None = None
    # How many CPU cards its cores are divided into.
    cpu_cards: _Cards | None = None


@dataclass(frozen=True)
class NodesConfig:
    """The hosts, and how they meet."""

    # In rank order; the first is this machine, and a case of N nodes runs on the first N. Without any they are the
    # nodes of this process's Slurm job (docs/multi-node.md).
    hosts: Annotated[tuple[HostConfig, ...], Meta(max_length=1024)] = ()
    # The port of the rendezvous on the first host; None for a free one.
    port: Annotated[int, Meta(ge=1024, le=65535)] | None = None
    # Within this time a host's program has to answer.
    connect_seconds: Annotated[float, Meta(gt=0, lt=3600)] = 30.0
    # The interface and the variables of every host that has none of its own.
    interface: _Interface | None = None
    environment: Mapping[Name, Text] = field(default_factory=dict)
    # Whether the hosts are the nodes of this process's Slurm job.
    of_slurm: bool = False

    @property
    def described(self) -> str:
        """How many hosts there are, and who names them."""
        number = len(self.hosts)
        if self.of_slurm:
            return f"this process's job of Slurm has {number} (docs/multi-node.md)"
        named = f"{number} host{'' if number == 1 else 's'}" if number else "none"
        return f"perf.yaml names {named} (nodes.hosts; docs/multi-node.md)"


def checked_nodes(nodes: NodesConfig, about: str) -> NodesConfig:
    """The nodes with what each host has. Raises ConfigError for a host that is there twice or could not be reached as
    written."""
    hosts: list[HostConfig] = []
    for index, host in enumerate(nodes.hosts):
        at = f"nodes.hosts[{index}]"
        if not hosts and (host.connect or host.data or host.cpu_cards):
            raise ConfigError(
                about, field=at, got=host.name, expected="a host without connect, data and cpu_cards",
                remedy="The first host is this machine",
            )  # fmt: skip
        if any(host.name == other.name or host.address == other.address for other in hosts):
            raise ConfigError(about, field=at, got=host.name, expected="every name and every address once")
        connect = host.connect or (*SSH, host.address) if hosts else ()
        environment = {**nodes.environment, **host.environment}
        interface = host.interface or nodes.interface
        hosts.append(replace(host, connect=connect, environment=environment, interface=interface))
    return replace(nodes, hosts=tuple(hosts))


# ---- the file


SHIPPED = Path(__file__).with_name("defaults.yaml")
# Of these a user's file may have some keys, and the shipped ones hold for the others.
# Sections whose keys are names.
_NAMED = ("protocols", "machines", "clusters")
_OF_SLURM = "of_slurm"
_KEY_BY_KEY = ("frameworks", "protocols", "tolerances", "limits", "contention", "budgets")
COMMIT_FIELD = "builds.commit_url"


@dataclass(frozen=True)
class DataConfig:
    # The absolute path of a folder in ImageNet's layout; None means that a small one is made.
    root: Text | None = None


@dataclass(frozen=True)
class TimeLimits:
    """A run that exceeds one of these times counts as hung."""

    # From the start to the first step, with imports and compilation.
    start_up_seconds: _Seconds = 300.0
    # Between two heartbeats after that.
    no_progress_seconds: _Seconds = 300.0
    # The whole run.
    run_seconds: _Seconds = 7200.0
    # From the request to stop to the kill.
    stop_grace_seconds: _Seconds = 5.0


@dataclass(frozen=True)
class ContentionConfig:
    # The share of the leased cores' time that others may use before a run is INVALID.
    max_foreign_share: Annotated[float, Meta(gt=0, lt=1)] = 0.05


@dataclass(frozen=True)
class HistoryConfig:
    # The database in which every result is kept; None means ``history.sqlite`` in the runs folder.
    url: Text | None = None


@dataclass(frozen=True)
class BuildsConfig:
    """How builds are found and kept (docs/choosing.md)."""

    # The pinned reference build, named as ``--reference-build`` names one, and why it is good; None without one.
    reference: Text | None = None
    reason: Text | None = None
    # The address of a commit's wheel, with ``{commit}`` in it; None if ``commit:SHA`` names no build.
    commit_url: Annotated[str, matching(r"\{commit\}", "an address with {commit} in it")] | None = None
    # The Python with which environments are made; None means the one with which the suite's own environment was made.
    python: Text | None = None
    # Beyond this size environments that nobody uses are removed.
    most_gigabytes: Annotated[float, Meta(gt=0, lt=1_000_000)] = 20.0
    # A download that brings nothing for so long is given up.
    silence_seconds: Annotated[float, Meta(gt=0, lt=3600)] = 30.0


@dataclass(frozen=True)
class ExplainConfig:
    """Whether a night says by itself which part of a step is slower (docs/explain.md)."""

    # How many minutes it may take for that after its verdicts; 0: none.
    night_minutes: Annotated[int, Meta(ge=0, le=_MOST_MINUTES)] = 0
    # Of each case: pairs of runs, and the profiled steps of a run.
    pairs: Annotated[int, Meta(ge=LEAST_PAIRS, le=MOST_PAIRS)] = USUAL_PAIRS
    steps: Annotated[int, Meta(ge=1, le=1000)] = 10


@dataclass(frozen=True)
class GateRule:
    """``--gate`` judges the cases whose id matches ``cases``."""

    cases: Pattern
    needs: Annotated[str, one_of("published", "recorded", "both")]
    # Only the cases of this target (cpu, v100, a100, gpu); None for all that have such an id.
    target: Target | None = None


@dataclass(frozen=True)
class MachineConfig:
    """A machine by its host name, by its cards, or by either."""

    name: str
    # A shell pattern for host names; upper and lower case are the same.
    host: Pattern | None = None
    # How many CPU cards its cores are divided into; None means as many as the cores allow.
    cpu_cards: _Cards | None = None
    gate: tuple[GateRule, ...] = ()
    # UUIDs of GPUs, as ``nvidia-smi -L`` prints them; one that the machine has is enough.
    cards: tuple[Text, ...] = ()
    # The key of baselines and history: ``host``, the machine's own id; ``name``, this entry's name, for one machine
    # whose containers have different names; ``pool``, this entry's name, for several nodes that count as equal.
    identity: Annotated[str, one_of("host", "name", "pool")] = "host"

    def means(self, host_name: str, card_ids: Collection[str]) -> bool:
        by_host = self.host is not None and fnmatchcase(host_name.lower(), self.host.lower())
        return by_host or bool(set(self.cards) & set(card_ids))


@dataclass(frozen=True)
class _File:
    """The sections as they are read at once. The matrix, tolerances and budgets depend on others or on themselves."""

    frameworks: Mapping[Annotated[str, member_of(Framework)], FrameworkConfig]
    protocols: Mapping[Name, MeasuringProtocol]
    matrix: dict[str, Any]
    data: DataConfig = DataConfig()
    tolerances: dict[str, Any] = field(default_factory=dict)
    limits: TimeLimits = TimeLimits()
    contention: ContentionConfig = ContentionConfig()
    cases: dict[str, Any] = field(default_factory=dict)
    short: tuple[str, ...] = ()
    machines: Mapping[Name, MachineConfig] = field(default_factory=dict)
    nodes: NodesConfig = NodesConfig()
    budgets: dict[str, Any] = field(default_factory=dict)
    history: HistoryConfig = HistoryConfig()
    builds: BuildsConfig = BuildsConfig()
    explain: ExplainConfig = ExplainConfig()
    owners: tuple[Owner, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()
    clusters: Mapping[Name, ClusterConfig] = field(default_factory=dict)


@dataclass(frozen=True)
class Config:
    """perf.yaml as values; ``frameworks`` holds every framework, listed in the file or not."""

    path: Path
    frameworks: Mapping[Framework, FrameworkConfig]
    data: DataConfig
    protocols: Mapping[str, MeasuringProtocol]
    tolerances: ByCase[Tolerances]
    limits: TimeLimits
    contention: ContentionConfig
    matrix: tuple[MatrixCase, ...]
    machines: Mapping[str, MachineConfig]
    nodes: NodesConfig = field(default_factory=NodesConfig)
    budgets: ByCase[Budget] = field(default_factory=lambda: ByCase(Budget()))
    # After so many minutes a night begins no further case; None: it measures all of them.
    night_minutes: float | None = None
    history: HistoryConfig = field(default_factory=HistoryConfig)
    builds: BuildsConfig = field(default_factory=BuildsConfig)
    explain: ExplainConfig = field(default_factory=ExplainConfig)
    owners: tuple[Owner, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()
    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)

    def launcher_for(self, case: Case) -> str:
        """The launcher that the file chooses for a case of one node and several cards; empty for the framework's own,
        also if the file names that."""
        chosen = self.frameworks[case.framework].launcher or ""
        one_node = case.nodes == 1 and case.cards > 1
        return chosen if one_node and chosen != case.framework.spec.launcher else ""

    def protocol_for_rule(self, rule: str) -> MeasuringProtocol:
        """The protocol for a published rule. Raises ConfigError if there is none."""
        for protocol in self.protocols.values():
            if rule in protocol.rules:
                return protocol
        raise ConfigError(
            str(self.path),
            field="protocols",
            got=f"no protocol with the rule {rule!r}",
            expected="one that serves it",
            remedy="Add the rule to protocols.NAME.rules",
        )

    def machine_for(self, host_name: str, card_ids: Collection[str] = ()) -> MachineConfig | None:
        """The machine whose pattern matches, or that has one of ``card_ids``, the UUIDs of this machine's cards. It is
        None if there is none; two raise ConfigError."""
        found = [machine for machine in self.machines.values() if machine.means(host_name, card_ids)]
        if len(found) > 1:
            raise ConfigError(
                str(self.path),
                field="machines",
                got=f"{' and '.join(machine.name for machine in found)} for host {host_name!r}",
                expected="at most one",
                remedy="Narrow their host patterns, or name each card once",
            )
        return found[0] if found else None


def load_config(path: Path | str, launchers: Sequence[str] = ()) -> Config:
    """Read perf.yaml; where there is no such file, or for SHIPPED itself, the shipped defaults alone.

    ``launchers`` are the names that it may choose from for every framework.

    ConfigError names file, field, what was got, what was expected, and the remedy.
    """
    file = Path(path).expanduser().absolute()
    # Relative paths, and what is kept beside the file, belong to the user's folder.
    file = own_folder() / "perf.yaml" if (alone := file == SHIPPED) else file
    about = str(file)
    own = {} if alone else _own_sections(file)
    found = read_section(_over_shipped(own), _File, about)
    night_minutes = found.budgets.pop("night_minutes", None)
    for name, machine in found.machines.items():
        if not (machine.host or machine.cards):
            raise ConfigError(about, field=f"machines.{name}", got="neither host nor cards", expected="one of them")
    protocols = checked_protocols(found.protocols, list(own.get("protocols", {})), about)
    refuse_own_options(about, found.clusters)
    limit = Annotated[float, Meta(gt=0, lt=_MOST_MINUTES)] | None
    python = found.builds.python
    return Config(
        path=file,
        frameworks=_frameworks(found.frameworks, own.get("frameworks", {}), file, launchers),
        data=DataConfig(_path(found.data.root, file.parent)),
        protocols=protocols,
        tolerances=read_by_case(found.tolerances, Tolerances, about, "tolerances"),
        limits=found.limits,
        contention=found.contention,
        matrix=read_matrix({"matrix": found.matrix, "cases": found.cases}, found.short, list(protocols), about),
        machines=found.machines,
        nodes=checked_nodes(found.nodes, about),
        budgets=read_by_case(found.budgets, Budget, about, "budgets"),
        night_minutes=read_section(night_minutes, limit, about, "budgets.night_minutes"),  # type: ignore[arg-type]
        history=found.history,
        builds=replace(found.builds, python=_path(python, file.parent)),
        explain=found.explain,
        owners=found.owners,
        quarantine=found.quarantine,
        clusters=found.clusters,
    )


def _own_sections(file: Path) -> dict[str, Any]:
    """What the user's file says. A section that is empty is not there."""
    if not (file.exists() or file.is_symlink()):
        return {}
    content = read_yaml(file)
    remember(content)
    own = read_section({} if content is None else content, dict[str, Any], str(file))
    _refuse_derived(own, str(file))
    return {name: value for name, value in own.items() if value is not None}


def _refuse_derived(own: Mapping[str, Any], about: str) -> None:
    """Raises ConfigError for what a section's type has, and the file may not say: the suite itself fills it in."""
    places = [(f"nodes.{_OF_SLURM}", own.get("nodes"), _OF_SLURM)]
    for section in _NAMED:
        if isinstance(entries := own.get(section), dict):
            places += [(f"{section}.{key}.name", entry, "name") for key, entry in entries.items()]
    for place, keys, key in places:
        if isinstance(keys, dict) and key in keys:
            raise ConfigError(about, field=place, got="an unknown key", expected="a key of docs/reference.md")


def _over_shipped(own: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of the user's file over the shipped ones. ``short`` names cases of the matrix beside it."""
    shipped = read_yaml(SHIPPED)
    if "matrix" in own:
        del shipped["short"]
    sections = {**shipped, **own}
    for name in _KEY_BY_KEY:
        if isinstance(sections[name], dict):
            sections[name] = {**shipped[name], **sections[name]}
    for name in _NAMED:
        if isinstance(entries := sections.get(name), dict):
            sections[name] = {key: _with_name(key, entry) for key, entry in entries.items()}
    return sections


def _with_name(name: object, entry: object) -> object:
    return {**entry, "name": name} if isinstance(entry, dict) else entry


def _frameworks(
    listed: Mapping[str, FrameworkConfig], own: Collection[str], file: Path, launchers: Sequence[str]
) -> dict[Framework, FrameworkConfig]:
    """Every framework, with absolute paths. Raises ConfigError for requirements and launchers that there are not."""
    found = {}
    for framework in Framework:
        config, at = listed[framework.value], f"frameworks.{framework.value}"
        folder = file.parent if framework.value in own else own_folder()
        config = found[framework] = replace(config, interpreter=_path(config.interpreter, folder))
        known = sorted(path.stem for path in (ROOT / "requirements").glob("*.txt"))
        for name, value, allowed in (
            ("launcher", config.launcher, launchers),
            ("requirements", config.requirements, [framework.value, f"{framework.value}-cpu", *known]),
        ):
            if value is not None and value not in allowed:
                expected = "one of " + ", ".join(allowed)
                raise ConfigError(str(file), field=f"{at}.{name}", got=value, expected=expected)
        if config.requirements and Path(config.interpreter or "").parts[-2:] != ("bin", "python"):
            expected = "FOLDER/bin/python of the environment that is made of the requirements"
            got = config.interpreter or "nothing"
            raise ConfigError(str(file), field=f"{at}.interpreter", got=got, expected=expected)
    return found


def _path(text: str | None, folder: Path) -> str | None:
    """An absolute path; a relative one starts at ``folder``, ``~`` is the user's home."""
    return None if text is None else str(folder / os.path.expanduser(text))  # noqa: PTH111 - leaves unknown users alone
