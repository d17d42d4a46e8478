"""The training configuration of an MXNet case.

ResNet50 read by DALI, or from a source that the early draft leaves open, is trained as NVIDIA's script was. Every other
case has the optimizer, input and loss of the Paddle trainer for the same case, so that the frameworks can be compared.
"""

from __future__ import annotations

from helpers.plan.recipes import Fixed, Setting, SettingsTable, Source, group, own
from helpers.plan.recipes.common import (
    BFLOAT16,
    NO_AMP,
    common_fixed,
    decoding,
    heap_settings,
    is_single_precision,
)
from helpers.plan.recipes.publishers import MXNET, MXNET_SCRIPT, published_recipe
from helpers.plan.recipes.scheduled import (
    AS_PADDLE,
    refuse_others,
    scaled_rate,
    scheduled_fixed,
    scheduled_settings,
    without_mixed_precision,
)
from helpers.trainers.contract.case import Case, DataSource, Precision
from helpers.trainers.contract.errors import ConfigError

_ON_A_GPU = (Precision.FP32, Precision.TF32, Precision.AMP)
# The script's epochs while the rate rises.
_EPOCH_IMAGES, _WARMUP_EPOCHS = 32_000, 5


def mxnet_settings(case: Case, on_gpu: bool) -> SettingsTable:
    """The settings of ``case``. Raises ConfigError on what MXNet has nothing for."""
    # Its bfloat16 is oneDNN's, of a CPU.
    refuse_others(case, _ON_A_GPU if on_gpu else (*_ON_A_GPU, Precision.BF16))
    _refuse_nodes(case)
    return {
        **scheduled_settings(case, on_gpu, _published(case, on_gpu)),
        **_layout(),
        **_precision(case, on_gpu),
        **_exchange(case),
        "static_alloc": Setting(True, Source(MXNET_SCRIPT)),
        "static_shape": Setting(True, Source(MXNET_SCRIPT)),
        **_environment(on_gpu),
    }


def mxnet_fixed(case: Case, on_gpu: bool) -> tuple[Fixed, ...]:
    """What the trainer does for ``case`` whatever its settings say."""
    smoothing = mxnet_settings(case, on_gpu)["label_smoothing"]
    source = Source(MXNET_SCRIPT) if _published(case, on_gpu) else AS_PADDLE
    weights = Fixed("optimizer's weights", "float32 master copies (multi_precision)", Source(MXNET_SCRIPT))
    return (
        *scheduled_fixed(case, smoothing, source),
        Fixed("update", "by each card's own optimizer (update_on_kvstore=False)", Source(MXNET_SCRIPT)),
        *((weights,) if case.precision is Precision.AMP and on_gpu else ()),
        *decoding(case, on_gpu, "DALI", source),
        *common_fixed(case, on_gpu, "forced off (NVIDIA_TF32_OVERRIDE=0)"),
    )


def _refuse_nodes(case: Case) -> None:
    if case.nodes > 1:
        raise ConfigError(
            f"case {case.id}", field="nodes", got=case.nodes, expected="1: MXNet's trainer has one node",
            remedy="No figure of MXNet is published for several; its kvstore between processes gave wrong sums",
        )  # fmt: skip


def _published(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """What the document and the script state for the case; empty for a case of no published kind."""
    is_read_by_dali = case.data in (DataSource.DALI, DataSource.UNSTATED)
    if not published_recipe(case).has_other_frameworks or case.precision is Precision.BF16 or not is_read_by_dali:
        return {}
    stated, script = Source(MXNET), Source(MXNET_SCRIPT)
    if case.data is DataSource.UNSTATED:
        stated = own("the early draft states nothing: as the Paddle report's rows of the same script")
    crop = {"crop_area": [0.08, 1.0], "crop_aspect_ratio": [0.75, 4 / 3], "flip_probability": 0.5}
    default = Source(MXNET_SCRIPT, "it leaves the crop to DALI's defaults")
    rises = Source(
        MXNET_SCRIPT, "5 epochs of 32,000 images; of several cards as of one, whose rate would end at 0 else"
    )
    return {
        "optimizer": Setting("momentum", Source(MXNET_SCRIPT, "SGD")),
        "learning_rate": scaled_rate(0.256, case, stated),
        "momentum": Setting(0.875, stated),
        "weight_decay": Setting(3.0517578125e-05, stated),
        "learning_rate_schedule": Setting("cosine", stated),
        "learning_rate_warmup_steps": Setting(_WARMUP_EPOCHS * _EPOCH_IMAGES // case.batch_size_per_card, rises),
        "learning_rate_decay_steps": Setting(_decay_steps(case), own("90 epochs of ImageNet; a run ends long before")),
        "label_smoothing": Setting(0.1, stated),
        "decay_norms": Setting(True, Source(MXNET_SCRIPT, "one weight decay for all parameters")),
        "batch_norm_momentum": Setting(0.9, script),
        "batch_norm_epsilon": Setting(1e-5, script),
        **group("augmentation", crop, default),
        **(_dali() if on_gpu else {}),
    }


def _decay_steps(case: Case) -> int:
    return 90 * 1_281_167 // (case.batch_size_per_card * case.cards)


def _dali() -> dict[str, Setting]:
    return group(
        "dali",
        {
            "threads": 4,
            "prefetch_queue_depth": 2,
            "num_attempts": 10,
            "device_memory_padding": 64 * 2**20,
            "host_memory_padding": 64 * 2**20,
        },
        Source(MXNET_SCRIPT),
    )


def _layout() -> dict[str, Setting]:
    """In single precision and on a CPU; float16 has its own."""
    return {
        "layout": Setting("NCHW", Source(MXNET_SCRIPT)),
        "feed_layout": Setting("NCHW", Source(MXNET_SCRIPT)),
        "input_channels": Setting(3, Source(MXNET_SCRIPT)),
        "input_dtype": Setting("float32", Source(MXNET_SCRIPT)),
    }


def _precision(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """All in float16 without a scaled loss on a GPU, and bfloat16 around single operators on a CPU."""
    if is_single_precision(case):
        return {**without_mixed_precision(NO_AMP), "amp_through": Setting(None, NO_AMP)}
    if not on_gpu:
        return {
            **without_mixed_precision(BFLOAT16),
            "amp_level": Setting("O1", BFLOAT16),
            "amp_dtype": Setting("bfloat16", BFLOAT16),
            "amp_through": Setting("amp", own("mxnet.contrib.amp, MXNet's only switch for bfloat16")),
        }
    stated = Source(MXNET, "fp16 with 4 channels NHWC")
    cast = Source(MXNET_SCRIPT, "dtype float16, amp False in the log")
    return {
        **without_mixed_precision(Source(MXNET_SCRIPT, "no loss scaling")),
        "amp_level": Setting("O2", cast),
        "amp_dtype": Setting("float16", stated),
        "amp_through": Setting("cast", cast),
        "layout": Setting("NHWC", stated),
        "feed_layout": Setting("NCHW", Source(MXNET_SCRIPT, "batches come as NCHW and the model transposes them")),
        "input_channels": Setting(4, stated),
        "input_dtype": Setting("float16", stated),
    }


def _exchange(case: Case) -> dict[str, Setting]:
    """One process drives the node's cards: without Horovod MXNet has no dependable exchange between processes."""
    one_process = own("one process drives all cards of a node through its kvstore; the publisher's was Horovod")
    kvstore = (
        Setting("device", one_process) if case.cards > 1 else Setting(None, own("one card has nothing to exchange"))
    )
    return {
        "cards_per_process": Setting(case.cards_per_node, one_process),
        "kvstore": kvstore,
    }


def _environment(on_gpu: bool) -> dict[str, Setting]:
    if not on_gpu:
        return heap_settings()
    variables = {
        "MXNET_UPDATE_ON_KVSTORE": "0",
        "MXNET_EXEC_ENABLE_ADDTO": "1",
        "MXNET_USE_TENSORRT": "0",
        "MXNET_GPU_WORKER_NTHREADS": "2",
        "MXNET_GPU_COPY_NTHREADS": "1",
        "MXNET_OPTIMIZER_AGGREGATION_SIZE": "60",
        "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_FWD": "999",
        "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD": "25",
        "OMP_NUM_THREADS": "1",
    }
    searched = Source(MXNET_SCRIPT, "the log shows that cuDNN's algorithms were searched")
    return {
        **group("environment", variables, Source(MXNET_SCRIPT)),
        "environment.MXNET_CUDNN_AUTOTUNE_DEFAULT": Setting("1", searched),
    }
