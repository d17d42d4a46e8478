"""Reads one log in a process of its own and prints what that took, as JSON: for benchmarks.importing.

``import`` reads it as import-log does, ``clean`` only its lines (helpers/logs/sources), ``sha256`` only its hash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path

from helpers.logs.importer import import_file
from helpers.logs.settings import LogSetting, Stated
from helpers.logs.sources.source import open_logs
from helpers.trainers.contract.errors import LogError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("import", "clean", "sha256"))
    parser.add_argument("path", type=Path)
    parser.add_argument("framework")
    parser.add_argument("cards")
    arguments = parser.parse_args()
    asked = {
        LogSetting.FRAMEWORK: Stated(arguments.framework, "--framework"),
        LogSetting.MODEL: Stated("resnet50v1.5", "--model"),
        LogSetting.PRECISION: Stated("fp32", "--precision"),
        LogSetting.BATCH_SIZE_PER_CARD: Stated("256", "--batch-size"),
        LogSetting.CARDS: Stated(arguments.cards, "--cards"),
    }
    # Of the path no more than the file's name is given: a folder's name, here a random one, would state settings too.
    os.chdir(arguments.path.parent)
    path = Path(arguments.path.name)
    begin, begin_processor = time.perf_counter(), time.process_time()
    if arguments.what == "import":
        found = _imported(path, asked)
    elif arguments.what == "clean":
        found = {"lines": _lines(path)}
    else:
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
        found = {}
    took = {
        "seconds": time.perf_counter() - begin,
        "processor_seconds": time.process_time() - begin_processor,
        "peak_bytes": _peak_bytes(),
    }
    print(json.dumps({**found, **took}))
    return 0


def _imported(path: Path, asked: dict[LogSetting, Stated]) -> dict[str, object]:
    (run,) = import_file(path, asked)
    if run.dropped or run.honest.samples_per_s is None:
        raise LogError(str(path), got=f"{run.dropped} {run.honest.reason}", expected="every record used")
    used = next(each.used for each in run.figures if each.rule == run.usual)
    return {"format": run.format, "lines": run.last_line, "used": used, "images_per_s": run.honest.samples_per_s}


def _lines(path: Path) -> int:
    (log,) = open_logs(path)
    return sum(chunk.data.count(b"\n") for chunk in log.chunks())


def _peak_bytes() -> int:
    """The peak of this program alone: ru_maxrss would count that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) * 1024


if __name__ == "__main__":
    sys.exit(main())
