"""The published figures are the documents' figures: every row, every column."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from helpers.plan.baseline_files import PUBLISHED
from helpers.plan.published import TITLES, PublishedFigure, PublishedSet, load_published
from helpers.trainers.contract.case import Execution
from helpers.trainers.contract.frameworks import Framework

TRANSCRIPTION = Path(__file__).with_name("throughput.csv")
GIVEN = Path(__file__).resolve().parents[3] / "shared" / "published" / "throughput.csv"

WHY_AUTO_IS_NOT_JUDGED = (
    "shown, not judged: nobody knows what the switch of 2020 chose; on one card today's needs the start-up of NCCL, "
    "and Paddle 2.6.2 refuses 16 and 32 cards"
)


@pytest.fixture(scope="module")
def sets() -> dict[str, PublishedSet]:
    return {target: load_published(PUBLISHED / f"{target}.json") for target in ("v100", "a100")}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with TRANSCRIPTION.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def columns(figure: PublishedFigure) -> dict[str, str]:
    """A figure as a row of the transcription, which knows XLA only for TensorFlow."""
    case = figure.case
    xla = ("yes" if case.xla else "no") if case.framework is Framework.TENSORFLOW else ""
    assert xla or not case.xla
    return {
        "source": figure.source,
        "table": figure.table,
        "framework": case.framework.value,
        "framework_version": figure.framework_version,
        "model": case.model.value,
        "precision": case.precision.value,
        "precision_printed": figure.precision_printed,
        "strategy": figure.strategy or "",
        "batch_size_per_card": str(case.batch_size_per_card),
        "cards": str(case.cards),
        "nodes": str(case.nodes),
        "gpu": figure.gpu,
        "data": case.data.value,
        "xla": xla,
        "rule": figure.rule,
        "images_per_s": f"{figure.samples_per_s:.10g}",
        "status": figure.status.value,
        "note": figure.note,
    }


def test_every_value_of_every_column_of_the_110_figures_is_there(
    sets: dict[str, PublishedSet], rows: list[dict[str, str]]
) -> None:
    figures = [columns(figure) for published in sets.values() for figure in published.figures]

    assert len(rows) == len(figures) == 110
    assert list(rows[0]) == list(figures[0])
    for row in rows:
        if row["strategy"] == "auto":
            # The suite's own decision, which the transcription does not know.
            row.update(status="reference", note=f"{row['note']}; {WHY_AUTO_IS_NOT_JUDGED}")
    assert sorted(tuple(figure.items()) for figure in figures) == sorted(tuple(row.items()) for row in rows)


@pytest.mark.skipif(not GIVEN.exists(), reason="the given figures do not lie beside this clone")
def test_the_transcription_is_the_given_file_byte_for_byte() -> None:
    assert TRANSCRIPTION.read_bytes() == GIVEN.read_bytes()


def test_paddle_cases_run_static_and_the_other_frameworks_name_no_execution(sets: dict[str, PublishedSet]) -> None:
    cases = [case for published in sets.values() for case in published.cases()]

    assert {case.execution for case in cases if case.framework is Framework.PADDLE} == {Execution.STATIC}
    assert {case.execution for case in cases if case.framework is not Framework.PADDLE} == {None}


def test_cases_come_once_each_and_in_id_order(sets: dict[str, PublishedSet]) -> None:
    for published in sets.values():
        ids = [case.id for case in published.cases()]

        assert ids == sorted(set(ids))
        assert set(ids) == {figure.case.id for figure in published.figures}


def test_every_environment_belongs_to_a_figure_and_every_document_has_a_title(sets: dict[str, PublishedSet]) -> None:
    assert {figure.source for published in sets.values() for figure in published.figures} == set(TITLES)
    for published in sets.values():
        assert {figure.environment for figure in published.figures} == set(published.environments)
        for figure in published.figures:
            assert published.environments[figure.environment].document == figure.source
