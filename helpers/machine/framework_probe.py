"""Finds out which build of a framework an interpreter has. Only ``imports`` imports the framework.

It runs as ``python -m helpers.machine.framework_probe FRAMEWORK [libraries|identity|imports]`` in that interpreter and
prints JSON. It needs the standard library only, and Python 3.8.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Dict, Iterator, List

from helpers.trainers.contract.frameworks import Framework

# Distributions that contain a library. If none of them is installed, the library is the machine's.
_WHEELS = {
    "cudnn": r"nvidia-cudnn-cu\d+",
    "nccl": r"nvidia-nccl-cu\d+",
    "dali": r"nvidia-dali(-nightly|-weekly)?-cuda\d+",
}
# Other distributions from which a framework loads libraries. If one of these differs, it is another build.
_LOADED = re.compile(r"(nvidia-.+|triton|pytorch-triton)", re.IGNORECASE)
_NATIVE = re.compile(r"\.so(\.[0-9.]+)?$")
# Only samples of a library are read: a rebuilt one differs in its size, in its first blocks (which hold its build id),
# or nearly everywhere.
_BLOCK_BYTES, _BLOCKS = 65536, 16
_STATED = r"(?:^%s\s*(?::[^=]*)?=|\(['\"]%s['\"],)\s*['\"]([^'\"]*)['\"]"
# The values by which a CPU build says that it has no such library.
_NONE = ("", "0", "False", "None")


def probe(framework: str) -> Dict[str, str]:
    """``{distribution, version, commit, no_dali}``, where ``no_dali`` says why DALI is not there; empty if none of the
    framework's distributions is installed."""
    for name in Framework(framework).spec.distributions:
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        without = "" if _is_there("nvidia.dali") else why_missing(sys.prefix, "dali") or "it is not installed"
        return {
            "distribution": name, "version": found.version, "commit": _commit(framework, found), "no_dali": without,
        }  # fmt: skip
    return {}


def libraries(framework: str) -> Dict[str, str]:
    """The versions that the interpreter has for the framework, as far as they are known.

    - ``python``;
    - ``cuda``, ``cudnn``, ``nccl``, as the build states them;
    - ``archs``: the compute capabilities for which the build has kernels (``70 80``);
    - ``cudnn_wheel``, ``nccl_wheel``, ``dali_wheel``: the installed distribution that brings the library.
    """
    found = {"python": platform.python_version()}
    build = probe(framework)
    spec = Framework(framework).spec
    if build and spec.version_file:
        path = Path(str(metadata.distribution(build["distribution"]).locate_file(spec.version_file)))
        text = path.read_text() if path.exists() else ""
        for key, variable in spec.stated.items():
            # name = "12.5", or ("name", "12.5") of a dictionary's items.
            match = re.search(_STATED % (variable, variable), text, re.MULTILINE)
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


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def why_missing(prefix: str, part: str) -> str:
    """Why the environment in ``prefix`` is without a part whose name begins so: what requirements/bootstrap.py wrote of
    it; empty if it wrote nothing."""
    try:
        missing = json.loads((Path(prefix) / ".perfgate-stamp.json").read_text(encoding="utf-8"))["missing"]
        found = [why for name, why in missing.items() if name.startswith(part)]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return "make env could not have it: %s" % found[0] if found else ""


def imports(framework: str) -> Dict[str, str]:
    """The build's own answers after its import: ``version``, ``commit``, ``cuda`` if it is built for CUDA, ``lacks``
    (the parts that trainers need and it does not have, separated by spaces), and ``dali`` (why DALI does not work with
    it; empty if it does). Raises whatever the import raises."""
    name = Framework(framework).spec.version_file.partition("/")[0]
    module = importlib.import_module(name)
    build = probe(framework)
    return {
        "version": str(getattr(module, "__version__", "")),
        "commit": build.get("commit", ""),
        "cuda": libraries(framework).get("cuda", ""),
        "lacks": " ".join(each for each in Framework(framework).spec.parts if not hasattr(module, each)),
        "dali": _why_no_dali(framework),
    }


def _why_no_dali(framework: str) -> str:
    try:
        importlib.import_module(Framework(framework).spec.dali)
    except Exception as error:  # noqa: BLE001 - whatever a plug-in raises on a framework that it does not know
        return "%s: %s" % (type(error).__name__, error)
    return ""


def identity(framework: str) -> Dict[str, str]:
    """Identifies the installation of a build; empty if there is none.

    ``prefix`` is the interpreter's environment and ``place`` the folder of the framework's packages, both with links
    resolved. ``digest`` is 16 hexadecimal digits over what was installed, equal for equal builds; it is empty if the
    installation keeps no list of its files (a build in its source folder, conda).
    """
    build = probe(framework)
    if not build:
        return {}
    found = metadata.distribution(build["distribution"])
    return {
        "prefix": os.path.realpath(sys.prefix),
        "place": os.path.realpath(str(found.locate_file(""))),
        "digest": _digest(found),
    }


def _digest(found: metadata.Distribution) -> str:
    """A digest over the hashes that the installer recorded, the present sizes of modules and libraries, samples of the
    libraries, and the distributions with further libraries. It contains no path of the machine."""
    lines = sorted(_contents(found))
    if not lines:
        return ""
    for other in metadata.distributions():
        name = other.metadata["Name"] or ""
        if _LOADED.fullmatch(name):
            lines.append("beside %s %s" % (name.lower(), other.version))
    return hashlib.sha256("\n".join([found.version, *sorted(lines)]).encode()).hexdigest()[:16]


def _contents(found: metadata.Distribution) -> Iterator[str]:
    for row in csv.reader((found.read_text("RECORD") or "").splitlines()):
        # Scripts hold the path of the environment's Python, and .dist-info holds files of the installer.
        if len(row) < 2 or not row[1] or row[0].startswith(("..", "/")) or ".dist-info/" in row[0]:
            continue
        yield "%s %s" % (row[0], row[1])
        if row[0].endswith(".py") or _NATIVE.search(row[0]):
            yield "now %s %s" % (row[0], _now(Path(str(found.locate_file(row[0]))), bool(_NATIVE.search(row[0]))))


def _now(path: Path, sampled: bool) -> str:
    try:
        size = path.stat().st_size
        return "%d %s" % (size, _sample(path, size) if sampled else "")
    except OSError:
        return "missing"


def _sample(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    starts = [size * number // _BLOCKS for number in range(_BLOCKS)] + [max(0, size - _BLOCK_BYTES)]
    with path.open("rb") as file:
        for start in starts:
            file.seek(start)
            digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()


def _commit(framework: str, found: metadata.Distribution) -> str:
    spec = Framework(framework).spec
    if not spec.commit:
        return ""
    path = Path(str(found.locate_file(spec.version_file)))
    if not path.exists():
        return ""
    match = re.search(r"^%s\s*(?::[^=]*)?=\s*['\"]([0-9a-f]+)['\"]" % spec.commit, path.read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def _main(arguments: List[str]) -> None:
    answers = {"": probe, "libraries": libraries, "identity": identity, "imports": imports}
    found = answers["".join(arguments[1:])](arguments[0])
    # On a line of its own, since a framework may print while it is imported.
    print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1:])
