"""The logs that ``--replay`` judges: what a folder holds, of which configuration and which GPU, and what was not read.

A folder with ``rank<k>.jsonl`` is one run of this suite, and so is ``r<n>`` with ``spec.json``; any other file is a log
of another program. What it leaves open stands in the folder's INDEX.csv, which people write, the GPU also in a folder's
name (``V100-LOG``).
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
# Reads one file (every log of an archive), with the settings that are stated beside it.
ReadLog = Callable[[Path, Mapping[LogSetting, Stated]], ImportBatch]

_NO_LOG = re.compile(
    rf"\..*|{re.escape(INDEX)}|{re.escape(NIGHT_FILE)}|(?:result|spec)\.json|{re.escape(FILE_NAME)}(?:-.*)?|r\d+\.aside\d+",
    re.ASCII,
)
# The settings that name a case: in them a log and INDEX.csv may not contradict each other.
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
    # The log's own; where it is silent those of INDEX.csv and, for the GPU, of a folder's name or ``--replay-gpu``.
    settings: Mapping[LogSetting, Stated]

    @property
    def gpu(self) -> str:
        return self.stated(LogSetting.GPU) or ""

    def stated(self, setting: LogSetting) -> str | None:
        return self.settings[setting].value if setting in self.settings else None


AnyRun = LoggedRun | OwnRun


@dataclass(frozen=True)
class LogFolder:
    """What a folder holds."""

    root: Path
    runs: tuple[AnyRun, ...] = ()
    # How many logs were found.
    files: int = 0
    # The logs that gave no run, each with why.
    unread: tuple[str, ...] = ()
    # The folders of this suite's runs among them.
    broken: tuple[str, ...] = ()
    # What else was left out.
    notes: tuple[str, ...] = ()


def read_folder(root: Path, read_log: ReadLog, gpu: str | None = None) -> LogFolder:
    """Read every log under ``root`` (a folder, or one file). ``gpu`` is the card model of logs that name none.

    A file that cannot be read is among ``unread``, and the others are read. Raises LogError on an INDEX.csv that is no
    such table.
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
    """What all rows of a file agree on, by its path within the folder; empty where there is no such table.

    The columns are named as the settings are (``gpu``, ``batch_size_per_card``). Raises LogError on a table without
    the column ``file``.
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
    # Two rows of one file are two runs of it; what differs between them is stated of neither.
    return {
        file: {setting: every[0] for setting, every in stated.items() if len({each.value for each in every}) == 1}
        for file, stated in found.items()
    }


def _missing(index: Index, names: Sequence[str]) -> list[str]:
    """A note on the files of INDEX.csv that are not there: their rows help no log, and a name may be mistyped."""
    absent = sorted(index.keys() - set(names))
    return [f"{INDEX} tells of {few(absent)}: no such log below this folder"] if absent else []


def few(names: Sequence[str], shown: int = 3) -> str:
    """``a, b, c and 2 more``."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


class _Reader:
    """Reads one log after another and keeps what it gave, or why it gave nothing."""

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
            # A run that contradicts itself costs no other run of its file.
            try:
                self.runs.append(_logged_run(path, name, imported, _row_of(imported, batch, listed), self._gpu))
            except LogError as error:
                self.unread.append(str(error))


def _logs_under(place: Path) -> Iterator[Path]:
    """The run folders of this suite and all other files, in the order of their names.

    Hidden files are left out, and what a session keeps beside its runs: its records of them, the history, runs that
    were set aside and made again.
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
    """The runs, each once. One that lies there twice with different settings is left out."""
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
    """The settings in which two readings of the same bytes differ; empty where they agree."""
    if isinstance(one, OwnRun) or isinstance(other, OwnRun):
        return ""
    pairs = (
        (each, one.stated(each) or "nothing", other.stated(each) or "nothing") for each in (*_CASE, LogSetting.GPU)
    )
    return ", ".join(f"{each.value} {there}, not {here}" for each, there, here in pairs if there != here)


def _read(path: Path, listed: Settings, read_log: ReadLog) -> ImportBatch:
    """The log read by itself, and where that is too little, with what INDEX.csv states of it."""
    batch = read_log(path, {})
    asked = dict(listed)
    # A reader needs no card; who names it is weighed in _card_of.
    asked.pop(LogSetting.GPU, None)
    if not batch.unread or not asked:
        return batch
    again = read_log(path, asked)
    return again if len(again.unread) < len(batch.unread) else batch


def _row_of(imported: Imported, batch: ImportBatch, listed: Settings) -> Settings:
    """What INDEX.csv states of one run of a file.

    Where it contradicts this run and not another one, it means that other run; its GPU is the file's all the same.
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
        # A step log names no card, and its result does not stand beside it.
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
    """The settings with TF32 for FP32 on a card that has it, which whoever wrote FP32 need not have known."""
    precision = settings.get(LogSetting.PRECISION)
    if card is None or precision is None or precision.value != "fp32" or not has_tf32(card.value):
        return settings
    return {**settings, LogSetting.PRECISION: Stated("tf32", f"{precision.where}; the default of a {card.value}")}


def _card_of(about: str, named_by: Sequence[Stated | None], path: Path, given: str | None) -> Stated | None:
    """The card model as the most exact of its names has it; ``given`` is for a log without one.

    Raises LogError where two names contradict each other.
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
    """The first line of an error that takes many: a folder may hold many files that are no logs."""
    if len(unread.lines) < 2:
        return unread.error
    return f"{unread.lines[0]}; 'perfgate import-log {unread.source}' tells what was looked for"
