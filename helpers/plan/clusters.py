"""``clusters`` of perf.yaml: how jobs are asked of a Slurm cluster (docs/multi-node.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from helpers.common.records import matching
from helpers.trainers.contract.errors import ConfigError

_Word = Annotated[str, matching(r"^[A-Za-z0-9_.:,/@+=\[\]-]+$(?!\n)", "a word of letters, digits and _.:,/@+=[]-")]
_Option = Annotated[
    str, matching(r"^--[a-z][a-z0-9-]*(=[ -~]+)?$(?!\n)", "a long option of sbatch, as --constraint=a100")
]
# What perfgate submit states itself. Variables are not exported by an option, which Slurm would keep.
_OWN = (
    *("nodes", "ntasks", "ntasks-per-node", "time", "output", "error", "open-mode", "signal", "job-name", "chdir"),
    *("array", "hold", "wait", "parsable", "wrap", "export", "export-file"),
)


@dataclass(frozen=True)
class ClusterConfig:
    """One cluster, by the name that Slurm gives it (``ClusterName``)."""

    name: str = ""
    partition: _Word | None = None
    account: _Word | None = None
    # The name of a card in ``--gres``, as ``gpu`` or ``gpu:a100``; None asks for no cards.
    gres: _Word | None = None
    # Whether a job has its nodes for itself.
    exclusive: bool = True
    # The image or bundle in which the job runs (``sbatch --container``).
    container: _Word | None = None
    # Further options of sbatch.
    options: tuple[_Option, ...] = ()


def refuse_own_options(about: str, clusters: Mapping[str, ClusterConfig]) -> None:
    """Raises ConfigError for an option that ``perfgate submit`` states itself."""
    for name, cluster in clusters.items():
        for index, option in enumerate(cluster.options):
            if option[2:].partition("=")[0] in _OWN:
                raise ConfigError(
                    about,
                    field=f"clusters.{name}.options[{index}]",
                    got=option,
                    expected="an option that perfgate submit does not state itself",
                    remedy="Leave it out; see --dry-run",
                )
