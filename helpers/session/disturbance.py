"""Whether a session is worth its time just now: asked once, before its first case is trained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from helpers.history.run_folders import ResultStore
from helpers.machine.devices import Machine
from helpers.plan.case_plan import SuiteCase
from helpers.plan.perf_yaml import Config
from helpers.session.gate import Gate
from helpers.session.suite_options import SuiteOptions
from helpers.trainers.contract.errors import SuiteError

if TYPE_CHECKING:
    # At run time the doctor is loaded where it is asked.
    from helpers.session.examination import ExaminationIO


def disturbance_of(
    runnable: Iterable[SuiteCase],
    options: SuiteOptions,
    config: Config,
    machine: Machine,
    gate: Gate,
    store: ResultStore,
    io: ExaminationIO | None = None,
) -> str:
    """Why every run would be INVALID, as others use the machine, and how to go on; empty where nobody does.

    Takes about a second, 3 s where it says something, as it looks twice. Not asked of cases that may be disturbed
    (``--allow-contention``, unless a gate judges them) and of those that are finished (``--resume``).
    """
    asked = [
        each for each in runnable if not _may_be_disturbed(each, options, gate) and not _done(each, options, store)
    ]
    if not asked:
        return ""
    # Not at the top: who only lists cases asks nobody.
    from helpers.session.quick_look import QuickLook

    needs: dict[str, int] = {}
    for each in asked:
        needs[each.device] = min(each.case.cards_per_node, needs.get(each.device, each.case.cards_per_node))
    limit = config.contention.max_foreign_share
    look = QuickLook(machine, limit) if io is None else QuickLook(machine, limit, io)
    if not (found := look.disturbance(needs)):
        return ""
    remedy = "measure anyway with --allow-contention, which marks the figures and keeps them out of baselines"
    if any(map(gate.judges, asked)):
        remedy = "leave out --gate: a gate judges no disturbed run, whatever is allowed"
    return (
        f"The machine is busy, nothing was measured: {found}. A run of which others take more than {limit:.0%} is "
        f"INVALID. End them or wait (perfgate doctor looks again), or {remedy}"
    )


def _may_be_disturbed(suite_case: SuiteCase, options: SuiteOptions, gate: Gate) -> bool:
    return options.allow_contention and not gate.judges(suite_case)


def _done(suite_case: SuiteCase, options: SuiteOptions, store: ResultStore) -> bool:
    if not options.resume:
        return False
    try:
        runs = store.results(suite_case.case.id)
    except SuiteError:
        return False
    return bool(runs) and runs[-1].verdict is not None
