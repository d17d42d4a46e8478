"""The documents that say what published figures were trained with, as a setting's source names them."""

from __future__ import annotations

RESNET50 = 'docs/measuring-rules.md, "Paddle ResNet50 v1.5"'
COMMON = f"{RESNET50}: Common"
FP32 = f"{RESNET50}: FP32"
FP16 = f"{RESNET50}: FP16"
ENVIRONMENT = f"{RESNET50}: Environment"
FLEET = f"{RESNET50}: Fleet"
DALI = f"{RESNET50}: DALI pipeline"
NATIVE = f"{RESNET50}: Without DALI"
VGG16 = 'docs/measuring-rules.md, "Paddle VGG16 (FleetX)"'
PYTORCH = 'docs/measuring-rules.md, "Peers\' configurations", PyTorch (NGC 21.03)'
# Where the documents are silent, the publishers' own code.
PADDLECLAS = "PaddleClas, 2023-07"
FLEETX = "FleetX, commit 296e0d7"
