"""Row 10: the data is no ImageNet folder, which is refused by name, or it has odd images, which are trained on."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from PIL import Image

from tests.faults.fault import Fault, Seen, expect
from tests.faults.handled import measured
from tests.faults.workshop import Finished, Workshop

CASE = "paddle-resnet50v1.5-fp32-bs1-1x1-native-dynamic"
_IMAGES = 4
_SIZE = (96, 72)
# The limits of a real trainer on a busy machine, for its imports, its first steps and the whole run.
_REAL_LIMITS = {"start_up_seconds": 180, "no_progress_seconds": 90, "run_seconds": 400, "stop_grace_seconds": 5}


def _whole(root: Path) -> list[tuple[str, int]]:
    """Write images of noise in ImageNet's layout under ``root``; returns the list's lines, as path and label."""
    lines = [(f"train/a/{number}.jpeg", number) for number in range(_IMAGES)]
    (root / "train" / "a").mkdir(parents=True)
    noise = random.Random(0).randbytes(3 * _SIZE[0] * _SIZE[1])
    for name, _ in lines:
        Image.frombytes("RGB", _SIZE, noise).save(root / name, "JPEG")
    _list(root, lines)
    return lines


def _list(root: Path, lines: list[tuple[str, int]]) -> None:
    (root / "train_list.txt").write_text("".join(f"{name} {label}\n" for name, label in lines), encoding="utf-8")


def _of_images(workshop: Workshop) -> None:
    """Give the workshop one case that reads images."""

    def change(config: dict[str, Any]) -> None:
        config["matrix"]["cpu"][0].update(data="native", cards=1)
        config["short"] = [CASE]
        if workshop.real:
            config["limits"].update(_REAL_LIMITS)
            # The row asks whether it trains, and not how steadily on a machine that others use.
            for name in ("steady_window_steps", "most_warmup_steps"):
                config["protocols"]["cpu"].pop(name)

    workshop.configure(change)


# ---- refused before anything is trained


def _truncated(workshop: Workshop) -> Seen:
    root = workshop.folder / "images"
    image = root / _whole(root)[2][0]
    image.write_bytes(image.read_bytes()[: image.stat().st_size // 2])
    _of_images(workshop)
    return refused(workshop, workshop.run("--data", str(root), case=CASE), str(root), "2.jpeg", "truncated")


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


def _foreign_names(workshop: Workshop) -> Seen:
    """The folder, a class folder and an image have names with a space and Chinese characters."""
    root = workshop.folder / "数据 with spaces"
    lines = _whole(root)
    name = "train/猫 和 狗/图 像 1.jpeg"
    (root / name).parent.mkdir()
    (root / lines[2][0]).rename(root / name)
    _list(root, [*lines[:2], (name, 2), *lines[3:]])
    with Workshop(workshop.folder.parent / "real", real=True) as real:
        _of_images(real)
        done = real.run("--data", str(root), case=CASE)
        results = [path.read_text(encoding="utf-8") for path in (real.folder / "runs").glob("*/*/r*/result.json")]
        told = all(f"{_IMAGES} images" in text for text in results)
        return measured(real, done, (told, "the result does not say what it trained on"))


FAULTS = [
    Fault(10, "truncated JPEG", "the third image ends in its middle", _truncated),
    Fault(
        10, "spaces and Chinese in paths, native", "the data folder, a class and an image have such names",
        _foreign_names,
    ),
]  # fmt: skip
