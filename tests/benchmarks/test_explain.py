"""What benchmarks.explain counts as right, wrong and silent, and which runs a repeat takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import explain, explain_runs
from benchmarks.explain import CAST_LAYER, CAST_READER, CAUSES, LAYER, SAME, Repeat, Tally, tallies
from benchmarks.explain_runs import Recorder, Setup
from helpers.judging.explanation import Explanation
from helpers.judging.kinds import Kind
from helpers.judging.profile_differences import Difference
from helpers.judging.profile_parts import Amount, Level, Part, ProfiledPair, ProfiledRun
from helpers.judging.statistics import Interval
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase, StepProfile

GRADIENT = Part(Level.ROW, Phase.BACKWARD, LAYER, "aten::convolution_backward")
OTHER = Part(Level.ROW, Phase.FORWARD, "pool", "aten::max_pool2d")


def _named(
    *parts: Part,
    facts: tuple[tuple[str, str, str], ...] = (),
    seconds: float = 0.1,
    step_seconds: float = 1.0,
    kind: Kind = Kind.SLOWER,
    p_value: float = 0.03,
) -> Explanation:
    differences = tuple(
        Difference(part, kind, Amount(0.1), Amount(0.1 + seconds), Interval(seconds, 0.0, 0.2), p_value)
        for part in parts
    )
    return Explanation(6, step_seconds, Interval(0.05, 0.04, 0.06), differences, (), 9, (None, None), (), facts)


def _tally(cause: str, *explanations: Explanation, framework: str = "pytorch") -> Tally:
    return Tally(cause, framework, 5.0, tuple(Repeat(each) for each in explanations))


def test_only_the_planted_part_in_the_first_row_is_right() -> None:
    tally = _tally("slow-backward", _named(GRADIENT), _named(GRADIENT, OTHER), _named(OTHER, GRADIENT), _named())
    assert (tally.right, tally.wrong, tally.named_nothing) == (2, 2, 1)


def test_what_is_surely_named_and_wrong_is_counted_besides() -> None:
    tally = _tally("slow-backward", _named(GRADIENT, OTHER), _named(GRADIENT, OTHER, p_value=0.01), _named(GRADIENT))
    assert (tally.right, tally.wrong, tally.surely_wrong) == (3, 2, 1)


def test_on_a_card_an_operator_with_all_its_kernels_is_right() -> None:
    tally = _tally("slow-backward", _named(replace(GRADIENT, level=Level.CALL)))
    assert (tally.right, tally.wrong) == (1, 0)


@pytest.mark.parametrize(
    ("cause", "phase", "operator"),
    [
        ("called-twice", Phase.FORWARD, "Convolution"),
        ("cast", Phase.BACKWARD, "_backward_cast"),
        ("norm-parts", Phase.FORWARD, "BatchNorm"),
    ],
)
def test_where_no_layer_is_told_an_operator_of_the_right_type_is_right(cause: str, phase: Phase, operator: str) -> None:
    right, other = (Part(Level.ROW, phase, "", name) for name in (operator, "FullyConnected"))
    tally = _tally(cause, _named(right), _named(other), framework="mxnet")
    assert (tally.right, tally.wrong) == (1, 1)
    assert _tally(cause, _named(right)).right == 0


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (["--device", "gpu", "--framework", "paddle"], "'--framework': got 'paddle', expected on a GPU pytorch"),
        (
            ["--device", "gpu", "--cause", "python-work", "--framework", "pytorch"],
            "'--cause'.*expected on a GPU in pytorch",
        ),
        (["--cause", "slow-rank", "--framework", "tensorflow"], "got 'slow-rank', expected in tensorflow called-twice"),
        (["--cause", "slow-backward", "--framework", "mxnet"], "got 'slow-backward', expected in mxnet called-twice"),
        (["--python", "python3"], "'--python'.*expected one --framework"),
    ],
)
def test_what_cannot_be_planted_is_refused(tmp_path: Path, options: list[str], refused: str) -> None:
    with pytest.raises(ConfigError, match=refused):
        explain.main([*options, "--folder", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists()


def test_runs_are_read_from_a_folder_that_was_moved(tmp_path: Path) -> None:
    case = Case.parse(Setup().case_id("pytorch"))
    spec = JobSpec("id", case, 0, str(tmp_path / "gone"), "cpu", warmup_steps=0, window_steps=1)
    (tmp_path / "spec.json").write_text(spec.to_json())
    (tmp_path / "profile-rank0.json").write_text(_run(0.1).profiles[0].to_json())
    header, step = {"facts": {"threads": "1"}}, {"phase": "window", "start": 1.0, "end": 3.0}
    (tmp_path / "rank0.jsonl").write_text(f"{json.dumps(header)}\n{json.dumps(step)}\n")
    assert explain_runs.run_in(tmp_path) == ProfiledRun(2.0, _run(0.1).profiles, {"threads": "1"})


def test_runs_with_another_number_of_profiled_steps_are_not_gone_on_from(tmp_path: Path) -> None:
    made = tmp_path / "000.reference.0"
    made.mkdir()
    (made / "done").touch()
    spec = JobSpec("id", Case.parse(Setup().case_id("pytorch")), 0, str(made), "cpu", 0, 1, explained_steps=8)
    (made / "spec.json").write_text(spec.to_json())
    Recorder("pytorch", Setup(explained_steps=8), tmp_path, tmp_path, [0]).check()
    with pytest.raises(ConfigError, match="'profiled steps': got 8, expected 24"):
        Recorder("pytorch", Setup(explained_steps=24), tmp_path, tmp_path, [0]).check()


def test_whatever_is_named_between_two_runs_of_one_build_is_wrong() -> None:
    tally = _tally(SAME, _named(), _named(OTHER))
    assert (tally.right, tally.wrong) == (1, 1)


def test_what_reads_the_values_of_a_cast_follows_from_it() -> None:
    cast = Part(Level.ROW, Phase.BACKWARD, CAST_LAYER, "aten::to")
    reader = Part(Level.ROW, Phase.BACKWARD, CAST_READER, "aten::convolution_backward")
    tally = _tally("cast", _named(cast, reader), _named(reader), _named(cast, OTHER))
    assert (tally.right, tally.wrong) == (2, 1)


def test_what_is_called_more_or_less_often_follows_from_batch_norms_in_their_parts() -> None:
    node = Part(Level.ROW, Phase.BACKWARD, "", "MulBackward0")
    tally = _tally("norm-parts", *(_named(node, kind=kind) for kind in (Kind.NEW, Kind.GONE, Kind.SLOWER)))
    assert (tally.right, tally.wrong) == (0, 1)


def test_the_host_s_code_that_calls_more_operators_follows_from_them() -> None:
    host, between = (Part(Level.ROW, phase, "", HOST) for phase in (Phase.BACKWARD, Phase.HOST_GAP))
    tally = _tally("norm-parts", _named(host, kind=Kind.HOST), _named(between, kind=Kind.HOST))
    assert (tally.right, tally.wrong) == (0, 1)


def _run(seconds: float) -> ProfiledRun:
    rows = [OperatorRow(OTHER.phase, OTHER.layer, OTHER.operator, "", "", "", 1.0, seconds)]
    rows += [OperatorRow(Phase.FORWARD, f"layer{number}", "aten::conv2d", "", "", "", 1.0, 1.0) for number in range(4)]
    step = sum(row.seconds_per_step for row in rows)
    return ProfiledRun(step, (StepProfile("pytorch", 0, 1, step, step, {OTHER.phase: step}, 0, tuple(rows), 1, ""),))


@pytest.mark.parametrize(
    ("others", "side_effects"),
    [([0.2] * 8, 1), ([0.2] * 6, 0), ([0.2] * 6 + [0.05] * 2, 0), ([0.05] * 8, 0), ([], 0)],
)
def test_what_differs_in_the_other_rounds_too_is_a_side_effect(others: list[float], side_effects: int) -> None:
    named = _named(GRADIENT, OTHER, seconds=0.004)
    pairs = tuple(ProfiledPair(_run(0.1), _run(seconds)) for seconds in others)
    tally = Tally("slow-backward", "pytorch", 5.0, (Repeat(named, pairs),))
    assert (tally.right, tally.side_effects, tally.wrong) == (1, side_effects, 1 - side_effects)
    # Between two runs of one build nothing is one.
    same = Tally(SAME, "pytorch", 0.0, (Repeat(_named(OTHER), pairs),))
    assert (same.side_effects, same.wrong) == (0, 1)


@pytest.mark.parametrize(("seconds", "side_effects"), [(0.0049, 1), (-0.0049, 0), (0.0051, 0), (0.1, 0)])
def test_what_differs_in_all_rounds_is_wrong_if_it_is_not_small_beside_the_plant(
    seconds: float, side_effects: int
) -> None:
    # A reader or a method that is wrong, is so in all rounds. 5% of a step of a second are planted.
    pairs = tuple(ProfiledPair(_run(0.1), _run(0.2)) for _ in range(8))
    tally = Tally("slow-backward", "pytorch", 5.0, (Repeat(_named(GRADIENT, OTHER, seconds=seconds), pairs),))
    assert (tally.side_effects, tally.wrong) == (side_effects, 1 - side_effects)


def test_the_number_of_threads_is_told_as_a_fact() -> None:
    tally = _tally("half-threads", _named(OTHER, facts=(("torch_threads", "2", "1"),)), _named(OTHER))
    assert (tally.right, tally.wrong) == (1, 0)


def test_a_repeat_takes_rounds_that_no_other_repeat_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(13):
        for name in (f"{number:03d}.reference.0", f"{number:03d}.cast.5"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "done").touch()
    compared: list[list[str]] = []

    def explained(pairs: list[ProfiledPair], is_slower: bool) -> Explanation:
        assert is_slower, "what is planted makes it slower"
        compared.append([f"{pair.reference.facts['folder']} {pair.candidate.facts['folder']}" for pair in pairs])
        return _named()

    monkeypatch.setattr(explain_runs, "run_in", lambda folder: ProfiledRun(1.0, (), {"folder": folder.name}))
    monkeypatch.setattr(explain, "explain", explained)
    cast, same = tallies(Recorder("pytorch", Setup(), tmp_path, tmp_path, [0]), 6)
    assert (cast.cause, cast.percent, len(cast.explanations)) == ("cast", 5.0, 2)
    assert [len(each.others) for each in cast.repeats] == [7, 7]
    repeats = [
        [f"{number:03d}.reference.0 {number:03d}.cast.5" for number in each] for each in (range(6), range(6, 12))
    ]
    assert compared[:2] == repeats
    # The unchanged build with itself: two rounds a pair, either of them first.
    assert (same.cause, len(same.explanations)) == (SAME, 1)
    rounds = ((0, 1), (3, 2), (4, 5), (7, 6), (8, 9), (11, 10))
    assert compared[2:] == [[f"{first:03d}.reference.0 {second:03d}.reference.0" for first, second in rounds]]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="ranks exchange cores")
def test_the_ranks_of_a_run_exchange_their_cores_after_each_step_with_all_threads() -> None:
    program = """
import json, os, sys, threading
from benchmarks.explain_worker import _exchange_cores
from helpers.trainers.common.process import Trainer
Trainer.beat = lambda trainer, phase, step=0: None
rank, cores = json.loads(sys.argv[1])
_exchange_cores(rank, cores)
ready, done = threading.Barrier(2), threading.Event()
thread = threading.Thread(target=lambda: (ready.wait(), done.wait()))
thread.start()
ready.wait()
places = []
for step in range(1, 4):
    Trainer.beat(None, "window", step)
    places.append([sorted(os.sched_getaffinity(each)) for each in (0, thread.native_id)])
done.set()
print(json.dumps(places))
"""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    own, other = [[first], [first]], [[second], [second]]
    for rank, places in enumerate(([other, own, other], [own, other, own])):
        assert json.loads(_printed(program, {}, json.dumps([rank, [first, second]]))) == places


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_slow_core_takes_its_share_of_whatever_is_computed(tmp_path: Path) -> None:
    program = """
import ctypes, os, time
def seconds():
    began = time.process_time()
    sum(number * number for number in range(1_500_000))
    return time.process_time() - began
slow_core = ctypes.CDLL(os.environ["LD_PRELOAD"]).slow_core
usual, slow = [], []
for _ in range(5):
    for share, found in ((0.0, usual), (0.5, slow)):
        assert slow_core(ctypes.c_double(share)) == 0
        found.append(seconds())
print(min(slow) / min(usual))
"""
    # Other work on the core's second thread changes how long either takes.
    assert 1.2 < float(_printed(program, {"LD_PRELOAD": str(explain_runs.built(tmp_path))})) < 2.0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_slow_network_takes_so_long_for_what_is_sent(tmp_path: Path) -> None:
    program = """
import socket, threading, time
one, other = socket.socketpair()
def receive():
    while other.recv(1 << 20):
        pass
threading.Thread(target=receive).start()
began = time.monotonic()
for _ in range(400):
    one.sendall(bytes(10_000))
print(time.monotonic() - began)
one.close()
"""
    environment = {"LD_PRELOAD": str(explain_runs.built(tmp_path)), "PERFGATE_EXPLAIN_SECONDS_PER_MB": "0.1"}
    # Four megabytes, in sends of which none is worth a sleep of its own. A machine with other work takes longer.
    assert 0.38 < float(_printed(program, environment)) < 2.0


def _printed(program: str, environment: Mapping[str, str], *words: str) -> str:
    command, variables = [sys.executable, "-c", program, *words], {**os.environ, **environment}
    return subprocess.run(command, env=variables, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_every_cause_has_its_plant_in_each_framework_that_can_have_it() -> None:
    sources = [Path(explain.__file__).with_name("explain_worker.py").read_text(encoding="utf-8")]
    for framework in explain_runs.FRAMEWORKS:
        own = Path(explain.__file__).with_name(f"explain_plants_{framework}.py").read_text(encoding="utf-8")
        causes = explain.causes_of(framework, "cpu")
        assert [cause for cause in causes if f'"{cause}": ' not in sources[0] + own] == []
        assert framework in ("tensorflow", "mxnet") or set(causes) == set(CAUSES)
