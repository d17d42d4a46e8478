"""What people decided, as files beside the runs: ``runs/decisions/<moment>-<kind>-<digest>.json``, one a decision.

The files are the truth, and the database is an index of them: a decision is on disk, whole, before the database has it.
No file changes. What takes a decision back is a file of its own, with the whole decision and who took it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from helpers.common.files import MOST_NOTE_BYTES, make_folder, read_text_limited, sync_folder, write_whole
from helpers.common.records import WrongRecord, one_of, parse, read_as
from helpers.history.codec import digest, plain, to_text, utc
from helpers.history.run_folders import DECISIONS_FOLDER
from helpers.history.stored import Calibration, Exclusion, Pin, SegmentStart
from helpers.trainers.contract.errors import HistoryError

Decision = Exclusion | Pin | Calibration | SegmentStart
Made = TypeVar("Made", bound=Decision)

DECISION_SCHEMA_VERSION = 1
KINDS: Mapping[str, type[Decision]] = {
    "exclusion": Exclusion,
    "pin": Pin,
    "calibration": Calibration,
    "segment-start": SegmentStart,
}
KIND_OF: Mapping[type, str] = {kind: name for name, kind in KINDS.items()}
# When a decision was made, and when it was taken back.
_MOMENTS = ("created", "restored")


def as_kept(decision: Made, about: str = "") -> Made:
    """The decision as files and database keep it: texts that every database takes, moments as 32 characters of UTC.
    Raises HistoryError for a moment that is none."""
    about = about or f"{KIND_OF[type(decision)]} of {subject_of(decision)}"
    changed: dict[str, Any] = {}
    for name, value in vars(decision).items():
        if name in _MOMENTS and (value or name == "created"):
            changed[name] = utc(value, about, name)
        elif isinstance(value, str):
            changed[name] = plain(value)
    return replace(decision, **changed)


def decision_text(decision: Decision) -> str:
    """Equal for equal decisions. Raises ValueError for a number that is not finite."""
    record = {
        "schema_version": DECISION_SCHEMA_VERSION,
        "kind": KIND_OF[type(decision)],
        "decision": asdict(decision),
    }
    return to_text(record)


@dataclass(frozen=True)
class DecisionFiles:
    """The decisions beside the runs of one folder. Raises HistoryError if the disk refuses."""

    runs_folder: Path

    def path(self, decision: Decision) -> Path:
        made = as_kept(decision)
        name = f"{_moment(made)[:26].replace('-', '').replace(':', '')}Z-{KIND_OF[type(made)]}"
        return self.runs_folder / DECISIONS_FOLDER / f"{name}-{digest(decision_text(made))[:16]}.json"

    def write(self, decision: Decision) -> Path:
        """Write a decision; it is durable when this returns. The same decision again is the same file."""
        made = as_kept(decision)
        path = self.path(made)
        try:
            make_folder(path.parent)
            write_whole(path, (decision_text(made) + "\n").encode())
            sync_folder(path.parent)
        except (OSError, ValueError, TypeError) as error:
            raise HistoryError(
                f"decision {path}",
                got=str(error),
                expected="room for a kilobyte of plain values",
                remedy="Free the disk or the rights on the run folder; nothing was decided",
            ) from error
        return path

    def read(self) -> tuple[tuple[Decision, ...], tuple[str, ...]]:
        """Every decision, by the time when it was made, and the files that cannot be read, each with the reason."""
        found: list[Decision] = []
        refused: list[str] = []
        for path in sorted((self.runs_folder / DECISIONS_FOLDER).glob("*.json")):
            try:
                found.append(_read(path, self.runs_folder))
            except HistoryError as error:
                refused.append(str(error))
        return tuple(sorted(found, key=_moment)), tuple(refused)


@dataclass(frozen=True)
class _File:
    schema_version: int
    kind: Annotated[str, one_of(*KINDS)]
    decision: dict[str, Any]


def _read(path: Path, within: Path) -> Decision:
    remedy = "Restore the file; move it away only if what it says no longer counts"
    try:
        text = read_text_limited(path, MOST_NOTE_BYTES, within=within)
    except (OSError, ValueError) as error:
        raise HistoryError(f"decision {path}", got=str(error), expected="a decision", remedy=remedy) from error
    return decision_of(text, f"decision {path}", remedy)


def decision_of(text: str, about: str, remedy: str = "") -> Decision:
    """The inverse of ``decision_text``. Raises HistoryError for what no suite wrote."""
    try:
        whole = read_as(parse(text), _File)
        if whole.schema_version != DECISION_SCHEMA_VERSION:
            raise WrongRecord("schema_version", whole.schema_version, str(DECISION_SCHEMA_VERSION))
        decision = read_as(whole.decision, KINDS[whole.kind], "decision")
    except WrongRecord as wrong:
        raise HistoryError(
            about, field=wrong.field, got=wrong.got, expected=wrong.expected, remedy=remedy or None
        ) from wrong
    except (ValueError, RecursionError) as error:
        raise HistoryError(about, got=str(error), expected="a decision as JSON", remedy=remedy or None) from error
    return as_kept(decision, about)


def _moment(decision: Decision) -> str:
    """When the decision was made or taken back."""
    return str(getattr(decision, "restored", "") or decision.created)


def subject_of(decision: Decision) -> str:
    """The uuid that is excluded, the build that is pinned, or the case."""
    match decision:
        case Exclusion():
            return decision.uuid
        case Pin():
            return decision.build
        case _:
            return decision.case_id
