"""Stands in for NVIDIA's library, behind the suite's own NVML adapter, in rows that need a GPU.

The real nvidia-ml-py lends its names, constants and errors; every answer comes from a JSON file that a row may
rewrite at any time. What the file does not hold, this card does not support.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from helpers.common.files import write_whole

STATE_VARIABLE = "PERFGATE_FAULT_NVML"
# The folder of a workshop's pynvml.py, for a pytest that has this module as its plugin (-p).
FOLDER_VARIABLE = "PERFGATE_FAULT_NVML_FOLDER"
# The whole of a workshop's pynvml.py.
SHIM = "from tests.faults.stand_in_nvml import names\n\nglobals().update(names(__file__))\n"


@dataclass(frozen=True)
class Card:
    """A V100 and its state; ``throttle`` are NVML's bits, ``processes`` the ids with a compute context. The machine has
    ``count`` of them, all in this state.

    ``process_list`` is the newest entry point that its driver has for them: ``_v3``, or ``_v2`` before 510.
    """

    throttle: int = 0
    temperature_c: int = 60
    sm_mhz: int = 1290
    memory_mhz: int = 877
    power_limit_watts: int = 300
    default_power_limit_watts: int = 300
    applications_mhz: int = 1290
    default_applications_mhz: int = 1290
    slowdown_c: int = 90
    ecc: int = 0
    pages_pending: bool = False
    processes: tuple[int, ...] = ()
    process_list: str = "_v3"
    count: int = 1

    def write(self, path: Path) -> None:
        write_whole(path, json.dumps(asdict(self)).encode())


def pytest_configure() -> None:
    """Put the stand-in in place where the job's script has its own PYTHONPATH."""
    sys.path.insert(0, os.environ[FOLDER_VARIABLE])


def names(shim: str) -> dict[str, Any]:
    """What ``import pynvml`` finds: the real module's names, with the stand-in's functions."""
    real = _real(Path(shim).parent)
    path = Path(os.environ[STATE_VARIABLE])
    own = _functions(real, lambda: Card(**json.loads(path.read_text(encoding="utf-8"))))
    silent = {name: _not_supported(real) for name, value in vars(real).items() if _is_query(name, value)}
    return {**{name: value for name, value in vars(real).items() if not name.startswith("__")}, **silent, **own}


def _real(folder: Path) -> ModuleType:
    spec = PathFinder.find_spec(
        "pynvml", [entry for entry in sys.path if Path(entry or ".").resolve() != folder.resolve()]
    )
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("nvidia-ml-py is not installed")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_query(name: str, value: object) -> bool:
    return name.startswith("nvml") and callable(value) and not isinstance(value, type)


def _not_supported(real: Any) -> Callable[..., Any]:
    def query(*arguments: object) -> Any:
        raise real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)

    return query


def _listed(real: Any, card: Callable[[], Card], version: str) -> Callable[..., Any]:
    def query(handle: object) -> Any:
        if version > card().process_list:
            raise real.NVMLError(real.NVML_ERROR_FUNCTION_NOT_FOUND)
        return [SimpleNamespace(pid=pid) for pid in card().processes]

    return query


def _functions(real: Any, card: Callable[[], Card]) -> Mapping[str, Callable[..., Any]]:
    return {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "525.60.13",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12000,
        "nvmlDeviceGetCount": lambda: card().count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-00000000-0000-0000-0000-{handle:012}",
        "nvmlDeviceGetName": lambda handle: "Tesla V100-SXM2-32GB",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=32 * 1024**3, used=0, free=32 * 1024**3),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (7, 0),
        "nvmlDeviceGetClockInfo": lambda handle, kind: (
            card().memory_mhz if kind == real.NVML_CLOCK_MEM else card().sm_mhz
        ),
        "nvmlDeviceGetTemperature": lambda handle, kind: card().temperature_c,
        "nvmlDeviceGetTemperatureThreshold": lambda handle, kind: card().slowdown_c,
        "nvmlDeviceGetPowerUsage": lambda handle: 250_000,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: card().throttle,
        "nvmlDeviceGetTotalEccErrors": lambda handle, kind, counter: card().ecc,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 1000 * card().power_limit_watts,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda handle: 1000 * card().default_power_limit_watts,
        "nvmlDeviceGetApplicationsClock": lambda handle, kind: card().applications_mhz,
        "nvmlDeviceGetDefaultApplicationsClock": lambda handle, kind: card().default_applications_mhz,
        "nvmlDeviceGetRetiredPagesPendingStatus": lambda handle: int(card().pages_pending),
        "nvmlDeviceGetComputeRunningProcesses_v3": _listed(real, card, "_v3"),
        "nvmlDeviceGetComputeRunningProcesses_v2": _listed(real, card, "_v2"),
        "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda handle: [],
    }
