"""Builds the program of a GPU job without a GPU: ``python -m tests.helpers.trainers.mxnet.build_worker SPEC.json`` (see
``common.building``).

``operators`` counts those of one card's forward pass with its loss, since MXNet 1.9 makes the backward pass only while
it trains.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import MutableMapping

from helpers.trainers.common.building import BuildAnswer, run_build
from helpers.trainers.common.images import Form
from helpers.trainers.common.process import Refused, not_imported, set_environment
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.mxnet.settings import MxnetSettings


def build(spec: JobSpec, answer: BuildAnswer, environment: MutableMapping[str, str]) -> None:
    """Trace the network and loss of ``spec``, and fill in ``answer``. Raises Refused if MXNet cannot build them."""
    settings = MxnetSettings.of(spec)
    environment.update(spec.environment)
    set_environment(spec, settings, environment)
    try:
        import mxnet as mx
    except (ImportError, OSError) as error:
        raise not_imported("MXNet", "mxnet", error) from error
    from helpers.trainers.mxnet import steps
    from helpers.trainers.mxnet.device import last_line
    from helpers.trainers.mxnet.models import trained

    answer.facts["framework_version"] = str(mx.__version__)
    answer.facts["cards"] = f"{spec.case.cards_per_node} in one process; traced for one of them"
    steps.begin_amp(settings)
    network = steps.network_for(spec, settings)
    logits = network(mx.sym.var("images"))
    loss = steps.SmoothedLoss(settings)(logits, mx.sym.var("labels"))
    batch = spec.case.batch_size_per_card
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    try:
        shapes, (losses,), _ = loss.infer_shape(images=form.shape(batch), labels=(batch,))
        found = steps.convolutions(logits, {"images": settings.input_dtype})
    except mx.MXNetError as error:
        raise Refused(f"MXNet does not take the case's images: {last_line(error)}") from error
    if losses != (batch,):
        raise Refused(f"MXNet gives losses of the shape {losses} to {batch} images")
    answer.facts.update(steps.check_convolutions(found, settings, steps.number_of_convolutions(network)))
    of = dict(zip(loss.list_arguments(), shapes, strict=True))
    answer.parameters = sum(math.prod(of[each.name]) for each in trained(network).values())
    answer.operators = sum(node["op"] != "null" for node in json.loads(loss.tojson())["nodes"])


if __name__ == "__main__":
    sys.exit(run_build(sys.argv[1:], build))
