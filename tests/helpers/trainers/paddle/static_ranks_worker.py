"""Trains one rank of a GPU's program of two cards on the CPU: ``python static_ranks_worker.py SPEC.json RANK PORT``.

The program is the trainer's own; NCCL's start-up and the waiting for its stream are left out, and gloo sums in the
place of NCCL. PORT to PORT + 2 must be free. The last line on standard output is one JSON object: the kind of the
program, the loss of each of STEPS steps on one batch, the sum of the weights after each, and ``one_too_few``: the sums
of an old program trained anew without its last all-reduce.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy

from helpers.trainers.common.images import Form, Share, synthetic_batch
from helpers.trainers.common.process import set_environment
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.job import JobSpec

STEPS = 3
WORLD_SIZE = 2


def main(path: str, rank: int, port: int) -> None:
    spec = JobSpec.from_json(Path(path).read_text(encoding="utf-8"))
    settings = Settings.of(spec)
    set_environment(spec, settings, os.environ)
    places = [f"127.0.0.1:{port + each}" for each in range(WORLD_SIZE)]
    os.environ.update(
        PADDLE_TRAINER_ID=str(rank), PADDLE_TRAINERS_NUM=str(WORLD_SIZE), PADDLE_TRAINER_ENDPOINTS=",".join(places),
        PADDLE_CURRENT_ENDPOINT=places[rank], PADDLE_MASTER=f"127.0.0.1:{port + 2}", FLAGS_selected_gpus="0",
    )  # fmt: skip
    import paddle

    from helpers.trainers.paddle import data as paddle_data
    from helpers.trainers.paddle import pretended
    from helpers.trainers.paddle import program as paddle_program
    from helpers.trainers.paddle.pir_program import connect_ranks

    paddle.set_device("cpu")
    paddle.seed(spec.seed)
    paddle.enable_static()
    facts: dict[str, str] = {}
    with pretended.no_nccl_start():
        built = paddle_program.build_program(spec, settings, facts)
    one_too_few = None
    if facts["program"] != "PIR":
        for each in (built.main, built.startup):
            _remove(each, "c_sync_comm_stream")
        one_too_few = built.main.clone()
        _remove(one_too_few, "all_reduce", 1)
    connect_ranks("cpu", rank, WORLD_SIZE)
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    batch = synthetic_batch(Share(rank, WORLD_SIZE, spec.case.batch_size_per_card, spec.seed), form)
    images, labels = map(paddle_data.program_feed(paddle.CPUPlace()), batch)
    executor = paddle.static.Executor(paddle.CPUPlace())

    def train(program: Any) -> tuple[list[float], list[float]]:
        executor.run(built.startup)
        losses, sums = [], []
        for _ in range(STEPS):
            feed = {"images": images, "labels": labels}
            fetched = executor.run(program, feed=feed, fetch_list=[built.loss], return_numpy=False)
            losses.append(float(numpy.asarray(fetched[0]).reshape(-1)[0]))
            sums.append(_sum_of_weights(program))
        return losses, sums

    losses, sums = train(built.main)
    without = train(one_too_few)[1] if one_too_few is not None else None
    print(json.dumps({"program": facts["program"], "losses": losses, "sums": sums, "one_too_few": without}))


def _remove(program: Any, kind: str, most: int | None = None) -> None:
    block = program.global_block()
    places = [place for place, op in enumerate(block.ops) if op.type == kind]
    for place in list(reversed(places))[:most]:
        block._remove_op(place)


def _sum_of_weights(program: Any) -> float:
    import paddle

    holder = program.global_block() if hasattr(program.global_block(), "all_parameters") else program
    scope = paddle.static.global_scope()
    names = [each.name for each in holder.all_parameters() if each.trainable]
    weights = [numpy.asarray(scope.find_var(name).get_tensor()) for name in names]
    return float(sum(numpy.abs(each.astype("float64")).sum() for each in weights))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
