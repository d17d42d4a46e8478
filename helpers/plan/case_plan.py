"""The plan of a case: what will be run, by which protocol, and with what it will be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from helpers.judging.case.evidence import Budget, CaseKey, PublishedReference, RecordedReference
from helpers.judging.rules.own import WALL_CLOCK
from helpers.machine.environment import CPU as CPU
from helpers.machine.environment import GPU, device_of, differences
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.case_patterns import CasePattern, Quarantine, last_match, refuse_unmatched
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.overrides import segment_of
from helpers.plan.perf_yaml import Config
from helpers.plan.published import PublishedFigure
from helpers.plan.recorded import LEAST_RUNS, RecordedEntry
from helpers.trainers.contract.case import Case, DataSource, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec

if TYPE_CHECKING:
    # It imports Pillow, which a listing does not need.
    from helpers.plan.image_folder import DatasetFacts


@dataclass(frozen=True)
class SuiteCase:
    """One case on one target, which pytest collects."""

    case: Case
    # ``cpu``, ``v100``, ``a100``, or ``gpu`` for any card.
    target: str
    protocol: MeasuringProtocol
    # Whether the case runs if no marker is given.
    short: bool = False
    # The published figures of the case.
    figures: tuple[PublishedFigure, ...] = ()
    # The card models that have the same case of their own; empty unless ``target`` is any card.
    models: tuple[str, ...] = ()
    # The owner that reports name; empty if perf.yaml names none.
    owner: str = ""
    # perf.yaml's quarantine of the case, also if its day is over.
    quarantine: Quarantine | None = None

    @property
    def key(self) -> CaseKey:
        return self.target, self.case.id

    @property
    def device(self) -> str:
        return device_of(self.target)

    @property
    def markers(self) -> tuple[str, ...]:
        """The names by which ``-m`` selects the case."""
        names = [self.target, self.case.framework.value, self.case.model.spec.marker]
        if self.case.precision.is_amp:
            names.append("amp")
        elif self.case.precision is not Precision.UNSTATED:
            names.append(self.case.precision.value)
        if self.case.cards > 1:
            names.append("multi_card")
        if self.case.nodes > 1:
            names.append("multi_node")
        if self.figures:
            names.append("published")
        return tuple(names)


@dataclass(frozen=True)
class CasePlan:
    """A case that is ready to run on this machine: its settings, and the references with which it will be compared."""

    suite_case: SuiteCase
    # The names of the build under test (installed.build_record).
    build: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    # The settings that the user changed.
    overrides: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[PublishedReference, ...] = ()
    # This machine's recorded entry.
    recorded: RecordedEntry | None = None
    # The smallest change against the entry that counts, as a fraction, if the entry has none of its own.
    tolerance: float = 0.005
    # The drop below the entry, as a fraction, that fails the case if no reference build is at hand.
    band: float = 0.05
    # The description of the images, and the images themselves; None if the case reads none.
    data: str = ""
    images: DatasetFacts | None = None
    # The part of a run's environment that is known before it.
    environment: Mapping[str, str] = field(default_factory=dict)
    rule: str = WALL_CLOCK
    # The reference build's names; empty without one, and then ``why_no_reference`` says why.
    reference: Mapping[str, str] = field(default_factory=dict)
    why_no_reference: str = ""
    # How many runs the case may take.
    budget: Budget = field(default_factory=Budget)
    # Whether the figure may become the recorded one.
    to_record: bool = False
    # Whether the case passes only with a recorded figure (Evidence).
    recorded_required: bool | None = None

    @property
    def case(self) -> Case:
        return self.suite_case.case

    @property
    def planned_runs(self) -> int:
        """The number of runs that are made in any case. One run screens a case that has a recorded entry. All runs of
        the protocol are made if something else depends on them: published figures, a first or a new entry (at least
        LEAST_RUNS), changed settings."""
        if self.to_record:
            return max(self.protocol.runs, LEAST_RUNS)
        one_will_do = self.recorded is not None and not (self.published or self.overrides)
        return 1 if one_will_do else self.protocol.runs

    @property
    def reference_label(self) -> str | None:
        """The reference build in words, ``paddle 3.3.1 @abcdef in envs/good``, and how it differs from the recorded
        entry's; None without a reference build."""
        if not self.reference:
            return None
        label = build_label(self.reference)
        if self.recorded is None:
            return label
        then = {name: self.recorded.environment.get(f"framework_{name}", "") for name in ("version", "commit")}
        if all(then[name] in ("", self.reference.get(name, "")) for name in then):
            return label
        recorded = _version(self.recorded.environment.get("framework", ""), then["version"], then["commit"])
        return f"{label}, not the recorded entry's {recorded}"

    @property
    def reference_id(self) -> str:
        """The reference build's framework, version, commit and, if it has one, digest; empty without a reference
        build."""
        return build_id(self.reference)

    @property
    def protocol(self) -> MeasuringProtocol:
        return self.suite_case.protocol


def matrix(config: Config, published: Mapping[str, Iterable[PublishedFigure]]) -> tuple[SuiteCase, ...]:
    """Every case: perf.yaml's own, then each published target's in id order. Several figures may share a case.

    Raises ConfigError if perf.yaml lists a case that a published file has for the same target, or has a pattern that
    matches no case.
    """
    own = [SuiteCase(item.case, item.target, config.protocols[item.protocol], item.short) for item in config.matrix]
    for target in sorted(published):
        by_case: dict[str, list[PublishedFigure]] = {}
        for figure in published[target]:
            by_case.setdefault(figure.case.id, []).append(figure)
        for case_id in sorted(by_case):
            figures = tuple(by_case[case_id])
            own.append(SuiteCase(figures[0].case, target, longest_protocol(config, figures), figures=figures))
    keys = [suite_case.key for suite_case in own]
    for target, case_id in keys:
        if keys.count((target, case_id)) > 1:
            raise ConfigError(
                str(config.path),
                field=f"matrix.{target}",
                got=case_id,
                expected="cases that baselines/published does not have",
                remedy="Take it out: the published case runs by its own protocol",
            )
    for place, entry in _patterns(config):
        refuse_unmatched(config.path, place, entry, keys)
    return tuple(_with_entries(each, config) for each in _with_models(own))


def _patterns(config: Config) -> Iterator[tuple[str, CasePattern]]:
    """Every pattern over case ids in perf.yaml, with its field. Those of all machines count: the file has the same
    cases on each of them."""
    for section, own in (("tolerances", config.tolerances.cases), ("budgets", config.budgets.cases)):
        for index, (pattern, _) in enumerate(own):
            yield f"{section}.cases[{index}].pattern", CasePattern(pattern=pattern)
    for name, entries in (("owners", config.owners), ("quarantine", config.quarantine)):
        for index, entry in enumerate(entries):
            yield f"{name}[{index}].pattern", entry
    for machine in config.machines.values():
        for index, rule in enumerate(machine.gate):
            found = CasePattern(pattern=rule.cases, target=rule.target)
            yield f"machines.{machine.name}.gate[{index}].cases", found


def _with_entries(suite_case: SuiteCase, config: Config) -> SuiteCase:
    """The case with its owner and its quarantine."""
    target, case_id = suite_case.key
    owner = last_match(config.owners, case_id, target)
    quarantine = last_match(config.quarantine, case_id, target)
    if owner is None and quarantine is None:
        return suite_case
    return replace(suite_case, owner="" if owner is None else owner.owner, quarantine=quarantine)


def _with_models(cases: Sequence[SuiteCase]) -> tuple[SuiteCase, ...]:
    models: dict[str, tuple[str, ...]] = {}
    for each in cases:
        if each.target not in (CPU, GPU):
            models[each.case.id] = (*models.get(each.case.id, ()), each.target)
    return tuple(replace(each, models=models.get(each.case.id, ())) if each.target == GPU else each for each in cases)


def usual_targets(found: Iterable[str]) -> frozenset[str]:
    """The GPU targets that are measured if none is named, of those whose cards a machine has.

    If a card model has cases of its own, those for any card are left out, because they would be the same work again.
    """
    found = frozenset(found)
    return found - {GPU} or found


def refuse_two_targets(chosen: Iterable[SuiteCase]) -> None:
    """Raises ConfigError if one case id is chosen on two targets, because results and entries are kept by case id."""
    seen: dict[str, str] = {}
    for case in chosen:
        other = seen.setdefault(case.case.id, case.target)
        if other != case.target:
            raise ConfigError(
                f"case {case.case.id}",
                got=f"two targets of this machine, {other} and {case.target}",
                expected="one target in a session",
                remedy=f"Choose with -m {other} or -m {case.target}",
            )


def longest_protocol(config: Config, figures: Iterable[PublishedFigure]) -> MeasuringProtocol:
    """A protocol for the rules of all figures of one case: the most steps, the most runs."""
    protocols = [config.protocol_for_rule(figure.rule) for figure in figures]
    longest = max(protocols, key=lambda each: (each.warmup_steps + each.window_steps, each.runs))
    return replace(longest, runs=max(each.runs for each in protocols))


def published_references(
    figures: Iterable[PublishedFigure], device_name: str, tolerance: float
) -> tuple[PublishedReference, ...]:
    """The figures that were measured on this model of card. No other figure says anything about this machine."""
    return tuple(
        PublishedReference(
            samples_per_s=figure.samples_per_s,
            rule=figure.rule,
            label=f"{figure.table}, {figure.gpu}, {figure.case.framework.value} {figure.framework_version}",
            gates=figure.status is FigureStatus.GATE,
            tolerance=tolerance,
        )
        for figure in figures
        if figure.applies_to(device_name)
    )


def draft_job(
    suite_case: SuiteCase,
    settings: Mapping[str, Any],
    *,
    device: str,
    run_folder: str,
    data_root: str = "DATA",
    job_id: str = "JOB",
) -> JobSpec:
    """The job of one run on cards 0, 1, …, to show it, or to check its settings or its program. It is not run."""
    case, protocol = suite_case.case, suite_case.protocol
    return JobSpec(
        job_id=job_id,
        case=case,
        replicate=0,
        run_folder=run_folder,
        device=device,
        warmup_steps=protocol.warmup_steps,
        window_steps=protocol.window_steps,
        steady_window_steps=protocol.steady_window_steps,
        most_warmup_steps=protocol.most_warmup_steps,
        data_root=None if case.data is DataSource.SYNTHETIC else data_root,
        settings=settings,
        environment={str(name): str(value) for name, value in settings.get("environment", {}).items()},
        cards=tuple(str(card) for card in range(case.cards_per_node)) if device != CPU else (),
    )


def recorded_reference(plan: CasePlan, environment: Mapping[str, str]) -> RecordedReference | None:
    """The recorded entry as a reference for runs in ``environment``, with the differences between their segments."""
    entry = plan.recorded
    if entry is None:
        return None
    tonight = segment_of(environment, plan.settings, plan.case.id) if environment else {}
    # The verdict names the user's changes itself.
    changed = {f"setting {key}" for key in plan.overrides}
    before, after = ({key: each[key] for key in each if key not in changed} for each in (entry.segment, tonight))
    other_protocol = entry.other_protocol(plan.protocol.steps)
    return RecordedReference(
        samples_per_s=entry.samples_per_s,
        rule=entry.rule,
        label=f"recorded {entry.provenance.date[:10]}, {entry.provenance.commit[:12]}",
        tolerance=plan.tolerance if entry.tolerance is None else entry.tolerance,
        gates=entry.status is FigureStatus.GATE,
        differences=(*differences(before, after), *other_protocol),
        replicates=entry.replicates,
        band=plan.band,
        other_protocol=bool(other_protocol),
        build=_recorded_build_id(entry, plan.reference.get("digest", "")),
    )


def build_id(build: Mapping[str, str]) -> str:
    """A text that is the same wherever the same build is installed, ``paddle 3.3.1 @abcdef #0123456789ab``.

    The last part is the build's digest, if it has one. The text is empty if the version is not known.
    """
    if not build.get("version"):
        return ""
    named = [build.get("framework", ""), build["version"], f"@{build.get('commit', '').lower()}"]
    return " ".join([*named, *([f"#{build['digest'][:12]}"] if build.get("digest") else [])])


def _recorded_build_id(entry: RecordedEntry, reference_digest: str) -> str:
    """The ``build_id`` of the entry's build, to be compared with the reference build's.

    Two builds are compared by their digests if both have one, else by version and commit.
    """
    there = {name: entry.environment.get(f"framework_{name}", "") for name in ("version", "commit", "digest")}
    digest = there["digest"] if there["digest"] and reference_digest else reference_digest
    return build_id({"framework": entry.environment.get("framework", ""), **there, "digest": digest})


def build_label(build: Mapping[str, str]) -> str:
    """A build's record in words: ``paddle 3.3.1 @abcdef (paddlepaddle==3.3.1)`` as it was named, or ``paddle 3.3.1
    @abcdef in envs/good`` with the last two parts of its path."""
    known = _version(build.get("framework", ""), build.get("version", ""), build.get("commit", ""))
    if source := build.get("source"):
        return f"{known} ({source})"
    path = PurePath(build.get("interpreter", ""))
    folder = path.parent.parent if path.parent.name == "bin" and path.name.startswith("python") else path
    return f"{known} in {'/'.join(folder.parts[-2:])}"


def _version(framework: str, version: str, commit: str) -> str:
    return " ".join([framework, version, *([f"@{commit[:12]}"] if commit else [])])
