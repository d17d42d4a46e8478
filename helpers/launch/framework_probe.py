"""Which build of a framework an interpreter has, without importing the framework.

Runs as ``python -m helpers.launch.framework_probe FRAMEWORK [libraries]`` in that interpreter and prints
JSON: standard library, Python 3.8 syntax.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Dict

# Distributions that carry each framework, and the file and variable that name its commit.
DISTRIBUTIONS = {
    "paddle": ("paddlepaddle-gpu", "paddlepaddle"),
    "pytorch": ("torch",),
    "tensorflow": ("tensorflow", "nvidia-tensorflow", "tensorflow-gpu", "tensorflow-cpu"),
    "mxnet": ("mxnet", "mxnet-cu112", "mxnet-cu110"),
}
_COMMITS = {
    "paddle": ("paddle/version/__init__.py", "commit"),
    "pytorch": ("torch/version.py", "git_version"),
}
# What each framework's own build states it was compiled for, and where.
_STATED = {
    "paddle": (
        "paddle/version/__init__.py",
        {"cuda": "cuda_version", "cudnn": "cudnn_version", "nccl": "nccl_version"},
    ),
    "pytorch": ("torch/version.py", {"cuda": "cuda"}),
}
# Distributions that bring a library themselves; without one it is the machine's.
_WHEELS = {
    "cudnn": r"nvidia-cudnn-cu\d+",
    "nccl": r"nvidia-nccl-cu\d+",
    "dali": r"nvidia-dali(-nightly|-weekly)?-cuda\d+",
}
# How a CPU build writes that it has none.
_NONE = ("", "0", "False", "None")


def probe(framework: str) -> Dict[str, str]:
    """``{distribution, version, commit}``, empty when none of the framework's distributions is installed."""
    for name in DISTRIBUTIONS[framework]:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        return {"distribution": name, "version": found.version, "commit": _commit(framework, found)}
    return {}


def libraries(framework: str) -> Dict[str, str]:
    """What the interpreter has for the framework: ``python``, and of CUDA, cuDNN, NCCL and DALI what is known.

    ``cuda``, ``cudnn``, ``nccl``: as the build states them, ``archs`` the compute capabilities it has kernels for
    (``70 80``); ``cudnn_wheel``, ``nccl_wheel``, ``dali_wheel``:
    the installed distribution that brings the library.
    """
    found = {"python": platform.python_version()}
    build = probe(framework)
    if build and framework in _STATED:
        file_name, names = _STATED[framework]
        path = Path(str(metadata.distribution(build["distribution"]).locate_file(file_name)))
        text = path.read_text() if path.exists() else ""
        for key, variable in names.items():
            match = re.search(r"^%s\s*(?::[^=]*)?=\s*['\"]([^'\"]*)['\"]" % variable, text, re.MULTILINE)
            if match and match.group(1) not in _NONE:
                found[key] = match.group(1)
        archs = re.search(r"^compiled_cuda_archs\s*=\s*\[([^\]]*)\]", text, re.MULTILINE)
        if archs and re.findall(r"\d+", archs.group(1)):
            found["archs"] = " ".join(re.findall(r"\d+", archs.group(1)))
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        for key, pattern in _WHEELS.items():
            if re.fullmatch(pattern, name):
                found[key + "_wheel"] = "%s %s" % (name, distribution.version)
    return found


def _commit(framework: str, found: metadata.Distribution) -> str:
    if framework not in _COMMITS:
        return ""
    file_name, variable = _COMMITS[framework]
    path = Path(str(found.locate_file(file_name)))
    if not path.exists():
        return ""
    match = re.search(r"^%s\s*(?::[^=]*)?=\s*['\"]([0-9a-f]+)['\"]" % variable, path.read_text(), re.MULTILINE)
    return match.group(1) if match else ""


if __name__ == "__main__":
    print(json.dumps((libraries if sys.argv[2:] == ["libraries"] else probe)(sys.argv[1])))
