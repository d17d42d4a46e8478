"""Finds the case of each log: everything that a log states must agree with the case, and with no other case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from helpers.history.results import RunResult
from helpers.judging.wording import counted
from helpers.logs.replay.logs import AnyRun, LogFolder, LoggedRun, few
from helpers.logs.replay.own import OwnRun
from helpers.logs.settings import LogSetting, is_of_target
from helpers.machine.environment import CPU, GPU
from helpers.plan.case_plan import SuiteCase
from helpers.trainers.contract.case import Case, DataSource
from helpers.trainers.contract.errors import ConfigError

Key = tuple[str, str]

# Features of a case that logs of other programs never state.
_UNSTATED_FEATURES = ("compile", "graphs", "auto")
_TRUE = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True)
class CaseLogs:
    """The logs that are judged as one case."""

    runs: tuple[AnyRun, ...]
    # Notes on logs of the case that were left out.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogsByCase:
    """The cases that have logs, and why the others have none."""

    folder: LogFolder
    found: Mapping[Key, CaseLogs] = field(default_factory=dict)
    ambiguous: Mapping[Key, str] = field(default_factory=dict)

    def why_none(self, case: SuiteCase) -> str | None:
        """Why no log is judged as the case, with the logs that came closest; None if the case has logs."""
        if case.key in self.found:
            return None
        if case.key in self.ambiguous:
            return self.ambiguous[case.key]
        ranked = [(differences_of(run, case), run.name) for run in self.folder.runs]
        close = [each for each in ranked if not any(one.grave for one in each[0])]
        if not close:
            cards = "" if case.target in (CPU, GPU) else f" on {case.target.upper()} cards"
            unread = f" ({counted(len(self.folder.unread), 'file')} not read)" if self.folder.unread else ""
            return f"no log of {case.case.framework.value} {case.case.model.value}{cards}{unread}"
        fewest = min(len(apart) for apart, _ in close)
        nearest = [(_text(apart) or self._judged_as(name, case), name) for apart, name in close if len(apart) == fewest]
        first = nearest[0][0]
        return f"no log of this case; closest: {few([name for why, name in nearest if why == first], 1)} ({first})"

    def _judged_as(self, name: str, case: SuiteCase) -> str:
        """What happened to a log that agrees with the case, but better with another one."""
        others = (key for key, fitting in self.found.items() if any(run.name == name for run in fitting.runs))
        return next((f"it is judged as {case_id}" for target, case_id in others if target == case.target), "left out")


def fit(cases: Sequence[SuiteCase], folder: LogFolder) -> LogsByCase:
    """Assign each log to its case. A log that fits several cases equally well is assigned to none."""
    found: dict[Key, list[AnyRun]] = {}
    open_to: dict[Key, list[str]] = {}
    for run in folder.runs:
        for target in dict.fromkeys(case.target for case in cases):
            fitting = [case for case in cases if case.target == target and not differences_of(run, case)]
            best = max((_agreements(run, case) for case in fitting), default=0)
            chosen = [case for case in fitting if _agreements(run, case) == best]
            if len(chosen) == 1:
                found.setdefault(chosen[0].key, []).append(run)
                continue
            for case in chosen:
                others = ", ".join(other.case.id for other in chosen if other is not case)
                open_to.setdefault(case.key, []).append(
                    f"{run.name} does not state enough: it may also be of {others}; give its {_open(run)} in INDEX.csv"
                )
    return LogsByCase(
        folder,
        {key: _sorted_out(runs, folder.broken, open_to.get(key, ())) for key, runs in found.items()},
        {key: messages[0] for key, messages in open_to.items()},
    )


@dataclass(frozen=True)
class Difference:
    """A setting in which a run differs from a case."""

    what: str
    # Whether model, framework or device differ.
    grave: bool = False


def differences_of(run: AnyRun, case: SuiteCase) -> list[Difference]:
    """Why a run is not of the case; empty if everything that the log states agrees."""
    return _own_differences(run, case) if isinstance(run, OwnRun) else _logged_differences(run, case)


def _own_differences(run: OwnRun, case: SuiteCase) -> list[Difference]:
    found = []
    if run.case_id != case.case.id:
        found.append(Difference(f"its case is {run.case_id}", _of_another_model(run.case_id, case.case)))
    if run.device != case.device:
        found.append(Difference(f"it ran on a {run.device}", grave=True))
    elif run.result is not None and run.result.target != case.target:
        found.append(Difference(f"its target is {run.result.target}"))
    elif run.result is None:
        found += _card_differences(run.gpu, case)
    return found


def _of_another_model(case_id: str, case: Case) -> bool:
    try:
        other = Case.parse(case_id)
    except ConfigError:
        return True
    return (other.framework, other.model) != (case.framework, case.model)


def _logged_differences(run: LoggedRun, case: SuiteCase) -> list[Difference]:
    mine = case.case
    if case.target == CPU:
        return [Difference("only step logs of this suite state that they ran on a CPU", grave=True)]
    wanted = {
        LogSetting.FRAMEWORK: mine.framework.value,
        LogSetting.MODEL: mine.model.value,
        LogSetting.PRECISION: mine.precision.value,
        LogSetting.BATCH_SIZE_PER_CARD: str(mine.batch_size_per_card),
        LogSetting.CARDS: str(mine.cards),
        LogSetting.NODES: str(mine.nodes),
        LogSetting.EXECUTION: mine.execution.value if mine.execution else "",
    }
    if mine.data is not DataSource.UNSTATED:
        wanted[LogSetting.DATA] = mine.data.value
    found = []
    for setting, value in wanted.items():
        stated = run.stated(setting)
        if stated is not None and value and stated != value:
            grave = setting in (LogSetting.FRAMEWORK, LogSetting.MODEL)
            found.append(Difference(f"{_words(setting)} {stated}, not {value}", grave))
    xla = run.stated(LogSetting.XLA)
    if xla is not None and _TRUE.get(xla.lower()) is not mine.xla:
        found.append(Difference(f"XLA {xla}, not {'on' if mine.xla else 'off'}"))
    found += [Difference(f"it does not state {name}") for name in _UNSTATED_FEATURES if getattr(mine, name)]
    return [*found, *_card_differences(run.gpu, case)]


def _card_differences(gpu: str, case: SuiteCase) -> list[Difference]:
    if case.target == CPU:
        return []
    if not gpu:
        return [Difference("it does not say its GPU: --replay-gpu NAME, or the column gpu of INDEX.csv")]
    if case.target == GPU:
        model = next((each for each in case.models if is_of_target(gpu, each)), None)
        return [Difference(f"it ran on a {gpu}, which has this case of its own (-m {model})")] if model else []
    if not is_of_target(gpu, case.target):
        return [Difference(f"it ran on a {gpu}, not a {case.target.upper()}", grave=True)]
    return []


def _agreements(run: AnyRun, case: SuiteCase) -> int:
    """How many optional settings the case and the log both state."""
    if isinstance(run, OwnRun):
        return 0
    data = run.stated(LogSetting.DATA)
    return int(data is not None and data == case.case.data.value)


def _open(run: AnyRun) -> str:
    """The settings that a log does not state, by the names of INDEX.csv's columns."""
    names = (LogSetting.DATA, LogSetting.EXECUTION, LogSetting.XLA, LogSetting.NODES)
    if isinstance(run, OwnRun):
        return "target"
    return " and ".join(each.value for each in names if run.stated(each) is None) or "configuration"


def _sorted_out(runs: Sequence[AnyRun], broken: Sequence[str], notes: Iterable[str]) -> CaseLogs:
    """Chooses the logs to be judged: all logs of other programs; or, of this suite's own runs, those of the newest
    session, since runs of different nights do not count as repeated runs.

    ``broken`` are the folders of own runs that could not be read; ``notes`` are about logs that may be of the case.
    """
    own = [run for run in runs if isinstance(run, OwnRun)]
    if not own:
        return CaseLogs(tuple(runs), (*notes, *_versions(runs)))
    messages = list(notes)
    if others := len(runs) - len(own):
        messages.append(f"{counted(others, 'log')} of another program left out: its rule is not the step logs'")
    newest = max(own, key=_age).session
    chosen = sorted((run for run in own if run.session == newest), key=_place)
    if left := sorted({run.session for run in own} - {newest}):
        messages.append(f"of {len(left) + 1} sessions with this case the newest is judged, {newest}, not {few(left)}")
    alike = [run for run in chosen if _setup(run.result) == _setup(chosen[-1].result)]
    if len(alike) < len(chosen):
        messages.append(
            f"{counted(len(chosen) - len(alike), 'run')} of {newest} left out: with other settings than its last one"
        )
    beside = {PurePosixPath(run.name).parent for run in chosen}
    if lost := [name for name in broken if PurePosixPath(name).parent in beside]:
        messages.append(f"{few(lost)} beside them could not be read")
    return CaseLogs(tuple(alike), tuple(messages))


def _versions(runs: Sequence[AnyRun]) -> tuple[str, ...]:
    """A note if the logs are of several versions of a framework: they are not runs of one build, which their median
    would hide."""
    stated = (run.stated(LogSetting.FRAMEWORK_VERSION) for run in runs if not isinstance(run, OwnRun))
    versions = sorted({version for version in stated if version})
    return (f"of {len(versions)} versions of the framework: {few(versions)}",) if len(versions) > 1 else ()


def _age(run: OwnRun) -> tuple[float, str]:
    return run.modified, run.session


def _place(run: OwnRun) -> tuple[int, str]:
    return (run.result.replicate if run.result else run.logs[0].header.replicate), run.name


def _setup(result: RunResult | None) -> tuple[object, ...]:
    if result is None:
        return ()
    return dict(result.settings), dict(result.overrides), dict(result.protocol)


def _text(apart: Sequence[Difference]) -> str:
    return ", ".join(each.what for each in apart)


def _words(setting: LogSetting) -> str:
    return "batch size a card" if setting is LogSetting.BATCH_SIZE_PER_CARD else setting.value
