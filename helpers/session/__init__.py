"""A session: what its user chose, as plain values, which are sent to the workers of xdist."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.history.session_file import SessionRecord
from helpers.judging.case.evidence import CaseKey


@dataclass(frozen=True)
class NightLimit:
    """When a night begins no further case. One that has begun is measured to its verdict."""

    minutes: float
    # In UTC.
    ends: datetime.datetime
    # The cases in the order of measuring.
    order: tuple[CaseKey, ...]
    # Why nobody knows which case waited longest; empty if it is known.
    note: str = ""

    @property
    def text(self) -> str:
        text = f"until {self.minutes:g} min are over (budgets.night_minutes), the case that waited longest first"
        return f"{text}, in the usual order because {self.note}" if self.note else text

    def why_not(self, now: datetime.datetime) -> str:
        """Why no further case is begun; empty if one is."""
        return f"not reached: the night's {self.minutes:g} min (budgets.night_minutes) are over" * (now >= self.ends)


@dataclass(frozen=True)
class SuiteOptions:
    """What the user chose."""

    config_path: Path
    baselines_folder: Path
    runs_folder: Path
    session: str
    resume: bool = False
    # What the session is, and when it began.
    record: SessionRecord = field(default_factory=SessionRecord)
    data_root: str | None = None
    allow_contention: bool = False
    share_machine: bool = False
    # How many minutes the session may wait, in all, until others leave the machine alone; None: it does not wait.
    quiet_minutes: float | None = None
    gate: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    # The case ids that the command line gives in full; ``--gate`` judges these too.
    named: frozenset[str] = frozenset()
    # The build under test and the reference build as ``--build`` and ``--reference-build`` name them
    # (docs/choosing.md).
    build: str | None = None
    reference_build: str | None = None
    # Whether the build that perf.yaml pins is the reference build if the command line names none.
    pinned_reference: bool = False
    # The named builds, ready to run, by side (session/builds.py). The controller finds them, and sends them to its
    # workers.
    builds: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Of a night of limited time (session/night_limit.py). The controller sends it to its workers.
    night: NightLimit | None = None
    # The history's database.
    history_url: str | None = None
    # Whether results may become the recorded figures.
    to_record: bool = False
    # Whether the build under test may be its own reference build. No command line sets this, only code that makes A/A
    # runs.
    same_build: bool = False
