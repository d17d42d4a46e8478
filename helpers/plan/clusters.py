"""``clusters`` of perf.yaml: how jobs are asked of a Slurm cluster (docs/slurm.md)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from helpers.plan.matrix import TARGETS
from helpers.plan.yaml_file import YamlValue

_WORD = re.compile(r"[A-Za-z0-9_.:,/@+=\[\]-]+", re.ASCII)
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=[ -~]+)?", re.ASCII)
_OPTIONAL = (
    *("partition", "account", "gres", "exclusive", "container", "target", "machine", "options"),
    "away_minutes",
)
# A month: nobody waits longer for a controller.
_MOST_AWAY_MINUTES = 31 * 24 * 60
# What perfgate submit states itself.
_OWN = ("nodes", "ntasks", "ntasks-per-node", "time", "output", "error", "open-mode", "requeue", "signal", "job-name")


@dataclass(frozen=True)
class ClusterConfig:
    """One cluster, by the name that Slurm gives it (``ClusterName``)."""

    name: str = ""
    partition: str | None = None
    account: str | None = None
    # The name of a card in ``--gres``, as ``gpu`` or ``gpu:a100``; None asks for no cards.
    gres: str | None = None
    # Whether a job has its nodes for itself.
    exclusive: bool = True
    # The image or bundle in which the job runs (``sbatch --container``).
    container: str | None = None
    # The target of the cases that its nodes run; None for all of a command's cases.
    target: str | None = None
    # The entry of ``machines`` whose gate the cluster's nodes have; None if there is one entry.
    machine: str | None = None
    # Further options of sbatch.
    options: tuple[str, ...] = ()
    # After so long without an answer of Slurm nobody waits for its jobs any more. A controller that was restarted, or
    # that moved to its backup, answers within minutes.
    away_minutes: float = 30.0


def read_clusters(section: YamlValue | None, machines: Collection[str]) -> Mapping[str, ClusterConfig]:
    """``clusters`` by name. Raises ConfigError on an unknown key, a machine that the file does not have, and an option
    that ``perfgate submit`` states itself."""
    found = {}
    for name, entry in section.named().items() if section else []:
        keys = entry.mapping(optional=_OPTIONAL)
        found[name] = ClusterConfig(
            name,
            partition=_word(keys.get("partition")),
            account=_word(keys.get("account")),
            gres=_word(keys.get("gres")),
            exclusive=keys["exclusive"].truth() if "exclusive" in keys else True,
            container=_word(keys.get("container")),
            target=keys["target"].one_of(TARGETS) if "target" in keys else None,
            machine=keys["machine"].one_of(sorted(machines)) if "machine" in keys else None,
            options=tuple(map(_option, keys["options"].sequence())) if "options" in keys else (),
            away_minutes=keys["away_minutes"].number(0, _MOST_AWAY_MINUTES)
            if "away_minutes" in keys
            else ClusterConfig.away_minutes,
        )
    return MappingProxyType(found)


def _word(value: YamlValue | None) -> str | None:
    if value is None or value.value is None:
        return None
    text = value.text()
    if not _WORD.fullmatch(text):
        raise value.refuse("a word of letters, digits and _.:,/@+=[]-")
    return text


def _option(value: YamlValue) -> str:
    text = value.text()
    if not _OPTION.fullmatch(text):
        raise value.refuse("a long option of sbatch, as --constraint=a100")
    if text[2:].partition("=")[0] in _OWN:
        raise value.refuse("an option that perfgate submit does not state itself", "Leave it out; see --dry-run")
    return text
