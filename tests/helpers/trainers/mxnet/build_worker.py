"""Builds the program of a GPU job without a GPU. ``operators`` counts those of one card's forward pass with its loss,
since MXNet 1.9 makes the backward pass only while it trains."""

from __future__ import annotations

import json
import math
from typing import Any

import mxnet as mx

from helpers.trainers.common.images import Form
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.mxnet import steps
from helpers.trainers.mxnet.models import trained
from helpers.trainers.mxnet.settings import MxnetSettings


def build(spec: JobSpec, settings: MxnetSettings) -> dict[str, Any]:
    """Trace the network and loss of ``spec``."""
    steps.begin_amp(settings)
    network = steps.network_for(spec, settings)
    logits = network(mx.sym.var("images"))
    loss = steps.SmoothedLoss(settings)(logits, mx.sym.var("labels"))
    batch = spec.case.batch_size_per_card
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    shapes, losses, _ = loss.infer_shape(images=form.shape(batch), labels=(batch,))
    assert losses == [(batch,)]
    found = steps.convolutions(logits, {"images": settings.input_dtype})
    facts = steps.check_convolutions(found, settings, steps.number_of_convolutions(network))
    of = dict(zip(loss.list_arguments(), shapes, strict=True))
    parameters = sum(math.prod(of[each.name]) for each in trained(network).values())
    operators = sum(node["op"] != "null" for node in json.loads(loss.tojson())["nodes"])
    return {"facts": facts, "operators": operators, "parameters": parameters}
