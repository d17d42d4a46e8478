"""Adds to a measured case's runs how far they were from their cards' limit: after its last run, on the same lease.

The probe comes after the runs, because a probe heats the card, and a verdict must not depend on whether one was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.history import Memory
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.evidence import Build
from helpers.judging.utilisation import UTILISATION_FACT, Peak, Utilisation, peak_precision
from helpers.judging.verdict import Verdict
from helpers.launch.programs import Peaks, Probe
from helpers.machine.devices import Card, CpuCard
from helpers.plan.case_plan import CasePlan
from helpers.session.measure import CaseResult
from helpers.trainers.contract.errors import SuiteError

# A framework's switches for whole programs; a single product does not depend on them, and cases differ in them.
_SWITCHES = "FLAGS_"


@dataclass(frozen=True)
class ShareOfPeak:
    """Measures peaks, or takes known ones, and writes the shares."""

    peaks: Peaks
    store: ResultStore
    # Gets the runs once more, as they then are on disk.
    memory: Memory
    # Called with the case's id before a peak is measured.
    on_probe: Callable[[str], None]

    def into(self, result: CaseResult, cards: Sequence[Card], host_id: str) -> CaseResult:
        """The result with the share in the facts of every usable run of the build under test that lacks it, on disk
        too. Whatever goes wrong is the reason that stands there instead; the verdict is as it was. One of the leased
        ``cards`` speaks for all of them."""
        plan = result.plan
        if not any(_lacks(plan, run) for run in result.runs):
            return result
        found = self._peak(plan, cards, host_id)
        runs = tuple(self._kept(plan, run, result.verdict, _of_run(run, cards[0], found)) for run in result.runs)
        return replace(result, runs=runs)

    def _peak(self, plan: CasePlan, cards: Sequence[Card], host_id: str) -> Peak | str:
        models = sorted({card.name for card in cards})
        if len(models) > 1:
            return f"its cards are of {len(models)} models ({', '.join(models)}), and one of them speaks for all"
        return self.peaks.of(probe_of(plan, cards[0], host_id), lambda: self.on_probe(plan.case.id))

    def _kept(self, plan: CasePlan, run: RunResult, verdict: Verdict, found: Peak | str) -> RunResult:
        if not _lacks(plan, run):
            return run
        with_share = replace(run, facts={**run.facts, **_facts(plan, run, found)})
        try:
            self.store.add_verdict((with_share,), verdict)
            self.memory.add_result(with_share)
        except (SuiteError, OSError) as error:
            why = f"the share of the peak could not be written: {' '.join(str(error).split())}"
            return replace(run, facts={**run.facts, **_facts(plan, run, why)})
        return with_share


def probe_of(plan: CasePlan, card: Card, host_id: str) -> Probe:
    """The product that limits the case, in the build under test, with the variables that its jobs have."""
    variables: Mapping[str, Any] = plan.settings.get("environment", {})
    return Probe(
        build=plan.build,
        precision=peak_precision(plan.case.precision, plan.settings),
        device=plan.suite_case.device,
        card=card,
        host_id=host_id,
        variables={name: str(value) for name, value in variables.items() if not name.startswith(_SWITCHES)},
    )


def _of_run(run: RunResult, card: Card, found: Peak | str) -> Peak | str:
    """A resumed session may have its first runs on another card of the machine."""
    if isinstance(card, CpuCard) or card.id in run.environment.get("card_ids", "").split():
        return found
    return f"this run was on another card than {card.id}, which was at hand to measure the peak of"


def _lacks(plan: CasePlan, run: RunResult) -> bool:
    has_figure = isinstance(run.figures.get(plan.rule), float)
    return run.measured and run.role == Build.CANDIDATE.value and has_figure and UTILISATION_FACT not in run.facts


def _facts(plan: CasePlan, run: RunResult, found: Peak | str) -> dict[str, str]:
    return Utilisation.of(float(run.figures[plan.rule]), plan.rule, plan.case, found).to_facts()
