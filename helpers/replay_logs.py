"""The logs that ``--replay`` judges: what a folder holds, of which configuration and which GPU, and what was not read.

A folder with ``rank<k>.jsonl`` is one run of our own; any other file is a log of another program. What a log leaves
open stands in the folder's INDEX.csv, the GPU also in a folder's name (``V100-LOG``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.errors import LogError, SuiteError
from helpers.history import FILE_NAME
from helpers.history.night_files import NIGHT_FILE
from helpers.importing.cards import card_of_folders, card_words, has_tf32, same_card
from helpers.importing.imported import Imported
from helpers.importing.importer import Batch
from helpers.importing.record import Said, Setting
from helpers.replay_index import INDEX, read_index
from helpers.replay_own import OwnRun, is_rank_log, read_own_run

# Reads one file (every log of an archive), with what is said of it beside it.
ReadLog = Callable[[Path, Mapping[Setting, Said]], Batch]

_NO_LOG = re.compile(
    rf"\..*|{re.escape(INDEX)}|{re.escape(NIGHT_FILE)}|(?:result|spec)\.json|{re.escape(FILE_NAME)}(?:-.*)?|r\d+\.aside\d+",
    re.ASCII,
)


@dataclass(frozen=True)
class LoggedRun:
    """One run of another program's log. ``settings`` are the log's own, and where it is silent those of INDEX.csv and,
    for the GPU, of a folder's name or ``--replay-gpu``."""

    name: str
    imported: Imported
    settings: Mapping[Setting, Said]

    @property
    def gpu(self) -> str:
        return self.said(Setting.GPU) or ""

    def said(self, setting: Setting) -> str | None:
        return self.settings[setting].value if setting in self.settings else None


AnyRun = LoggedRun | OwnRun


@dataclass(frozen=True)
class LogFolder:
    """What was found: the runs of ``files`` logs, and the files that gave none, each with why."""

    root: Path
    runs: tuple[AnyRun, ...] = ()
    files: int = 0
    unread: tuple[str, ...] = ()


def read_folder(root: Path, read_log: ReadLog, gpu: str | None = None) -> LogFolder:
    """Read every log under ``root`` (a folder, or one file). ``gpu`` is the card model of logs that tell none.

    A file that cannot be read is named in the answer and the rest goes on. Raises LogError on an INDEX.csv that is
    none.
    """
    folder = root if root.is_dir() else root.parent
    index = read_index(folder / INDEX)
    reader = _Reader(read_log, gpu)
    files = 0
    for path in _logs_under(root):
        files += 1
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            reader.read_own(path, path.name if name == "." else name)
        else:
            reader.read(path, name, index.get(name, {}))
    return LogFolder(root, tuple(_once(reader.runs)), files, tuple(reader.unread))


class _Reader:
    """Reads one log after another and keeps what it gave, or why it gave nothing."""

    def __init__(self, read_log: ReadLog, gpu: str | None) -> None:
        self._read_log, self._gpu = read_log, gpu
        self.runs: list[AnyRun] = []
        self.unread: list[str] = []

    def read_own(self, folder: Path, name: str) -> None:
        try:
            self.runs.append(read_own_run(folder, name, self._gpu))
        except (SuiteError, OSError) as error:
            self.unread.append(f"{name}: {error}")

    def read(self, path: Path, name: str, listed: Mapping[Setting, Said]) -> None:
        try:
            batch = _read(path, listed, self._read_log)
        except (SuiteError, OSError) as error:
            self.unread.append(f"{name}: {error}")
            return
        except Exception as error:  # noqa: BLE001 - no mistake of a reader takes the other logs with it
            self.unread.append(f"{name}: the suite failed to read it: {type(error).__name__}: {error}")
            return
        self.unread += [f"{name}: {each.error}" for each in batch.unread]
        for imported in batch.imported:
            # One that contradicts itself costs no other run of its file.
            try:
                self.runs.append(_logged_run(path, name, imported, listed, self._gpu))
            except LogError as error:
                self.unread.append(str(error))


def _logs_under(place: Path) -> Iterator[Path]:
    """Run folders of ours and all other files, in the order of their names, but for hidden ones and what a session
    keeps beside its runs: its records of them, the history, runs that were set aside and made again."""
    if not place.is_dir():
        yield place
        return
    entries = sorted(each for each in place.iterdir() if not _NO_LOG.fullmatch(each.name))
    if any(is_rank_log(each.name) for each in entries):
        yield place
        return
    for each in entries:
        if each.is_dir() and not each.is_symlink():
            yield from _logs_under(each)
        elif each.is_file():
            yield each


def _once(runs: Iterable[AnyRun]) -> Iterator[AnyRun]:
    """A file that lies there twice is one log."""
    seen: set[tuple[str, int]] = set()
    for run in runs:
        if isinstance(run, LoggedRun):
            key = (run.imported.sha256, run.imported.number)
            if key in seen:
                continue
            seen.add(key)
        yield run


def _read(path: Path, listed: Mapping[Setting, Said], read_log: ReadLog) -> Batch:
    """By what the log says alone, and where that is too little, with what INDEX.csv says of it."""
    batch = read_log(path, {})
    asked = dict(listed)
    # A reader asks for no card; where it is told is weighed here.
    asked.pop(Setting.GPU, None)
    if not batch.unread or not asked:
        return batch
    again = read_log(path, asked)
    return again if len(again.unread) < len(batch.unread) else batch


def _logged_run(
    path: Path, name: str, imported: Imported, listed: Mapping[Setting, Said], gpu: str | None
) -> LoggedRun:
    member = imported.source.partition("!")[2]
    about = f"{name}!{member}" if member else name
    if imported.runs_in_file > 1:
        about += f" (run {imported.number} of {imported.runs_in_file})"
        if _contradicts(listed, imported.settings):
            # The row means another run of this file; its GPU is the file's all the same.
            listed = {Setting.GPU: listed[Setting.GPU]} if Setting.GPU in listed else {}
    settings: dict[Setting, Said] = {**listed, **imported.settings}
    card = _card_of(about, [each.get(Setting.GPU) for each in (imported.settings, listed)], path, gpu)
    if card is not None:
        settings[Setting.GPU] = card
    precision = settings.get(Setting.PRECISION)
    if card is not None and precision is not None and precision.value == "fp32" and has_tf32(card.value):
        # What the reader did not know of the card it could not draw from it.
        settings[Setting.PRECISION] = Said("tf32", f"{precision.where}; the default of a {card.value}")
    return LoggedRun(about, imported, settings)


def _contradicts(listed: Mapping[Setting, Said], own: Mapping[Setting, Said]) -> bool:
    shared = (listed.keys() & own.keys()) - {Setting.GPU}
    return any(own[setting].value != listed[setting].value for setting in shared)


def _card_of(about: str, said: Sequence[Said | None], path: Path, given: str | None) -> Said | None:
    """The card model by who tells most of it; LogError where two contradict each other. ``given`` is for a log of
    which nothing tells it."""
    told = [each for each in said if each is not None]
    if (folder := card_of_folders(path.resolve())) is not None:
        told.append(Said(folder[0], f"folder name {folder[1]}"))
    for other in told[1:]:
        if not same_card(told[0].value, other.value):
            raise LogError(
                about,
                field="gpu",
                got=f"{told[0].value} ({told[0].where}) and {other.value} ({other.where})",
                expected="one card model",
                remedy="Correct what is wrong; nothing is guessed",
            )
    if told:
        return max(told, key=lambda each: len(card_words(each.value)))
    return Said(given, "--replay-gpu") if given else None
