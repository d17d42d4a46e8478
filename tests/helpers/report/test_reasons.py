"""Every finding has its sentence, made of the figures that judging gives it."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.judging.case.evidence import Budget
from helpers.judging.case.verdict import Reason
from helpers.judging.finding import Code, found
from helpers.report import reasons
from helpers.report.reasons import claim_text, finding_text, reason_text
from tests.helpers.judging.case import evidences
from tests.helpers.judging.case.evidences import CENTRE, GOOD, pairs, run


def verdicts() -> Iterator[Reason]:
    yield evidences.verdict(run()).reason
    yield evidences.verdict(run(CENTRE - 0.03)).reason
    yield evidences.verdict(run(CENTRE - 0.03), *pairs(*[-0.03] * 4), reference_build=GOOD).reason
    yield evidences.verdict(run(CENTRE + 0.04), *pairs(*[0.04] * 4), reference_build=GOOD).reason
    yield evidences.verdict(*[run(CENTRE - 0.2)] * 5, past=()).reason
    yield evidences.verdict(run(), recorded=None).reason
    yield evidences.verdict(*[run(invalid="contended")] * 3, budget=Budget(repeats=2)).reason
    yield evidences.verdict(run(), *pairs(0.0, 0.0), recorded=None, reference_build=GOOD, budget=Budget(pairs=2)).reason


def test_every_code_has_a_sentence() -> None:
    assert set(reasons._TEXTS) == set(Code)


def test_the_figures_that_judging_gives_are_those_that_the_sentences_need() -> None:
    texts = [reason_text(each) for each in verdicts()]
    assert all(texts) and not any("{" in text for text in texts)


def test_details_follow_the_claim_after_a_colon() -> None:
    found_here = found(Code.UNCONFIRMED_DROP, found(Code.GAIN_EVIDENCE, evidence=3e7), found(Code.ONLY_SHOWN))
    assert claim_text(found_here) == "unconfirmed drop"
    assert finding_text(found_here).startswith("unconfirmed drop: evidence 3e+07 of a gain; not confirmed")


def test_words_from_elsewhere_come_first() -> None:
    assert reason_text(Reason("x", "no card is free", (found(Code.PLANNED, runs=2),))) == "no card is free; 2 planned"
