"""What is told of an explanation: the first sentence, the tables, the picture, and the section of the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.made_sessions import session_of
from helpers.judging.parts.explanation import Explanation
from helpers.judging.parts.step_parts import Grain
from helpers.judging.statistics import Interval
from helpers.report.explanation import (
    headline,
    render_explanation,
    render_markdown,
    to_record,
    write_explanation,
)
from helpers.report.explanation_drawing import draw_step
from helpers.report.html.page import night_page
from helpers.session.explain.case import CaseExplanation
from helpers.trainers.contract.step_profile import Phase
from tests.helpers.judging.parts.test_explanation import (
    LAYERS,
    Build,
    another_algorithm,
    explained,
    in_kernels,
    slower,
)

pytestmark = pytest.mark.slow

CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"


def case_of(explanation: Explanation | None, why_not: str = "") -> CaseExplanation:
    return CaseExplanation(CASE, "cpu", "paddle 3.3.0", "paddle 3.3.1", explanation, why_not, 12, 10, "a profiler")


@pytest.fixture(scope="module")
def found() -> CaseExplanation:
    return case_of(explained(slower))


def test_the_sentence_names_part_change_kind_and_share(found: CaseExplanation) -> None:
    part = r"conv2d_grad of blocks\.2 \(backward\), \+7\d% \(slower at the same count\)"
    # Without a whole that is beyond its interval there is no share of it.
    assert re.fullmatch(
        "probably " + part + r", \+4\.3% of a step; the whole step: \+2\.7% \(95% .*\)", headline(found)
    )
    longer = explained(slower, pairs=12)
    assert longer.explained_seconds <= longer.drop.mean
    assert re.fullmatch(part + r", explains \d\.\d of the \+\d\.\d%", headline(case_of(longer)))
    # A part that is longer than the whole step is no share of it.
    less = replace(longer, drop=Interval(0.6 * longer.explained_seconds, 0.001, longer.explained_seconds))
    assert re.fullmatch(part + r", \+\d\.\d% of a step; the whole step: \+\d\.\d% \(95% .*\)", headline(case_of(less)))


def test_from_which_kernel_to_which_an_operator_changed_is_told() -> None:
    assert " [wgrad → gemm] of " in headline(case_of(explained(another_algorithm, both=in_kernels)))


def _own_operators(build: Build) -> None:
    """Each layer of the forward pass has operators of its own, so that no few of them explain most of the phase."""
    for number, layer in enumerate(LAYERS):
        for operator in ("conv2d", "batch_norm"):
            seconds, calls = build.rows.pop((Phase.FORWARD, layer, operator))
            build.rows[Phase.FORWARD, layer, f"{operator}_{number}"] = (
                0.004 if operator == "conv2d" else seconds,
                calls,
            )


def _many_casts(build: Build) -> None:
    for layer in LAYERS:
        build.rows[Phase.FORWARD, layer, "cast"] = (0.0004, 56)
    for key, (seconds, calls) in list(build.rows.items()):
        if key[0] is Phase.FORWARD and key[2].startswith("conv2d"):
            build.rows[key] = (1.25 * seconds, calls)


def test_a_phase_that_is_slower_says_what_is_longest_in_it_and_that_it_is_new() -> None:
    explanation = explained(_many_casts, pairs=12, both=_own_operators)
    assert [each.part.level for each in explanation.named] == [Grain.PHASE]
    told = headline(case_of(explanation))
    assert re.match(
        r"forward, \+\d+% \(slower as a whole; longest in it: cast of all layers \(forward\), \+3\.\d+ ms, "
        r"new: it only moves or converts values\), ",
        told,
    ), told
    assert "same count" not in told


def test_threads_and_clocks_that_differ_come_first_in_the_sentence() -> None:
    def change(build: Build) -> None:
        slower(build)
        build.threads = 1

    found = explained(change, pairs=12)
    assert headline(case_of(found)).startswith("threads differ: 2 and 1; conv2d_grad of blocks.2 (backward), +")
    other = case_of(replace(found, facts=(("cpu_mhz", "3000", "2700 MHz (-10.0%)"),), named=()))
    assert headline(other).startswith("clocks differ: cpu_mhz 3000 and 2700 MHz (-10.0%); NOT EXPLAINED: ")


def test_what_is_not_explained_and_the_cost_of_profiling_are_printed(found: CaseExplanation) -> None:
    text = render_explanation(found, 100)
    shares = (
        r"^not explained: (\S+)% of a step, in all parts that are not named \(the named parts (\S+)%, "
        r"the whole step (\S+)%\)$"
    )
    told = re.search(shares, render_explanation(found, 200), re.MULTILINE)
    assert told is not None
    rest, named, whole = map(float, told.groups())
    assert rest < 0 < whole < named and rest + named == pytest.approx(whole, abs=0.11)
    assert "the profiler made a step +5% and +5% longer (reference and build under test)\n" in text
    assert found.explanation is not None
    dear = replace(found, explanation=replace(found.explanation, cost=(0.05, 0.3)))
    assert "+30% longer (reference and build under test): so much may change" in render_explanation(dear, 200)


def test_text_markdown_and_json_have_the_same_parts(found: CaseExplanation, tmp_path: Path) -> None:
    write_explanation(tmp_path, found, "perfgate explain CASE", "s")
    record = json.loads((tmp_path / "explain.json").read_text())
    assert record == json.loads(json.dumps(to_record(found, "s")))
    (named,) = record["explanation"]["named"]
    assert (named["part"]["layer"], named["kind"]) == ("blocks.2", "slower")
    page = (tmp_path / "explain.md").read_text()
    assert page == render_markdown(found, "perfgate explain CASE")
    assert "| conv2d\\_grad of blocks.2 (backward) |" in page or "| conv2d_grad of blocks.2 (backward) |" in page
    assert (tmp_path / "explain.svg").read_text().startswith("<svg ")


def test_the_picture_marks_what_is_longer(found: CaseExplanation) -> None:
    assert found.explanation is not None
    picture = str(draw_step(found.explanation))
    # Of the two bars the lower one has a mark where backward ends.
    assert 'class="longer"' in picture
    assert "backward" in picture


def test_the_page_of_the_night_has_it_with_the_case(found: CaseExplanation) -> None:
    session = session_of(1, 2)
    outcome = session.outcomes[0]
    page = night_page(replace(session, explanations={outcome.key: found}))
    assert "Which part of a step is slower" in page and headline(found) in page
    assert "Which part of a step is slower" not in night_page(session)
