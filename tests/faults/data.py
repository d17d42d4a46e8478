"""Row 10: the data is no ImageNet folder, which is refused by name, or it has odd images, which are trained on."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from tests.faults.fault import Fault, Seen, expect
from tests.faults.workshop import Finished, Workshop

SOURCES = ("native", "dali")
_IMAGES = 4
_SIZE = (96, 72)
# The limits of a real trainer on a busy machine, for its imports, its first steps and the whole run.
_REAL_LIMITS = {"start_up_seconds": 180, "no_progress_seconds": 90, "run_seconds": 400, "stop_grace_seconds": 5}

# The check before the night saw a whole image; a trainer meets half of one.
_CUT_LATER = """
from pathlib import Path

def at_start(spec, rank):
    image = Path(spec.data_root) / {name!r}
    image.write_bytes(image.read_bytes()[: image.stat().st_size // 2])
    mark()
"""


def case_id(source: str) -> str:
    return f"paddle-resnet50v1.5-fp32-bs1-1x1-{source}-dynamic"


def _whole(root: Path) -> list[tuple[str, int]]:
    """Write images of noise in ImageNet's layout under ``root``; returns the list's lines, as path and label."""
    lines = [(f"train/a/{number}.jpeg", number) for number in range(_IMAGES)]
    (root / "train" / "a").mkdir(parents=True)
    for name, _ in lines:
        _noise("RGB", _SIZE).save(root / name, "JPEG")
    _list(root, lines)
    return lines


def _list(root: Path, lines: list[tuple[str, int]]) -> None:
    (root / "train_list.txt").write_text("".join(f"{name} {label}\n" for name, label in lines), encoding="utf-8")


def _noise(mode: str, size: tuple[int, int]) -> Image.Image:
    bands = len(Image.new(mode, (1, 1)).getbands())
    return Image.frombytes(mode, size, random.Random(mode).randbytes(bands * size[0] * size[1]))


# ---- refused before anything is trained


def _truncated(root: Path) -> None:
    image = root / _whole(root)[2][0]
    image.write_bytes(image.read_bytes()[: image.stat().st_size // 2])


def _is_refused(name: str, what: str, spoil: Callable[[Path], None], *expected: str) -> Fault:
    def make(workshop: Workshop) -> Seen:
        root = workshop.folder / "images"
        spoil(root)
        _two_sources(workshop)
        done = workshop.run("--data", str(root), case=case_id("native"))
        return refused(workshop, done, str(root), *expected)

    return Fault(10, name, what, make)


def refused(workshop: Workshop, done: Finished, *expected: str) -> Seen:
    """Expects exit code 4, an error with all ``expected`` texts, and not one run begun."""
    error = "\n".join(line for line in done.output.splitlines() if line.startswith("ERROR: "))
    begun = list((workshop.folder / "runs").glob("*/*/r*"))
    wrong = expect(
        (done.exit_code == 4, f"exit code {done.exit_code}"),
        *((each in error, f"{each!r} is missing: {error or done.output[-300:]}") for each in expected),
        ("Traceback" not in done.output, "a traceback"),
        (not begun, f"{len(begun)} runs begun"),
    )
    status = "refused" if done.exit_code == 4 and not done.cases else done.status
    return Seen(status, done.exit_code, error, None, len(done.left), workshop.lost(), wrong)


# ---- trained on, for real


def _foreign_names(root: Path) -> None:
    """A class folder and an image whose names hold a space and Chinese characters; so does the folder's own name."""
    lines = _whole(root)
    name = "train/猫 和 狗/图 像 1.jpeg"
    (root / name).parent.mkdir()
    (root / lines[2][0]).rename(root / name)
    _list(root, [*lines[:2], (name, 2), *lines[3:]])


def _is_trained_on(source: str, name: str, what: str, spoil: Callable[[Path], None]) -> Fault:
    def make(workshop: Workshop) -> Seen:
        root = workshop.folder / "数据 with spaces"
        spoil(root)
        with Workshop(workshop.folder.parent / "real", real=True) as real:
            _two_sources(real)
            done = real.run("--data", str(root), case=case_id(source))
            wrong = expect(
                (done.status == "NO_BASELINE", f"status {done.status}: {done.reason}"),
                (done.exit_code == 0, f"exit code {done.exit_code}"),
                (f"{_IMAGES} images" in str(_environments(real)), "the result does not say what it trained on"),
            )
            return Seen(done.status, done.exit_code, done.reason, None, len(done.left), real.lost(), wrong)

    return Fault(10, f"{name}, {source}", what, make)


def _is_cut_later(source: str) -> Fault:
    def make(workshop: Workshop) -> Seen:
        root = workshop.folder / "images"
        name = _whole(root)[2][0]
        with Workshop(workshop.folder.parent / "real", real=True) as real:
            _two_sources(real)
            done = real.run("--data", str(root), case=case_id(source), fault=_CUT_LATER.format(name=name))
            wrong = expect(
                (done.status == "INFRA_ERROR", f"status {done.status}"),
                (done.exit_code == 6, f"exit code {done.exit_code}"),
                (name in done.reason, f"{name} is missing: {done.reason}"),
            )
            # The image is met some time after it was cut, so nothing is said of how long the end took.
            return Seen(done.status, done.exit_code, done.reason, None, len(done.left), real.lost(), wrong)

    what = "a JPEG loses its second half after the check, before the trainer reads it"
    return Fault(10, f"JPEG cut after the check, {source}", what, make)


def _environments(workshop: Workshop) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in (workshop.folder / "runs").glob("*/*/r*/result.json")]


def _two_sources(workshop: Workshop) -> None:
    def change(config: dict[str, Any]) -> None:
        block = config["matrix"]["cpu"][0]
        block.update(data=list(SOURCES), cards=1)
        config["short"] = [case_id(SOURCES[0])]
        if workshop.real:
            config["limits"].update(_REAL_LIMITS)
            # The row asks whether it trains, and not how steadily on a machine that others use.
            for name in ("steady_window_steps", "most_warmup_steps"):
                config["protocols"]["cpu"].pop(name)

    workshop.configure(change)


FAULTS = [
    _is_refused("truncated JPEG", "the third image ends in its middle", _truncated, "2.jpeg", "truncated"),
    _is_trained_on(
        "native", "spaces and Chinese in paths", "the data folder, a class and an image have such names", _foreign_names
    ),
    _is_cut_later("native"),
]
