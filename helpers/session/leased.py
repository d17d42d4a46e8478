"""Everything a case holds while it runs: its cards' leases here, its other nodes, and the runner on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from helpers.history.run_folders import ResultStore
from helpers.launch.nodes.connected import CaseNeeds, connect_nodes
from helpers.launch.tail import Progress
from helpers.machine.devices import Machine
from helpers.machine.leases import Leases, default_folder
from helpers.plan.case_plan import CasePlan
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.perf_yaml import Config
from helpers.session.run_job import JobRunner


@dataclass(frozen=True)
class RunTerms:
    """What the session grants a case: ``data`` None for synthetic batches, ``system`` the environment tables."""

    allow_contention: bool = False
    share_machine: bool = False
    data: DatasetFacts | None = None
    system: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@contextmanager
def leased_runner(
    plan: CasePlan,
    machine: Machine,
    store: ResultStore,
    config: Config,
    terms: RunTerms,
    on_progress: Callable[[Progress], None] | None,
) -> Iterator[JobRunner]:
    """A runner on cards that are this case's alone, on every node; released at the end whatever happens.

    Blocks until the cards are free and says so through ``on_progress``. Raises SuiteError where a node
    cannot be had.
    """

    def tell(obstacle: str) -> None:
        if on_progress is not None:
            on_progress(Progress(plan.case.id, 0, f"waiting: {obstacle}", 0, 0, None, None))

    target, exclusive = plan.suite_case.target, not terms.share_machine
    with (
        connect_nodes(plan.case, config.nodes, plan.build["interpreter"]) as connected,
        Leases(default_folder(machine.host_id)).lease(
            machine.cards_of(target),
            plan.case.cards_per_node * connected.nodes_here,
            plan.case.id,
            exclusive_machine=exclusive,
            on_wait=tell,
        ) as lease,
    ):
        patience = 2 * config.limits.start_up_seconds
        needs = CaseNeeds(plan.case, target, plan.build, machine, terms.data, exclusive, patience)
        yield JobRunner(
            machine=machine,
            cards=connected.prepare(needs, lease.cards, tell),
            store=store,
            config=config,
            data=terms.data,
            allow_contention=terms.allow_contention,
            machine_shared=terms.share_machine,
            on_progress=on_progress,
            connected=connected,
            system=terms.system,
        )
