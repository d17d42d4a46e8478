"""Runs a case: leases its cards and nodes, and takes each run from its job to its result on disk."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.common.inherited import passed_on
from helpers.common.wall_clock import utc_now
from helpers.history.results import (
    CARD_INDEX_FACT,
    CONTENDED,
    IMAGES_FACT,
    MACHINE_SHARED,
    RETRIABLE_FACT,
    SLOWED,
    RunResult,
)
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Build, Stage
from helpers.judging.rules.own import figures, reader_share, samples_per_step, step_seconds, window_seconds
from helpers.launch.failure import KILLED, OOM_KILLED
from helpers.launch.nodes.connected import CaseNeeds, ConnectedNodes, connect_nodes
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.steadiness import why_unsteady
from helpers.launch.supervisor import JobLimits, run_job
from helpers.launch.tail import Progress
from helpers.machine.devices import Card, Machine, environment_of
from helpers.machine.environment import LOADED_FACTS
from helpers.machine.host import OomKills, oom_evidence, read_oom_kills
from helpers.machine.leases import Leases, default_folder
from helpers.machine.near_cores import Cores, cores_of
from helpers.machine.nvml import Gpu, open_nvml
from helpers.machine.watch import norm_of
from helpers.machine.watch.gpu_health import facts_of_nodes
from helpers.machine.watch.meters import meter_for, window_facts
from helpers.plan.case_plan import CasePlan
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.perf_yaml import Config
from helpers.plan.reader_threads import within_share
from helpers.plan.recipes.published_programs import program_facts
from helpers.trainers.contract.job import SLOWDOWN_FACT, SLOWDOWN_VARIABLE, JobSpec
from helpers.trainers.contract.steplog import StepLog


@dataclass(frozen=True)
class RunTerms:
    """What the session grants a case."""

    allow_contention: bool = False
    share_machine: bool = False
    # None for synthetic batches.
    data: DatasetFacts | None = None
    # The session's environment tables.
    system: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # The steps that each run trains under the framework's profiler after its window, operator by operator.
    explained_steps: int = 0
    # What that profiler does not record.
    explained_without: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobRunner:
    """Implements measure.Runner on leased cards. Raises SuiteError if a result cannot be written."""

    machine: Machine
    # The leased cards of this node.
    cards: Sequence[Card]
    store: ResultStore
    config: Config
    terms: RunTerms = field(default_factory=RunTerms)
    on_progress: Callable[[Progress], None] | None = None
    # The other nodes, ready to run.
    connected: ConnectedNodes = field(default_factory=ConnectedNodes)
    # Reads how many processes the kernel has killed because memory ran out.
    oom_kills: Callable[[], OomKills] = read_oom_kills

    def run(
        self, plan: CasePlan, replicate: int, build: Build = Build.CANDIDATE, stage: Stage = Stage.SCREEN
    ) -> RunResult:
        folder = self.store.new_run_folder(plan.case.id, replicate)
        cores = self._cores()
        spec = self._spec(plan, replicate, str(folder.resolve()), cores)
        given = self.config.limits
        limits = JobLimits(
            given.start_up_seconds, given.no_progress_seconds, given.run_seconds, given.stop_grace_seconds
        )
        record = plan.build if build is Build.CANDIDATE else plan.reference
        recorded = plan.recorded.environment if plan.recorded else None
        command, others = self.connected.start_of(
            spec, record["interpreter"], limits.grace_seconds, recorded, to_record=plan.to_record
        )
        norm = norm_of(recorded, self.cards, plan.to_record)
        meter = meter_for(self.cards, open_nvml, norm, cores=spec.cores, cards_per_process=spec.cards_per_process)
        kills = self.oom_kills()
        outcome = run_job(spec, command, limits, meter, on_progress=self.on_progress, others=others)
        outcome = self._named(outcome, spec.ranks_per_node, kills)
        result = self._result(plan, spec, outcome, record)
        watched = facts_of_nodes([window_facts(meter, outcome.logs, spec.ranks_per_node), *others.facts()])
        facts = {**result.facts, **_core_facts(cores), **watched}
        result = replace(result, facts=facts, role=build.value, stage=stage.value)
        self.store.write(result)
        return result

    def _cores(self) -> Cores:
        alone = not self.terms.share_machine and self.connected.nodes_here == 1
        return cores_of(self.cards, open_nvml, alone=alone)

    def _spec(self, plan: CasePlan, replicate: int, folder: str, cores: Cores) -> JobSpec:
        return JobSpec(
            job_id=uuid.uuid4().hex,
            case=plan.case,
            replicate=replicate,
            run_folder=folder,
            device=plan.suite_case.device,
            **plan.protocol.steps,
            explained_steps=self.terms.explained_steps,
            explained_without=self.terms.explained_without,
            data_root=str(self.terms.data.root) if self.terms.data else None,
            settings=within_share(plan, min(map(len, cores.each)), self.config),
            overrides=plan.overrides,
            environment=_own_variables(plan.settings),
            cores=cores.each,
            cards=tuple(card.uuid for card in self.cards if isinstance(card, Gpu)),
        )

    def _named(self, outcome: JobOutcome, ranks_here: int, before: OomKills) -> JobOutcome:
        """The outcome. What failed comes before the reason, and what the kernel says about a SIGKILL after it."""
        failure, reason = outcome.failure, outcome.reason
        if failure is None:
            return outcome
        evidence = outcome.oom_evidence
        if evidence is None and (outcome.guilty_rank or 0) < ranks_here:
            evidence = oom_evidence(before, self.oom_kills())
        if failure is KILLED and "SIGKILL" in reason and evidence is not None:
            by_kernel, text = evidence
            failure, reason = OOM_KILLED if by_kernel else failure, f"{reason}; {text}"
        return replace(outcome, failure=failure, reason=f"{failure.what}: {reason}")

    def _disturbances(self, outcome: JobOutcome) -> tuple[tuple[str, ...], str | None]:
        """Marks for the reader, and why the run must not be used (docs/reference.md, "Contention")."""
        marks = [MACHINE_SHARED] if self.terms.share_machine else []
        if outcome.unhealthy:
            return tuple(marks), "device unhealthy: " + "; ".join(outcome.unhealthy)
        if outcome.contention.is_quiet(self.config.contention.max_foreign_share):
            return tuple(marks), None
        if self.terms.allow_contention:
            return (*marks, CONTENDED), None
        limit = self.config.contention.max_foreign_share
        who = f"{CONTENDED}: {outcome.contention.describe()}"
        return tuple(marks), f"{who}; at most {limit:.0%} is accepted (--allow-contention measures anyway)"

    def _result(self, plan: CasePlan, spec: JobSpec, outcome: JobOutcome, build: Mapping[str, str]) -> RunResult:
        logs = outcome.logs
        header = logs[0].header if logs else None
        complete = outcome.kind is OutcomeKind.COMPLETE
        marks, invalid = self._disturbances(outcome) if complete else ((), None)
        slowed = None
        if any(SLOWDOWN_FACT in log.header.facts for log in logs):
            marks = (*marks, SLOWED)
            # This is allowed where contention is, so never in a gate.
            if not self.terms.allow_contention:
                slowed = f"{SLOWED}: unset {SLOWDOWN_VARIABLE} (--allow-contention measures anyway)"
        unsteady = why_unsteady(spec, logs) if complete else None
        invalid = "; ".join(filter(None, (invalid, slowed, unsteady))) or None
        return RunResult(
            uuid=spec.job_id,
            session=self.store.session,
            case_id=plan.case.id,
            target=plan.suite_case.target,
            replicate=spec.replicate,
            created=utc_now().isoformat(timespec="seconds"),
            build=build,
            settings=plan.settings,
            overrides=plan.overrides,
            protocol=plan.protocol.steps,
            environment=self.connected.environment(
                environment_of(
                    self.machine,
                    self.cards,
                    framework=plan.case.framework.value,
                    framework_version=header.framework_version if header else build.get("version", ""),
                    framework_commit=header.framework_commit if header else build.get("commit", ""),
                    data=plan.data,
                    variables=inherited_variables(plan.settings),
                    facts={**header.facts, **_loaded_by_any(logs)} if header else None,
                )
            ).to_mapping(),
            facts={
                **(header.facts if header else {}),
                **(program_facts(plan.case, plan.suite_case.device, header.facts) if header else {}),
                CARD_INDEX_FACT: " ".join(str(card.index) for card in self.cards),
                **self.connected.facts(),
                **({IMAGES_FACT: remark} if self.terms.data and (remark := self.terms.data.remark()) else {}),
                **({"warmup_steps": str(len(logs[0].warmup))} if complete else {}),
                **({RETRIABLE_FACT: "yes" if outcome.failure.retriable else "no"} if outcome.failure else {}),
            },
            system=self.terms.system,
            wall_seconds=outcome.wall_seconds,
            start_up_seconds=outcome.start_up_seconds or 0.0,
            foreign_share=outcome.contention.foreign_share,
            contention=outcome.contention.describe() if complete else "",
            peak_host_bytes=sum(log.footer.peak_host_bytes for log in logs),
            peak_device_bytes=max((log.footer.peak_device_bytes for log in logs), default=0),
            marks=marks,
            failure=None if complete or outcome.kind is OutcomeKind.REFUSED else outcome.reason,
            invalid=invalid,
            refusal=outcome.reason if outcome.kind is OutcomeKind.REFUSED else None,
            log_tail=outcome.log_tail,
            **(_measured(logs) if complete else {}),
        )


def _measured(logs: Sequence[StepLog]) -> dict[str, Any]:
    """The fields of a result that only a complete job has."""
    return {
        "figures": figures(logs),
        "step_seconds": step_seconds(logs),
        "samples_per_step": samples_per_step(logs),
        "losses": tuple(step.loss for step in logs[0].window if step.loss is not None),
        "training_seconds": max(log.steps[-1].end - log.steps[0].start for log in logs),
        "window_seconds": window_seconds(logs),
        "reader_share": reader_share(logs),
    }


def _core_facts(cores: Cores) -> dict[str, str]:
    """The cores of each GPU's process on this node, in the cards' order, and how they were chosen."""
    each = " ".join(",".join(map(str, own)) for own in cores.each)
    return {"card_cores": each, "card_cores_chosen": cores.how} if cores.how else {}


def _loaded_by_any(logs: Sequence[StepLog]) -> dict[str, str]:
    """The libraries of all ranks, each version once. A run with another version on one node is in another segment."""
    facts = [log.header.facts for log in logs]
    loaded = {name: {each[name] for each in facts if each.get(name)} for name in LOADED_FACTS}
    return {name: " / ".join(sorted(versions)) for name, versions in loaded.items() if versions}


def inherited_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    """The caller's variables that reach the trainer: the case's own settings replace theirs."""
    own = _own_variables(settings)
    return {name: value for name, value in passed_on().items() if name not in own}


def _own_variables(settings: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in settings.get("environment", {}).items()}


@contextmanager
def leased_runner(
    plan: CasePlan,
    machine: Machine,
    store: ResultStore,
    config: Config,
    terms: RunTerms,
    on_progress: Callable[[Progress], None] | None,
) -> Iterator[JobRunner]:
    """A runner on cards, on every node, that no other case has. The cards are released at the end, whatever happens.

    It waits until the cards are free, and reports that by ``on_progress``. Raises SuiteError if a node cannot be
    reached or used.
    """

    def tell(obstacle: str) -> None:
        if on_progress is not None:
            on_progress(Progress(plan.case.id, 0, f"waiting: {obstacle}", 0, 0, None, None))

    target, exclusive = plan.suite_case.target, not terms.share_machine
    with (
        connect_nodes(plan.case, config.nodes) as connected,
        Leases(default_folder(machine.host_id)).lease(
            machine.cards_of(target),
            plan.case.cards_per_node * connected.nodes_here,
            plan.case.id,
            exclusive_machine=exclusive,
            on_wait=tell,
        ) as cards,
    ):
        patience = 2 * config.limits.start_up_seconds
        needs = CaseNeeds(plan.case, target, plan.build, machine, terms.data, exclusive, patience)
        yield JobRunner(
            machine=machine,
            cards=connected.prepare(needs, cards, tell),
            store=store,
            config=config,
            terms=terms,
            on_progress=on_progress,
            connected=connected,
        )
