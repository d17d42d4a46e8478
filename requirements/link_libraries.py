#!/usr/bin/env python3
"""Makes links to libraries of an environment's wheels: those of CUDA, by the names without a version that Paddle and
cuDNN open, and libgomp, where the machine has none.

bootstrap.py and ``perfgate builds`` run this with the environment's own Python. The wheels ``nvidia-*-cu11`` have
``libcudnn.so.8`` in a folder each; a build of Paddle for CUDA 11 opens ``libcudnn.so``, and a cuDNN 9 of the system
would be loaded silently. Each library of the build's CUDA gets two links in one folder of the environment, by its own
name and without a version. Paddle needs libgomp.so.1, which another wheel brings under a name of its own
(libgomp.txt). What trains has this folder first in LD_LIBRARY_PATH (helpers/machine/libraries.py).

Standard library only.
"""

import ctypes
import os
import re
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Dict, List, Tuple

# Below the environment's folder; helpers/machine/libraries.py has it too.
FOLDER = os.path.join("lib", "perfgate-cuda")
LIBGOMP = "libgomp.so.1"
# Such as nvidia/cudnn/lib/libcudnn.so.8 of nvidia-cudnn-cu11, and from CUDA 13 on nvidia/cu13/lib/libcublas.so.13.
_LIBRARY = re.compile(r"(nvidia/cu(\d+)/lib/)?(?:.*/)?((lib.+?\.so)((?:\.\d+)*))")


def cuda_major(site: Path) -> str:
    """The major version of CUDA for which the environment's Paddle was built; empty for a build for CPUs, or none."""
    stated = site / "paddle" / "version" / "__init__.py"
    text = stated.read_text(encoding="utf-8") if stated.exists() else ""
    found = re.search(r"^cuda_version\s*=\s*['\"](\d+)\.", text, re.MULTILINE)
    return found.group(1) if found else ""


def libraries(site: Path, major: str) -> Dict[str, Path]:
    """The libraries that wheels of this CUDA brought, by their names with the version and, the newest, without."""
    found: List[Tuple[List[int], str, str, Path]] = []
    for wheel in metadata.distributions(path=[str(site)]):
        own = re.fullmatch(r"nvidia[-_.].+[-_.]cu(\d+)", wheel.metadata["Name"] or "", re.IGNORECASE)
        for file in wheel.files or ():
            library = _LIBRARY.fullmatch(str(file))
            if library is not None and major == (own.group(1) if own else library.group(2)):
                version = [int(each) for each in library.group(5).split(".")[1:]]
                found.append((version, library.group(3), library.group(4), site / str(file)))
    return {name: path for _, full, plain, path in sorted(found) for name in (full, plain)}


def has_libgomp() -> bool:
    """Whether the machine has one."""
    try:
        ctypes.CDLL(LIBGOMP)
    except OSError:
        return False
    return True


def link(prefix: Path, site: Path) -> Dict[str, Path]:
    """Make the folder of links anew, whole or not at all; what it links to, by name. Without libraries there is no
    folder."""
    folder = prefix / FOLDER
    new = folder.with_name(folder.name + ".new")
    for each in (new, folder):
        shutil.rmtree(str(each), ignore_errors=True)
    major = cuda_major(site)
    found = libraries(site, major) if major else {}
    # Installed only where the machine had none (libgomp.txt). It stays if the machine gets one too, so that results do
    # not change.
    found.update((LIBGOMP, path) for path in site.glob("pykdtree.libs/libgomp-*.so.1*"))
    if found:
        new.mkdir(parents=True)
        for name, path in found.items():
            # Relative, so that the environment can be moved.
            (new / name).symlink_to(os.path.relpath(str(path), str(folder)))
        new.rename(folder)
    return found


if __name__ == "__main__":
    print("{}: {} names".format(FOLDER, len(link(Path(sys.prefix), Path(sysconfig.get_path("platlib"))))))
