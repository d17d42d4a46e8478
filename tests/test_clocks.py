"""What watches, times and leases asks the monotonic clock only: a wall clock may be set back while a case runs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WATCHED = ("helpers/launch", "helpers/machine/watch", "helpers/machine/leases.py", "helpers/trainers")
# time.strftime may write a date for a reader.
WALL_CLOCK = re.compile(
    r"\btime\.(time|time_ns|localtime|gmtime)\b|\b(datetime|date)\.(now|utcnow|today)\b|"
    r"\bfromtimestamp\b|\bst_[mca]time|\bget[mc]time\b|from time import .*\btime\b"
)


def test_no_wait_no_limit_and_no_order_hangs_on_the_wall_clock() -> None:
    files = [path for each in WATCHED for path in {ROOT / each, *(ROOT / each).rglob("*.py")} if path.is_file()]
    assert len(files) > 40
    assert [str(path) for path in files if WALL_CLOCK.search(path.read_text(encoding="utf-8"))] == []
