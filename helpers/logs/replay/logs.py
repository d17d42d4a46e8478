"""Reads the folder of logs that ``--replay`` judges: its runs with configuration and GPU, and the files that could not
be read.

A folder with ``rank<k>.jsonl`` is one run of this suite, and so is ``r<n>`` with ``spec.json``; any other file is a log
of another program. Settings that such a log does not state can be written into the folder's INDEX.csv; its GPU may also
be in a folder's name (``V100-LOG``).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.history import FILE_NAME
from helpers.history.run_folders import NIGHT_FILE
from helpers.logs.importer import ImportBatch, Unread
from helpers.logs.own import NAME as STEP_LOG
from helpers.logs.published import INDEX, index_rows
from helpers.logs.record import Imported
from helpers.logs.replay.own import OwnRun, is_rank_log, is_run_folder, read_own_run
from helpers.logs.settings import LogSetting, Stated, card_of_folders, card_words, has_tf32, same_card
from helpers.trainers.contract.errors import LogError, SuiteError

Index = Mapping[str, Mapping[LogSetting, Stated]]
# Reads one file (of an archive every log), with the settings that INDEX.csv or the user states.
ReadLog = Callable[[Path, Mapping[LogSetting, Stated]], ImportBatch]

_NO_LOG = re.compile(
    rf"\..*|{re.escape(INDEX)}|{re.escape(NIGHT_FILE)}|(?:result|spec)\.json|{re.escape(FILE_NAME)}(?:-.*)?|r\d+\.aside\d+",
    re.ASCII,
)
# The settings that identify a case. In these, a log and INDEX.csv must not contradict each other.
_CASE = (
    LogSetting.FRAMEWORK,
    LogSetting.MODEL,
    LogSetting.PRECISION,
    LogSetting.BATCH_SIZE_PER_CARD,
    LogSetting.CARDS,
    LogSetting.NODES,
    LogSetting.DATA,
    LogSetting.EXECUTION,
    LogSetting.XLA,
)

Settings = Mapping[LogSetting, Stated]


@dataclass(frozen=True)
class LoggedRun:
    """One run of another program's log."""

    name: str
    imported: Imported
    # As the log states them, else as INDEX.csv does; the GPU also from a folder's name or ``--replay-gpu``.
    settings: Mapping[LogSetting, Stated]

    @property
    def gpu(self) -> str:
        return self.stated(LogSetting.GPU) or ""

    def stated(self, setting: LogSetting) -> str | None:
        return self.settings[setting].value if setting in self.settings else None


AnyRun = LoggedRun | OwnRun


@dataclass(frozen=True)
class LogFolder:
    """The contents of a folder of logs."""

    root: Path
    runs: tuple[AnyRun, ...] = ()
    # How many logs were found.
    files: int = 0
    # The logs without a run, each with the reason.
    unread: tuple[str, ...] = ()
    # Those of them that are folders of this suite's runs.
    broken: tuple[str, ...] = ()
    # Notes on what else was left out.
    notes: tuple[str, ...] = ()


def read_folder(root: Path, read_log: ReadLog, gpu: str | None = None) -> LogFolder:
    """Read all logs under ``root`` (a folder, or one file). ``gpu`` is the card model of logs that name none.

    A file that cannot be read is listed in ``unread``. Raises LogError if INDEX.csv cannot be read.
    """
    if is_rank_log(root.name) and root.is_file():
        root = root.parent
    folder = root if root.is_dir() else root.parent
    index = read_index(folder / INDEX)
    reader = _Reader(read_log, gpu)
    names = []
    for path in _logs_under(root):
        name = path.relative_to(folder).as_posix()
        names.append(name)
        if path.is_dir():
            reader.read_own(path, path.resolve().name if name == "." else name)
        else:
            reader.read(path, name, index.get(name, {}))
    runs = _once(reader)
    missing = _missing(index, names) if root.is_dir() else []
    notes = (*missing, *reader.notes)
    return LogFolder(root, runs, len(names), tuple(reader.unread), tuple(reader.broken), notes)


def read_index(path: Path) -> Index:
    """For each file, by its path within the folder: the settings on which all its rows agree. Empty if there is no
    INDEX.csv.

    The columns have the names of the settings (``gpu``, ``batch_size_per_card``). Raises LogError if the column
    ``file`` is missing.
    """
    if not path.exists():
        return {}
    columns, rows = index_rows(path)
    if "file" not in columns:
        raise LogError(str(path), field="file", got=columns or "nothing", expected="a column of that name")
    found: dict[str, dict[LogSetting, list[Stated]]] = {}
    for number, row in rows:
        stated = found.setdefault(posixpath.normpath(row["file"] or ""), {})
        for setting in LogSetting:
            if value := (row.get(setting.value) or "").strip():
                stated.setdefault(setting, []).append(Stated(value, f"{INDEX} line {number}"))
    # Two rows of one file are two of its runs; a setting in which they differ is used for neither.
    return {
        file: {setting: every[0] for setting, every in stated.items() if len({each.value for each in every}) == 1}
        for file, stated in found.items()
    }


def _missing(index: Index, names: Sequence[str]) -> list[str]:
    """A note on files of INDEX.csv that do not exist: a name may be mistyped."""
    absent = sorted(index.keys() - set(names))
    return [f"{INDEX} names {few(absent)}: there is no such log below this folder"] if absent else []


def few(names: Sequence[str], shown: int = 3) -> str:
    """Such as ``a, b, c and 2 more``."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


class _Reader:
    """Reads one log after another and keeps its runs, or the reason why it has none."""

    def __init__(self, read_log: ReadLog, gpu: str | None) -> None:
        self._read_log, self._gpu = read_log, gpu
        self.runs: list[AnyRun] = []
        self.unread: list[str] = []
        self.broken: list[str] = []
        self.notes: list[str] = []

    def read_own(self, folder: Path, name: str) -> None:
        try:
            self.runs.append(read_own_run(folder, name, self._gpu))
        except (SuiteError, OSError) as error:
            self.unread.append(f"{name}: {error}")
            self.broken.append(name)

    def read(self, path: Path, name: str, listed: Settings) -> None:
        try:
            batch = _read(path, listed, self._read_log)
        except (SuiteError, OSError) as error:
            self.unread.append(f"{name}: {error}")
            return
        except Exception as error:  # noqa: BLE001 - no mistake of a reader takes the other logs with it
            self.unread.append(f"{name}: the suite failed to read it: {type(error).__name__}: {error}")
            return
        self.unread += [f"{name}: {_in_short(each)}" for each in batch.unread]
        self.notes += batch.notes
        for imported in batch.imported:
            # An error in one run must not lose the other runs of its file.
            try:
                self.runs.append(_logged_run(path, name, imported, _row_of(imported, batch, listed), self._gpu))
            except LogError as error:
                self.unread.append(str(error))


def _logs_under(place: Path) -> Iterator[Path]:
    """The folders of this suite's runs and all other files, in the order of their names.

    Hidden files are left out, and so are the files that a session keeps beside its runs: results, history, and runs
    that were set aside and repeated.
    """
    if not place.is_dir():
        yield place
        return
    found = sorted(place.iterdir())
    if is_run_folder(place, [each.name for each in found]):
        yield place
        return
    for each in found:
        if _NO_LOG.fullmatch(each.name):
            continue
        if each.is_dir() and not each.is_symlink():
            yield from _logs_under(each)
        elif each.is_file():
            yield each


def _once(reader: _Reader) -> tuple[AnyRun, ...]:
    """The runs, without copies. If the copies of a run have different settings, the later ones are listed as unread."""
    found: dict[tuple[str, int], AnyRun] = {}
    contradicted = set()
    for run in reader.runs:
        first = found.setdefault(_key(run), run)
        if first is run:
            continue
        if apart := _apart(first, run):
            contradicted.add(_key(run))
            reader.unread.append(f"{run.name}: the same bytes as {first.name}, with other settings: {apart}")
        else:
            reader.notes.append(f"{run.name}: the same run as {first.name}, counted once")
    return tuple(run for key, run in found.items() if key not in contradicted)


def _key(run: AnyRun) -> tuple[str, int]:
    return (run.job_id, -1) if isinstance(run, OwnRun) else (run.imported.sha256, run.imported.number)


def _apart(one: AnyRun, other: AnyRun) -> str:
    """The settings in which two copies of the same log differ; empty if they agree."""
    if isinstance(one, OwnRun) or isinstance(other, OwnRun):
        return ""
    pairs = (
        (each, one.stated(each) or "nothing", other.stated(each) or "nothing") for each in (*_CASE, LogSetting.GPU)
    )
    return ", ".join(f"{each.value} {there}, not {here}" for each, there, here in pairs if there != here)


def _read(path: Path, listed: Settings, read_log: ReadLog) -> ImportBatch:
    """Reads the log by itself; if it does not state enough, with the settings from INDEX.csv."""
    batch = read_log(path, {})
    asked = dict(listed)
    # The card is left to _card_of, which compares all places that name it.
    asked.pop(LogSetting.GPU, None)
    if not batch.unread or not asked:
        return batch
    again = read_log(path, asked)
    return again if len(again.unread) < len(batch.unread) else batch


def _row_of(imported: Imported, batch: ImportBatch, listed: Settings) -> Settings:
    """The settings that INDEX.csv states for one run of a file.

    If they contradict this run but not another run of the file, the row is about that other run; only its GPU holds for
    the whole file.
    """
    others = [each for each in batch.imported if each is not imported]
    if _contradicted(listed, imported.settings) and not all(_contradicted(listed, each.settings) for each in others):
        return {LogSetting.GPU: listed[LogSetting.GPU]} if LogSetting.GPU in listed else {}
    return listed


def _contradicted(listed: Settings, own: Settings) -> list[LogSetting]:
    both = (each for each in _CASE if each in listed and each in own)
    return [each for each in both if listed[each].value.lower() != own[each].value.lower()]


def _logged_run(path: Path, name: str, imported: Imported, listed: Settings, gpu: str | None) -> LoggedRun:
    member = imported.source.partition("!")[2]
    about = f"{name}!{member}" if member else name
    if imported.runs_in_file > 1:
        about += f" (run {imported.number} of {imported.runs_in_file})"
    if imported.format == STEP_LOG:
        # A step log names no card, and without its folder it has no result that does.
        got, expected = "a step log of this suite", "its run's folder with rank0.jsonl … and result.json"
        raise LogError(about, got=got, expected=expected, remedy="Unpack it as it was")
    card = _card_of(about, [each.get(LogSetting.GPU) for each in (imported.settings, listed)], path, gpu)
    listed, own = _on_card(listed, card), _on_card(imported.settings, card)
    if apart := _contradicted(listed, own):
        both = [f"{each.value} {by[each].value} ({by[each].where})" for each in apart for by in (own, listed)]
        raise LogError(about, got=" and ".join(both), expected="one configuration", remedy="Correct what is wrong")
    settings = {**listed, **own}
    return LoggedRun(about, imported, {**settings, LogSetting.GPU: card} if card else settings)


def _on_card(settings: Settings, card: Stated | None) -> Settings:
    """The settings with TF32 in place of FP32 on a card that has TF32; the author of the table may not have known
    it."""
    precision = settings.get(LogSetting.PRECISION)
    if card is None or precision is None or precision.value != "fp32" or not has_tf32(card.value):
        return settings
    return {**settings, LogSetting.PRECISION: Stated("tf32", f"{precision.where}; the default of a {card.value}")}


def _card_of(about: str, named_by: Sequence[Stated | None], path: Path, given: str | None) -> Stated | None:
    """The card model by the most exact of its names; ``given`` is for a log without a name.

    Raises LogError if two names contradict each other.
    """
    names = [each for each in named_by if each is not None]
    if (folder := card_of_folders(path.resolve())) is not None:
        names.append(Stated(folder[0], f"folder name {folder[1]}"))
    for other in names[1:]:
        if not same_card(names[0].value, other.value):
            raise LogError(
                about,
                field="gpu",
                got=f"{names[0].value} ({names[0].where}) and {other.value} ({other.where})",
                expected="one card model",
                remedy="Correct what is wrong; nothing is guessed",
            )
    if names:
        return max(names, key=lambda each: len(card_words(each.value)))
    return Stated(given, "--replay-gpu") if given else None


def _in_short(unread: Unread) -> str:
    """Only the first line of a long error, since a folder may hold many files that are not logs."""
    if len(unread.lines) < 2:
        return unread.error
    return f"{unread.lines[0]}; 'perfgate import-log {unread.source}' shows what was searched for"
