"""All formats that can be read, by the names that ``--log-format`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from helpers.logs.formats import fleet, keras, nvidia, paddleclas
from helpers.logs.record import FormatSpec

FORMATS: Mapping[str, FormatSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            paddleclas.STATIC,
            paddleclas.DYNAMIC,
            paddleclas.DYNAMIC_2021,
            fleet.FLEETX_TRAINER,
            fleet.TIPC,
            nvidia.TENSORFLOW,
            nvidia.PYTORCH,
            nvidia.MXNET,
            nvidia.MLLOG,
            nvidia.TENSORFLOW_DLPERF,
            keras.TENSORFLOW_2,
        )
    }
)
