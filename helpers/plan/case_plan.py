"""The plan of a case: what will be run, by which protocol, and what it will be held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from helpers.judging.evidence import Budget, PublishedReference, RecordedReference
from helpers.judging.rules import WALL_CLOCK
from helpers.machine.environment import CPU as CPU
from helpers.machine.environment import GPU, differences
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.overrides import segment_of
from helpers.plan.perf_yaml import Config, MeasuringProtocol
from helpers.plan.published import PublishedFigure
from helpers.plan.recorded import LEAST_RUNS, RecordedEntry
from helpers.trainers.contract.case import Case, DataSource, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import spec_of


@dataclass(frozen=True)
class SuiteCase:
    """One case on one target (``cpu``, ``v100``, ``a100``, ``gpu``: any card): what pytest collects.

    ``short`` marks the selection that runs without a marker; ``figures`` are the published ones. ``models`` are the
    card models that have this case of their own, of a case for any card.
    """

    case: Case
    target: str
    protocol: MeasuringProtocol
    short: bool = False
    figures: tuple[PublishedFigure, ...] = ()
    models: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.target, self.case.id

    @property
    def device(self) -> str:
        return CPU if self.target == CPU else GPU

    @property
    def markers(self) -> tuple[str, ...]:
        """Marker names for ``-m``."""
        names = [self.target, spec_of(self.case.model).marker]
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
    """A case ready to run on this machine: settings, and what it will be held against.

    ``build`` names the framework under test. ``recorded`` is this machine's entry, ``tolerance`` the smallest
    change against it that counts where the entry has none of its own, ``band`` the drop below it that fails the case
    where no good build is at hand, ``data`` names the images, ``environment`` is what of a run's environment is
    known before it.
    ``reference`` is the good build's record (empty without one, ``why_no_reference`` then says why this case has
    none), ``budget`` how many runs the case may take, ``to_record`` whether its figure may become the recorded one,
    ``recorded_required`` whether it passes only with a recorded figure (Evidence).
    """

    suite_case: SuiteCase
    build: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    published: tuple[PublishedReference, ...] = ()
    recorded: RecordedEntry | None = None
    tolerance: float = 0.005
    band: float = 0.05
    data: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    rule: str = WALL_CLOCK
    reference: Mapping[str, str] = field(default_factory=dict)
    why_no_reference: str = ""
    budget: Budget = field(default_factory=Budget)
    to_record: bool = False
    recorded_required: bool | None = None

    @property
    def case(self) -> Case:
        return self.suite_case.case

    @property
    def planned_runs(self) -> int:
        """The runs that are made whatever they say: one screens a case that has a recorded entry, all
        that its protocol plans where something else rests on them: published figures, a first or a new entry (which
        rests on LEAST_RUNS at least), settings that were changed."""
        if self.to_record:
            return max(self.protocol.runs, LEAST_RUNS)
        one_will_do = self.recorded is not None and not (self.published or self.overrides)
        return 1 if one_will_do else self.protocol.runs

    @property
    def reference_label(self) -> str | None:
        """What the reference build is called: ``paddle 3.3.1 @abcdef in envs/good``, with how it differs from what
        the recorded entry was measured with; None without one."""
        if not self.reference:
            return None
        label = build_label(self.reference)
        if self.recorded is None:
            return label
        then = {name: self.recorded.environment.get(f"framework_{name}", "") for name in ("version", "commit")}
        if all(then[name] in ("", self.reference.get(name, "")) for name in then):
            return label
        told = _version(self.recorded.environment.get("framework", ""), then["version"], then["commit"])
        return f"{label}, not the recorded entry's {told}"

    @property
    def reference_id(self) -> str:
        """The good build's framework, version, commit and, where it has one, digest; empty without a good build."""
        return build_id(self.reference)

    @property
    def protocol(self) -> MeasuringProtocol:
        return self.suite_case.protocol


def matrix(config: Config, published: Mapping[str, Iterable[PublishedFigure]]) -> tuple[SuiteCase, ...]:
    """Every case: perf.yaml's own, then each published target's in id order. Several figures may share a case.

    Raises ConfigError where perf.yaml lists a case that a published file has for the same target.
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
    return _with_models(own)


def _with_models(cases: Sequence[SuiteCase]) -> tuple[SuiteCase, ...]:
    models: dict[str, tuple[str, ...]] = {}
    for each in cases:
        if each.target not in (CPU, GPU):
            models[each.case.id] = (*models.get(each.case.id, ()), each.target)
    return tuple(replace(each, models=models.get(each.case.id, ())) if each.target == GPU else each for each in cases)


def usual_targets(found: Iterable[str]) -> frozenset[str]:
    """Of the GPU targets whose cards a machine has, those that are measured where none is named: a card model's own
    cases stand for those of any card, which would be twice the work."""
    found = frozenset(found)
    return found - {GPU} or found


def refuse_two_targets(chosen: Iterable[SuiteCase]) -> None:
    """Results and recorded entries are kept by case id, and one id on two kinds of card is two results: ConfigError."""
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
    """A protocol that serves the rules of all figures of one case: the steps of the longest, the most runs of any."""
    protocols = [config.protocol_for_rule(figure.rule) for figure in figures]
    longest = max(protocols, key=lambda each: (each.warmup_steps + each.window_steps, each.runs))
    return replace(longest, runs=max(each.runs for each in protocols))


def published_references(
    figures: Iterable[PublishedFigure], device_name: str, tolerance: float
) -> tuple[PublishedReference, ...]:
    """The figures that were measured on this model of card; all others say nothing about this machine."""
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
    """The job of one run as it would be, on cards 0, 1, …: to show it, or to check its settings or its program."""
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
    """The recorded entry as a reference for runs made in ``environment``, with what their segments differ in."""
    entry = plan.recorded
    if entry is None:
        return None
    tonight = segment_of(environment, plan.settings, plan.case.id) if environment else {}
    # The verdict names the user's changes itself.
    changed = {f"setting {key}" for key in plan.overrides}
    before, after = ({key: each[key] for key in each if key not in changed} for each in (entry.segment, tonight))
    return RecordedReference(
        samples_per_s=entry.samples_per_s,
        rule=entry.rule,
        label=f"recorded {entry.provenance.date[:10]}, {entry.provenance.commit[:12]}",
        tolerance=plan.tolerance if entry.tolerance is None else entry.tolerance,
        gates=entry.status is FigureStatus.GATE,
        differences=(*differences(before, after), *entry.other_protocol(plan.protocol.steps)),
        replicates=entry.replicates,
        band=plan.band,
        build=_recorded_build_id(entry, plan.reference.get("digest", "")),
    )


def build_id(build: Mapping[str, str]) -> str:
    """What is one build wherever it is installed, ``paddle 3.3.1 @abcdef #0123456789ab``, the last its digest where it
    has one; empty where its version is not known."""
    if not build.get("version"):
        return ""
    told = [build.get("framework", ""), build["version"], f"@{build.get('commit', '').lower()}"]
    return " ".join([*told, *([f"#{build['digest'][:12]}"] if build.get("digest") else [])])


def _recorded_build_id(entry: RecordedEntry, good_digest: str) -> str:
    """Of the build that the entry was recorded with, to be held against the good build's: by the digest where both
    have one, else by version and commit alone."""
    there = {name: entry.environment.get(f"framework_{name}", "") for name in ("version", "commit", "digest")}
    digest = there["digest"] if there["digest"] and good_digest else good_digest
    return build_id({"framework": entry.environment.get("framework", ""), **there, "digest": digest})


def build_label(build: Mapping[str, str]) -> str:
    """A build record in words, ``paddle 3.3.1 @abcdef in envs/good``: of its path the environment's last two parts."""
    path = PurePath(build.get("interpreter", ""))
    folder = path.parent.parent if path.parent.name == "bin" and path.name.startswith("python") else path
    known = _version(build.get("framework", ""), build.get("version", ""), build.get("commit", ""))
    return f"{known} in {'/'.join(folder.parts[-2:])}"


def _version(framework: str, version: str, commit: str) -> str:
    return " ".join([framework, version, *([f"@{commit[:12]}"] if commit else [])])
