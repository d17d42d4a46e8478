"""``perfgate import-log --store``: a log's runs as results of the history, marked imported, each once.

A result is named by the file's hash and the run's number in it: the same file again, read by another rule or with
other settings, is the same result, and what is kept of it is replaced and said. No night is made of it and nothing is
learned from it, so no measured run is ever held against it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.history.results import IMPORTED, RunResult
from helpers.logs.as_result import result_of
from helpers.logs.cards import card_words
from helpers.logs.imported import Imported
from helpers.logs.record import Said, Setting
from helpers.machine.environment import CPU, GPU
from helpers.plan.matrix import TARGETS
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision, choice
from helpers.trainers.contract.errors import ConfigError, LogError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model

if TYPE_CHECKING:
    from helpers.history.history import History

# The session of everything that was imported.
SESSION = IMPORTED
# The target of a log that does not tell its card, or tells one that no case is for.
UNSTATED_TARGET = "unstated"

_RUNS = uuid.UUID("0a3f6c52-7f1d-4b0e-9a58-5d2f5c1d9e77")
# More cards than one machine has: then the log has to tell its nodes.
_MOST_CARDS_OF_ONE_NODE = 16
_ON = ("true", "1", "yes", "on")
_OPTION = {Setting.EXECUTION: "--execution", Setting.NODES: "--nodes", Setting.DATA: "--data"}


def store(found: Sequence[Imported], url: str, on_wait: Callable[[str], None] | None = None) -> tuple[str, ...]:
    """Put every run into the history at ``url``; what became of each, in words, in their order.

    All are made ready before the first is written: LogError and ConfigError leave the history as it was. ``on_wait``
    is told where another process holds the history. Raises HistoryUnreachable where it does so for too long.
    """
    # The database libraries take a while to import, and who only reads a log needs none.
    from helpers.history import open_history

    results = [imported_result(each) for each in found]
    with open_history(url, on_wait) as history:
        return tuple(_put(history, each) for each in results)


def keep(found: Sequence[Imported], runs_folder: Path, url: str) -> str:
    """Put every run on disk for the history at ``url``, which is away; where they are and how they get in, in words.

    Raises HistoryError where the disk takes none.
    """
    from helpers.history.spool import Spool

    spool = Spool.of(runs_folder, url)
    for each in found:
        spool.put(imported_result(each))
    runs = f"{len(found)} run{'' if len(found) == 1 else 's'}"
    return f"{runs} kept in {spool.folder}; perfgate reindex, or the next session with this history, takes them in"


def stored_of(history: History, case_id: str, target: str | None = None) -> tuple[RunResult, ...]:
    """The imported results of a case, by the time they were stored. Raises HistoryError."""
    found = history.results_of(session=SESSION, case_id=case_id, target=target)
    return tuple(each.result for each in found if each.result.origin == IMPORTED)


def imported_result(found: Imported) -> RunResult:
    """The run as history keeps it. Raises LogError on one whose case cannot be named."""
    return result_of(
        found,
        found.settings,
        found.source,
        uuid=result_uuid(found),
        session=SESSION,
        case_id=case_of(found.settings, found.source).id,
        target=_target(found.settings),
        replicate=found.number - 1,
        origin=IMPORTED,
    )


def result_uuid(found: Imported) -> str:
    """The same for the same bytes and run, whatever the file is called and however it is read."""
    return uuid.uuid5(_RUNS, f"{found.sha256} {found.number}").hex


def case_of(settings: Mapping[Setting, Said], about: str) -> Case:
    """The case that a log's settings name; what it leaves open is ``unstated`` where a case can leave it open.

    Raises LogError, with the option that gives what is missing.
    """
    said = {each: settings[each].value for each in settings}
    framework = choice(Framework, said.get(Setting.FRAMEWORK), "framework")
    if framework is Framework.PADDLE and Setting.EXECUTION not in said:
        raise _missing(about, Setting.EXECUTION, "static, dynamic or to_static: Paddle's case names it")
    cards = _number(said, Setting.CARDS, about)
    nodes = _number(said, Setting.NODES, about) if Setting.NODES in said else _one_node(cards, about)
    if cards % nodes:
        raise LogError(about, field="nodes", got=f"{cards} cards on {nodes} nodes", expected="as many cards on each")
    try:
        return Case(
            framework,
            choice(Model, said.get(Setting.MODEL), "model"),
            choice(Precision, said.get(Setting.PRECISION), "precision"),
            _number(said, Setting.BATCH_SIZE_PER_CARD, about),
            nodes,
            cards // nodes,
            choice(DataSource, said.get(Setting.DATA, DataSource.UNSTATED.value), "data"),
            choice(Execution, said[Setting.EXECUTION], "execution") if Setting.EXECUTION in said else None,
            xla=said.get(Setting.XLA, "").lower() in _ON,
        )
    except ConfigError as error:
        raise LogError(about, got=str(error), expected="the settings of a case") from error


def _one_node(cards: int, about: str) -> int:
    if cards > _MOST_CARDS_OF_ONE_NODE:
        raise _missing(about, Setting.NODES, f"the nodes of {cards} cards")
    return 1


def _number(said: Mapping[Setting, str], setting: Setting, about: str) -> int:
    text = said.get(setting, "")
    if not (text.isascii() and text.isdecimal()):
        raise LogError(about, field=setting.value, got=text or "nothing", expected="a whole number")
    return int(text)


def _missing(about: str, setting: Setting, expected: str) -> LogError:
    return LogError(about, field=setting.value, got="nothing", expected=expected, remedy=f"Give {_OPTION[setting]}")


def _target(settings: Mapping[Setting, Said]) -> str:
    gpu = settings.get(Setting.GPU)
    model = card_words(gpu.value).get("model", "").lower() if gpu else ""
    return model if model in TARGETS and model not in (CPU, GPU) else UNSTATED_TARGET


def _put(history: History, result: RunResult) -> str:
    known = history.results_of(uuids=[result.uuid])
    about = f"{result.case_id} [{result.target}] {result.uuid[:12]}: {result.facts['source']}"
    if not known:
        history.add_result(result)
        return f"stored {about}"
    old = known[0].result
    # Where the file lies is no part of what it says.
    if _said_alike(old, result):
        return f"stored already {about}"
    history.add_result(result)
    if (old.case_id, old.target) != (result.case_id, result.target):
        return f"replaced {about}; it was stored as {old.case_id} [{old.target}]"
    return f"replaced {about}; the same file was read otherwise before"


def _said_alike(old: RunResult, new: RunResult) -> bool:
    same = replace(new, created=old.created, facts=old.facts)
    names = (old.facts.keys() | new.facts.keys()) - {"source", "log"}
    return same.to_json() == old.to_json() and all(old.facts.get(name) == new.facts.get(name) for name in names)
