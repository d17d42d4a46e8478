#!/usr/bin/env python3
"""Makes links to CUDA's libraries of an environment, by the names without a version that Paddle and cuDNN open.

bootstrap.py and ``perfgate builds`` run this with the environment's own Python. The wheels ``nvidia-*-cu11`` have
``libcudnn.so.8`` in a folder each; a build of Paddle for CUDA 11 opens ``libcudnn.so``, and a cuDNN 9 of the system
would be loaded silently. Each library of the build's CUDA gets two links in one folder of the environment, by its own
name and without a version. What trains has this folder first in LD_LIBRARY_PATH (helpers/machine/libraries.py).

Standard library only.
"""

import os
import re
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Dict, List

# Below the environment's folder; helpers/machine/libraries.py has it too.
FOLDER = os.path.join("lib", "perfgate-cuda")
_WHEEL = re.compile(r"nvidia-.+-cu(\d+)", re.IGNORECASE)
# From CUDA 13 on the distributions' names have no number, and the folder has it.
_PLACE = re.compile(r"nvidia/cu(\d+)/lib/")
_LIBRARY = re.compile(r"(lib.+?\.so)((?:\.\d+)*)")


def cuda_major(site: Path) -> str:
    """The major version of CUDA for which the environment's Paddle was built; empty for a build for CPUs, or none."""
    stated = site / "paddle" / "version" / "__init__.py"
    text = stated.read_text(encoding="utf-8") if stated.exists() else ""
    found = re.search(r"^cuda_version\s*=\s*['\"](\d+)\.", text, re.MULTILINE)
    return found.group(1) if found else ""


def libraries(site: Path, major: str) -> Dict[str, Path]:
    """The libraries that wheels of this CUDA brought, by their names with the version and without."""
    found: Dict[str, Path] = {}
    versions: Dict[str, List[int]] = {}
    for wheel in metadata.distributions(path=[str(site)]):
        # As indexes compare names.
        named = _WHEEL.fullmatch(re.sub(r"[-_.]+", "-", wheel.metadata["Name"] or ""))
        for file in wheel.files or ():
            name, placed = _LIBRARY.fullmatch(file.name), _PLACE.match(str(file))
            of = named or placed
            if name is None or of is None or of.group(1) != major:
                continue
            path, plain = site / str(file), name.group(1)
            version = [int(number) for number in name.group(2).split(".") if number]
            found[file.name] = path
            if version >= versions.get(plain, []):
                versions[plain], found[plain] = version, path
    return found


def link(prefix: Path, site: Path) -> Dict[str, Path]:
    """Make the folder of links anew, whole or not at all; what it links to, by name. Without libraries there is no
    folder."""
    folder = prefix / FOLDER
    new = folder.with_name(folder.name + ".new")
    shutil.rmtree(str(new), ignore_errors=True)
    major = cuda_major(site)
    found = libraries(site, major) if major else {}
    if found:
        new.mkdir(parents=True)
        for name, path in found.items():
            # Relative, so that the environment can be moved.
            (new / name).symlink_to(os.path.relpath(str(path), str(folder)))
    if folder.exists():
        shutil.rmtree(str(folder))
    if found:
        new.rename(folder)
    return found


def main() -> int:
    found = link(Path(sys.prefix), Path(sysconfig.get_path("platlib")))
    print("{}: {} names".format(FOLDER, len(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
