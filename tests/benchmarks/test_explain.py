"""What benchmarks.explain counts as right, wrong and silent, and which runs a repeat takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import explain
from benchmarks.explain import CAUSES, LAYER, SAME, Recorder, Setup, Tally
from helpers.judging.explanation import Difference, Explanation, Interval, Kind
from helpers.judging.profile_parts import Amount, Level, Part, ProfiledPair, ProfiledRun
from helpers.trainers.contract.step_profile import Phase

GRADIENT = Part(Level.ROW, Phase.BACKWARD, LAYER, "aten::convolution_backward")
OTHER = Part(Level.ROW, Phase.FORWARD, "pool", "aten::max_pool2d")


def _named(*parts: Part, facts: tuple[tuple[str, str, str], ...] = ()) -> Explanation:
    differences = tuple(
        Difference(part, Kind.SLOWER, Amount(0.1), Amount(0.2), Interval(0.1, 0.0, 0.2), 0.03) for part in parts
    )
    return Explanation(6, 1.0, Interval(0.05, 0.04, 0.06), differences, (), 9, (None, None), (), facts)


def _tally(cause: str, *explanations: Explanation) -> Tally:
    return Tally(cause, "pytorch", 5.0, explanations)


def test_only_the_planted_part_in_the_first_row_is_right() -> None:
    tally = _tally("slow-backward", _named(GRADIENT), _named(GRADIENT, OTHER), _named(OTHER, GRADIENT), _named())
    assert (tally.right, tally.wrong, tally.named_nothing) == (2, 2, 1)


def test_whatever_is_named_between_two_runs_of_one_build_is_wrong() -> None:
    tally = _tally(SAME, _named(), _named(OTHER))
    assert (tally.right, tally.wrong) == (1, 1)


def test_the_number_of_threads_is_told_as_a_fact() -> None:
    tally = _tally("half-threads", _named(OTHER, facts=(("torch_threads", "2", "1"),)), _named(OTHER))
    assert (tally.right, tally.wrong) == (1, 0)


def test_a_repeat_takes_rounds_that_no_other_repeat_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(13):
        for name in (f"{number:03d}.reference.0", f"{number:03d}.cast.5"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "done").touch()
    compared: list[list[str]] = []

    def explained(pairs: list[ProfiledPair]) -> Explanation:
        compared.append([str(pair.candidate.facts["folder"]) for pair in pairs])
        return _named()

    monkeypatch.setattr(explain, "run_in", lambda folder: ProfiledRun(1.0, (), {"folder": folder.name}))
    monkeypatch.setattr(explain, "explain", explained)
    (tally,) = Recorder("pytorch", Setup(), tmp_path, tmp_path, [0], [5.0]).tallies(6)
    assert (tally.cause, tally.percent, len(tally.explanations)) == ("cast", 5.0, 2)
    assert compared == [[f"{number:03d}.cast.5" for number in each] for each in (range(6), range(6, 12))]


def test_every_cause_of_the_issue_is_planted_in_both_frameworks() -> None:
    sources = [Path(explain.__file__).with_name("explain_worker.py").read_text(encoding="utf-8")]
    for framework in explain.FRAMEWORKS:
        own = Path(explain.__file__).with_name(f"explain_plants_{framework}.py").read_text(encoding="utf-8")
        assert [cause for cause in CAUSES if f'"{cause}": ' not in sources[0] + own] == []
