"""Trains a GPU's program of one card in an executor on the CPU: ``python gpu_program_worker.py SPEC.json``.

As a trainer on a GPU starts it: without a launcher, through fleet, with its passes. The last line on standard
output is a JSON list, the loss of each of STEPS steps on one batch.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy

from helpers.trainers.common.images import Form, Share, synthetic_batch
from helpers.trainers.common.process import set_environment
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.job import JobSpec

STEPS = 5


def main(path: str) -> None:
    spec = JobSpec.from_json(Path(path).read_text(encoding="utf-8"))
    settings = Settings.of(spec)
    set_environment(spec, settings, os.environ)
    import paddle

    from helpers.trainers.paddle import data as paddle_data
    from helpers.trainers.paddle import program as paddle_program

    paddle.set_device("cpu")
    paddle.enable_static()
    built = paddle_program.build_program(spec, settings, {})
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(built.startup)
    feed = paddle_data.program_feed(paddle.CPUPlace())
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    images, labels = map(feed, synthetic_batch(Share(0, 1, spec.case.batch_size_per_card, spec.seed), form))
    losses = []
    for _ in range(STEPS):
        (loss,) = executor.run(
            built.main, feed={"images": images, "labels": labels}, fetch_list=[built.loss], return_numpy=False
        )
        losses.append(float(numpy.asarray(loss).reshape(-1)[0]))
    print(json.dumps(losses))


if __name__ == "__main__":
    main(sys.argv[1])
