"""Which build of a framework an interpreter has, without importing the framework.

Runs as ``python -m helpers.launch.framework_probe FRAMEWORK`` in that interpreter and prints JSON:
standard library, Python 3.8 syntax.
"""

from __future__ import annotations

import json
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


def probe(framework: str) -> Dict[str, str]:
    """``{distribution, version, commit}``, empty when none of the framework's distributions is installed."""
    for name in DISTRIBUTIONS[framework]:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        return {"distribution": name, "version": found.version, "commit": _commit(framework, found)}
    return {}


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
    print(json.dumps(probe(sys.argv[1])))
