"""Makes results of the runs of logs and stores them in the history: ``perfgate import-log --store``.

A result is identified by the file's hash and the run's number in the file. If the same file is stored again, by another
rule or with other settings, it replaces the stored result, and a message says so. Such a result is not a night, so no
measured run is ever compared with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.common.wall_clock import utc_now
from helpers.history.results import IMPORTED, LOG_FACT, LOG_WARNINGS_FACT, RunResult
from helpers.logs.record import Imported
from helpers.logs.settings import OPTIONS, LogSetting, Stated, card_words
from helpers.machine.environment import CPU, GPU
from helpers.plan.matrix import TARGETS
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision, choice
from helpers.trainers.contract.errors import ConfigError, LogError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model

if TYPE_CHECKING:
    from helpers.history.history import History

SOURCE_FACT, SHA256_FACT, USUAL_RULE_FACT = "source", "sha256", "usual rule"


# The session name of all imported results.
SESSION = IMPORTED
# The target of a log that names no card, or a card without a case.
UNSTATED_TARGET = "unstated"

_RUNS = uuid.UUID("0a3f6c52-7f1d-4b0e-9a58-5d2f5c1d9e77")
# The most cards of one machine. A log of more cards must state its nodes.
_MOST_CARDS_OF_ONE_NODE = 16


def figures_of(imported: Imported) -> dict[str, float | str]:
    """Samples/s by each rule, or the reason why there is none. A rule with a parameter is also listed by its plain
    name."""
    found: dict[str, float | str] = {}
    for each in (*imported.figures, imported.honest, imported.median_step):
        rate = each.reason if each.samples_per_s is None else each.samples_per_s
        for name in (each.rule, each.rule.partition(":")[0]):
            found.setdefault(name, rate)
    return found


def _line(imported: Imported, version: str) -> str:
    """Such as ``a/b.log, lines 1-310, paddleclas, sha256 0123456789ab, version 2.5.0``."""
    lines = f"lines {imported.first_line}-{imported.last_line}"
    parts = [imported.source, lines, imported.format, f"sha256 {imported.sha256[:12]}"]
    return ", ".join([*parts, *([f"version {version}"] if version else [])])


def _provenance(imported: Imported) -> dict[str, str]:
    """The origin of the figures as texts: file, hash, records used by each rule."""
    every = (*imported.figures, imported.honest, imported.median_step)
    return {
        SOURCE_FACT: imported.source,
        SHA256_FACT: imported.sha256,
        USUAL_RULE_FACT: imported.usual,
        **{
            f"rule {each.rule}": "; ".join(filter(None, (f"{each.used} used", *each.unused, each.how, each.reason)))
            for each in every
        },
    }


def store(found: Sequence[Imported], url: str) -> tuple[str, ...]:
    """Put all runs into the history at ``url``. Returns a message on each, in their order.

    All results are prepared before the first is written, so after LogError or ConfigError the history is unchanged.
    Raises HistoryUnreachable if another process holds the history for too long.
    """
    # Imported only here: the database libraries take long to import, and reading a log does not need them.
    from helpers.history import open_history

    results = [imported_result(each) for each in found]
    with open_history(url) as history:
        return tuple(_put(history, each) for each in results)


def stored_of(history: History, case_id: str | None, target: str | None = None) -> tuple[RunResult, ...]:
    """The imported results of a case, or of all, by the dates of their logs. Raises HistoryError if they cannot be
    read."""
    found = history.results_of(session=SESSION, case_id=case_id, target=target)
    return tuple(each.result for each in found if each.result.origin == IMPORTED)


def imported_result(found: Imported) -> RunResult:
    """The run as the history stores it. Raises LogError if its settings do not name a case."""
    stated = {each: found.settings[each].value for each in found.settings}
    version = stated.get(LogSetting.FRAMEWORK_VERSION, "")
    return RunResult(
        uuid=result_uuid(found),
        session=SESSION,
        case_id=case_of(found.settings, found.source).id,
        target=_target(found.settings),
        replicate=found.number - 1,
        origin=IMPORTED,
        # No log names the zone of its clock.
        created=f"{found.began}+00:00" if found.began else utc_now().isoformat(timespec="seconds"),
        build={"framework": stated.get(LogSetting.FRAMEWORK, ""), "version": version},
        figures=figures_of(found),
        reader_share=found.reader_share,
        facts={
            LOG_FACT: _line(found, version),
            LOG_WARNINGS_FACT: "; ".join(found.warnings),
            **_provenance(found),
            **{f"setting {name.value}": f"{each.value} ({each.where})" for name, each in found.settings.items()},
        },
    )


def result_uuid(found: Imported) -> str:
    """The id of a result; it depends only on the file's bytes and the run's number, not on the file's name, rule or
    settings."""
    return uuid.uuid5(_RUNS, f"{found.sha256} {found.number}").hex


def case_of(settings: Mapping[LogSetting, Stated], about: str) -> Case:
    """The case that a log's settings name. A setting that they do not state is ``unstated`` if a case allows that.

    Raises LogError if more is missing, with the option that states it.
    """
    stated = {each: settings[each].value for each in settings}
    framework = choice(Framework, stated.get(LogSetting.FRAMEWORK), "framework")
    if framework is Framework.PADDLE and LogSetting.EXECUTION not in stated:
        raise _missing(about, LogSetting.EXECUTION, "static, dynamic or to_static: Paddle's case names it")
    cards = _number(stated, LogSetting.CARDS, about)
    nodes = _number(stated, LogSetting.NODES, about) if LogSetting.NODES in stated else _one_node(cards, about)
    if cards % nodes:
        raise LogError(about, field="nodes", got=f"{cards} cards on {nodes} nodes", expected="as many cards on each")
    try:
        return Case(
            framework,
            choice(Model, stated.get(LogSetting.MODEL), "model"),
            choice(Precision, stated.get(LogSetting.PRECISION), "precision"),
            _number(stated, LogSetting.BATCH_SIZE_PER_CARD, about),
            nodes,
            cards // nodes,
            choice(DataSource, stated.get(LogSetting.DATA, DataSource.UNSTATED.value), "data"),
            choice(Execution, stated[LogSetting.EXECUTION], "execution") if LogSetting.EXECUTION in stated else None,
            xla=stated.get(LogSetting.XLA, "").lower() == "true",
        )
    except ConfigError as error:
        raise LogError(about, got=str(error), expected="the settings of a case") from error


def _one_node(cards: int, about: str) -> int:
    if cards > _MOST_CARDS_OF_ONE_NODE:
        raise _missing(about, LogSetting.NODES, f"the nodes of {cards} cards")
    return 1


def _number(stated: Mapping[LogSetting, str], setting: LogSetting, about: str) -> int:
    text = stated.get(setting, "")
    if not (text.isascii() and text.isdecimal()):
        raise LogError(about, field=setting.value, got=text or "nothing", expected="a whole number")
    return int(text)


def _missing(about: str, setting: LogSetting, expected: str) -> LogError:
    return LogError(about, field=setting.value, got="nothing", expected=expected, remedy=f"Give {OPTIONS[setting]}")


def _target(settings: Mapping[LogSetting, Stated]) -> str:
    gpu = settings.get(LogSetting.GPU)
    words = {word.lower() for word in card_words(gpu.value)} if gpu else set()
    return next((each for each in TARGETS if each in words - {CPU, GPU}), UNSTATED_TARGET)


def _put(history: History, result: RunResult) -> str:
    known = history.results_of(uuids=[result.uuid])
    about = f"{result.case_id} [{result.target}] {result.uuid[:12]}: {result.facts['source']}"
    if not known:
        history.add_result(result)
        return f"stored {about}"
    old = known[0].result
    # The place of the file does not count.
    if _states_the_same(old, result):
        return f"stored already {about}"
    history.add_result(result)
    return f"replaced {about}; it was stored as {old.case_id} [{old.target}]"


def _states_the_same(old: RunResult, new: RunResult) -> bool:
    same = replace(new, created=old.created, facts=old.facts)
    names = (old.facts.keys() | new.facts.keys()) - {"source", "log"}
    return same.to_json() == old.to_json() and all(old.facts.get(name) == new.facts.get(name) for name in names)
