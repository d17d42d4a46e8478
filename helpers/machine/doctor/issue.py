"""An issue of ``perfgate doctor``: what was found, why it spoils a measurement, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from helpers.common.unknown import Unknown
from helpers.machine.facts import SystemFacts
from helpers.machine.host import Space
from helpers.machine.watch.contention import ContentionSample
from helpers.trainers.contract.errors import SuiteError


class Severity(enum.Enum):
    """The severity of an issue, worst first."""

    # Makes a measurement worthless or impossible.
    BLOCKER = "blocker"
    # Can change a measurement.
    WARNING = "warning"
    # Is good to know.
    NOTE = "note"


@dataclass(frozen=True)
class Issue:
    """One thing that the doctor found."""

    severity: Severity
    name: str
    # What was found, with its numbers.
    found: str
    # Why it spoils a measurement.
    why: str
    # What to do: a command or an option if there is one.
    remedy: str


@dataclass(frozen=True)
class Context:
    """All values that the checks look at. A field that describes a problem is empty if there is none."""

    facts: SystemFacts
    # How much foreign processes used the cores while the doctor looked.
    contention: ContentionSample
    # The limit in perf.yaml.
    max_foreign_share: float
    variables: Mapping[str, str]
    # Why no GPU can be used: NVML fails, or every visible card has a fault.
    gpu_failure: SuiteError | None = None
    # How many NVIDIA cards the kernel lists on the PCI bus.
    gpus_on_bus: int = 0
    # The disk of the run folder.
    runs: Space | Unknown = field(default_factory=lambda: Unknown("not looked at"))
    # Why the run folder cannot be written to.
    runs_problem: str = ""
    # The user's images; None for the small dataset.
    data_root: Path | None = None
    # Why the user's images cannot be used.
    data_problem: str = ""
    # One line on each holder of leased cards.
    leases: tuple[str, ...] = ()
    # Processes left behind by a killed session.
    orphans: tuple[str, ...] = ()
    # For each framework of which no case can run: why.
    framework_problems: Mapping[str, str] = field(default_factory=dict)
    # The names of the processes on the cards, by process id.
    process_names: Mapping[int, str] = field(default_factory=dict)
    # How many bytes a night on this machine writes.
    runs_needed_bytes: int = 0
    # Why hosts of perf.yaml cannot be used.
    node_problems: tuple[str, ...] = ()
    # Why the history's database does not answer.
    history_problem: str = ""
    # Files whose date is in the future.
    files_from_the_future: str = ""


Check = Callable[[Context], Iterable[Issue]]


blocker = partial(Issue, Severity.BLOCKER)
warning = partial(Issue, Severity.WARNING)
note = partial(Issue, Severity.NOTE)
