"""The published figures are the documents' figures: every row, every column."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from helpers.plan.baseline_files import PUBLISHED, FigureStatus
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


def figures_of(published: PublishedSet, case_id: str) -> list[PublishedFigure]:
    return [figure for figure in published.figures if figure.case.id == case_id]


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


def test_each_target_holds_the_rows_of_its_own_cards(sets: dict[str, PublishedSet], rows: list[dict[str, str]]) -> None:
    for target, published in sets.items():
        expected = Counter(row["gpu"] for row in rows if row["gpu"].lower().startswith(target))

        assert published.target == target
        assert Counter(figure.gpu for figure in published.figures) == expected
        assert {figure.target for figure in published.figures} == {target}
    assert (len(sets["v100"].figures), len(sets["a100"].figures)) == (96, 14)


@pytest.mark.parametrize("target", ["v100", "a100"])
def test_the_numbers_stand_in_the_file_with_the_digits_that_were_transcribed(
    target: str, rows: list[dict[str, str]]
) -> None:
    text = (PUBLISHED / f"{target}.json").read_text(encoding="utf-8")
    written = [figure["images_per_s"] for figure in json.loads(text, parse_float=str, parse_int=str)["figures"]]

    expected = [row["images_per_s"] for row in rows if row["gpu"].lower().startswith(target)]
    assert sorted(written) == sorted(expected)


@pytest.mark.skipif(not GIVEN.exists(), reason="the given figures do not lie beside this clone")
def test_the_transcription_is_the_given_file_byte_for_byte() -> None:
    assert TRANSCRIPTION.read_bytes() == GIVEN.read_bytes()


def test_paddle_cases_run_static_and_the_other_frameworks_name_no_execution(sets: dict[str, PublishedSet]) -> None:
    cases = [case for published in sets.values() for case in published.cases()]

    assert {case.execution for case in cases if case.framework is Framework.PADDLE} == {Execution.STATIC}
    assert {case.execution for case in cases if case.framework is not Framework.PADDLE} == {None}


def test_known_figures_are_found_by_their_case_id(sets: dict[str, PublishedSet]) -> None:
    (resnet,) = figures_of(sets["v100"], "paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static")
    assert (resnet.samples_per_s, resnet.status) == (39972.131, FigureStatus.GATE)

    (disputed,) = figures_of(sets["a100"], "paddle-resnet50v1.5-tf32-bs256-1x8-native-static")
    assert (disputed.samples_per_s, disputed.status) == (5333.558, FigureStatus.DISPUTED)

    (auto,) = figures_of(sets["v100"], "paddle-vgg16-unstated-bs256-4x8-dali-static-auto")
    assert (auto.samples_per_s, auto.rule) == (12147.46, "fleetx-20-100-median7")


def test_the_16_auto_rows_are_shown_and_never_judged(sets: dict[str, PublishedSet]) -> None:
    auto = [figure for figure in sets["v100"].figures if figure.case.auto]
    assert len(auto) == 16
    assert {figure.status for figure in auto} == {FigureStatus.REFERENCE}
    assert all(figure.note.endswith(WHY_AUTO_IS_NOT_JUDGED) for figure in auto)


def test_one_case_can_have_several_figures_of_different_tables(sets: dict[str, PublishedSet]) -> None:
    figures = figures_of(sets["v100"], "tensorflow-resnet50v1.5-amp-bs224-1x8-dali-xla")

    assert {figure.table: figure.samples_per_s for figure in figures} == {
        "FP16 bs224 with XLA": 8588.45,
        "real data, XLA, DALI": 8578.02,
    }


def test_cases_come_once_each_and_in_id_order(sets: dict[str, PublishedSet]) -> None:
    for published in sets.values():
        ids = [case.id for case in published.cases()]

        assert ids == sorted(set(ids))
        assert set(ids) == {figure.case.id for figure in published.figures}


def test_every_environment_belongs_to_a_figure_and_names_the_figures_document(
    sets: dict[str, PublishedSet],
) -> None:
    for published in sets.values():
        assert {figure.environment for figure in published.figures} == set(published.environments)
        for figure in published.figures:
            assert published.environments[figure.environment].document == figure.source


def test_every_document_has_a_title(sets: dict[str, PublishedSet]) -> None:
    assert {figure.source for published in sets.values() for figure in published.figures} == set(TITLES)


def test_the_environments_say_what_the_documents_state(sets: dict[str, PublishedSet]) -> None:
    v100, a100 = sets["v100"].environments, sets["a100"].environments

    assert v100["report-v100-1node-paddle"].machine["driver"] == "525.60.11"
    assert v100["report-v100-1node-paddle"].software["cudnn"] == "8.2"
    assert v100["report-v100-4node-paddle"].machine["memory"] == "502 GB"
    assert v100["report-v100-4node-paddle"].machine["interconnect"] == "InfiniBand 100 Gb/sec"
    assert v100["report-v100-4node-paddle"].topology[1] == "GPU0 X NV2 NV2 NV1 NV1 NODE NODE NODE NODE 0-19"
    assert a100["report-a100-1node-paddle"].machine["driver"] == "525.60.13"
    assert v100["dlperf-tensorflow"].software["nccl"] == "2.6.3"
    assert "cpu" not in v100["dlperf-tensorflow"].machine
    assert v100["early-draft-pytorch"].software["cudnn"] == "8.0.1"
    assert v100["fleetx-vgg16"].software["framework_commit"] == "b6711e24ea5e17fa24e9b1ba516fe03186dd4a2c"
    assert v100["fleetx-vgg16"].topology[8] == "GPU7 NODE NODE NODE NV2 NV1 NV1 NV2 X NODE 0-23"


def test_the_files_are_sorted(sets: dict[str, PublishedSet]) -> None:
    for target in sets:
        data = json.loads((PUBLISHED / f"{target}.json").read_text(encoding="utf-8"))
        keys = [tuple(figure[name] for name in ("case", "gpu", "source", "table")) for figure in data["figures"]]

        assert keys == sorted(keys)
        assert list(data["environments"]) == sorted(data["environments"])
