"""The profilers' own traces of an explanation, for a trace viewer: kept for one pair, and cleaned up by size."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from helpers.common.files import MOST_LIST_BYTES, read_limited, write_whole
from helpers.session.explain.pairs import FOLDER

# All sessions' traces together; the oldest are removed first.
MOST_TRACE_BYTES = 512 * 2**20
KEPT_TRACES = "trace-rank*.json.gz"


def compressed(trace: Path) -> Path:
    """A compressed copy of the file, which trace viewers read too. Raises OSError."""
    path = trace.with_name(f"{trace.name}.gz")
    write_whole(path, gzip.compress(read_limited(trace, MOST_LIST_BYTES, within=trace.parent), compresslevel=4))
    return path


def clean_traces(runs_folder: Path, most_bytes: int) -> None:
    """Remove the oldest traces of all sessions until the others have at most ``most_bytes``."""
    found = [(path.stat().st_mtime, path.stat().st_size, path) for path in _all_traces(runs_folder)]
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= most_bytes:
            return
        path.unlink(missing_ok=True)
        left -= size


def _all_traces(runs_folder: Path) -> Iterator[Path]:
    """Those of interrupted runs too, which are not compressed."""
    return runs_folder.glob(f"*/{FOLDER}/*/r*/trace-rank*.json*")
