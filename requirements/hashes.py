#!/usr/bin/env python3
"""Writes under each pin of requirements/*.txt the SHA-256 of every file from which it may be installed.

    .venv/bin/python requirements/hashes.py          # for the pins that have none: delete the lines of a changed pin
    .venv/bin/python requirements/hashes.py torch    # for this one too: adds what pip finds here besides

It asks pip, with the index and the folders that pip is configured with, for the wheels for each Python of the suite and
for old and new C libraries, for Linux on x86_64. Nothing is installed. If a package has no wheel, the digest is that of
its source archive.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

# Done here, since PYTHONSAFEPATH keeps the interpreter from doing it.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from machine import NEWEST, OLDEST

FOLDER = Path(__file__).resolve().parent
PYTHONS = [f"{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
# The minor versions of glibc 2 that are asked for: that of manylinux2014, and one that no system has yet.
OLDEST_GLIBC, NEWEST_GLIBC = 17, 50
_GLIBC = re.compile(r"manylinux_2_(\d+)_x86_64")
# Beginnings of lines in a requirements file that are not pins.
_OTHER = ("#", "-r ", "-c ")
_NO_DIGEST = "0" * 64


class Pin(NamedTuple):
    """One pinned package of a requirement file."""

    # ``torch==2.13.0``, and its marker where it has one.
    requirement: str
    hashes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The package's name as indexes compare it."""
        return re.sub(r"[-_.]+", "-", re.split(r"[=; ]", self.requirement)[0]).lower()

    @property
    def exact(self) -> str:
        """The pin without its marker."""
        return self.requirement.partition(";")[0].strip()

    def text(self) -> str:
        """The pin's lines."""
        return " \\\n    ".join([self.requirement, *(f"--hash=sha256:{each}" for each in self.hashes)])


def parts_of(text: str) -> Iterator[str | Pin]:
    """A requirement file's other lines, each as text, and its pins, in order."""
    for line in text.replace("\\\n", " ").splitlines():
        if not line or line.startswith(_OTHER):
            yield line
        else:
            requirement, *options = re.split(r"\s+--hash=sha256:", line)
            yield Pin(requirement.strip(), tuple(each.strip() for each in options))


def pins_of(text: str) -> list[Pin]:
    return [each for each in parts_of(text) if isinstance(each, Pin)]


class Wheels:
    """What pip finds, each question asked once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], dict[str, str]] = {}

    def ask(self, pins: Sequence[str], python: str, glibc: int) -> bool:
        """Ask for the best wheels of several pins at once; whether there is one for each."""
        missing = [pin for pin in pins if (pin, python, glibc) not in self._known]
        if not missing:
            return True
        platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(glibc, 4, -1)]
        legacy = ["--platform=manylinux2014_x86_64", "--platform=linux_x86_64"]
        with tempfile.TemporaryDirectory() as folder:
            done = _pip(
                "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:",
                f"--target={folder}", f"--python-version={python}", *platforms, *legacy, "--report=-", *missing,
            )  # fmt: skip
        if done.returncode:
            return False
        found = {
            Pin(each["metadata"]["name"]).name: each["download_info"] for each in json.loads(done.stdout)["install"]
        }
        for pin in missing:
            wheel = found[Pin(pin).name]
            name = wheel["url"].rpartition("/")[2]
            self._known[pin, python, glibc] = {name: wheel["archive_info"]["hashes"]["sha256"]}
        return True

    def of(self, pin: str) -> dict[str, str]:
        """The digests of all wheels of a pin, by file name."""
        found: dict[str, str] = {}
        for python in PYTHONS:
            glibc = NEWEST_GLIBC
            while glibc >= OLDEST_GLIBC and self.ask([pin], python, glibc):
                wheels = self._known[pin, python, glibc]
                found.update(wheels)
                # A machine with an older C library may take another wheel.
                glibc = min((int(each) for name in wheels for each in _GLIBC.findall(name)), default=0) - 1
            if all(name.endswith("-none-any.whl") for name in found) and found:
                return found
        return found


def source_archive(pin: str) -> str:
    """The digest of a pin's source archive, which pip names when it refuses a wrong one, before it unpacks it."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "pin.txt"
        requirements.write_text(Pin(pin, (_NO_DIGEST,)).text(), encoding="utf-8")
        done = _pip("download", "--no-deps", "--no-binary=:all:", f"--dest={folder}", "-r", str(requirements))
    got = re.search(r"Got\s+([0-9a-f]{64})", done.stderr)
    if got is None:
        raise SystemExit(
            f"hashes: error: pip finds neither a wheel nor a source archive of {pin}: {done.stderr[-500:]}"
        )
    return got.group(1)


def _pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main(names: Iterable[str]) -> int:
    again, wheels = {Pin(name).name for name in names}, Wheels()
    for path in sorted(FOLDER.glob("*.txt")):
        parts = list(parts_of(path.read_text(encoding="utf-8")))
        wanted = [each for each in parts if isinstance(each, Pin) and (not each.hashes or each.name in again)]
        for python in PYTHONS:
            # All in one question where there is a wheel of each; else they are asked for one by one below.
            wheels.ask([pin.exact for pin in wanted], python, NEWEST_GLIBC)
        digests = {}
        for pin in wanted:
            found = wheels.of(pin.exact)
            new = set(found.values()) or {source_archive(pin.exact)}
            digests[pin] = tuple(sorted({*pin.hashes, *new}))
            print(f"{path.name}: {pin.exact}: {', '.join(sorted(found)) or 'a source archive'}", flush=True)
        lines = [
            Pin(each.requirement, digests.get(each, each.hashes)).text() if isinstance(each, Pin) else each
            for each in parts
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
