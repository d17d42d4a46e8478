"""What ``perfgate doctor`` finds: what it is, why it spoils a measurement, what to do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.launch.contention import ContentionSample
from helpers.system_facts import SystemFacts
from helpers.system_host import Space
from helpers.system_io import Storage
from helpers.unknown import Unknown


class Severity(enum.Enum):
    """Worst first: BLOCKER makes a measurement worthless or impossible, WARNING can change it, NOTE is good to know."""

    BLOCKER = "blocker"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """``found`` holds the numbers, ``remedy`` a command or an option where there is one."""

    severity: Severity
    name: str
    found: str
    why: str
    remedy: str


@dataclass(frozen=True)
class Context:
    """Everything the checks look at, as values.

    - ``gpu_failure``: NVML is there and fails, in its words; ``gpus_on_bus``: NVIDIA cards the kernel lists.
    - ``contention``: what others used of the cores while the doctor looked; ``max_foreign_share``: perf.yaml's limit.
    - ``runs``: the disk of the run folder; ``runs_problem``: why nothing can be written there.
    - ``data_root``: the user's images, None for the small dataset; ``data_problem``: why they cannot be used.
    - ``largest_batch``: of the published cases that this machine's cards run, in images of all cards; 0 without.
    - ``leases``: who holds cards; ``orphans``: processes left over from a killed session.
    - ``process_names``: who sits on the cards, by process id; ``runs_needed_bytes``: what a night here writes.
    - ``node_problems``: why hosts of perf.yaml cannot be used; ``history_problem``: why its database does not answer.
    - ``clock_jump_seconds``: by how much the wall clock left the steady one while the doctor looked;
      ``files_from_the_future``: what is dated after now.
    - ``framework_problems``: by framework, why no case of it can run; ``wanted`` are those perf.yaml names.
    """

    facts: SystemFacts
    contention: ContentionSample
    max_foreign_share: float
    variables: Mapping[str, str]
    gpu_failure: str = ""
    gpus_on_bus: int = 0
    runs: Space | Unknown = field(default_factory=lambda: Unknown("not looked at"))
    runs_problem: str = ""
    data_root: Path | None = None
    data_problem: str = ""
    largest_batch: int = 0
    leases: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()
    framework_problems: Mapping[str, str] = field(default_factory=dict)
    loopback_problem: str = ""
    process_names: Mapping[int, str] = field(default_factory=dict)
    runs_needed_bytes: int = 0
    node_problems: tuple[str, ...] = ()
    history_problem: str = ""
    clock_jump_seconds: float = 0.0
    files_from_the_future: str = ""

    @property
    def data_disk(self) -> Storage | Unknown | None:
        return self.facts.storage.get("data")


Check = Callable[[Context], Iterable[Finding]]


def blocker(name: str, found: str, why: str, remedy: str) -> Finding:
    return Finding(Severity.BLOCKER, name, found, why, remedy)


def warning(name: str, found: str, why: str, remedy: str) -> Finding:
    return Finding(Severity.WARNING, name, found, why, remedy)


def note(name: str, found: str, why: str, remedy: str) -> Finding:
    return Finding(Severity.NOTE, name, found, why, remedy)
