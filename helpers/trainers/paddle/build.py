"""Builds the programs of GPU jobs without a GPU: ``python -m helpers.trainers.paddle.build SPEC.json``.

The last line on standard output is one JSON object: ``built``; ``reason`` (empty if built); ``facts`` as in the header
of a step log, including the options and flags that this build does not know; ``operators`` of the program (their
number, null if there is no program); ``parameters`` (how many the optimizer trains). Exit status: 0 built, 1 failed, 3
refused.

For a case with several cards, this process is rank 0 and its environment simulates the others. Files that Paddle writes
by itself go to the job's run folder.

A build of Paddle for CPUs builds them too: what it lacks of a GPU is pretended (pretended.py), and the facts say so.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, List, Optional

from helpers.trainers.common.float32 import TF32_WANTED
from helpers.trainers.common.process import (
    EXIT_COMPLETE,
    EXIT_FAILED,
    EXIT_REFUSED,
    Refused,
    one_line,
    set_environment,
)
from helpers.trainers.contract.case import Execution
from helpers.trainers.contract.errors import ConfigError, SuiteError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import COMPANION_FACT, PRETENDED_FACT, pretended_text
from helpers.trainers.paddle.companions import CompanionError, import_paddle
from helpers.trainers.paddle.settings import PaddleSettings

# Any port is right: nothing listens, and nothing connects.
_FIRST_PORT = 6170


@dataclass
class BuildAnswer:
    """The result of a build check; filled in step by step."""

    built: bool = False
    reason: str = ""
    facts: Dict[str, str] = field(default_factory=dict)
    operators: Optional[int] = None
    parameters: Optional[int] = None


def main(argv: List[str]) -> int:
    """Build the job that ``argv`` names, in this process's environment, and print the answer; returns the status."""
    answer = BuildAnswer()
    try:
        build(_read(argv), answer)
        status, answer.built = EXIT_COMPLETE, True
    except Refused as refusal:
        status, answer.reason = EXIT_REFUSED, str(refusal)
    except (SuiteError, OSError, UnicodeDecodeError) as error:
        if isinstance(error, CompanionError):
            answer.facts[COMPANION_FACT] = error.distribution
        status, answer.reason = EXIT_FAILED, str(error)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the answer says so and the status is not 0
        traceback.print_exc()
        status, answer.reason = EXIT_FAILED, f"{type(error).__name__}: {error}"
    answer.reason = one_line(answer.reason)
    print(json.dumps(asdict(answer), sort_keys=True), flush=True)
    return status


def _read(argv: List[str]) -> JobSpec:
    if len(argv) != 1:
        given = " ".join(argv) or "no argument"
        raise ConfigError("build check", got=given, expected="one argument: a job's spec.json")
    spec = JobSpec.from_json(Path(argv[0]).read_text(encoding="utf-8"), about=argv[0])
    if spec.device != "gpu":
        remedy = "A job on a CPU is not built but run, by helpers.trainers.paddle.trainer"
        raise ConfigError("build check", field="device", got=spec.device, expected="gpu", remedy=remedy)
    return spec


def build(spec: JobSpec, answer: BuildAnswer) -> None:
    """Build the model and step of ``spec``, and fill in ``answer``. Raises Refused if this build of Paddle cannot."""
    settings = PaddleSettings.of(spec)
    # Fleet's sharding writes files of its programs into the current folder.
    os.chdir(spec.run_folder)
    os.environ.update(spec.environment)
    os.environ.update(ranks_of(spec))
    set_environment(spec, settings, os.environ)
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

    model = paddle_steps.DynamicStep(spec, settings, answer.facts, ranks=1).model
    answer.parameters = sum(int(each.size) for each in model.parameters() if not each.stop_gradient)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
