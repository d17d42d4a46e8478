"""Training logs for the fuzzers: seeds plain and packed, changes line by line, and what an import must hold."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from helpers.logs.lines import LogLine
from helpers.logs.record import Imported
from helpers.logs.settings import LogSetting, Stated
from helpers.logs.source import open_log
from tests.helpers.logs.made_logs import paddleclas_lines, tensorflow_lines
from tests.helpers.logs.one_file import import_file

ASKED = {
    setting: Stated(value, "asked for")
    for setting, value in (
        (LogSetting.FRAMEWORK, "paddle"),
        (LogSetting.MODEL, "resnet50v1.5"),
        (LogSetting.PRECISION, "fp32"),
        (LogSetting.BATCH_SIZE_PER_CARD, "256"),
        (LogSetting.CARDS, "1"),
    )
}
WORDS = (
    "\n", "\r", "\r\n", "\0", "\x1b[32m", "\x1b[0m", "\x1b]0;", "\x07", "[1,0]<stdout>:", "[1,3]<stderr>:",
    "Wed Jun  1 12:20:31 2022[1,0]<stdout>:", "[0]<stdout>:", "ips: None", "ips: 127.0.0.1", "ips: nan", "ips: -1",
    "ips: 1e400", "ips: 0", "epoch:0", "epoch:1", "train step:10", "batch_cost: 0.18 s", "END epoch:0", "total_ips : 5",
    "DLL 2022-06-01 12:20:31.126419 - ", "(0, 200)", ":::NVLOGv0.2.3 resnet", ":::MLLOG {", "train.ips : 5",
    "Speed: 100 samples/sec", "TimeHistory: 39.1 seconds, 327.0 examples/second between steps 100 and 200",
    "imgs_per_sec : 5", '{"ips": 5, "speed_unit": "images/s"}', "batch_size : 256", "9" * 400, "速度", "\ud7ff",
)  # fmt: skip
_RECORDS = 12
_GZIP = b"\x1f\x8b"


def log_seeds() -> tuple[bytes, ...]:
    means = [0.19 + 0.001 * (number % 5) for number in range(_RECORDS)]
    mxnet = (
        f"[1,{rank}]<stdout>:DLL 2023-07-28 06:54:{number:02}.5 - Epoch: {number // 6} Iteration: {number}  "
        f"train.loss : 6.9  train.ips : {2048 / mean} images/s train.lr : 0.4864 "
        for number, mean in enumerate(means)
        for rank in (0, 1)
    )
    logs = (paddleclas_lines(means, 256), tensorflow_lines([256 / mean for mean in means], 1300.0), mxnet)
    plain = tuple("".join(f"{line}\n" for line in ("our own sample", *lines)).encode() for lines in logs)
    coloured = plain[0].replace(b"ppcls", b"\x1b[32mppcls\x1b[0m").replace(b"\n", b"\r\n")
    return (*plain, coloured, gzip.compress(plain[0]))


def changed_lines(data: bytes, random: Random) -> bytes:
    """A log with lines dropped, repeated, moved, cut, or with a word put in. Raises ValueError on what is packed."""
    if data.startswith(_GZIP):
        raise ValueError("not lines")
    lines = data.split(b"\n")
    for _ in range(random.randint(1, 4)):
        at, to = random.randrange(len(lines)), random.randrange(len(lines))
        kind = random.randrange(5)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(to, lines[at])
        elif kind == 2:
            lines.insert(to, lines.pop(at))
        else:
            place = random.randrange(len(lines[at]) + 1)
            word = random.choice(WORDS).encode() if kind == 3 else b""
            lines[at] = lines[at][:place] + word + (lines[at][place:] if kind == 3 else b"")
    return b"\n".join(lines)


def wrong_log(path: Path) -> list[str]:
    """What does not hold of a log that is taken. Raises LogError where it is not."""
    runs = import_file(path, ASKED)
    return [*wrong_runs(runs), *wrong_lines(open_log(path).lines())]


def wrong_lines(lines: Iterable[LogLine]) -> Iterator[str]:
    """What does not hold of a log's lines."""
    number = 0
    for line in lines:
        if line.number not in (number, number + 1):
            yield f"line {line.number} after line {number}"
        if set(b"\0\r\n\x1b") & set(line.text):
            yield f"not clean: {line.text[:80]!r}"
        number = line.number


def wrong_runs(runs: Iterable[Imported]) -> Iterator[str]:
    """What does not hold of what was imported: a figure is a number or has a reason, and lines go on."""
    last = 0
    for run in runs:
        for figure in (*run.figures, run.honest):
            if figure.samples_per_s is None:
                if not figure.reason:
                    yield f"{figure.rule}: neither a figure nor a reason"
            elif not 0 < figure.samples_per_s < math.inf:
                yield f"{figure.rule}: {figure.samples_per_s} images/s"
        if run.reader_share is not None and not 0 <= run.reader_share <= 1:
            yield f"a reader's share of {run.reader_share}"
        if not last < run.first_line <= run.last_line:
            yield f"lines {run.first_line} to {run.last_line} after {last}"
        last = run.last_line
