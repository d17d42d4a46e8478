"""Makes as many images as a published comparison needs, where the user names no folder: the small dataset, grown.

``ROOT/train`` holds the images, and ``ROOT/lists/50000x13`` is a data folder of its own: 50,000 of them, each 13 times
in its list. So a case always reads the same images, however many others need.

Paddle's publisher read the 50,000 images of ImageNet's validation set again and again (docs/published.md), so no
comparison needs more different ones; its list still is as long as the steps that its rule takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import PIL

from helpers.common.files import own_mode, write_whole
from helpers.machine.host import Space, space
from helpers.plan.image_folder import TRAIN_LIST, DatasetFacts, ImagesNeeded, check_dataset
from helpers.plan.photo_images import PART, is_whole, label_of, name_of
from helpers.plan.small_dataset import PHOTOGRAPHS, RECORD, photographs_folder, record_of, refuse_foreign
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import DatasetError

GENERATOR = "perfgate grown dataset"
# 1: first generator.
GENERATOR_VERSION = 1
# The images of ImageNet's validation set.
MOST_IMAGES = 50_000
# Mean of an image, with the rest of its last block.
BYTES_AN_IMAGE = 115_000
# What stays free for the runs' own files.
KEPT_FREE_BYTES = 2 * 10**9
# The list is this many times as long as a rule's steps need, because warm-up may go on.
_LONGER = 2
_MOST_PROCESSES = 64
_SAY_SECONDS = 15.0
_FIRST_WORD_SECONDS = 3.0
# An image takes milliseconds, and all of them an hour on two cores.
_SILENCE_SECONDS = 120.0
_MOST_WAIT_SECONDS = 4 * 3600.0
Say: TypeAlias = Callable[[str], None]
Popen: TypeAlias = "subprocess.Popen[bytes]"


@dataclass(frozen=True)
class GrownDataset:
    """The images under ``root``. Several processes may use it at once; an image, once made, never changes."""

    root: Path
    seed: int = 1234
    # The folder of the sources; None: scikit-image's.
    photographs: Path | None = None
    # How many processes draw; None: one for each core.
    processes: int | None = None
    free: Callable[[Path], Space] = space
    _known: dict[tuple[int, int], DatasetFacts] = field(default_factory=dict)

    def feeding(self, needed: ImagesNeeded, say: Say) -> DatasetFacts:
        """The folder from which the case is fed, made if it is not there yet. Raises DatasetError."""
        count = images_for(needed)
        times = -(-_LONGER * needed.images // count)
        if (count, times) not in self._known:
            self.grow(count, say)
            facts = check_dataset(self._listed(count, 1))
            listed = replace(facts, root=self._listed(count, times), images=count * times, made=count)
            self._known[count, times] = listed
        return self._known[count, times]

    def why_not(self, count: int) -> str:
        """Why the disk has no room for ``count`` images; empty if it has, or they are there."""
        missing = count - sum(1 for _ in self.root.glob("train/*/*.jpeg"))
        if missing <= 0:
            return ""
        place = self.root
        while not place.exists():
            place = place.parent
        found, wanted = self.free(place), missing * BYTES_AN_IMAGE + KEPT_FREE_BYTES
        enough_files = found.free_files is None or found.free_files > missing
        if found.free_bytes >= wanted and enough_files:
            return ""
        got = f"{found.free_bytes / 1e9:.1f} GB are free" if enough_files else f"{found.free_files:,} inodes are free"
        need = f"{wanted / 1e9:.1f} GB ({KEPT_FREE_BYTES / 1e9:.0f} GB of them for the runs)"
        return f"{missing:,} more images in {self.root} need {need}, {got}"

    def missing(self, count: int) -> list[int]:
        """The numbers below ``count`` of the images that are not there, or not whole."""
        return [number for number in range(count) if not is_whole(self.root / name_of(number))]

    def grow(self, count: int, say: Say) -> None:
        """Make the images that are missing of the first ``count``.

        What is there stays, so a killed call is gone on with. ``say`` is told how far it is. Raises DatasetError, also
        if the disk is full.
        """
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            with self._locked(say):
                self._mark()
                if not (missing := len(self.missing(count))):
                    return
                if why := self.why_not(count):
                    remedy = "Free the rest, or name your own images with --data"
                    raise DatasetError("made images", got=why, expected="room for them", remedy=remedy)
                for left_over in self.root.glob(f"train/*/*{PART}"):
                    left_over.unlink(missing_ok=True)
                for name in {Path(name_of(number)).parent for number in range(len(PHOTOGRAPHS))}:
                    (self.root / name).mkdir(parents=True, exist_ok=True)
                self._draw(count, missing, say)
        except OSError as error:
            raise self._refused(str(error)) from error

    def _silent(self) -> DatasetError:
        return DatasetError(
            f"images {self.root}", got=f"no image for {_SILENCE_SECONDS:g} s", expected="some each second",
            remedy="Look whether that disk answers (ls, dmesg), and start again: what was made stays",
        )  # fmt: skip

    def _refused(self, got: str) -> DatasetError:
        full = "space left" in got or "quota" in got
        remedy = "Free space and start again: what was made stays" if full else "Check the folder's permissions"
        return DatasetError(f"images {self.root}", got=got, expected="a folder that can be written", remedy=remedy)

    @contextlib.contextmanager
    def _locked(self, say: Say) -> Iterator[None]:
        # Imported here because collecting tests imports this module and makes nothing.
        from filelock import FileLock, Timeout

        lock = FileLock(str(self.root.parent / f".{self.root.name}.lock"), mode=own_mode(self.root.parent))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(f"images: waiting for another process that makes them in {self.root}")
            try:
                lock.acquire(timeout=_MOST_WAIT_SECONDS)
            except Timeout:
                raise DatasetError(
                    f"images {self.root}", got=f"another process makes them for {_MOST_WAIT_SECONDS:g} s",
                    expected="them to be made by then",
                    remedy=f"Look which process that is (fuser {lock.lock_file}), and end it if it hangs",
                ) from None  # fmt: skip
        try:
            yield
        finally:
            lock.release()

    def _mark(self) -> None:
        """Say in ``dataset.json`` who made the folder. One of another generator is made anew; one that is not ours is
        refused."""
        wanted = {"generator": GENERATOR, "version": GENERATOR_VERSION, "seed": self.seed}
        record = record_of(self.root, GENERATOR)
        if record is None:
            refuse_foreign(self.root, "made images")
        elif all(record.get(key) == value for key, value in wanted.items()):
            return
        else:
            shutil.rmtree(self.root)
        self.root.mkdir(exist_ok=True)
        about = "made by perfgate from photographs of scikit-image; these are not ImageNet's images"
        text = json.dumps({**wanted, "about": about, "pillow": PIL.__version__}, indent=1, sort_keys=True)
        write_whole(self.root / RECORD, f"{text}\n".encode())

    def _draw(self, count: int, missing: int, say: Say) -> None:
        cores = len(os.sched_getaffinity(0)) if self.processes is None else self.processes
        shares = min(cores, _MOST_PROCESSES, missing)
        given = [self.root, self.photographs or photographs_folder(), self.seed, count]
        program = [sys.executable, "-m", "helpers.plan.photo_images", *map(str, given)]
        told = _Told(missing, shares, say)
        with contextlib.ExitStack() as ended:
            started = []
            for share in range(shares):
                process = subprocess.Popen(
                    [*program, str(share), str(shares)], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                )  # fmt: skip
                ended.enter_context(process)
                ended.callback(process.kill)
                started.append(process)
            for process in _as_they_end(started, told, self._silent):
                assert process.stderr is not None
                words = process.stderr.read().decode(errors="replace").strip()
                if process.wait() != 0:
                    last = words.splitlines()[-1] if words else f"exit status {process.returncode}"
                    raise self._refused(last)

    def _listed(self, count: int, times: int) -> Path:
        """The data folder of the first ``count`` images, each ``times`` in its list."""
        folder = self.root / "lists" / f"{count}x{times}"
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (folder / "train").symlink_to(Path("..") / ".." / "train")
        once = "".join(f"{name_of(number)} {label_of(number)}\n" for number in range(count)).encode()
        path = folder / TRAIN_LIST
        if not (path.exists() and path.stat().st_size == len(once) * times):
            write_whole(path, once * times)
        return folder


def images_for(needed: ImagesNeeded) -> int:
    """How many different images a comparison is given."""
    return min(needed.images, MOST_IMAGES)


@dataclass
class _Told:
    """Says how far the drawing is, and how long the rest takes at the rate so far."""

    wanted: int
    processes: int
    say: Say
    made: int = 0
    began: float = field(default_factory=time.monotonic)
    due: float = field(default_factory=lambda: _FIRST_WORD_SECONDS)

    def more(self, images: int) -> None:
        self.made += images
        seconds = time.monotonic() - self.began
        if seconds < self.due or not self.made:
            return
        self.due = seconds + _SAY_SECONDS
        rate = self.made / seconds
        left = max(1, round((self.wanted - self.made) / rate))
        minutes = f"{left // 60}:{left % 60:02}"
        processes = f"{self.processes} process{'es' if self.processes > 1 else ''}"
        self.say(f"images: {self.made:,} of {self.wanted:,} made, {rate:.0f}/s by {processes}, about {minutes} left")


def _as_they_end(started: Iterable[Popen], told: _Told, silent: Callable[[], DatasetError]) -> Iterator[Popen]:
    """Each process when it has closed its output, on which it writes a dot for each image. Raises ``silent()`` if none
    writes any for two minutes."""
    with selectors.DefaultSelector() as outputs:
        for process in started:
            assert process.stdout is not None
            outputs.register(process.stdout, selectors.EVENT_READ, process)
        while outputs.get_map():
            ready = outputs.select(_SILENCE_SECONDS)
            if not ready:
                raise silent()
            for key, _ in ready:
                dots = os.read(key.fd, 65536)
                told.more(len(dots))
                if not dots:
                    outputs.unregister(key.fileobj)
                    yield key.data
