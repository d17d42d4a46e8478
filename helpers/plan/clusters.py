"""``clusters`` of perf.yaml: how jobs are asked of a Slurm cluster (docs/multi-node.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from helpers.plan.yaml_file import YamlValue

_WORD = re.compile(r"[A-Za-z0-9_.:,/@+=\[\]-]+", re.ASCII)
_OPTION = re.compile(r"--[a-z][a-z0-9-]*(?:=[ -~]+)?", re.ASCII)
_OPTIONAL = ("partition", "account", "gres", "exclusive", "container", "options")
# What perfgate submit states itself. Variables are not exported by an option, which Slurm would keep.
_OWN = (
    *("nodes", "ntasks", "ntasks-per-node", "time", "output", "error", "open-mode", "signal", "job-name", "chdir"),
    *("array", "hold", "wait", "parsable", "wrap", "export", "export-file"),
)


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
    # Further options of sbatch.
    options: tuple[str, ...] = ()


def read_clusters(section: YamlValue | None) -> Mapping[str, ClusterConfig]:
    """``clusters`` by name. Raises ConfigError on an unknown key, and an option that ``perfgate submit`` states
    itself."""
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
            options=tuple(map(_option, keys["options"].sequence())) if "options" in keys else (),
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
