"""perf.yaml, which a user writes, over the shipped defaults.yaml: frameworks, protocols, tolerances, limits, the
matrix, machines, nodes.

Loading is strict: an unknown key, a wrong type or a number out of range raises ConfigError with file and field. Only
the two files are read: whether a path exists is checked by the code that uses it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from helpers.common.masking import remember
from helpers.common.own_folder import own_folder
from helpers.judging.case.evidence import Budget
from helpers.judging.parts.beyond_chance import LEAST_PAIRS, MOST_PAIRS, USUAL_PAIRS
from helpers.machine.frameworks import FrameworkConfig
from helpers.plan.case_patterns import Owner, Quarantine, read_owners, read_quarantine
from helpers.plan.clusters import ClusterConfig, read_clusters
from helpers.plan.matrix import (
    BUDGET_KEYS,
    TARGETS,
    ByCase,
    MatrixCase,
    MeasuringProtocol,
    Tolerances,
    read_budgets,
    read_matrix,
    read_protocols,
    read_tolerances,
)
from helpers.plan.yaml_file import YamlValue, read_yaml
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

# This command reaches a host whose entry has no ``connect``. It never asks for a password, and notices a dead network
# in 15 s.
_SSH_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
SSH = ("ssh", *(word for option in _SSH_OPTIONS for word in ("-o", option)))

# In place of a list of hosts: those of the process's Slurm job.
SLURM = "slurm"
# The most characters of a host's name (RFC 1035).
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", re.ASCII)
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@^=,-]+", re.ASCII)
# The most nodes of a case.
_MOST_HOSTS = 1024
# pytest runs on the first host, so its entry has none of these.
_NOT_FOR_THE_FIRST = ("connect", "data", "cpu_cards")


@dataclass(frozen=True)
class HostConfig:
    """One host of multi-node cases."""

    name: str
    # The IPv4 address or name under which the other hosts reach it.
    address: str
    # A command that runs, on that host, the command that is appended to it; empty for the first host.
    connect: tuple[str, ...] = ()
    # The data folder on that host; None means the same path as here.
    data: str | None = None
    # The variables of everything that the suite starts on that host.
    environment: Mapping[str, str] = field(default_factory=dict)
    # The network interface of NCCL and gloo.
    interface: str | None = None
    # How many CPU cards its cores are divided into.
    cpu_cards: int | None = None


@dataclass(frozen=True)
class NodesConfig:
    """The hosts, and how they meet."""

    # In rank order; the first is this machine, and a case of N nodes runs on the first N.
    hosts: tuple[HostConfig, ...] = ()
    # The port of the rendezvous on the first host; None for a free one.
    port: int | None = None
    # Within this time a host's program has to answer.
    connect_seconds: float = 30.0
    # Whether the hosts are the nodes of this process's Slurm job (docs/multi-node.md). The file names none then.
    of_slurm: bool = False
    # The interface and the variables of every node of a Slurm job.
    interface: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def described(self) -> str:
        """How many hosts there are, and who names them."""
        number = len(self.hosts)
        if self.of_slurm and not self.hosts:
            return "this process is on no node of a Slurm job (docs/multi-node.md)"
        if self.of_slurm:
            return f"this process's job of Slurm has {number} (docs/multi-node.md)"
        named = f"{number} host{'' if number == 1 else 's'}" if number else "none"
        return f"perf.yaml names {named} (nodes.hosts; docs/multi-node.md)"


def read_nodes(section: YamlValue | None) -> NodesConfig:
    """``nodes:`` of perf.yaml. Raises ConfigError for a host that is there twice or could not be reached as written."""
    if section is None:
        return NodesConfig()
    if section.value == SLURM:
        return NodesConfig(of_slurm=True)
    keys = section.mapping(required=("hosts",), optional=("port", "connect_seconds", "interface", "environment"))
    of_slurm = keys["hosts"].value == SLURM
    for name in ("interface", "environment"):
        if name in keys and not of_slurm:
            raise keys[name].refuse(f"no such key where hosts are listed: each has its own {name}", "Move it there")
    hosts: list[HostConfig] = []
    for entry in [] if of_slurm else keys["hosts"].sequence():
        if len(hosts) == _MOST_HOSTS:
            raise entry.refuse(f"up to {_MOST_HOSTS} hosts", got="one more")
        host = _host(entry, first=not hosts)
        for other in hosts:
            if host.name == other.name or host.address == other.address:
                raise entry.refuse("every name and address once", f"It is host {other.name} already", got=host.address)
        hosts.append(host)
    port = keys["port"].whole(1024, 65535) if "port" in keys and keys["port"].value is not None else None
    seconds = keys["connect_seconds"].number(0, 3600) if "connect_seconds" in keys else NodesConfig.connect_seconds
    return NodesConfig(tuple(hosts), port, seconds, of_slurm, _interface(keys), _variables(keys))


def _host(entry: YamlValue, first: bool) -> HostConfig:
    keys = entry.mapping(required=("name", "address"), optional=("environment", "interface", *_NOT_FOR_THE_FIRST))
    if first:
        for name in _NOT_FOR_THE_FIRST:
            if name in keys:
                raise keys[name].refuse("no such key: the first host is this machine", "Remove it")
    address = _matching(keys["address"], _NAME, "an IPv4 address or a host name")
    connect = tuple(word.text() for word in keys["connect"].sequence(least=1)) if "connect" in keys else (*SSH, address)
    return HostConfig(
        name=_matching(keys["name"], _NAME, "a name of letters, digits, '_', '.' and '-'"),
        address=address,
        connect=() if first else connect,
        data=_absolute(keys["data"]) if "data" in keys else None,
        environment=_variables(keys),
        interface=_interface(keys),
        cpu_cards=keys["cpu_cards"].whole(1, 1024) if "cpu_cards" in keys else None,
    )


def _interface(keys: Mapping[str, YamlValue]) -> str | None:
    return _matching(keys["interface"], _INTERFACE, "a network interface") if "interface" in keys else None


def _variables(keys: Mapping[str, YamlValue]) -> Mapping[str, str]:
    variables = keys["environment"].named() if "environment" in keys else {}
    return MappingProxyType({name: value.text() for name, value in variables.items()})


def _matching(value: YamlValue, pattern: re.Pattern[str], expected: str) -> str:
    text = value.text()
    if not pattern.fullmatch(text):
        raise value.refuse(expected)
    return text


def _absolute(value: YamlValue) -> str:
    text = value.text()
    if not text.startswith("/"):
        raise value.refuse("an absolute path of that host", "~ and relative paths mean nothing from here")
    return text


# ---- the file


IDENTITIES = ("host", "name", "pool")
NEEDS = ("published", "recorded", "both")
SHIPPED = Path(__file__).with_name("defaults.yaml")
_SECTIONS = (
    "frameworks", "data", "protocols", "tolerances", "limits", "contention", "matrix", "short", "cases", "machines",
    "nodes", "budgets", "history", "owners", "quarantine", "builds", "clusters", "explain",
)  # fmt: skip
# Of these a user's file may have some keys, and the shipped ones hold for the others.
_KEY_BY_KEY = ("frameworks", "protocols", "tolerances", "limits", "contention", "budgets")
_MOST_SECONDS = 7 * 24 * 3600.0
_NIGHT_MINUTES = "night_minutes"
_MOST_MINUTES, _MOST_STEPS = 7 * 24 * 60, 1000
COMMIT_FIELD = "builds.commit_url"


@dataclass(frozen=True)
class DataConfig:
    # The absolute path of a folder in ImageNet's layout; None means that a small one is made.
    root: str | None = None


@dataclass(frozen=True)
class TimeLimits:
    """A run that exceeds one of these times counts as hung."""

    # From the start to the first step, with imports and compilation.
    start_up_seconds: float = 300.0
    # Between two heartbeats after that.
    no_progress_seconds: float = 300.0
    # The whole run.
    run_seconds: float = 7200.0
    # From the request to stop to the kill.
    stop_grace_seconds: float = 5.0


@dataclass(frozen=True)
class ContentionConfig:
    # The share of the leased cores' time that others may use before a run is INVALID.
    max_foreign_share: float = 0.05


@dataclass(frozen=True)
class HistoryConfig:
    # The database in which every result is kept; None means ``history.sqlite`` in the runs folder.
    url: str | None = None


@dataclass(frozen=True)
class BuildsConfig:
    """How builds are found and kept (docs/choosing.md)."""

    # The pinned good build, named as ``--reference-build`` names one, and why it is good; None without one.
    good: str | None = None
    reason: str | None = None
    # The address of a commit's wheel, with ``{commit}`` in it; None if ``commit:SHA`` names no build.
    commit_url: str | None = None
    # The Python with which environments are made; None means the one with which the suite's own environment was made.
    python: str | None = None
    # Beyond this size environments that nobody uses are removed.
    most_gigabytes: float = 20.0
    # A download that brings nothing for so long is given up.
    silence_seconds: float = 30.0


@dataclass(frozen=True)
class ExplainConfig:
    """Whether a night says by itself which part of a step is slower (docs/explain.md)."""

    # How many minutes it may take for that after its verdicts; 0: none.
    night_minutes: int = 0
    # Of each case: pairs of runs, and the profiled steps of a run.
    pairs: int = USUAL_PAIRS
    steps: int = 10


@dataclass(frozen=True)
class GateRule:
    """``--gate`` judges the cases whose id matches ``cases``."""

    cases: str
    # ``published``, ``recorded`` or ``both``.
    needs: str
    # Only the cases of this target (cpu, v100, a100, gpu); None for all that have such an id.
    target: str | None = None


@dataclass(frozen=True)
class MachineConfig:
    """A machine by its host name, by its cards, or by either."""

    name: str
    # A shell pattern for host names; upper and lower case are the same.
    host: str
    # How many CPU cards its cores are divided into; None means as many as the cores allow.
    cpu_cards: int | None = None
    gate: tuple[GateRule, ...] = ()
    # UUIDs of GPUs, as ``nvidia-smi -L`` prints them; one that the machine has is enough.
    cards: tuple[str, ...] = ()
    # The key of baselines and history: ``host``, the machine's own id; ``name``, this entry's name, for one machine
    # whose containers have different names; ``pool``, this entry's name, for several nodes that count as equal.
    identity: str = "host"

    def means(self, host_name: str, card_ids: Collection[str]) -> bool:
        by_host = bool(self.host) and fnmatchcase(host_name.lower(), self.host.lower())
        return by_host or bool(set(self.cards) & set(card_ids))


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
    # The launchers that the file chooses for cases of one node. A framework without an entry uses its own.
    launchers: Mapping[Framework, str] = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()
    clusters: Mapping[str, ClusterConfig] = field(default_factory=dict)

    def launcher_for(self, case: Case) -> str:
        """The launcher that the file chooses for a case of one node and several cards; empty for the framework's own,
        also if the file names that."""
        chosen = self.launchers.get(case.framework, "")
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

    For one whose processes can drive several cards it may also choose that of one process a node.

    ConfigError names file, field, what was got, what was expected, and the remedy.
    """
    file = Path(path).expanduser().absolute()
    # Relative paths, and what is kept beside the file, belong to the user's folder.
    file = own_folder() / "perf.yaml" if (alone := file == SHIPPED) else file
    top = _sections(None if alone else file)
    protocols = read_protocols(top["protocols"])
    frameworks = _framework_keys(top.get("frameworks"))
    machines = MappingProxyType(_machines(top.get("machines")))
    return Config(
        path=file,
        frameworks=_frameworks(frameworks, file.parent),
        data=_data(top.get("data"), file.parent),
        protocols=MappingProxyType(protocols),
        tolerances=read_tolerances(top.get("tolerances")),
        limits=_limits(top.get("limits")),
        contention=_contention(top.get("contention")),
        matrix=read_matrix(
            [top["matrix"], *([top["cases"]] if "cases" in top else [])], top.get("short"), list(protocols)
        ),
        machines=machines,
        nodes=read_nodes(top.get("nodes")),
        budgets=read_budgets(top.get("budgets"), (_NIGHT_MINUTES,)),
        night_minutes=_night_minutes(top.get("budgets")),
        history=_history(top.get("history")),
        owners=read_owners(top.get("owners")),
        quarantine=read_quarantine(top.get("quarantine")),
        builds=_builds(top.get("builds"), file.parent),
        explain=_explain(top.get("explain")),
        clusters=read_clusters(top.get("clusters")),
        launchers=MappingProxyType(
            {each: keys["launcher"].one_of(launchers) for each, keys in frameworks.items() if "launcher" in keys}
        ),
    )


def _sections(file: Path | None) -> dict[str, YamlValue]:
    """The sections of the file over those of the shipped one. ``short`` names cases of the matrix beside it."""
    shipped = read_yaml(SHIPPED).mapping(optional=_SECTIONS)
    if file is None or not (file.exists() or file.is_symlink()):
        return shipped
    content = read_yaml(file)
    remember(content.value)
    own = content.mapping(optional=_SECTIONS) if content.value is not None else {}
    if "matrix" in own:
        shipped.pop("short")
    for name in _KEY_BY_KEY:
        if name in own and isinstance(own[name].value, dict):
            own[name] = replace(own[name], under=shipped.get(name))
    return {**shipped, **own}


def _framework_keys(field: YamlValue | None) -> dict[Framework, dict[str, YamlValue]]:
    known = {each.value: each for each in Framework}
    listed = field.mapping(optional=known) if field else {}
    keys = ("interpreter", "requirements", "launcher")
    return {known[name]: entry.mapping(optional=keys) for name, entry in listed.items()}


def _frameworks(
    listed: Mapping[Framework, Mapping[str, YamlValue]], folder: Path
) -> Mapping[Framework, FrameworkConfig]:
    found = {each: FrameworkConfig() for each in Framework}
    for framework, keys in listed.items():
        interpreter = _path(keys.get("interpreter"), folder)
        found[framework] = FrameworkConfig(interpreter, _requirements(framework, keys.get("requirements"), interpreter))
    return MappingProxyType(found)


def _requirements(framework: Framework, field: YamlValue | None, interpreter: str | None) -> str | None:
    if field is None or field.value is None:
        return None
    name = field.text()
    files = {f"{framework.value}-cpu", *(path.stem for path in (ROOT / "requirements").glob("*.txt"))}
    field.one_of([framework.value, *sorted(files)])
    if interpreter is None or Path(interpreter).parts[-2:] != ("bin", "python"):
        raise field.refuse("interpreter: FOLDER/bin/python beside it, the environment to be made", got=interpreter)
    return name


def _data(field: YamlValue | None, folder: Path) -> DataConfig:
    return DataConfig(_path(field.mapping(optional=("root",)).get("root"), folder)) if field else DataConfig()


def _path(field: YamlValue | None, folder: Path) -> str | None:
    if field is None or field.value is None:
        return None
    return field.path(own_folder() if field.about == str(SHIPPED) else folder)


def _limits(field: YamlValue | None) -> TimeLimits:
    keys = field.mapping(optional=[item.name for item in dataclass_fields(TimeLimits)]) if field else {}
    return TimeLimits(**{name: value.number(0, _MOST_SECONDS) for name, value in keys.items()})


def _contention(field: YamlValue | None) -> ContentionConfig:
    keys = field.mapping(optional=("max_foreign_share",)) if field else {}
    return ContentionConfig(**{name: value.number(0, 1) for name, value in keys.items()})


def _night_minutes(budgets: YamlValue | None) -> float | None:
    field = budgets.mapping(optional=(*BUDGET_KEYS, _NIGHT_MINUTES)).get(_NIGHT_MINUTES) if budgets else None
    return None if field is None or field.value is None else field.number(0, _MOST_MINUTES)


def _history(field: YamlValue | None) -> HistoryConfig:
    url = field.mapping(optional=("url",)).get("url") if field else None
    return HistoryConfig(None if url is None or url.value is None else url.text())


def _explain(field: YamlValue | None) -> ExplainConfig:
    most = {"night_minutes": (0, _MOST_MINUTES), "pairs": (LEAST_PAIRS, MOST_PAIRS), "steps": (1, _MOST_STEPS)}
    keys = field.mapping(optional=list(most)) if field else {}
    return ExplainConfig(**{name: value.whole(*most[name]) for name, value in keys.items()})


def _builds(field: YamlValue | None, folder: Path) -> BuildsConfig:
    names = [item.name for item in dataclass_fields(BuildsConfig)]
    keys = field.mapping(optional=names) if field is not None and field.value is not None else {}
    texts = {name: keys[name].text() for name in ("good", "reason", "commit_url") if _holds(keys.get(name))}
    template = texts.get("commit_url")
    if template is not None and "{commit}" not in template:
        raise keys["commit_url"].refuse("an address with {commit} in it")
    most = {"most_gigabytes": 1_000_000.0, "silence_seconds": 3600.0}
    numbers = {name: keys[name].number(0, limit) for name, limit in most.items() if name in keys}
    return replace(BuildsConfig(python=_path(keys.get("python"), folder)), **texts, **numbers)  # type: ignore[arg-type]


def _holds(field: YamlValue | None) -> bool:
    return field is not None and field.value is not None


def _machines(field: YamlValue | None) -> dict[str, MachineConfig]:
    found = {}
    for name, entry in field.named().items() if field else []:
        known_by = () if isinstance(entry.value, dict) and "cards" in entry.value else ("host",)
        keys = entry.mapping(required=known_by, optional=("host", "cards", "identity", "cpu_cards", "gate"))
        gate = []
        for rule in keys["gate"].sequence() if "gate" in keys else []:
            parts = rule.mapping(required=("cases", "needs"), optional=("target",))
            target = parts["target"].one_of(TARGETS) if "target" in parts else None
            gate.append(GateRule(parts["cases"].pattern(), parts["needs"].one_of(NEEDS), target))
        cards = keys["cpu_cards"].whole(1, 1024) if "cpu_cards" in keys else None
        host = keys["host"].pattern() if "host" in keys else ""
        ids = tuple(each.text() for each in keys["cards"].sequence(1)) if "cards" in keys else ()
        identity = keys["identity"].one_of(IDENTITIES) if "identity" in keys else "host"
        found[name] = MachineConfig(name, host, cards, tuple(gate), ids, identity)
    return found
