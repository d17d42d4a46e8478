"""The images that the cases of a session read, and the order in which published cases are measured.

A case reads the user's folder, or the small dataset, or as many images as its comparison with a published figure needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from helpers.machine.devices import Machine
from helpers.machine.leases import Leases, default_folder
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.case_plan import SuiteCase
from helpers.plan.grown_dataset import BYTES_AN_IMAGE, GrownDataset, Say, images_for
from helpers.plan.image_folder import DatasetFacts, ImagesNeeded, images_needed
from helpers.plan.published import PublishedFigure
from helpers.trainers.contract.case import DataSource

# From a run's start to its first step, roughly: it is for the order only.
_START_UP_SECONDS = 60.0


@dataclass(frozen=True)
class CaseImages:
    """Chooses the images of each case."""

    machine: Machine
    # Whether the user named a folder, with --data or in perf.yaml.
    named: bool
    # The user's folder, or the small dataset.
    data: Callable[[], DatasetFacts]
    grown: GrownDataset
    # Told what takes minutes.
    say: Say

    def of(self, suite_case: SuiteCase) -> DatasetFacts | str | None:
        """The images of a case, or why there are too few for its published figure; None if it reads none. Raises
        DatasetError."""
        if suite_case.case.data is DataSource.SYNTHETIC:
            return None
        needed = needed_here(suite_case, self.machine)
        if needed is None or (too_few := needed.why_not(self.data())) is None:
            return self.data()
        if not self._may_make(suite_case):
            return too_few
        no_room = self.grown.why_not(images_for(needed))
        return f"{too_few}; {no_room}" if no_room else self.grown.feeding(needed, self.say)

    def prepare(self, chosen: Iterable[SuiteCase]) -> None:
        """Make what the chosen cases need, before any is measured, on a machine that nobody else measures on. Raises
        DatasetError."""
        counts = {
            images_for(needed): each.target
            for each in chosen
            if self._may_make(each)
            and (needed := needed_here(each, self.machine)) is not None
            and needed.why_not(self.data()) is not None
        }
        # A disk that is too small for the largest may hold the others.
        count = max((each for each in counts if not self.grown.why_not(each)), default=0)
        if not (missing := len(self.grown.missing(count))):
            return
        size = f"{missing * BYTES_AN_IMAGE / 1e9:.1f} GB"
        self.say(f"images: no folder is named (--data): making {missing:,}, {size}, once, in {self.grown.root}")
        with Leases(default_folder(self.machine.host_id)).lease(
            self.machine.cards_of(counts[count]),
            1,
            "making images",
            on_wait=lambda obstacle: self.say(f"images: waiting: {obstacle}"),
        ):
            self.grown.grow(count, self.say)

    def _may_make(self, suite_case: SuiteCase) -> bool:
        # Other nodes make no images.
        return not self.named and suite_case.case.nodes == 1


def needed_here(suite_case: SuiteCase, machine: Machine) -> ImagesNeeded | None:
    """The images that the comparisons with figures of this machine's card need; None if it has no such figure."""
    return images_needed(suite_case.case, (figure.rule for figure in _figures_here(suite_case, machine)))


def published_first(cases: Iterable[SuiteCase], machine: Machine) -> list[SuiteCase]:
    """The cases in the order in which they are measured: first those with a published figure of this machine's card
    that gates, then those with one that is only shown; of both, fewer cards before more, and shorter cases before
    longer ones, so that the first figures come soon. All others keep their order behind them."""

    def place(suite_case: SuiteCase) -> tuple[bool, bool, int, float]:
        figures = _figures_here(suite_case, machine)
        if not figures:
            return True, True, 0, 0.0
        shown_only = all(each.status is not FigureStatus.GATE for each in figures)
        return False, shown_only, suite_case.case.cards, _minutes(suite_case, figures[0])

    return sorted(cases, key=place)


def _minutes(suite_case: SuiteCase, figure: PublishedFigure) -> float:
    case, protocol = suite_case.case, suite_case.protocol
    samples = (protocol.warmup_steps + protocol.window_steps) * case.batch_size_per_card * case.cards
    return protocol.runs * (_START_UP_SECONDS + samples / figure.samples_per_s) / 60


def _figures_here(suite_case: SuiteCase, machine: Machine) -> list[PublishedFigure]:
    cards = machine.cards_of(suite_case.target) if suite_case.figures else ()
    return [each for each in suite_case.figures if cards and each.applies_to(cards[0].name)]
