"""Probes of a card with a build of Paddle: ``python -m helpers.trainers.paddle.probes NAME SPEC.json``.

The last line of the output is a JSON object: ``faults`` (a list of texts, empty if all is right), ``facts`` (texts by
name), and ``not_run``, which says why this machine or build has nothing to probe (null if it has). Exit status: 0 with
such an answer, 1 without.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from helpers.trainers.common.cuda import loaded_facts
from helpers.trainers.common.process import Refused, set_environment
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.settings import PaddleSettings

LIBRARIES, STATISTICS = "libraries", "statistics"
_STEPS = 5
# Float16 has 11 bits; the two programs may sum in another order.
_LARGEST_DIFFERENCE = 0.01
_NO_MERGING_PASS = "this build's PIR has no pass that fuses batch norm, addition and ReLU"


class Answer:
    """The answer of a probe."""

    def __init__(self) -> None:
        self.faults: List[str] = []
        self.facts: Dict[str, str] = {}
        self.not_run: Optional[str] = None


def main(argv: List[str]) -> None:
    name, path = argv
    spec = JobSpec.from_json(Path(path).read_text(encoding="utf-8"), path)
    set_environment(spec, PaddleSettings.of(spec), os.environ)
    answer = Answer()
    try:
        _PROBES[name](spec, answer)
    except Refused as refusal:
        answer.faults.append(str(refusal))
    print(json.dumps(vars(answer)), flush=True)


def _libraries(spec: JobSpec, answer: Answer) -> None:
    """Compute one convolution and one product, and look at the libraries that did it."""
    import numpy
    import paddle

    from helpers.trainers.paddle import device

    on_gpu = spec.device == "gpu"
    if on_gpu:
        from helpers.trainers.paddle.libraries import refuse_wrong_libraries

        refuse_wrong_libraries()
    answer.facts.update(framework_version=str(paddle.__version__), device=device.use_device(spec))
    dtype = "float16" if on_gpu else "float32"
    images = paddle.ones([2, 8, 8, 8]).astype(dtype)
    convolved = paddle.nn.functional.conv2d(images, paddle.ones([8, 8, 1, 1]).astype(dtype), data_format="NHWC")
    product = paddle.matmul(paddle.ones([64, 64]).astype(dtype), paddle.ones([64, 64]).astype(dtype))
    for what, found, expected in (("convolution", convolved, 8.0), ("product", product, 64.0)):
        values = numpy.asarray(found.astype("float32").numpy())
        if not (values == expected).all():
            answer.faults.append(f"a {dtype} {what} of ones gives {values.min()} to {values.max()}, not {expected}")
    answer.facts["computed"] = f"a {dtype} NHWC convolution and a product of matrices"
    answer.facts.update(loaded_facts())
    if on_gpu:
        from helpers.trainers.paddle.libraries import refuse_wrong_majors

        refuse_wrong_majors(loaded_facts())
        answer.facts.update({f"build_{name}": each for name, each in device.build_facts().items()})
        answer.faults += [f"no lib{name} is loaded" for name in ("cudnn", "cublas") if name not in answer.facts]


def _statistics(spec: JobSpec, answer: Answer) -> None:
    """Train the same block twice, once with batch norm, addition and ReLU fused, and compare the running statistics."""
    # Not as for a case: Paddle 3 reads these when it is imported.
    os.environ.update({"FLAGS_enable_pir_api": "1", "FLAGS_enable_pir_in_executor": "1"})
    import paddle

    from helpers.trainers.paddle import device

    pass_of_build = getattr(getattr(paddle.base.libpaddle, "pir", None), "apply_bn_add_act_pass", None)
    if pass_of_build is None:
        answer.not_run = _NO_MERGING_PASS
        return
    device.use_device(spec)
    paddle.enable_static()
    with paddle.pir_utils.IrGuard():
        kept = {fused: _trained_block(spec, pass_of_build if fused else None, answer) for fused in (False, True)}
    judge_statistics(kept[False], kept[True], spec.device == "gpu", answer)


def judge_statistics(unfused: Dict[str, Any], fused: Dict[str, Any], on_gpu: bool, answer: Answer) -> None:
    """Whether the fused program's running statistics (arrays by name) are those of the unfused one, which moved."""
    moved = max(float(abs(values - _AT_FIRST[name]).max()) for name, values in unfused.items())
    worst = max(float((abs(fused[name] - values) / (abs(values) + 1.0)).max()) for name, values in unfused.items())
    answer.facts["moved"] = f"{moved:.4g} in {_STEPS} steps"
    answer.facts["largest_difference"] = f"{worst:.3g}, relative"
    if answer.facts["fused"] == "0" and not on_gpu:
        # Its kernels are those of cuDNN for float16 in NHWC.
        answer.not_run = "the fused operator is a GPU's; both programs were trained unfused on the CPU"
    elif answer.facts["fused"] == "0":
        answer.faults.append("the pass fused nothing")
    elif not moved > 0 or not worst <= _LARGEST_DIFFERENCE:
        answer.faults.append(
            f"the fused operator's running statistics differ by {worst:.3g} after {_STEPS} steps, while the unfused "
            f"operators moved theirs by {moved:.3g}: expected at most {_LARGEST_DIFFERENCE:g}"
        )


_AT_FIRST = {"mean": 0.0, "variance": 1.0}


def _trained_block(spec: JobSpec, fuse: Any, answer: Answer) -> Dict[str, Any]:
    """The running mean and variance after some steps of batch norm, addition and ReLU."""
    import numpy
    import paddle

    from helpers.trainers.paddle.device import place_of

    dtype = "float16" if spec.device == "gpu" else "float32"
    paddle.seed(spec.seed)
    main, startup = paddle.static.Program(), paddle.static.Program()
    scope = paddle.static.Scope()
    with paddle.static.scope_guard(scope), paddle.static.program_guard(main, startup):
        images = paddle.static.data("images", [8, 16, 16, 16], dtype)
        norm = paddle.nn.BatchNorm2D(16, data_format="NHWC")
        scale = paddle.create_parameter([16], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
        scaled = images * scale.astype(dtype)
        out = paddle.nn.functional.relu(norm(scaled) + scaled)
        # At the rate 0 the weights stay, so that the statistics depend on the images alone.
        paddle.optimizer.SGD(0.0, parameters=[scale, *norm.parameters()]).minimize(out.astype("float32").mean())
        if fuse is not None:
            main = fuse(main)
            names = [each.name() for each in main.global_block().ops]
            answer.facts["fused"] = str(sum("fused_bn_add_activation" in each for each in names) // 2)
        executor = paddle.static.Executor(place_of(spec))
        executor.run(startup)
        numbers = numpy.random.RandomState(spec.seed)
        for _ in range(_STEPS):
            batch = numbers.standard_normal([8, 16, 16, 16]).astype(dtype) * 2 + 1
            executor.run(main, feed={"images": batch.astype(dtype)}, fetch_list=[])
        found = {"mean": norm._mean, "variance": norm._variance}
        return {name: numpy.array(scope.find_var(each.name).get_tensor()) for name, each in found.items()}


_PROBES = {LIBRARIES: _libraries, STATISTICS: _statistics}

if __name__ == "__main__":
    main(sys.argv[1:])
