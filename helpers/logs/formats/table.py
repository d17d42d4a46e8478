"""Every format that is read, by the name that ``--format`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from helpers.logs.formats.dlperf import DLPERF_FORMATS
from helpers.logs.formats.nvidia import NVIDIA_FORMATS
from helpers.logs.formats.paddle import PADDLE_FORMATS
from helpers.logs.record import FormatSpec

FORMATS: Mapping[str, FormatSpec] = MappingProxyType({**PADDLE_FORMATS, **NVIDIA_FORMATS, **DLPERF_FORMATS})
