"""A history of known series for the tests of the commands that ask it."""

from __future__ import annotations

import datetime
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from helpers.history import default_url, open_history
from helpers.history.history import History
from helpers.history.results import RunResult
from helpers.plan.overrides import segment_of
from tests.helpers.history.made import ENVIRONMENT, SETTINGS, night, run

CASE = "paddle-vgg16-fp32-bs8-1x2-dali-static"
OTHER = "paddle-resnet50v1.5-fp32-bs8-1x2-dali-static"
GOOD = {"interpreter": "python", "framework": "paddle", "version": "3.3.0", "commit": "aaaa1111"}
NEW = {**GOOD, "version": "3.3.1", "commit": "bbbb2222"}
FIRST = datetime.datetime(2026, 11, 1, 22, tzinfo=datetime.UTC)


def moment(day: int) -> str:
    """An hour of the ``day``-th of November 2026."""
    return (FIRST + datetime.timedelta(days=day - 1)).isoformat()


def history_in(runs_folder: Path) -> History:
    runs_folder.mkdir(parents=True, exist_ok=True)
    file = runs_folder / "history.sqlite"
    if not file.exists():
        file.write_bytes(_made(()))
    return open_history(default_url(runs_folder))


@cache
def _made(builds: tuple[tuple[str, float], ...]) -> bytes:
    """A history to be copied, since making one waits for the disk at each table and night. Of each case in ``builds``
    it holds ten nights of GOOD from the 1st on, then four of NEW, slower by that much in the logarithm."""
    with tempfile.TemporaryDirectory() as folder:
        url = default_url(Path(folder))
        with open_history(url) as history:
            for case_id, drop in builds:
                for day, rate in enumerate([*rates(10), *rates(4, 4.5 - drop)], 1):
                    add_night(history, day, [rate], case_id=case_id, build=GOOD if day <= 10 else NEW)
        return (Path(folder) / "history.sqlite").read_bytes()


def rates(count: int, mean: float = 4.5, seed: int = 1, sigma: float = 0.003) -> list[float]:
    source = random.Random(f"{seed} {mean}")
    return [source.gauss(mean, sigma) for _ in range(count)]


def add_night(
    history: History,
    day: int,
    log_rates: Sequence[float],
    *,
    case_id: str = CASE,
    build: Mapping[str, str] = GOOD,
    session: str | None = None,
    environment: Mapping[str, str] | None = None,
    pairs: Sequence[float] = (),
    reference: Mapping[str, str] = GOOD,
    run_values: Mapping[str, Any] | None = None,
    **values: Any,
) -> list[RunResult]:
    """A judged night of ``day`` with its runs; ``pairs`` are differences of interleaved ones against ``reference``."""
    session = session or f"night{day:02}"
    facts = {**ENVIRONMENT, **(environment or {})}
    common = {"session": session, "case_id": case_id, "created": moment(day), "environment": facts}
    runs = [
        run(f"{session}-{case_id[:10]}-{number}", rate, replicate=number, build=build, **common, **(run_values or {}))
        for number, rate in enumerate(log_rates)
    ]
    for number, difference in enumerate(pairs):
        for role, rate, made_by in (("reference", 4.5, reference), ("candidate", 4.5 + difference, build)):
            runs.append(
                run(
                    f"{session}-{case_id[:10]}-{role}{number}",
                    rate,
                    replicate=len(runs),
                    build=made_by,
                    role=role,
                    stage="confirm",
                    **common,
                )
            )
    for each in runs:
        history.add_result(each)
    record = night(
        day,
        *log_rates,
        session=session,
        case_id=case_id,
        created=moment(day),
        segment=segment_of(facts, SETTINGS, "test"),
        build=build,
        run_uuids=tuple(each.uuid for each in runs),
        **values,
    )
    history.add_night(replace(record, log_rates=tuple(log_rates)))
    return runs


def two_builds(runs_folder: Path, drop: float, case_ids: Sequence[str] = (CASE,)) -> None:
    """A new history: ten nights of GOOD from the 1st on, then four of NEW, slower by ``drop`` in the logarithm."""
    runs_folder.mkdir(parents=True)
    (runs_folder / "history.sqlite").write_bytes(_made(tuple((case_id, drop) for case_id in case_ids)))
