"""The logs of Paddle's ResNet and VGG scripts: PaddleClas' generations, FleetX, TIPC's summary, and DLPerf's script.

Their images/s are of one card (TIPC's line alone is of all). What a PaddleClas record is the mean of, by its source
(PaddlePaddle/PaddleClas; ``metric_list["batch_time"].avg``, started anew at the step named):

- static, tools/static/program.py and ppcls/static/program.py: since step 5 of the epoch, up to today.
- dynamic 2.0 and 2.1, tools/program.py: since step 10. Its lines have commas behind the epoch and the step.
- dynamic 2.2 to 2.5, ppcls/engine/train/: since step 5. In April 2024 its develop branch began to start anew at every
  printed line (ppcls/engine/train/utils.py, 07de476); such lines look the same, and time stamps show the difference.
- 2020, branch release/static, tools/program.py: ``elapse``; with ``ips`` it is the mean since step 5 in the published
  logs (step 10 in that branch since 2020-11-27, which moves a figure by less than its rounding); without ``ips`` each
  step's own seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from helpers.logs.formats.configure_fleet import of_dlperf, of_fleetx, of_fleetx_dynamic, of_tipc
from helpers.logs.formats.configure_paddle import of_paddleclas, of_paddleclas_dynamic
from helpers.logs.formats.dllogger import BETWEEN, COUNT, SPACES, group
from helpers.logs.record import STAMP_BEGINS, STAMP_ENDS, FormatSpec, RateOf

_RULES = ("paddleclas-trimmed", "paddleclas-mean")

# A number that something definite follows; nan, None and an address match nothing.
_NUMBER = rb"[-+]?\d{1,32}(?:\.\d{0,32})?(?:[eE][-+]?\d{1,4})?"
_EPOCH, _STEP = group("epoch", COUNT), group("step", COUNT)
_RATE = rb"ips:" + SPACES + group("images_per_s", _NUMBER) + rb" (?:images|samples)/s"
# Behind the literal that begins a record, so that searching for it stays fast: "[2022/12/02 18:10:52] ppcls INFO: ".
_DAY_AND_TIME = group("time", rb"\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d")


def _stamp(behind: bytes) -> bytes:
    """The time stamp, where the line has one; ``behind`` stands between it and where the pattern is."""
    return STAMP_BEGINS + rb"(?:(?<=" + _DAY_AND_TIME + behind + rb"))?" + STAMP_ENDS


# The lines that only one process of a job prints, before anything else that tells its configuration.
_STARTS = (
    re.compile(rb"-----------  Configuration(?: Arguments)? +----------"),
    re.compile(rb"==        PaddleClas is powered by PaddlePaddle !        =="),
)
_TIPC_MARKER = b'"model_name": '
_TIPC_RATE = rb'"(?:ips|FINAL_RESULT)":' + SPACES + rb'"?' + group("images_per_s", _NUMBER) + rb'"?[,}]'
_TIPC_UNIT = rb'"(?:speed_unit|UNIT)":' + SPACES + rb'"(?:images|imgs|samples)/s'
_TIPC = _TIPC_MARKER + rb"(?=" + BETWEEN + _TIPC_UNIT + rb")" + BETWEEN + rb"?" + _TIPC_RATE


def _ends_of_epochs(rate: bytes) -> Mapping[str, re.Pattern[bytes]]:
    return MappingProxyType(
        {"epoch": re.compile(rb"END epoch:" + _EPOCH + SPACES + rb",?" + SPACES + rb"train " + BETWEEN + rate)}
    )


STATIC = FormatSpec(
    name="paddleclas",
    title="PaddleClas, static graph (since 2021)",
    marker=b" train step:",
    record=re.compile(
        rb"epoch:"
        + _stamp(rb"\] ppcls INFO: epoch:")
        + _EPOCH
        + SPACES
        + rb"train step:"
        + _STEP
        + rb" "
        + BETWEEN
        + rb"batch_cost:"
        + SPACES
        + group("step_seconds", _NUMBER)
        + rb" s,"
        + SPACES
        + rb"reader_cost:"
        + SPACES
        + group("reader_seconds", _NUMBER)
        + rb" s,"
        + SPACES
        + _RATE
    ),
    looked_for="lines 'INFO: epoch:N train step:N ... batch_cost: N s, reader_cost: N s, ips: N images/sec'",
    rate_of=RateOf.CARD,
    configure=of_paddleclas,
    rules=_RULES,
    starts=_STARTS,
    printed=_ends_of_epochs(_RATE),
    running_mean=5,
)

DYNAMIC = FormatSpec(
    name="paddleclas-dynamic",
    title="PaddleClas, dynamic graph (2.2 and later)",
    marker=b", eta: ",
    record=re.compile(
        rb"\[Train\]\[Epoch "
        + _stamp(rb"\] ppcls INFO: \[Train\]\[Epoch ")
        + _EPOCH
        + rb"/\d{1,12}\]\[Iter: "
        + _STEP
        + rb"/\d{1,12}\]"
        + BETWEEN
        + rb"batch_cost:"
        + SPACES
        + group("step_seconds", _NUMBER)
        + SPACES
        + rb"s,"
        + SPACES
        + rb"reader_cost:"
        + SPACES
        + group("reader_seconds", _NUMBER)
        + SPACES
        + rb"s?,"
        + SPACES
        + _RATE
    ),
    looked_for="lines '[Train][Epoch N/N][Iter: N/N]... batch_cost: Ns, reader_cost: N, ips: N samples/s, eta: ...'",
    rate_of=RateOf.CARD,
    configure=of_paddleclas_dynamic,
    rules=_RULES,
    starts=_STARTS,
    running_mean=5,
)

DYNAMIC_2021 = FormatSpec(
    name="paddleclas-dynamic-2021",
    title="PaddleClas, dynamic graph (2.0 and 2.1)",
    marker=b", train step:",
    record=re.compile(
        rb"epoch:"
        + _stamp(rb" INFO: epoch:")
        + _EPOCH
        + SPACES
        + rb", train step:"
        + _STEP
        + SPACES
        + rb","
        + BETWEEN
        + rb"batch_cost:"
        + SPACES
        + group("step_seconds", _NUMBER)
        + rb" s,"
        + SPACES
        + rb"reader_cost:"
        + SPACES
        + group("reader_seconds", _NUMBER)
        + rb" s,"
        + SPACES
        + _RATE
    ),
    looked_for="lines 'INFO: epoch:N , train step:N , ... batch_cost: N s, reader_cost: N s, ips: N images/sec'",
    rate_of=RateOf.CARD,
    configure=of_paddleclas_dynamic,
    rules=_RULES,
    starts=_STARTS,
    printed=_ends_of_epochs(_RATE),
    running_mean=10,
)

STATIC_2020 = FormatSpec(
    name="paddleclas-2020",
    title="PaddleClas, static graph (end of 2020)",
    marker=b" train step:",
    record=re.compile(
        rb"epoch:"
        + _stamp(rb" INFO: epoch:")
        + _EPOCH
        + SPACES
        + rb"train step:"
        + _STEP
        + rb" "
        + BETWEEN
        + rb"elapse:"
        + SPACES
        + group("step_seconds", _NUMBER)
        + SPACES
        + rb"s "
        + SPACES
        + _RATE
    ),
    looked_for="lines 'INFO: epoch:N train step:N ... elapse: Ns ips: N images/sec'",
    rate_of=RateOf.CARD,
    configure=of_paddleclas,
    rules=_RULES,
    starts=_STARTS,
    printed=_ends_of_epochs(_RATE),
    running_mean=5,
)

ELAPSE_2020 = FormatSpec(
    name="paddleclas-2020-elapse",
    title="PaddleClas before November 2020, which prints no images/s",
    marker=b" train step:",
    record=re.compile(
        rb"epoch:"
        + _stamp(rb" INFO: epoch:")
        + _EPOCH
        + SPACES
        + rb"train step:"
        + _STEP
        + rb" "
        + BETWEEN
        + rb"elapse:"
        + SPACES
        + group("step_seconds", _NUMBER)
        + rb"(?: "
        + SPACES
        + rb"reader"
        + SPACES
        + rb":"
        + SPACES
        + group("reader_seconds", _NUMBER)
        + rb")?"
        + SPACES
        + rb"s"
        + SPACES
        + rb"(?![^\n])"
    ),
    looked_for="lines 'INFO: epoch:N train step:N ... elapse: Ns'",
    rate_of=RateOf.CARD,
    configure=of_paddleclas,
    rules=_RULES,
    starts=_STARTS,
)

# PaddlePaddle/FleetX, deprecated/benchmark/collective/resnet/train_with_fleet.py and deprecated/examples: a record is
# the mean of the steps since the one before it, speed = batch of one process / it.
FLEETX = FormatSpec(
    name="fleetx",
    title="FleetX's ResNet and VGG scripts (Pass N, trainbatch N)",
    marker=b", trainbatch ",
    record=re.compile(
        rb"Pass "
        + _EPOCH
        + rb", trainbatch "
        + _STEP
        + rb", loss "
        + BETWEEN
        + rb"time"
        + SPACES
        + group("step_seconds", _NUMBER)
        + rb" sec,"
        + SPACES
        + rb"speed:?"
        + SPACES
        + group("images_per_s")
    ),
    looked_for="lines 'Pass N, trainbatch N, loss N, ... time N sec, speed N'",
    rate_of=RateOf.CARD,
    configure=of_fleetx,
    rules=("fleetx-20-100-median7",),
    printed=MappingProxyType(
        {"epoch": re.compile(rb"End pass " + _EPOCH + rb", train_loss " + BETWEEN + rb"speed " + group("images_per_s"))}
    ),
)

# PaddlePaddle/FleetX, python/fleetx/applications/trainer.py (its VGG16 and ResNet50 benchmarks): speed is 1 / the
# seconds of the step, so steps/s; step 11 is the first that is printed.
FLEETX_TRAINER = FormatSpec(
    name="fleetx-trainer",
    title="FleetX's trainer (epoch id: N, stepN)",
    marker=b", total time cost = ",
    record=re.compile(
        rb"(?:epoch id: "
        + _EPOCH
        + rb"|worker_index: \d{1,12}), step"
        + _STEP
        + rb", train_loss: [^,\n]{0,100}, total time cost = [^,\n]{0,100}, step per second: [^,\n]{0,100}, speed:"
        + SPACES
        + group("steps_per_s")
    ),
    looked_for="lines 'epoch id: N, stepN, train_loss: N, total time cost = N, step per second: N, speed: N'",
    rate_of=RateOf.CARD,
    configure=of_fleetx,
    rules=("fleetx-20-100-median7",),
    record_covers=1,
)

# Fleet's dynamic example prints epoch, batch and loss; where a rate with its unit stands behind, it is a process's.
FLEETX_DYNAMIC = FormatSpec(
    name="fleetx-dynamic",
    title="Fleet's dynamic example with a rate ([Epoch N, batch N])",
    marker=b", batch ",
    record=re.compile(
        rb"\[Epoch "
        + _EPOCH
        + rb", batch "
        + _STEP
        + rb"\]"
        + BETWEEN
        + rb"(?:ips|speed|throughput):"
        + SPACES
        + group("images_per_s", _NUMBER)
        + rb" (?:images|imgs|img|samples)/s"
    ),
    looked_for="lines '[Epoch N, batch N] loss: N, ... ips: N images/s'",
    rate_of=RateOf.CARD,
    configure=of_fleetx_dynamic,
    rules=("fleetx-20-100-median7",),
)

# PaddlePaddle/benchmark's analysis.py, called by test_tipc/benchmark_train.sh: ips is the mean of the records times
# the cards. Before 2021 its keys were FINAL_RESULT and UNIT. A line in another unit (ms/iteration) is not read.
_TIPC_RECORD = re.compile(_TIPC)
TIPC = FormatSpec(
    name="tipc",
    title="TIPC's summary line (JSON)",
    marker=_TIPC_MARKER,
    record=_TIPC_RECORD,
    looked_for='a line {"model_name": ..., "ips": N, "speed_unit": "images/s", ...}',
    rate_of=RateOf.JOB,
    configure=of_tipc,
    rules=("tipc-summary",),
    # Each line is another job's.
    starts=(_TIPC_RECORD,),
    is_summary=True,
)

# PaddlePaddle/models release/1.8, PaddleCV/image_classification: each line is one step's seconds.
DLPERF_PADDLE = FormatSpec(
    name="dlperf-paddle",
    title="Paddle 1.8's image classification, as DLPerf runs it",
    marker=b", train batch ",
    record=re.compile(
        rb"\[Pass (?:(?<="
        + group("time", rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
        + rb"-INFO: \[Pass ))?"
        + _EPOCH
        + rb", train batch "
        + _STEP
        + rb"\]"
        + BETWEEN
        + rb"elapse"
        + SPACES
        + group("step_seconds", _NUMBER)
        + rb" sec"
    ),
    looked_for="lines '[Pass N, train batch N] loss N, ... elapse N sec'",
    rate_of=RateOf.CARD,
    configure=of_dlperf,
    rules=("dlperf-log", "dlperf-time"),
    starts=(re.compile(rb"-----------  Configuration Arguments -----------"),),
    record_covers=1,
)

_EVERY = (
    STATIC,
    DYNAMIC,
    DYNAMIC_2021,
    STATIC_2020,
    ELAPSE_2020,
    FLEETX,
    FLEETX_TRAINER,
    FLEETX_DYNAMIC,
    TIPC,
)
PADDLE_FORMATS: Mapping[str, FormatSpec] = MappingProxyType({spec.name: spec for spec in _EVERY})
