"""What a session is: which command began it, and when. ``runs/<session>/session.json`` keeps it from its first run
on."""

from __future__ import annotations

import datetime
import json
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path

from helpers.common.files import MOST_INDEX_BYTES, make_folder, read_text_limited, write_whole
from helpers.common.own_folder import program_path, pytest_words
from helpers.common.records import WrongRecord, parse, read_as
from helpers.common.wall_clock import local_now, night_number
from helpers.trainers.contract.errors import ResultError

SESSION_FILE = "session.json"
SESSION_SCHEMA_VERSION = 1
# The kind of pytest's sessions, ``perfgate gate`` among them. Other kinds are the names of perfgate's commands.
NIGHT = "night"


@dataclass(frozen=True)
class SessionRecord:
    """A session's kind and beginning. A session is one night, and belongs to the local date on which it began."""

    kind: str = NIGHT
    # ISO 8601, in the time zone of the machine on which it began, with its offset from UTC.
    began: str = field(default_factory=lambda: local_now().isoformat(timespec="seconds"))

    @property
    def moment(self) -> datetime.datetime:
        """When it began, in the time zone of its machine."""
        return datetime.datetime.fromisoformat(self.began)

    @property
    def date(self) -> datetime.date:
        """The date of the night. It is the same on every machine that reads it."""
        return self.moment.date()

    @property
    def night_number(self) -> int:
        """See ``wall_clock.night_number``."""
        return night_number(self.moment)

    def going_on(self, session: str) -> str:
        """The command that goes on with the session."""
        words = pytest_words("perf_tests") if self.kind == NIGHT else (program_path(), self.kind)
        return shlex.join([*words, f"--resume={session}"])


def begin_session(folder: Path, record: SessionRecord) -> None:
    """Write the session's file, unless the session has one. Raises OSError."""
    path = folder / SESSION_FILE
    if not path.exists():
        text = json.dumps({"schema_version": SESSION_SCHEMA_VERSION, **asdict(record)}, indent=1, sort_keys=True)
        make_folder(folder)
        write_whole(path, f"{text}\n".encode())


def read_session(folder: Path) -> SessionRecord | None:
    """What the file of the session in ``folder`` says; None without one. Raises ResultError for a file that no suite
    wrote."""
    path = folder / SESSION_FILE
    if not path.exists():
        return None
    try:
        values = parse(read_text_limited(path, MOST_INDEX_BYTES, within=folder))
        if not isinstance(values, dict) or values.pop("schema_version", None) != SESSION_SCHEMA_VERSION:
            raise ValueError(f"schema_version is not {SESSION_SCHEMA_VERSION}")
        record = read_as(values, SessionRecord)
        _ = record.night_number
    except (OSError, ValueError, TypeError, RecursionError, WrongRecord) as error:
        raise ResultError(
            f"session {path}",
            got=f"{type(error).__name__}: {error}",
            expected="the kind and the beginning (ISO 8601 with an offset) of a session, as the suite wrote them",
            remedy="Move the session's folder away, and begin a new one",
        ) from error
    return record
