"""The table of cases: two lines a case, footnotes shared, nothing that could forge a terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helpers.commands.cases import (
    COMPLETE,
    TWINS,
    CaseLine,
    CaseTable,
    Footnotes,
    render,
    render_markdown,
    summary,
)

HERE = CaseLine(
    "paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu", (), COMPLETE, None, "1 CPU card", "", "a CPU case has none"
)
BUILT = CaseLine(
    "paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static",
    "v100",
    ("39972.131 (gate)",),
    COMPLETE,
    "looked for a V100, found no NVIDIA GPU",
    "4 nodes of 8 x V100",
    "paddle-resnet50v1.5-amp_o2-bs4-1x1-dali-static",
    "the twin has 1 card for 4x8 cards",
    "built",
    not_applied=("FLAGS_a", "execution_strategy.num_threads"),
    operators=1234,
    parameters=25560168,
)
REFUSED = CaseLine(
    "mxnet-resnet50v1.5-fp32-bs128-1x1-dali",
    "v100",
    ("389.44 (reference)", "400.0 (disputed)"),
    "field 'framework': got 'mxnet', expected paddle",
    "looked for a V100, found no NVIDIA GPU",
    "1 x V100",
    "",
    "no such case",
    "refused",
    "no\x1b[31m such",
)


def test_the_text_is_two_lines_a_case_and_its_footnotes() -> None:
    text = render(CaseTable([HERE, BUILT, REFUSED], {"machine": "a machine"}))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "machine: a machine"
    assert "paddle-vgg16-fp32-bs1-1x1-dali-static [cpu]" in lines
    place = lines.index("paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static [v100]")
    assert lines[place + 1].split() == ["39972.131", "(gate)", "complete", "no", "[2]", "built", "[3]"]
    assert lines[place + 2].strip().startswith("needs 4 nodes of 8 x V100; twin here: paddle-resnet50v1.5-amp_o2-bs4")
    assert "1,234 operators, 25,560,168 parameters" in text
    assert "[3] this build does not know: FLAGS_a, execution_strategy.num_threads" in lines
    assert "389.44 (reference), 400.0 (disputed)  incomplete [" in text


@pytest.mark.parametrize("form", [render, render_markdown])
def test_in_what_every_twin_differs_is_told_where_there_is_one(form: Callable[..., str]) -> None:
    assert TWINS in " ".join(form(CaseTable([HERE, BUILT], {})).split())
    assert "twin has" not in form(CaseTable([HERE, REFUSED], {}))


def test_a_text_that_lines_share_is_one_footnote() -> None:
    text = render(CaseTable([BUILT, REFUSED], {}))
    assert text.count("looked for a V100, found no NVIDIA GPU") == 1
    assert text.count("no [1]") == 2


def test_footnotes_are_numbered_by_first_use_and_an_empty_one_is_none() -> None:
    notes = Footnotes()
    assert [notes.mark("a"), notes.mark(""), notes.mark("b"), notes.mark("a")] == [" [1]", "", " [2]", " [1]"]
    assert notes.lines() == ["[1] a", "[2] b"]


@pytest.mark.parametrize("form", [render, render_markdown])
def test_control_characters_are_shown_as_escapes(form: object) -> None:
    assert callable(form)
    text = form(CaseTable([REFUSED], {"machine": "x\x1b[2J"}))
    assert "\x1b" not in text
    assert r"no\x1b[31m such" in text


def test_markdown_cells_are_kept_apart() -> None:
    text = render_markdown(CaseTable([HERE, BUILT, REFUSED], {"machine": "a|b"}))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert {row.count("|") for row in rows} == {10}
    assert "| `paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static` | v100 | 39972.131 (gate) | complete |" in text
    assert "1,234 operators, 25,560,168 parameters" in text


def test_the_summary_counts_every_kind() -> None:
    assert summary([HERE, BUILT, REFUSED]) == (
        "3 cases, 2 with a complete configuration, 1 run here, 1 have a CPU twin that runs here,"
        " 1 built, 1 refused, 1 builds not tried"
    )


@pytest.mark.usefixtures("models_of_sentences")
def test_the_unit_is_that_of_the_models_samples() -> None:
    assert "| published sentences/s |" in render_markdown(CaseTable([HERE, BUILT], {}))
