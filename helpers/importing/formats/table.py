"""Every format that is read, by the name that ``--format`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from helpers.importing.formats.dlperf import DLPERF_FORMATS
from helpers.importing.formats.nvidia import NVIDIA_FORMATS
from helpers.importing.formats.paddle import PADDLE_FORMATS
from helpers.importing.record import FormatSpec

FORMATS: Mapping[str, FormatSpec] = MappingProxyType({**PADDLE_FORMATS, **NVIDIA_FORMATS, **DLPERF_FORMATS})
