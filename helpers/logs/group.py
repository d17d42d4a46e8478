"""Repeated runs in folders by cards, as DLPerf keeps them (``1n1g/rn50_b128_fp32_1.log``): average, median, speedup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helpers.judging.rules import case_figure
from helpers.logs.imported import Imported
from helpers.logs.importer import check_rule, import_file
from helpers.logs.settings import AUTO, LogSetting, Stated
from helpers.trainers.contract.errors import LogError, SuiteError, lines_of

_SUFFIXES = (".log", ".txt", ".log.gz", ".txt.gz")
_NAME = re.compile(r"(?P<model>[^_]+)_b(?P<batch>\d+)_(?P<precision>[^_]+)_(?P<number>\d+)\.", re.ASCII)
_DECIMALS = 2
_BY_NAME = re.compile(r"(\d+)")


@dataclass(frozen=True)
class GroupRun:
    """One log of a group."""

    path: Path
    number: int
    # As DLPerf rounds it.
    samples_per_s: float


@dataclass(frozen=True)
class Group:
    """The runs of one model on the cards of one folder."""

    model: str
    folder: str
    batch_size_per_card: int
    precision: str
    cards: int
    rule: str
    runs: tuple[GroupRun, ...]

    @property
    def average(self) -> float:
        rates = [each.samples_per_s for each in self.runs]
        return _rounded(sum(rates) / len(rates))

    @property
    def median(self) -> float:
        return _rounded(float(np.median([each.samples_per_s for each in self.runs])))

    @property
    def spread(self) -> float | None:
        """The largest distance of a run from the median, as a fraction of it; None for a single run."""
        if len(self.runs) < 2:
            return None
        return max(abs(each.samples_per_s - self.median) for each in self.runs) / self.median

    @property
    def shortfall(self) -> str:
        """Why the runs do not meet the publisher's rule over runs; empty where they do."""
        return case_figure(self.rule, [{self.rule: each.samples_per_s} for each in self.runs]).reason


@dataclass(frozen=True)
class GroupReport:
    """Every group of a folder, those of few cards first."""

    groups: tuple[Group, ...]
    # For each log that gave no figure the reason, in lines.
    unread: tuple[tuple[str, ...], ...] = ()
    # What is to be doubted and is no error.
    notes: tuple[str, ...] = ()

    def speedup(self, group: Group) -> float | None:
        """The group's median over that of the same model on one card; None where there is none, or one unlike it."""
        base = self._base(group)
        return None if base is None or self.unlike(group) else _rounded(group.median / base.median)

    def unlike(self, group: Group) -> str:
        """What keeps the runs on one card from being compared with the group's; empty where nothing does."""
        base = self._base(group)
        if base is None:
            return ""
        pairs = (
            ("batch size", base.batch_size_per_card, group.batch_size_per_card),
            ("precision", base.precision, group.precision),
            ("rule", base.rule, group.rule),
        )
        differences = [f"{name} {mine}, {base.folder} {theirs}" for name, theirs, mine in pairs if mine != theirs]
        return f"no speed-up: {'; '.join(differences)}" if differences else ""

    def _base(self, group: Group) -> Group | None:
        return next((each for each in self.groups if each.model == group.model and each.cards == 1), None)


def _rounded(value: float) -> float:
    """DLPerf's scripts round by numpy."""
    return float(np.round(value, _DECIMALS))


def read_groups(folder: Path, asked: Mapping[LogSetting, Stated], format: str = AUTO, rule: str = AUTO) -> GroupReport:
    """The groups of a folder of folders. Raises LogError where there is no log, or one group holds unlike runs."""
    check_rule(rule)
    paths = [each for each in sorted(folder.glob("*/*"), key=_natural) if each.name.endswith(_SUFFIXES)]
    if not paths:
        raise LogError(f"folder {folder}", got="no logs", expected="folders by cards (1n1g, 1n8g) with logs in them")
    groups: dict[tuple[str, str], list[tuple[Imported, GroupRun]]] = {}
    unread: list[tuple[str, ...]] = []
    notes: list[str] = []
    read: dict[str, Path] = {}
    for path in paths:
        try:
            found = _only(path, import_file(path, asked, format, rule))
            if (first := read.setdefault(found.sha256, path)) != path:
                notes.append(f"{path}: the same bytes as {first}; a copy is no run of its own, and is counted")
            figure = found.usual_figure
            if figure is None or figure.samples_per_s is None:
                raise LogError(f"log {path}", got=figure.reason if figure else "no rule", expected="a figure")
        except (SuiteError, OSError) as error:
            unread.append(lines_of(error))
            continue
        name = _NAME.match(path.name)
        model = name["model"] if name else found.settings[LogSetting.MODEL].value
        runs = groups.setdefault((model, path.parent.name), [])
        number = int(name["number"]) if name else len(runs) + 1
        runs.append((found, GroupRun(path, number, _rounded(figure.samples_per_s))))
    made = [_group(*key, runs) for key, runs in groups.items()]
    return GroupReport(tuple(sorted(made, key=lambda each: (each.model, each.cards))), tuple(unread), tuple(notes))


def _only(path: Path, runs: Sequence[Imported]) -> Imported:
    if len(runs) != 1:
        raise LogError(f"log {path}", got=f"{len(runs)} runs", expected="one in each log of a group")
    return runs[0]


def _group(model: str, folder: str, runs: Sequence[tuple[Imported, GroupRun]]) -> Group:
    about = f"group {folder} of {model}"
    batch = _one(about, LogSetting.BATCH_SIZE_PER_CARD, (found for found, _ in runs))
    precision = _one(about, LogSetting.PRECISION, (found for found, _ in runs))
    cards = _one(about, LogSetting.CARDS, (found for found, _ in runs))
    rules = list(dict.fromkeys(found.usual for found, _ in runs))
    if len(rules) > 1:
        raise LogError(about, field="rule", got=rules, expected="one for all runs", remedy="Name it with --rule")
    numbers = [run.number for _, run in runs]
    if twice := sorted({each for each in numbers if numbers.count(each) > 1}):
        raise LogError(about, field="run", got=f"number {twice[0]} twice", expected="each run once")
    return Group(model, folder, int(batch), precision, int(cards), rules[0], tuple(run for _, run in runs))


def _one(about: str, setting: LogSetting, runs: Iterable[Imported]) -> str:
    values = list(dict.fromkeys(each.settings[setting].value for each in runs))
    if len(values) > 1:
        remedy = "Give each configuration a folder of its own"
        raise LogError(about, field=setting.value, got=values, expected="the same in all runs", remedy=remedy)
    return values[0]


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key that sorts ``run_10`` behind ``run_9``."""
    parts = _BY_NAME.split(path.as_posix())
    return [(int(each), "") if each.isdecimal() else (-1, each) for each in parts]
