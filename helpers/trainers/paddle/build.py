"""Builds the program of a GPU job without a GPU: ``python -m helpers.trainers.paddle.build SPEC.json``.

The answer is described in helpers/trainers/common/building.py. For a case with several cards, this process is rank 0
and its environment simulates the others. Files that Paddle writes by itself go to the job's run folder.
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, MutableMapping

from helpers.trainers.common.building import BuildAnswer, run_build
from helpers.trainers.common.float32 import TF32_WANTED
from helpers.trainers.common.process import Refused, set_environment
from helpers.trainers.contract.case import Execution
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.settings import PaddleSettings, setting_facts

# Any port is right: nothing listens, and nothing connects.
_FIRST_PORT = 6170


def main(argv: List[str]) -> int:
    return run_build(argv, build)


def build(spec: JobSpec, answer: BuildAnswer, environment: MutableMapping[str, str]) -> None:
    """Build the model and step of ``spec``, and fill in ``answer``. Raises Refused if this build of Paddle cannot."""
    settings = PaddleSettings.of(spec)
    answer.facts.update(setting_facts(spec, settings))
    # Fleet's sharding writes files of its programs into the current folder.
    os.chdir(spec.run_folder)
    environment.update(spec.environment)
    environment.update(ranks_of(spec))
    set_environment(spec, settings, environment)
    try:
        import paddle
    except ImportError as error:
        raise Refused(f"Paddle is not installed in this interpreter ({error})") from error
    from helpers.trainers.paddle import auto as paddle_auto
    from helpers.trainers.paddle import device as paddle_device

    answer.facts["framework_version"] = str(paddle.__version__)
    answer.facts["cards"] = f"{spec.case.nodes} x {spec.case.cards_per_node}, simulated"
    paddle_device.refuse_what_is_no_case(spec.case)
    answer.facts.update(paddle_device.flag_facts(settings))
    answer.facts["tf32_switches"] = paddle_device.set_tf32_switches(TF32_WANTED.get(spec.case.precision))
    # Without a card the program can only be placed on the CPU.
    paddle.set_device("cpu")
    automatic = paddle_auto.start(spec, answer.facts) if spec.case.auto else None
    if automatic is not None and automatic.way is not paddle_auto.Way.SWITCH:
        raise Refused(f"it is made together with its first step, so it cannot be built alone: {automatic.fact}")
    if spec.case.execution is Execution.STATIC:
        _build_static(spec, settings, answer)
    else:
        _build_dynamic(spec, settings, answer)


def ranks_of(spec: JobSpec) -> Dict[str, str]:
    """The variables of rank 0 of the case, as set by ``paddle.distributed.launch``; empty for one card, which is
    started without it."""
    if spec.case.cards == 1:
        return {}
    places = [
        f"127.0.0.{node + 1}:{_FIRST_PORT + card}"
        for node in range(spec.case.nodes)
        for card in range(spec.case.cards_per_node)
    ]
    return {
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_LOCAL_RANK": "0",
        "PADDLE_TRAINERS_NUM": str(len(places)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(places),
        "PADDLE_CURRENT_ENDPOINT": places[0],
        "FLAGS_selected_gpus": "0",
    }


def _build_static(spec: JobSpec, settings: PaddleSettings, answer: BuildAnswer) -> None:
    import paddle

    from helpers.trainers.paddle import program as paddle_program

    paddle.enable_static()
    try:
        built = paddle_program.build_program(spec, settings, answer.facts)
    except Exception as error:
        # A build for CPUs lacks parts (NCCL, passes), which shows in many kinds of errors. With a build for GPUs any
        # error is a failure.
        if isinstance(error, Refused) or paddle.is_compiled_with_cuda():
            raise
        reason = f"{type(error).__name__}: {error}"
        raise Refused(f"this build of Paddle, which is for CPUs, cannot build a GPU's program: {reason}") from error
    answer.operators = len(built.main.global_block().ops)
    answer.parameters = paddle_program.parameters_of(built.main)


def _build_dynamic(spec: JobSpec, settings: PaddleSettings, answer: BuildAnswer) -> None:
    from helpers.trainers.paddle import steps as paddle_steps

    model = paddle_steps.build_parts(spec, settings, answer.facts).model
    answer.parameters = sum(int(each.size) for each in model.parameters() if not each.stop_gradient)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
