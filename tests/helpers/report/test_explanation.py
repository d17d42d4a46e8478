"""What is told of an explanation: the first sentence, the tables, the picture, and the section of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.made_sessions import session_of
from helpers.judging.call_counts import CallCount
from helpers.judging.explanation import Explanation
from helpers.judging.profile_parts import Amount, Level, Part
from helpers.judging.run_facts import Clock, ReducedBeside
from helpers.judging.statistics import Interval
from helpers.report.explanation import (
    command_of,
    headline,
    part_text,
    render_explanation,
    render_markdown,
    to_record,
    write_explanation,
)
from helpers.report.explanation_drawing import draw_step
from helpers.report.explanation_record import explanation_of, explanation_record
from helpers.report.html.page import night_page
from helpers.session.explain import CaseExplanation
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.step_profile import Phase
from tests.helpers.judging.test_explanation import (
    LAYERS,
    Build,
    another_algorithm,
    explained,
    in_kernels,
    slower,
    slower_kernels,
    split,
)

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
    assert re.match(
        r"probably batch_norm → mean \+ multiply \+ subtract of 8 layers \(forward\), ",
        headline(case_of(explained(split))),
    )


def test_what_is_named_surely_is_told_from_what_is_so_probably() -> None:
    # Of 6 pairs no part has a p below 0.03.
    probable, sure = (render_explanation(case_of(explained(slower, pairs=pairs)), 120) for pairs in (6, 8))
    assert probable.startswith("probably conv2d_grad of ") and sure.startswith("conv2d_grad of ")
    assert re.search(r"  0\.032  probably\n", probable) and re.search(r"  0\.008  surely *\n", sure)
    assert "at most 5%; that any surely named one does so, at most 2%" in " ".join(sure.split())
    assert "at most 5%; none is surely named, which takes 8 pairs" in " ".join(probable.split())


@pytest.mark.parametrize(
    ("p_values", "begins", "ends"),
    [
        ((0.01, 0.01), "conv2d_grad of", "; 1 more part is longer"),
        ((0.01, 0.0101), "conv2d_grad of", "; 1 more part is probably longer"),
        ((0.04, 0.01), "probably conv2d_grad of", "; 1 more part is longer"),
        (
            (0.04, 0.01, 0.01, 0.02),
            "probably conv2d_grad of",
            "; 2 more parts are longer; 1 more part is probably longer",
        ),
    ],
)
def test_the_sentence_says_how_sure_each_part_is(p_values: tuple[float, ...], begins: str, ends: str) -> None:
    whole = explained(slower, pairs=8)
    named = tuple(replace(whole.named[0], p_value=each) for each in p_values)
    said = headline(case_of(replace(whole, named=named)))
    assert said.startswith(begins) and said.endswith(ends)
    # Shown is never less than it is.
    shown = {0.01: "0.010", 0.0101: "0.011", 0.02: "0.020", 0.04: "0.040"}
    text = render_explanation(case_of(replace(whole, named=named)), 120)
    assert all(f"  {shown[each]}  {'surely' if each <= 0.01 else 'probably'}" in text for each in p_values)


@pytest.mark.parametrize(
    ("level", "phase", "said"),
    [
        (Level.RANK, Phase.OTHER, "probably rank 1 is slower by "),
        (Level.REDUCTION, Phase.ALL_REDUCE, "probably all-reduce, beside computation or not, +"),
    ],
)
def test_a_probable_rank_or_network_is_called_so(level: Level, phase: Phase, said: str) -> None:
    whole = explained(slower, pairs=8)
    part = Part(level, phase, rank=1 if level is Level.RANK else -1)
    named = (replace(whole.named[0], part=part, p_value=0.02),)
    found = replace(whole, named=named, clocks=(Clock("cpu_mhz", 3000.0, 2700.0, 0.008),))
    assert f"; {said}" in headline(case_of(found))


def test_a_kernel_is_named_without_what_all_kernels_have_in_common() -> None:
    kernel = "void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float, int>(float const*, long*)"
    part = Part(Level.ROW, Phase.BACKWARD, "pool", "aten::max_pool2d_with_indices_backward", kernel)
    shown = "max_pool_backward_nchw<float, float, int>"
    assert part_text(part) == f"aten::max_pool2d_with_indices_backward [{shown}] of pool (backward)"


# Of cuDNN on an H200: they differ in the size of a tile.
GEMMS = [
    f"sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize{tile}x64x32_warpgroupsize1x1x1_g1_execute"
    "_segment_k_off_kernel__5x_cudnn"
    for tile in (128, 256)
]


def test_kernels_that_differ_are_shown_as_different_ones() -> None:
    old, new = GEMMS
    kernels = ((old, new), ("other", "another"), ("other", "third"))
    change = Part(Level.CHANGE, Phase.FORWARD, layers=("stem",), gone=("conv",), came=("conv",), kernels=kernels)
    begins, ends = (
        "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_…wc_tilesize",
        "x64x32_warpgroupsize1x1x1_g1_execute_segment_k_off",
    )
    shown = [f"{begins}{tile}{ends}" for tile in (128, 256)]
    assert part_text(change) == f"conv [{shown[0]} → {shown[1]} and 2 more] of stem (forward)"
    # Only what is cut out differs.
    old, new = (f"{'x' * 50}{place}{'y' * 100}" for place in ("one", "two"))
    assert part_text(replace(change, kernels=((old, new),))) == f"conv [{old} → {new}] of stem (forward)"


def test_of_an_operator_its_kernels_are_counted() -> None:
    found = case_of(explained(slower_kernels, both=in_kernels))
    assert "3 kernels" in render_explanation(found, 120)
    assert explanation_of(explanation_record(found)) == found


def test_from_which_kernel_to_which_an_operator_changed_stays_known_when_another_process_reads_it() -> None:
    found = case_of(explained(another_algorithm, both=in_kernels))
    assert " [wgrad → gemm] of " in headline(found)
    assert explanation_of(json.loads(json.dumps(explanation_record(found)))) == found


def test_without_a_named_part_the_sentence_says_so() -> None:
    alike = explained(lambda build: None)
    assert headline(case_of(alike)).startswith("NOT SLOWER: a step takes ")
    longer = replace(alike, drop=replace(alike.drop, low=0.001))
    assert headline(case_of(longer)).startswith("NOT EXPLAINED: a step takes ")
    assert headline(case_of(None, "the disk is full")) == "NOT EXPLAINED: the disk is full"


def test_the_command_names_the_builds_of_the_session() -> None:
    assert command_of("CASE", None, None) == "perfgate explain CASE"
    assert command_of("CASE", "my env", "good") == "perfgate explain CASE --build 'my env' --reference-build good"


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
    assert [each.part.level for each in explanation.named] == [Level.PHASE]
    told = headline(case_of(explanation))
    assert re.match(
        r"forward, \+\d+% \(slower as a whole; longest in it: cast of all layers \(forward\), \+3\.\d+ ms, "
        r"new: it only moves or converts values\), ",
        told,
    ), told
    assert "same count" not in told
    # Where the casts are too short to be beyond chance, their number is told all the same.
    count = CallCount(Part(Level.OPERATOR, Phase.FORWARD, operator="cast"), Amount(0.0, 0.0), Amount(0.001, 450.0))
    told = headline(case_of(replace(explanation, largest_inside=(), calls=(count,))))
    assert "(slower as a whole; cast of all layers (forward) is new, called 450 times a step), " in told


def test_threads_and_clocks_that_differ_come_first_in_the_sentence() -> None:
    def change(build: Build) -> None:
        slower(build)
        build.threads = 1

    found = explained(change, pairs=12)
    assert headline(case_of(found)).startswith("threads differ: 2 and 1; conv2d_grad of blocks.2 (backward), +")
    clock = Clock("cpu_mhz", 3000.0, 2700.0, 0.008)
    other = case_of(replace(explained(lambda build: None), clocks=(clock,)))
    assert headline(other).startswith("clocks differ: cpu_mhz 3000 and 2700 MHz (-10.0%); NOT SLOWER: ")
    assert "clocks differ in cpu_mhz 3000 and 2700 MHz (-10.0%)" in render_explanation(other, 120)


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
    assert (named["part"]["layer"], named["kind"]) == ("blocks.2", "slower at the same count")
    page = (tmp_path / "explain.md").read_text()
    assert page == render_markdown(found, "perfgate explain CASE")
    assert "| conv2d\\_grad of blocks.2 (backward) |" in page or "| conv2d_grad of blocks.2 (backward) |" in page
    assert (tmp_path / "explain.svg").read_text().startswith("<svg ")


def test_what_of_the_all_reduce_is_beside_computation_is_said(found: CaseExplanation) -> None:
    assert found.explanation is not None
    assert "beside computation" not in render_explanation(found, 200)
    beside = ReducedBeside(0.008, 0.002, Interval(-0.006, -0.007, -0.005))
    text = render_explanation(replace(found, explanation=replace(found.explanation, reduced_beside=beside)), 200)
    said = (
        "gradients are reduced beside computation for 8 and 2 ms a step (reference and build under test), -6 (-7 to -5)"
    )
    assert said in text


def _with_calls(found: CaseExplanation, *counts: CallCount) -> CaseExplanation:
    assert found.explanation is not None
    return replace(found, explanation=replace(found.explanation, calls=counts))


def test_operators_that_are_called_more_often_are_said_also_where_no_part_is_longer_beyond_chance(
    found: CaseExplanation,
) -> None:
    counts = [
        CallCount(
            Part(Level.OPERATOR, Phase.FORWARD, operator=f"operator{number}"),
            Amount(0.01, 53.0),
            Amount(0.01 + ms / 1000, 53.0 + calls),
        )
        for number, (calls, ms) in enumerate([(-1.0, -0.9), (1.0, -0.8), (0.875, 0.25), *[(1.0, 0.125)] * 4])
    ]
    told = (
        "in all its runs the build under test calls these operators more or less often in a step: operator0 of all "
        "layers (forward) 53 → 52 (-0.9 ms), operator1 of all layers (forward) 53 → 54 (-0.8 ms)\n"
    )
    assert told in render_explanation(_with_calls(found, counts[0], counts[1]), 300)
    assert "(forward) 53 → 54 (+0.125 ms), 2 more" in render_explanation(_with_calls(found, *counts), 600)
    # The sentence says it only if there is nothing better to say.
    assert "is called" not in headline(_with_calls(found, *counts))
    nothing = _with_calls(case_of(explained(lambda build: None)), *counts)
    # One that takes less time with more calls makes no step longer.
    last = "; operator2 of all layers (forward) is called 53.875 times a step instead of 53"
    assert headline(nothing).endswith(last)
    assert headline(_with_calls(nothing, *counts[:2])).endswith("beyond chance")


@pytest.mark.parametrize("change", [lambda build: None, slower, split])
def test_an_explanation_that_another_process_made_is_the_same(change: Callable[[Build], None]) -> None:
    explanation = replace(explained(change), clocks=(Clock("cpu_mhz", 3000.0, 2700.0, 0.008),))
    beside = ReducedBeside(0.008, 0.002, Interval(-0.006, -0.007, -0.005))
    calls = (CallCount(Part(Level.OPERATOR, Phase.FORWARD, operator="conv2d"), Amount(0.2, 53.0), Amount(0.3, 54.5)),)
    more = replace(explanation, ranks=explanation.phases[:1], reduced_beside=beside, calls=calls)
    for made in (case_of(None, "the disk is full"), case_of(explanation), case_of(more)):
        made = replace(made, notes=("a note",), traces=(Path("a/trace.json"),))
        assert explanation_of(json.loads(json.dumps(explanation_record(made), allow_nan=False))) == made


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"runs": -1}, "runs"),
        ({"explanation": {}}, "explanation"),
        ({"more": 1}, "more"),
    ],
)
def test_a_damaged_explanation_is_refused(found: CaseExplanation, change: dict[str, object], field: str) -> None:
    with pytest.raises(ResultError, match=f"field '{field}"):
        explanation_of(explanation_record(found) | change)


def test_the_picture_marks_what_is_longer(found: CaseExplanation) -> None:
    assert found.explanation is not None
    picture = str(draw_step(found.explanation))
    # Of the two bars the lower one has a mark where backward ends.
    assert 'class="longer"' in picture
    assert "backward" in picture


def test_the_marks_of_the_picture_are_the_differences_of_the_table(found: CaseExplanation) -> None:
    """On a busy machine all of a build's runs may be slower, and the phases are compared beside that."""
    assert found.explanation is not None
    longer = [each for each in found.explanation.phases if each.seconds.mean > 0 and each.part.phase is Phase.BACKWARD]
    assert len(longer) == 1
    phases = tuple(
        replace(each, candidate=replace(each.candidate, seconds=2 * each.candidate.seconds))
        for each in found.explanation.phases
    )
    faster = Interval(-0.01, -0.02, -0.001)
    phases = tuple(each if each.part.phase is Phase.BACKWARD else replace(each, seconds=faster) for each in phases)
    picture = str(draw_step(replace(found.explanation, phases=phases)))
    assert picture.count('class="longer"') == 1
    assert f"{1000 * longer[0].seconds.mean:+.3g} ms" in picture


def test_the_page_of_the_night_has_it_with_the_case(found: CaseExplanation) -> None:
    session = session_of(1, 2)
    outcome = session.outcomes[0]
    page = night_page(replace(session, explanations={outcome.key: found}))
    assert "Which part of a step is slower" in page and headline(found) in page
    assert "Which part of a step is slower" not in night_page(session)
