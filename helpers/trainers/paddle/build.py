"""Builds the programs of GPU jobs without a GPU: ``python -m helpers.trainers.paddle.build SPEC.json``.

The answer is described in helpers/trainers/common/building.py. For a case with several cards, this process is rank 0
and its environment simulates the others. Files that Paddle writes by itself go to the job's run folder.

A build of Paddle for CPUs builds them too: what it lacks of a GPU is pretended (pretended.py), and the facts say so.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Dict, List, MutableMapping

from helpers.trainers.common.building import BuildAnswer, run_build
from helpers.trainers.common.float32 import TF32_WANTED
from helpers.trainers.common.process import set_environment
from helpers.trainers.contract.case import Execution
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import COMPANION_FACT, PRETENDED_FACT, pretended_text
from helpers.trainers.paddle.companions import CompanionError, import_paddle
from helpers.trainers.paddle.settings import PaddleSettings

# Any port is right: nothing listens, and nothing connects.
_FIRST_PORT = 6170


def main(argv: List[str]) -> int:
    return run_build(argv, build)


def build(spec: JobSpec, answer: BuildAnswer, environment: MutableMapping[str, str]) -> None:
    """Build the model and step of ``spec``, and fill in ``answer``. Raises Refused if this build of Paddle cannot."""
    try:
        _build(spec, answer, environment)
    except CompanionError as error:
        answer.facts[COMPANION_FACT] = error.distribution
        raise


def _build(spec: JobSpec, answer: BuildAnswer, environment: MutableMapping[str, str]) -> None:
    settings = PaddleSettings.of(spec)
    # Fleet's sharding writes files of its programs into the current folder.
    os.chdir(spec.run_folder)
    environment.update(spec.environment)
    environment.update(ranks_of(spec))
    set_environment(spec, settings, environment)
    paddle = import_paddle()
    from helpers.trainers.paddle import auto as paddle_auto
    from helpers.trainers.paddle import device as paddle_device

    answer.facts["framework_version"] = str(paddle.__version__)
    answer.facts["cards"] = f"{spec.case.nodes} x {spec.case.cards_per_node}, simulated"
    paddle_device.refuse_what_is_no_case(spec.case)
    answer.facts.update(paddle_device.flag_facts(settings))
    answer.facts["tf32_switches"] = paddle_device.set_tf32_switches(TF32_WANTED.get(spec.case.precision))
    # Without a card the program can only be placed on the CPU.
    paddle.set_device("cpu")
    if spec.case.auto:
        paddle_auto.start(spec)
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

    from helpers.trainers.paddle import graph, pretended
    from helpers.trainers.paddle import program as paddle_program

    paddle.enable_static()
    with contextlib.ExitStack() as stack:
        if not paddle.is_compiled_with_cuda():
            said = pretended_text(
                float16=settings.amp_dtype == "float16",
                several_cards=spec.case.cards > 1,
                # FleetX asks for it too, and its network has no batch norm.
                fuses_batch_norm=bool(settings.build_strategy.get("fuse_bn_add_act_ops")),
            )
            answer.facts.update({PRETENDED_FACT: said} if said else {})
            stack.enter_context(pretended.gpu_parts())
            stack.enter_context(pretended.no_nccl_start())
        built = paddle_program.build_program(spec, settings, answer.facts)
    answer.operators = len(built.main.global_block().ops)
    answer.parameters = graph.parameters_of(built.main)


def _build_dynamic(spec: JobSpec, settings: PaddleSettings, answer: BuildAnswer) -> None:
    from helpers.trainers.paddle import steps as paddle_steps

    model = paddle_steps.build_parts(spec, settings, answer.facts).model
    answer.parameters = sum(int(each.size) for each in model.parameters() if not each.stop_gradient)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
