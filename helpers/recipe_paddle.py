"""The training configuration of a Paddle case: what the published figures were trained with.

Sources: METHODS.md, "Paddle ResNet50 v1.5 configuration behind the numbers" and "Paddle VGG16
(FleetX)"; behind them PaddleClas (ppcls/static/train.py and program.py, ResNet50_amp_O2_ultra.yaml, the
benchmark's run_benchmark.sh) as of 2023-07 with the published logs, and FleetX at commit 296e0d7
(benchmark/paddle/vgg_benchmark.py). The trainers read the result strictly (``helpers/trainers/settings.py``)
and record in the step log's header what of it the installed build of the framework does not know.

Where this and the trainers depart from the sources:

- VGG16's published learning rate of 0.1 is too much for a network without batch norm: its logits are NaN
  from the third to fifth step on (seen on a CPU with batches of 8 and 16). That is no training, and the
  trainer ends such a run as failed, so the suite takes the rate of VGG16's authors, 0.01.
- On a CPU the batches are a hundredth of the published ones, and the learning rate falls with them; AMP is
  bfloat16 without loss scaling, the feed float32 (a CPU computes nothing in float16).
- FLAGS_enable_pir_api=0 and FLAGS_enable_pir_in_executor=0 stand beside the published flags of static
  programs on a GPU: the programs of Paddle 3 are PIR ones else, which take no BuildStrategy.
- The published loops fetch the loss (PaddleClas: and both accuracies) to the host after every step, which
  empties the GPU's queue. Here a static program's loss and the mean logit that tells a NaN are fetched likewise,
  by the Executor itself, and looked at every 10 steps; in dynamic execution they come every 10 steps.
- The program's batch size is fixed, the published ones leave it open; no operator depends on it.
- FleetX's VGG16 program is a binary download; here it is built from layers, and has no accuracy operators.
- ExecutionStrategy was removed from Paddle with its ParallelExecutor: the installed build says so by name.
"""

from __future__ import annotations

from typing import Any

from helpers.case import Case, Execution, Model, Precision
from helpers.recipe_common import common_settings, dynamic_loss_scaling
from helpers.recipe_cpu import Processor, cpu_environment, read_processor

# Without these the static programs of Paddle 3 are PIR ones, which take no BuildStrategy.
_PROGRAM_FLAGS = {"FLAGS_enable_pir_api": "0", "FLAGS_enable_pir_in_executor": "0"}


def paddle_settings(case: Case, on_gpu: bool, processor: Processor | None = None) -> dict[str, Any]:
    """The settings of ``case``; ``processor`` None is this machine's."""
    settings = common_settings(case, on_gpu)
    # PaddleClas's program computes both at every step.
    settings["accuracy_top_k"] = [1, 5] if on_gpu and case.model is Model.RESNET50 else []
    settings.update(_precision(case, on_gpu))
    settings.update(_gpu_strategies(case) if on_gpu else _no_strategies())
    if not on_gpu:
        settings["environment"] = cpu_environment(processor or read_processor())
    return settings


def _precision(case: Case, on_gpu: bool) -> dict[str, Any]:
    """AMP is float16 with dynamic loss scaling on a GPU and bfloat16 on a CPU; O2 of ResNet50 is NHWC with
    4 channels, fed as NCHW and transposed by the model, in float16 on a GPU."""
    none: dict[str, Any] = dict.fromkeys(("amp_level", "amp_dtype", "amp_through", "loss_scaling"))
    none["loss_scaling_rule"] = {}
    if case.precision in (Precision.FP32, Precision.TF32):
        return none
    vgg16, pure = case.model is Model.VGG16, case.precision is Precision.AMP_O2
    level = "O2" if pure or case.precision is Precision.BF16 else "O1"
    through = "auto_cast"
    if on_gpu and case.execution is Execution.STATIC:
        # PaddleClas decorates the optimizer before fleet takes it; FleetX sets strategy.amp.
        through = "fleet" if vgg16 else "decorate"
    amp = {**none, "amp_level": level, "amp_dtype": "bfloat16", "amp_through": through}
    layout: dict[str, Any] = {"layout": "NHWC", "input_channels": 4} if pure and not vgg16 else {}
    if case.precision is Precision.BF16 or not on_gpu:
        return {**amp, **layout}
    scaling = dynamic_loss_scaling(case)
    return {**amp, "amp_dtype": "float16", **scaling, **layout, **({"input_dtype": "float16"} if layout else {})}


def _gpu_strategies(case: Case) -> dict[str, Any]:
    if case.auto:
        # Its document sets nothing beside strategy.auto, and whatever were set would turn that off.
        return _no_strategies()
    pure_fp16 = case.precision is Precision.AMP_O2
    program = _PROGRAM_FLAGS if case.execution is Execution.STATIC else {}
    if case.model is Model.VGG16:
        return {
            "environment": dict(program),
            "build_strategy": {
                "enable_inplace": False,
                "fuse_elewise_add_act_ops": True,
                "fuse_bn_act_ops": True,
            },
            "execution_strategy": {"num_threads": 2, "num_iteration_per_drop_scope": 100},
            "fleet": {"nccl_comm_num": 1},
        }
    fusions = {"fuse_bn_act_ops": True, "fuse_bn_add_act_ops": True} if pure_fp16 else {}
    return {
        "environment": {
            **program,
            "FLAGS_fraction_of_gpu_memory_to_use": "0.80",
            "FLAGS_cudnn_batchnorm_spatial_persistent": "1",
            "FLAGS_max_inplace_grad_add": "8",
            "FLAGS_cudnn_exhaustive_search": "1",
            "FLAGS_eager_delete_tensor_gb": "0.0",
            "FLAGS_conv_workspace_size_limit": "1500" if case.precision.is_amp else "4000",
            "FLAGS_apply_pass_to_program": "true",
        },
        "build_strategy": {"fuse_elewise_add_act_ops": True, "enable_addto": True, **fusions},
        "execution_strategy": {},
        "fleet": {"nccl_comm_num": 1, "fuse_all_reduce_ops": True, "fuse_grad_size_in_MB": 16},
    }


def _no_strategies() -> dict[str, Any]:
    return {"environment": {}, "build_strategy": {}, "execution_strategy": {}, "fleet": {}}
