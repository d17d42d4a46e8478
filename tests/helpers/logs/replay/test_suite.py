"""The suite of --replay: which cases it takes, and what it refuses."""

from __future__ import annotations

import pytest

from helpers.trainers.contract.errors import ConfigError
from tests.helpers.importing_double import MXNET, PADDLE, write_log
from tests.helpers.logs.replay.bench import (
    GATE,
    PUBLISHED,
    Bench,
    case_of,
)


def test_without_a_marker_the_cases_with_logs_are_judged(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    keys, told = bench.suite().selection_here()
    assert keys == {("v100", GATE)}
    assert "the 1 cases that" in told


def test_the_header_says_that_nothing_is_trained_and_what_was_not_read(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    (bench.logs / "README.md").write_text("#")
    head = "\n".join(bench.suite().header_lines())
    assert "REPLAYED: nothing is trained; 1 runs of 2 files" in head
    assert "1 of them as one of 1 cases" in head
    assert "not read: README.md: no format is known" in head


def test_one_case_on_two_targets_is_refused(bench: Bench) -> None:
    case_id = "pytorch-resnet50v1.5-amp-bs256-1x1-synthetic"
    settings = {**MXNET, "framework": "pytorch", "data": "synthetic"}
    bench.log("a.log", settings, 1.0)
    write_log(bench.logs / "b.log", {**settings, "gpu": "A100"})
    suite = bench.suite()
    with pytest.raises(ConfigError, match="two targets"):
        suite.prepare([case_of(suite, case_id, "v100"), case_of(suite, case_id, "a100")])


@pytest.mark.parametrize(("logged", "effect"), [(True, "pass"), (False, "fail")])
def test_under_the_gate_a_case_without_a_log_fails(bench: Bench, logged: bool, effect: str) -> None:
    if logged:
        bench.log("a.log", PADDLE, PUBLISHED)
    suite = bench.suite(gate=f"{{cases: '{GATE}', needs: published, target: v100}}")
    outcome = suite.measure(case_of(suite, GATE, "v100"))
    assert (outcome.effect.value, outcome.judged) == (effect, True)
    assert suite.selection_here()[0] == {("v100", GATE)}
