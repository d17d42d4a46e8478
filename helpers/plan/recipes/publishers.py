"""The publishers of figures, and the kinds of networks: one entry for each, with everything that is special in their
recipes.

An entry has the settings that the publisher's documents state, and those that the suite chose because the documents are
silent. A model names its publisher and its network in helpers/trainers/contract/models.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers.plan.recipes import Setting, Source, group, own
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import entry_of
from helpers.trainers.contract.models import Model, Plain, Publisher, Residual

# The documents' names in the source of a setting.
DOCUMENTS = "docs/published.md"
RESNET50 = f'{DOCUMENTS}, "Paddle ResNet50 v1.5"'
COMMON = f"{RESNET50}: Common"
FP32 = f"{RESNET50}: FP32"
FP16 = f"{RESNET50}: FP16"
ENVIRONMENT = f"{RESNET50}: Environment"
FLEET = f"{RESNET50}: Fleet"
DALI = f"{RESNET50}: DALI pipeline"
NATIVE = f"{RESNET50}: Without DALI"
VGG16 = f'{DOCUMENTS}, "Paddle VGG16 (FleetX)"'
OTHERS = f'{DOCUMENTS}, "The other frameworks\' configurations"'
PYTORCH = f"{OTHERS}, PyTorch (NGC 21.03)"
TENSORFLOW = f"{OTHERS}, TensorFlow (NGC 1.15)"
DLPERF = f"{OTHERS}, TensorFlow (DLPerf)"
MXNET = f"{OTHERS}, MXNet (NGC 22.10)"
DRAFT = f"{OTHERS}, the early draft"
TRAPS = f'{DOCUMENTS}, "Traps in the published tables"'
# The publishers' own code, if the documents are silent.
PADDLECLAS = "PaddleClas, 2023-07"
FLEETX = "FleetX, commit 296e0d7"
TENSORFLOW_SCRIPT = f"{OTHERS}, NVIDIA's TensorFlow script"
DLPERF_CALLS = f"{OTHERS}, DLPerf's calls of it"
MXNET_SCRIPT = f"{OTHERS}, NVIDIA's MXNet script"

# The strategies of Paddle's programs, beside the variables of the environment.
STRATEGIES = ("build_strategy", "execution_strategy", "fleet")
_HERE = "helpers/plan/recipes/publishers.py"
AS_THE_CASE_SAYS = own("what the case's precision means on a GPU")


@dataclass(frozen=True)
class NetworkRecipe:
    """What is special in the recipes of one kind of network."""

    # The network in words.
    description: str
    # Whether pure half precision works with NHWC and 4 channels.
    channels_last_in_half: bool = False


@dataclass(frozen=True)
class PublishedRecipe:
    """What is special in the recipes of one publisher's models."""

    # The model that its documents are about.
    documented: Model
    # Optimizer, momentum, weight decay.
    optimizer: str
    # The sources of the epochs at which the learning rate falls, and of the factor.
    boundaries: Source
    decay: Source
    # The source of the model's learning rate on a GPU, and the rate in words, for a CPU's smaller batches, which scale
    # it.
    learning_rate: Source
    learning_rate_in_words: str
    model: Source
    seed: Source
    layout: Source
    input_channels: Source
    augmentation: Callable[[Case], Source]
    # The accuracies that the program computes at every step on a GPU.
    accuracies: Setting
    # The first loss scale of float16, and the source of the rule by which it changes.
    loss_scaling: Callable[[Case], Setting]
    loss_scaling_rule: Source
    # The source of mixed precision of level O1 on a GPU.
    amp_o1: Source
    # How a static program on a GPU gets mixed precision. The source is None if it is the level's source.
    amp_through: str
    amp_through_source: Source | None
    # The variables of the environment and the strategies of a program on a GPU.
    strategies: Callable[[Case], dict[str, Setting]]
    # Whether a static program on a GPU updates all weights of one type in one operator.
    merged_momentum: Setting
    # Whether its documents have figures of other frameworks too.
    has_other_frameworks: bool = False


def published_recipe(case: Case) -> PublishedRecipe:
    """The entry of the case's publisher. Raises ConfigError for a publisher without one."""
    publisher = case.model.spec.follows
    return entry_of(
        PUBLISHERS, publisher, f"publisher {publisher.value} of {case.model.value}", f"PUBLISHERS of {_HERE}"
    )


def network_recipe(case: Case) -> NetworkRecipe:
    """The entry of the case's kind of network. Raises ConfigError for a kind without one."""
    kind = type(case.model.spec.network)
    return entry_of(NETWORKS, kind, f"network {kind.__name__} of {case.model.value}", f"NETWORKS of {_HERE}")


def is_channels_last(case: Case) -> bool:
    """Whether the case uses NHWC and 4 channels, as pure half precision of such a network does."""
    return case.precision is Precision.AMP_O2 and network_recipe(case).channels_last_in_half


def program_flags(case: Case) -> dict[str, Setting]:
    if case.execution is not Execution.STATIC:
        return {}
    flags = {"FLAGS_enable_pir_api": "0", "FLAGS_enable_pir_in_executor": "0"}
    return group("environment", flags, own("Paddle 3's PIR programs would take no BuildStrategy"))


def empty_groups(groups: Iterable[str], source: Source) -> dict[str, Setting]:
    return {name: Setting({}, source) for name in groups}


# ---- PaddleClas


def _paddleclas_augmentation(case: Case) -> Source:
    if case.data is DataSource.NATIVE:
        return Source(NATIVE, "random resized crop, flip; the ranges are the DALI pipeline's")
    return Source(DALI)


def _paddleclas_loss_scaling(case: Case) -> Setting:
    stated = is_channels_last(case)
    return Setting(
        128.0,
        Source(FP16, "dynamic, the first scale") if stated else own("dynamic, from the first scale of the FP16 rows"),
    )


def _paddleclas_strategies(case: Case) -> dict[str, Setting]:
    flags = {
        "FLAGS_fraction_of_gpu_memory_to_use": "0.80",
        "FLAGS_cudnn_batchnorm_spatial_persistent": "1",
        "FLAGS_max_inplace_grad_add": "8",
        "FLAGS_cudnn_exhaustive_search": "1",
        "FLAGS_eager_delete_tensor_gb": "0.0",
    }
    workspace = "1500" if case.precision.is_amp else "4000"
    build: dict[str, Any] = {"fuse_elewise_add_act_ops": True, "enable_addto": True}
    stated = FP32
    if case.precision is Precision.AMP_O2:
        build |= {"fuse_bn_act_ops": True, "fuse_bn_add_act_ops": True}
        stated = FP16
    fleet = {"nccl_comm_num": 1, "fuse_all_reduce_ops": True, "fuse_grad_size_in_MB": 16}
    return {
        **program_flags(case),
        **group("environment", flags, Source(ENVIRONMENT)),
        "environment.FLAGS_conv_workspace_size_limit": Setting(workspace, Source(ENVIRONMENT, "1500 under AMP")),
        "environment.FLAGS_apply_pass_to_program": Setting("true", Source(ENVIRONMENT)),
        **group("build_strategy", build, Source(stated)),
        **empty_groups(("execution_strategy",), own("the document states none")),
        **group("fleet", fleet, Source(FLEET)),
    }


# ---- FleetX


def _fleetx_strategies(case: Case) -> dict[str, Setting]:
    build = {"enable_inplace": False, "fuse_elewise_add_act_ops": True, "fuse_bn_act_ops": True}
    execution = {"num_threads": 2, "num_iteration_per_drop_scope": 100}
    return {
        **(program_flags(case) or empty_groups(("environment",), own("VGG16's document states none"))),
        **group("build_strategy", build, Source(VGG16)),
        **group("execution_strategy", execution, Source(VGG16)),
        **group("fleet", {"nccl_comm_num": 1}, Source(VGG16)),
    }


# ---- the entries

_NO_SCHEDULE = own("VGG16's document states no schedule: ResNet50's, never reached")

PUBLISHERS: Mapping[Publisher, PublishedRecipe] = {
    Publisher.PADDLECLAS: PublishedRecipe(
        documented=Model.RESNET50,
        optimizer=COMMON,
        boundaries=Source(COMMON, "in epochs"),
        decay=Source(COMMON, "piecewise; the step of 0.1 is PaddleClas's, the document gives its epochs alone"),
        learning_rate=Source(COMMON),
        learning_rate_in_words="the published {rate:g}",
        model=Source(f"{RESNET50}: Model"),
        seed=Source(COMMON),
        layout=Source(FP32),
        input_channels=Source(FP32),
        augmentation=_paddleclas_augmentation,
        accuracies=Setting([1, 5], Source(PADDLECLAS, "its program computes both at every step")),
        loss_scaling=_paddleclas_loss_scaling,
        loss_scaling_rule=Source(PADDLECLAS, "Paddle's default"),
        amp_o1=AS_THE_CASE_SAYS,
        amp_through="decorate",
        amp_through_source=Source(PADDLECLAS, "the optimizer is decorated before fleet takes it"),
        strategies=_paddleclas_strategies,
        merged_momentum=Setting(
            True, Source(PADDLECLAS, "ppcls/optimizer/optimizer.py makes Momentum anew with use_multi_tensor=True")
        ),
        has_other_frameworks=True,
    ),
    Publisher.FLEETX: PublishedRecipe(
        documented=Model.VGG16,
        optimizer=VGG16,
        boundaries=_NO_SCHEDULE,
        decay=_NO_SCHEDULE,
        learning_rate=own(
            "the published 0.1 makes this network's logits NaN within 5 steps; 0.01 is VGG16's authors' rate"
        ),
        learning_rate_in_words="{rate:g} as on a GPU",
        model=Source(VGG16),
        seed=own("VGG16's document states none: ResNet50's"),
        layout=Source(VGG16),
        input_channels=own("3 as the images have: no padding is stated for VGG16"),
        augmentation=lambda _: own("VGG16's document states none: that of ResNet50's pipelines"),
        accuracies=Setting([], own("none is stated for VGG16")),
        loss_scaling=lambda _: Setting(32768.0, Source(FLEETX, "dynamic, strategy.amp's own first scale")),
        loss_scaling_rule=Source(FLEETX, "Paddle's default"),
        amp_o1=Source(VGG16, "strategy.amp = True"),
        amp_through="fleet",
        amp_through_source=None,
        strategies=_fleetx_strategies,
        merged_momentum=Setting(False, Source(FLEETX, "fluid.optimizer.Momentum, one operator a weight")),
    ),
}

NETWORKS: Mapping[type, NetworkRecipe] = {
    Residual: NetworkRecipe("v1.5: stride 2 in the 3x3 convolution", channels_last_in_half=True),
    Plain: NetworkRecipe("VGG16 with convolution bias, no batch norm"),
}
