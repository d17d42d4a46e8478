"""What is proposed for the entry of each case that a session measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.plan.proposals import (
    AgainstEntry,
    Candidate,
    ProposalKind,
    parse_accepted,
    refuse_unmatched_reasons,
    write_recorded,
)
from helpers.plan.recorded import load_recorded
from helpers.trainers.contract.errors import BaselineError
from tests.helpers.plan.recorded_entries import KNOWN, MACHINE, A, B, created, entry, proposed, recorded


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (AgainstEntry.NO_WORSE, ProposalKind.UNCHANGED),
        (AgainstEntry.FASTER, ProposalKind.UPDATED),
        (AgainstEntry.SLOWER, ProposalKind.REFUSED),
        (AgainstEntry.SLOWER_UNCONFIRMED, ProposalKind.REFUSED),
        (AgainstEntry.UNSETTLED, ProposalKind.REFUSED),
        (AgainstEntry.INCOMPARABLE, ProposalKind.REFUSED),
    ],
)
@pytest.mark.parametrize("samples_per_s", [100.0, 200.0])
def test_the_verdict_decides_and_not_the_figure(answer: AgainstEntry, kind: ProposalKind, samples_per_s: float) -> None:
    (proposal,) = proposed(recorded(entry(100.0)), Candidate(entry(samples_per_s), answer=answer))

    assert proposal.kind is kind
    assert proposal.change == pytest.approx(samples_per_s / 100 - 1)


def test_an_answer_by_pairs_needs_no_entry() -> None:
    beside = "+1.00% against paddle 3.3.1 beside it, 3 pairs"
    for answer in (AgainstEntry.NO_WORSE, AgainstEntry.FASTER):
        (proposal,) = proposed(recorded(), Candidate(entry(), answer=answer, beside=beside))
        assert (proposal.kind, proposal.reason) == (ProposalKind.CREATED, f"none recorded before; {beside}")
    for answer in (AgainstEntry.SLOWER, AgainstEntry.UNSETTLED):
        (proposal,) = proposed(recorded(), Candidate(entry(), answer=answer, beside=beside))
        assert (proposal.kind, proposal.reason.partition(";")[0]) == (ProposalKind.REFUSED, answer.value)


@pytest.mark.parametrize("answer", [answer for answer in AgainstEntry if answer is not AgainstEntry.NOTHING_RECORDED])
def test_an_answer_about_an_entry_that_is_gone_is_refused(answer: AgainstEntry) -> None:
    (proposal,) = proposed(recorded(), Candidate(entry(), answer=answer), accepted=KNOWN)

    assert proposal.kind is ProposalKind.REFUSED
    assert "another process deleted the entry" in proposal.reason


def test_a_case_judged_without_an_entry_does_not_replace_one() -> None:
    (proposal,) = proposed(recorded(entry(150.0)), Candidate(entry()), accepted=KNOWN)

    assert proposal.kind is ProposalKind.REFUSED
    assert "another process recorded 150.00 images/s" in proposal.reason


@pytest.mark.parametrize("answer", [AgainstEntry.SLOWER, AgainstEntry.SLOWER_UNCONFIRMED, AgainstEntry.UNSETTLED])
def test_an_accepted_level_is_recorded_with_its_reason(answer: AgainstEntry) -> None:
    slower = Candidate(entry(80.0), answer=answer)
    (proposal,) = proposed(recorded(entry(100.0)), slower, accepted=parse_accepted([f"{A} = safer kernels "]))

    assert proposal.kind is ProposalKind.UPDATED
    assert proposal.new is not None
    assert proposal.new.provenance.reason == "accepted regression: safer kernels"
    assert proposal.new.samples_per_s == 80.0


@pytest.mark.parametrize(
    "text", ["", " ", "safer kernels", f"{A}=", f"{A}= ", "= safer kernels", "=", "*=all", "**= x"]
)
def test_a_reason_names_its_case(text: str) -> None:
    with pytest.raises(BaselineError, match="--accept-regression") as caught:
        parse_accepted([text])
    assert '"paddle-vgg16-*-1x8-*=' in str(caught.value)


def test_a_reason_for_no_selected_case_is_an_error() -> None:
    refuse_unmatched_reasons(parse_accepted([f"{A}=x"]), [A, B])
    with pytest.raises(BaselineError, match="paddle-vgg19"):
        refuse_unmatched_reasons(parse_accepted(["paddle-vgg16-*=x", "paddle-vgg19-*=x"]), [A, B])


def test_accepting_a_regression_does_not_admit_an_unhealthy_run() -> None:
    throttled = Candidate(entry(80.0), "the card was throttled", answer=AgainstEntry.SLOWER)
    (proposal,) = proposed(recorded(entry(100.0)), throttled, accepted=KNOWN)

    assert (proposal.kind, proposal.reason) == (ProposalKind.REFUSED, "the card was throttled")


def test_accepting_a_regression_does_not_admit_what_cannot_be_compared() -> None:
    incomparable = Candidate(entry(80.0), answer=AgainstEntry.INCOMPARABLE, why="settings changed")
    (proposal,) = proposed(recorded(entry()), incomparable, accepted=KNOWN)

    assert (proposal.kind, proposal.reason) == (ProposalKind.REFUSED, "not comparable: settings changed")


@pytest.mark.parametrize(("own", "kept"), [(None, 0.2), (0.5, 0.5)])
def test_an_entrys_own_tolerance_outlives_the_figure(own: float | None, kept: float) -> None:
    old = recorded(replace(entry(100.0), tolerance=0.2))
    (proposal,) = proposed(old, Candidate(replace(entry(130.0), tolerance=own), answer=AgainstEntry.FASTER))

    assert proposal.new is not None
    assert (proposal.kind, proposal.new.tolerance) == (ProposalKind.UPDATED, kept)


@pytest.mark.parametrize(
    ("samples_per_s", "kind"),
    [(99.6, ProposalKind.UPDATED), (99.4, ProposalKind.REFUSED), (98.9, ProposalKind.REFUSED)],
)
def test_in_a_new_segment_a_figure_lower_by_more_than_the_tolerance_needs_a_reason(
    samples_per_s: float, kind: ProposalKind
) -> None:
    new = replace(entry(samples_per_s), segment={"driver": "535", "cuda": "11.2"})
    (proposal,) = proposed(recorded(entry(100.0)), Candidate(new, answer=AgainstEntry.INCOMPARABLE, tolerance=0.005))

    assert proposal.kind is kind


@pytest.mark.parametrize(
    ("own", "kind"), [(0.0, ProposalKind.REFUSED), (0.02, ProposalKind.UPDATED), (None, ProposalKind.REFUSED)]
)
def test_an_entrys_own_tolerance_decides_how_much_lower_a_figure_may_be(own: float | None, kind: ProposalKind) -> None:
    old = recorded(replace(entry(100.0), tolerance=own))
    new = replace(entry(99.0), segment={"driver": "535", "cuda": "11.2"})
    (proposal,) = proposed(old, Candidate(new, answer=AgainstEntry.INCOMPARABLE, tolerance=0.005))

    assert proposal.kind is kind


def test_a_new_segment_replaces_the_entry_and_says_what_differs() -> None:
    new = replace(entry(150.0), segment={"driver": "535", "power_cap": "300 W"})
    (proposal,) = proposed(recorded(entry(100.0)), Candidate(new, answer=AgainstEntry.INCOMPARABLE))

    assert proposal.kind is ProposalKind.UPDATED
    assert proposal.reason == (
        "new segment: cuda '11.2' → unstated, driver '525' → '535', power_cap unstated → '300 W'"
    )


def test_a_measured_case_without_a_candidate_is_refused() -> None:
    (proposal,) = proposed(recorded(entry()), measured=[A])

    assert (proposal.kind, proposal.old) == (ProposalKind.REFUSED, entry())


def test_a_candidate_that_was_not_measured_is_refused() -> None:
    assert proposed(recorded(), Candidate(entry()), measured=[])[0].kind is ProposalKind.REFUSED


def test_entries_of_cases_that_no_longer_exist_are_reported_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, MACHINE, created(entry(case_id=A), entry(case_id=B)))

    proposals = proposed(load_recorded(path, MACHINE), Candidate(entry(200.0), answer=AgainstEntry.FASTER), known=[A])
    write_recorded(path, MACHINE, proposals)

    assert {proposal.case_id: proposal.kind for proposal in proposals} == {
        A: ProposalKind.UPDATED,
        B: ProposalKind.UNUSED,
    }
    assert set(load_recorded(path, MACHINE).entries) == {A, B}
