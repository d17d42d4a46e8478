"""What the recipes of all frameworks share: optimizer, input, loss scaling, and their numbers.

The sources are those of Paddle, whose figures the numbers are of; another framework's recipe says its own.
"""

from __future__ import annotations

from helpers.plan.recipes.documents import COMMON, DALI, FLEETX, FP16, FP32, NATIVE, PADDLECLAS, VGG16
from helpers.plan.recipes.setting import Fixed, Setting, Source, group, own
from helpers.trainers.contract.case import Case, DataSource, Precision
from helpers.trainers.contract.models import Publisher, Residual, spec_of

# The batch that a model's learning rate belongs to: smaller global batches on a CPU scale it down in proportion.
REFERENCE_BATCH = 256
# The first loss scale: PaddleClas states 128 for pure float16; FleetX's strategy.amp has its own default.
DYNAMIC_LOSS_SCALING = 128.0
FLEET_LOSS_SCALING = 32768.0
# Both leave these to the defaults of paddle.static.amp.decorate for float16 and of strategy.amp_configs, which agree.
LOSS_SCALING_RULE = {"incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0, "decr_ratio": 0.8}

NO_AMP = own("no mixed precision: the case's precision says so")
BFLOAT16 = own("mixed precision in bfloat16, whose range needs no loss scaling")
AS_THE_CASE_SAYS = own("what the case's precision means on a GPU")
FOR_EVERY_CASE = own("the same for every case")


def follows_fleetx(case: Case) -> bool:
    return spec_of(case.model).follows is Publisher.FLEETX


def is_residual(case: Case) -> bool:
    return isinstance(spec_of(case.model).network, Residual)


def is_single_precision(case: Case) -> bool:
    return case.precision in (Precision.FP32, Precision.TF32)


def is_pure_residual(case: Case) -> bool:
    """A residual network in pure half precision, whatever the type: it works with NHWC and 4 channels."""
    return case.precision is Precision.AMP_O2 and is_residual(case)


def common_settings(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """Optimizer and input of a case; a framework's recipe adds precision and what is its own."""
    return {
        **_optimizer(case, on_gpu),
        **_layout(case, on_gpu),
        **_augmentation(case),
        **_dali(on_gpu),
        **_native(on_gpu),
    }


def without_loss_scaling(source: Source) -> dict[str, Setting]:
    return {"loss_scaling": Setting(None, source), **group("loss_scaling_rule", {}, source)}


def dynamic_loss_scaling(case: Case) -> dict[str, Setting]:
    """First scale and rule of float16 with dynamic loss scaling."""
    if follows_fleetx(case):
        first = Setting(FLEET_LOSS_SCALING, Source(FLEETX, "dynamic, strategy.amp's own first scale"))
    elif is_pure_residual(case):
        first = Setting(DYNAMIC_LOSS_SCALING, Source(FP16, "dynamic, the first scale"))
    else:
        first = Setting(DYNAMIC_LOSS_SCALING, own("dynamic, from the first scale of the FP16 rows"))
    rule = Source(FLEETX if follows_fleetx(case) else PADDLECLAS, "Paddle's default")
    return {"loss_scaling": first, **group("loss_scaling_rule", LOSS_SCALING_RULE, rule)}


def common_fixed(case: Case, on_gpu: bool, forced_off: str) -> tuple[Fixed, ...]:
    """What every framework's trainer does alike; ``forced_off`` says how it switches TF32 off."""
    fixed = []
    if case.data is DataSource.SYNTHETIC:
        fixed.append(Fixed("data", "one batch of random numbers, made once", FOR_EVERY_CASE))
    if on_gpu and is_single_precision(case):
        forced = forced_off if case.precision is Precision.FP32 else "forced on"
        fixed.append(Fixed("TF32", f"{forced} and checked in the process", FOR_EVERY_CASE))
    return tuple(fixed)


def network_words(case: Case) -> str:
    if is_residual(case):
        return "v1.5: stride 2 in the 3x3 convolution"
    return "VGG16 with convolution bias, no batch norm"


def decoding(case: Case, on_gpu: bool, workers: str, source: Source) -> tuple[Fixed, ...]:
    """How images of files are decoded, nothing for others; ``workers`` names those of the framework's own loader."""
    if case.data is DataSource.NATIVE:
        return (Fixed("decoding", f"{workers}: random resized crop, flip, normalise", source),)
    if case.data not in (DataSource.DALI, DataSource.DALI_CPU):
        return ()
    where = "GPU (mixed)" if case.data is DataSource.DALI and on_gpu else "CPU"
    return (Fixed("decoding", f"DALI on the {where}, crop while decoding, linear resize, labels int64", source),)


def _optimizer(case: Case, on_gpu: bool) -> dict[str, Setting]:
    fleetx = follows_fleetx(case)
    stated = VGG16 if fleetx else COMMON
    schedule = own("VGG16's document states no schedule: ResNet50's, never reached")
    decay = Source(COMMON, "piecewise; the step of 0.1 is PaddleClas's, the document gives its epochs alone")
    return {
        "optimizer": Setting("momentum", Source(stated)),
        "learning_rate": _learning_rate(case, on_gpu),
        "learning_rate_boundaries": Setting([30, 60, 90], schedule if fleetx else Source(COMMON, "in epochs")),
        "learning_rate_decay": Setting(0.1, schedule if fleetx else decay),
        "momentum": Setting(0.9, Source(stated)),
        "weight_decay": Setting(1e-4, Source(stated, "L2")),
    }


def _learning_rate(case: Case, on_gpu: bool) -> Setting:
    rate = spec_of(case.model).learning_rate
    if not on_gpu:
        full = f"{rate:g} as on a GPU" if follows_fleetx(case) else f"the published {rate:g}"
        return Setting(
            rate * min(1.0, case.batch_size_per_card * case.cards / REFERENCE_BATCH),
            own(f"{full} from 256 images a step on, in proportion below: a CPU's batches are small"),
        )
    if follows_fleetx(case):
        why = "the published 0.1 makes this network's logits NaN within 5 steps; 0.01 is VGG16's authors' rate"
        return Setting(rate, own(why))
    return Setting(rate, Source(COMMON))


def _layout(case: Case, on_gpu: bool) -> dict[str, Setting]:
    fleetx = follows_fleetx(case)
    channels = own("3 as the images have: no padding is stated for VGG16") if fleetx else Source(FP32)
    feed = "a float16 feed is stated for ResNet50's FP16 rows alone" if on_gpu else "a CPU computes nothing in float16"
    return {
        "layout": Setting("NCHW", Source(VGG16 if fleetx else FP32)),
        "feed_layout": Setting("NCHW", own("the model's own")),
        "input_channels": Setting(3, channels),
        "input_dtype": Setting("float32", own(feed)),
    }


def _augmentation(case: Case) -> dict[str, Setting]:
    if follows_fleetx(case):
        source = own("VGG16's document states none: that of ResNet50's pipelines")
    elif case.data is DataSource.NATIVE:
        source = Source(NATIVE, "random resized crop, flip; the ranges are the DALI pipeline's")
    else:
        source = Source(DALI)
    values = {"crop_area": [0.08, 1.0], "crop_aspect_ratio": [0.75, 4 / 3], "flip_probability": 0.5}
    return group("augmentation", values, source)


def _dali(on_gpu: bool) -> dict[str, Setting]:
    if on_gpu:
        threads = Setting(4, own("the documents give no number; 4 is PaddleClas's default"))
        paddings, padded = (211025920, 140544512), Source(DALI)
    else:
        threads = Setting(None, own("null: as many as the rank has cores"))
        paddings, padded = (0, 0), Source(DALI, "CPU-only: no padding arguments")
    return {
        "dali.threads": threads,
        "dali.prefetch_queue_depth": Setting(2, own("the documents give no number; 2 is DALI's default")),
        "dali.seed": Setting(42, Source(DALI, "each rank adds its number")),
        "dali.device_memory_padding": Setting(paddings[0], padded),
        "dali.host_memory_padding": Setting(paddings[1], padded),
    }


def _native(on_gpu: bool) -> dict[str, Setting]:
    here = Setting(1, own("one beside the rank, which shares its core"))
    workers = Setting(8, own("the documents give no number")) if on_gpu else here
    default = own("the documents give none; Paddle's own default")
    return {"native.workers": workers, **group("native", {"prefetch_factor": 2, "shared_memory": True}, default)}
