"""Whether the libraries of a verdict can be loaded below the caller's limit of memory. numpy's OpenBLAS waits for ever
for memory that ``ulimit -v`` does not give it."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from helpers.common.files import read_text_limited

_KIB = 1024
# Loading takes a second; a busy machine of many cores may need many.
_MOST_SECONDS = 60.0
# In a process of its own, which can be ended. It holds as much memory as the process that asks.
_PROBE = "import mmap, sys; sys.path[:] = eval(sys.argv[1]); held = mmap.mmap(-1, int(sys.argv[2])); import "

Limits = Mapping[str, int]


def limits_here() -> Limits:
    """The limits of memory of this process in bytes, by the shell's name; without those that are not set."""
    asked = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
    found = {name: resource.getrlimit(number)[0] for name, number in asked.items()}
    return {name: most for name, most in found.items() if most != resource.RLIM_INFINITY}


def short_address_space(
    modules: str, limits: Callable[[], Limits] = limits_here, most_seconds: float = _MOST_SECONDS
) -> str:
    """Why this process cannot load its ``modules`` (names with commas between) and those libraries; empty if it can, or
    if no limit is set."""
    found = limits()
    if not found:
        return ""
    held = resource.getpagesize() * int(read_text_limited(Path("/proc/self/statm"), _KIB).split()[0])
    try:
        words = [sys.executable, "-c", f"{_PROBE}{modules}, scipy.special", repr(sys.path), str(held)]
        subprocess.run(words, capture_output=True, check=True, timeout=most_seconds)
    except subprocess.TimeoutExpired:
        why = f"they are not loaded after {most_seconds:.0f} s"
    except (OSError, subprocess.CalledProcessError) as error:
        said: bytes = getattr(error, "stderr", b"")
        why = [str(error), *said.decode(errors="replace").splitlines()][-1][:300]
    else:
        return ""
    shown = ", ".join(f"{name} is {most // _KIB}" for name, most in found.items())
    return (
        f"{shown} KiB, too little for numpy and scipy, by which a verdict is computed ({why}). Raise the limit, or "
        f"take it away with {next(iter(found))} unlimited"
    )
