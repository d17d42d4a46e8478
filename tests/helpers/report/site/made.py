"""A history with some cases, machines and builds over some nights, and its site."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.history import open_history
from helpers.history.history import History
from helpers.history.nights import NightRecord
from helpers.report.site.pages import Look
from helpers.report.site.publish import Published, publish
from tests.helpers.history.made import BUILD, moment, night, run, segment

SLOW = "paddle-vgg16-fp32-bs8-1x2-dali-static"
QUIET = "paddle-resnet50v1.5-fp32-bs8-1x2-dali-static"
LOOK = Look("perfgate", "")


def build(day: int) -> dict[str, str]:
    """Another commit every third day."""
    return {**BUILD, "commit": f"{day // 3:040x}"}


def add_night(history: History, day: int, case_id: str = SLOW, host: str = "h0", **values: Any) -> NightRecord:
    """A night with one run."""
    rate = values.pop("rate", 4.5 + 0.001 * (day % 5))
    uuid = f"{case_id[:12]}-{host[:8]}-{day}"
    record = night(
        day,
        rate,
        **{
            "case_id": case_id,
            "segment": segment(host=host),
            "host": host,
            "build": build(day),
            "run_uuids": (uuid,),
            "smallest_drop": 0.012,
            "effect": rate - 4.5,
            **values,
        },
    )
    if record.run_uuids:
        history.add_result(
            run(uuid, rate, session=record.session, case_id=case_id, created=moment(day), build=record.build)
        )
    history.add_night(record)
    return record


def fill(url: str, days: Iterable[int]) -> None:
    """Two cases on one machine, one of them on a second one too. On day 5 and from day 9 on SLOW is a regression."""
    with open_history(url) as history:
        for day in days:
            slow = day == 5 or day >= 9
            story = {"status": "REGRESSION", "rate": 4.45, "reason": "slower; confirmed by 6 pairs"} if slow else {}
            add_night(history, day, **story)
            add_night(history, day, QUIET)
            if day % 2:
                add_night(history, day, QUIET, host="h1")


def published(url: str, folder: Path, look: Look = LOOK) -> Published:
    """What publishing did."""
    with open_history(url) as history:
        return publish(history, folder, look, print)


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file of the site."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
