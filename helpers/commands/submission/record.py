"""The file that ``perfgate submit`` keeps of its jobs, with which another ``perfgate submit`` waits for them again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from helpers.commands.submission.job import FollowedFile, WatchedJob
from helpers.commands.submission.script import JobRequest
from helpers.machine.files import MOST_NOTE_BYTES, read_text_limited, write_whole
from helpers.trainers.contract.errors import ConfigError, ResultError

# 1: first format.
_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class SubmittedJob:
    """One job, as far as its end needs it."""

    # Its unique name in Slurm.
    name: str
    # Its id; empty as long as Slurm has not answered.
    job: str
    label: str
    shape: str
    minutes: int
    log: str
    # The folder of its session; empty if the command has none.
    session: str

    @classmethod
    def of(cls, request: JobRequest, label: str) -> SubmittedJob:
        return cls(
            name=request.name,
            job="",
            label=label,
            shape=str(request.shape),
            minutes=request.minutes,
            log=str(request.log),
            session="" if request.session is None else str(request.session),
        )

    def watched(self) -> WatchedJob:
        return WatchedJob(self.job, FollowedFile(Path(self.log)), self.label, slurm_name=self.name)


@dataclass(frozen=True)
class Submission:
    """The jobs of one ``perfgate submit``."""

    # The command and its options as they were typed behind ``--``, the name of the cluster, and where it was typed.
    words: tuple[str, ...]
    cluster: str | None
    folder: str
    # What the sessions of a gate in several jobs have in common; empty for one job.
    session: str
    away_minutes: float
    jobs: tuple[SubmittedJob, ...]

    @property
    def path(self) -> Path:
        """Its file, beside the output of the first job."""
        return Path(self.jobs[0].log).with_suffix(".json")

    def with_ids(self, jobs: Sequence[WatchedJob]) -> Submission:
        """The submission with the ids that ``jobs``, its first jobs, have by now."""
        known = [replace(each, job=job.job) for each, job in zip(self.jobs, jobs, strict=False)]
        return replace(self, jobs=(*known, *self.jobs[len(known) :]))

    def write(self) -> None:
        """Raises ResultError."""
        record = {"schema_version": _SCHEMA_VERSION, **asdict(self)}
        try:
            write_whole(self.path, json.dumps(record, indent=1).encode())
        except OSError as error:
            raise ResultError(str(self.path), got=str(error), expected="room for the list of jobs") from error

    @classmethod
    def read(cls, path: Path) -> Submission:
        """Raises ConfigError if the file is not one that ``write`` made."""
        try:
            record = json.loads(read_text_limited(path, MOST_NOTE_BYTES))
            if (version := record.pop("schema_version")) != _SCHEMA_VERSION:
                raise ValueError(f"schema_version {version!r}")
            jobs = tuple(SubmittedJob(**each) for each in record.pop("jobs"))
            if not jobs:
                raise ValueError("no job")
            return cls(jobs=jobs, words=tuple(record.pop("words")), **record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                "--attach",
                got=f"{path} ({error})",
                expected="a file that perfgate submit wrote",
                remedy="It is in the folder slurm of the runs folder, with the ending .json",
            ) from error
