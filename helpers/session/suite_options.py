"""What the user of a suite chose, as plain values: they travel to xdist's workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SuiteOptions:
    """What the user chose. ``named`` holds the case ids given in full, which ``--gate`` judges too.

    ``reference_env`` is where the good build is (a Python interpreter or a virtual environment's folder),
    ``history_url`` the history's database, ``to_record`` whether results may become the recorded figures,
    ``build_envs`` whether a framework's missing environment is built before anything is measured. ``utilisation``:
    whether the cards' peaks are measured and cases held against them, None: on GPUs; ``peaks_folder`` is where peaks
    are kept, None: the session's folder. ``replay`` is the folder whose logs are judged instead of training,
    ``replay_gpu`` the card model of those that do not tell theirs. ``same_build``: the build under test may be its own
    good build; only code that makes A/A runs sets it, no command line does.
    """

    config_path: Path
    baselines_folder: Path
    runs_folder: Path
    session: str
    resume: bool = False
    data_root: str | None = None
    allow_contention: bool = False
    share_machine: bool = False
    gate: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    reference_env: str | None = None
    history_url: str | None = None
    to_record: bool = False
    build_envs: bool = False
    utilisation: bool | None = None
    peaks_folder: str | None = None
    replay: str | None = None
    replay_gpu: str | None = None
    same_build: bool = False
