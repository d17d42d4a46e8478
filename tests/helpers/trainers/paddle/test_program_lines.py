"""The programs behind the published figures, built by every line of Paddle without a card, and trained by two ranks."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.launch.programs import BuildState, check_builds
from helpers.plan.published import load_published
from helpers.plan.recipes.published_programs import differences_of, published_program
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case, Execution, Precision
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import Model
from helpers.trainers.contract.program import ProgramKind, counts_of, kind_of, lacks_fusions
from tests.helpers.trainers.jobs import SMALL_IMAGES

pytestmark = [pytest.mark.training, pytest.mark.untimed]

RESNET50 = "paddle-resnet50v1.5"
GPU_WHEEL = "paddlepaddle-gpu==2.6.2"
# 3.1 named the all-reduce anew, and since 3.2 an old program lacks paddle.any: the last has both.
LINES = (GPU_WHEEL, "paddlepaddle==3.0.0", "paddlepaddle==3.3.1")
NEWEST = LINES[-1]
TIMEOUT_SECONDS = 600

PARAMETERS = {Model.RESNET50: 25_557_032, Model.VGG16: 138_357_544}
# With the fourth input channel of pure fp16.
PADDED_PARAMETERS = 25_560_168


def published_programs() -> list[Case]:
    """One case of each program behind Paddle's published figures: batch and data do not change it, nor does how many
    other cards there are, of which the largest number is taken."""
    found: dict[tuple[object, ...], Case] = {}
    for figure in load_published(ROOT / "baselines" / "published" / "v100.json").figures:
        case = figure.case
        if case.framework is Framework.PADDLE and not case.auto:
            assert case.execution is Execution.STATIC
            key = (case.model, case.precision, case.cards > 1)
            found[key] = max(case, found.get(key, case), key=lambda each: each.cards)
    return list(found.values())


def expected_kind(case: Case, line: str) -> ProgramKind:
    # AMP joins what it found in several groups of gradients: of two types at O2, of each all-reduce on several cards.
    joins = case.precision is Precision.AMP_O2 or (case.precision is Precision.AMP_O1 and case.cards > 1)
    return ProgramKind.OLD_WITH_SHIM if joins and line == NEWEST else ProgramKind.OLD


def _job(folder: Path, case: Case, **overrides: Any) -> JobSpec:
    folder.mkdir(parents=True)
    settings = {**settings_for(case, "gpu"), **overrides}
    cards = tuple(map(str, range(case.cards_per_node)))
    spec = JobSpec(
        uuid.uuid4().hex, case, 0, str(folder), "gpu", 0, 1, settings=settings, overrides=overrides, cards=cards
    )
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    return spec


@pytest.mark.parametrize("line", LINES)
def test_every_published_program_is_built_by_every_line(
    interpreter_of: Callable[[str], str], tmp_path: Path, line: str
) -> None:
    cases = published_programs()
    # ResNet50 and VGG16, each in two precisions, on one card and on several nodes.
    assert {(case.model, case.precision) for case in cases} == {
        (Model.RESNET50, Precision.FP32), (Model.RESNET50, Precision.AMP_O2), (Model.VGG16, Precision.FP32),
        (Model.VGG16, Precision.AMP_O1),
    }  # fmt: skip
    assert len(cases) == 8 and {case.cards for case in cases} == {1, 32}
    reports = check_builds([_job(tmp_path / case.id, case) for case in cases], interpreter_of(line))
    for case, report in zip(cases, reports, strict=True):
        assert report.state is BuildState.BUILT, (case.id, report.reason)
        assert kind_of(report.facts) is expected_kind(case, line), (case.id, report.facts)
        assert published_program(case, "gpu") is not None
        assert (counts_of(report.facts) or {})["operators"] == report.operators
        assert differences_of(case, report.facts) == (), case.id
        padded = case.precision is Precision.AMP_O2
        assert report.parameters == (PADDED_PARAMETERS if padded else PARAMETERS[case.model])
        # Every convolution's weight, and the classifier's weight and bias; batch norm stays in float32.
        assert report.facts.get("master_copies") == ("55" if padded else None)
        assert lacks_fusions(report.facts) is (padded and line != GPU_WHEEL)
        assert ("program_not_built" in report.facts) is (expected_kind(case, line) is not ProgramKind.OLD)
        if case.precision is Precision.FP32:
            assert report.facts["tf32_switches"].endswith("NVIDIA_TF32_OVERRIDE 0")


def test_the_program_of_the_switch_of_2020_is_built_by_the_gpu_s_wheel(
    interpreter_of: Callable[[str], str], tmp_path: Path
) -> None:
    job = _job(tmp_path / "run", Case.parse("paddle-vgg16-unstated-bs32-1x8-dali-static-auto"))
    (report,) = check_builds([job], interpreter_of(GPU_WHEEL))
    # The switch's sharding leaves a rank its part, and drops files.
    assert (report.state, report.parameters) == (BuildState.BUILT, 117_475_136), report.reason
    assert kind_of(report.facts) is ProgramKind.OLD


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ makes float16 kernels of PIR's registry pretended")
def test_where_old_programs_fail_the_program_is_pir_s_with_its_fusion(
    interpreter_of: Callable[[str], str], tmp_path: Path
) -> None:
    interpreter = interpreter_of(NEWEST)
    job = _job(tmp_path / "run", Case.parse(f"{RESNET50}-amp_o2-bs256-1x8-dali-static"))
    library = _half_kernels(tmp_path, interpreter)
    worker = Path(__file__).with_name("pir_program_worker.py")
    argv = [interpreter, str(worker), str(library), str(job.spec_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    forced = json.loads(done.stdout.splitlines()[-1])
    assert forced["parameters"] == PADDED_PARAMETERS, forced["reason"]
    facts = forced["facts"]
    assert kind_of(facts) is ProgramKind.PIR
    assert facts["program_not_built"].count("TypeError: an old program is made to fail") == 2
    counts = counts_of(facts) or {}
    expected = {
        "conv2d": 53, "float16_conv2d": 53, "nhwc_conv2d": 53, "fused_bn_add_activation": 16, "batch_norm": 37,
        "momentum": 161, "all_reduce": 5,
    }  # fmt: skip
    assert {name: counts[name] for name in expected} == expected
    assert facts["master_copies"] == "55"


def _half_kernels(folder: Path, interpreter: str) -> Path:
    """half_kernels.cc, compiled against the interpreter's Paddle."""
    (package,) = Path(interpreter).parents[1].glob("lib/python3*/site-packages/paddle")
    library = folder / "half_kernels.so"
    includes = [f"-I{package / 'include'}", f"-I{package / 'include' / 'third_party'}"]
    source = Path(__file__).with_name("half_kernels.cc")
    argv = ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", str(source), "-o", str(library), *includes]
    subprocess.run(
        [*argv, f"-L{package / 'libs'}", "-lphi_core"], check=True, capture_output=True, timeout=TIMEOUT_SECONDS
    )
    return library


@pytest.mark.parametrize(("flags", "kind"), [({}, "old"), ({"FLAGS_enable_pir_api": "1"}, "PIR")])
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_a_static_program_of_two_cards_trains_on_two_cpus(
    interpreter_of: Callable[[str], str], tmp_path: Path, flags: dict[str, str], kind: str
) -> None:
    case = Case.parse(f"{RESNET50}-fp32-bs1-1x2-synthetic-static")
    settings = settings_for(case, "gpu")
    job = _job(tmp_path / "run", case, learning_rate=0.002, environment={**settings["environment"], **flags})
    worker = Path(__file__).with_name("static_ranks_worker.py")
    environment = {**os.environ, "PYTHONPATH": SMALL_IMAGES, "OMP_NUM_THREADS": "1"}
    port = _free_ports(3)
    ranks = [
        subprocess.Popen(
            [interpreter_of(NEWEST), str(worker), str(job.spec_path), str(rank), str(port)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        ended = [rank.communicate(timeout=TIMEOUT_SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], [errors[-2000:] for _, errors in ended]
    first, second = (json.loads(output.splitlines()[-1]) for output, _ in ended)
    assert first["program"] == kind
    for rank in (first, second):
        assert rank["losses"] == sorted(rank["losses"], reverse=True)
        assert rank["losses"][-1] < 0.6 * rank["losses"][0]
    assert first["losses"] != second["losses"]
    assert first["sums"] == second["sums"]
    if kind == "old":
        # The same look at the weights finds one all-reduce too few.
        assert first["one_too_few"] != second["one_too_few"]


def _free_ports(count: int) -> int:
    """The first of ``count`` ports in a row that nobody uses now."""
    for _ in range(100):
        held: list[socket.socket] = []
        try:
            held.append(socket.create_server(("127.0.0.1", 0)))
            first = int(held[0].getsockname()[1])
            held += [socket.create_server(("127.0.0.1", first + each)) for each in range(1, count)]
        except OSError:
            continue
        finally:
            for each in held:
                each.close()
        return first
    raise AssertionError(f"no {count} free ports in a row")
