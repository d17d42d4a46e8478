"""The runners of benchmarks/history_writers.py: processes that keep runs and nights in one history, as sessions do.
Each makes one case at least.

``python -P benchmarks/history_runners.py URL FOLDER NAME RUNNERS SECONDS PAUSE_SECONDS`` forks the runners and prints
``ready``. It is started with an older suite on its path, too, and uses only what that suite has.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from benchmarks.history_scale import made_night, made_run
from helpers.history.nights import NightRecord
from helpers.history.stored import SegmentStart
from helpers.judging.evidence import Past
from helpers.session.suite_history import begin, memory_of, notes_of
from helpers.trainers.contract.errors import HistoryError

# A runner of a suite of long ago waits so long before it tries to reach the server again.
END_SECONDS = 60.0


def main() -> None:
    url, folder, name, runners, seconds, pause = sys.argv[1:]
    # What opening a history imports is imported once, and not by each child.
    for name_of_module in ("helpers.history.history", "sqlalchemy.dialects.postgresql.psycopg", "alembic.command"):
        importlib.import_module(name_of_module)
    children = []
    for number in range(int(runners)):
        child = os.fork()
        if not child:
            _Runner(url, Path(folder), f"{name}{number}").work(float(seconds), float(pause))
            os._exit(0)
        children.append(child)
    print("ready", flush=True)
    for child in children:
        os.waitpid(child, 0)


class _Runner:
    """A session whose runs and nights are made up."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self._name = name
        self._file = folder / f"{name}.json"
        options = SimpleNamespace(history_url=url, runs_folder=folder / name)
        # All runners measure one case of one machine, so that they all want the same rows.
        self._memory = memory_of(options, SimpleNamespace(history=SimpleNamespace(url=None)))  # type: ignore[arg-type]
        self._rng = random.Random(name)
        self._waits: list[float] = []
        self._uuids: list[str] = []
        # The sessions of cases whose earlier nights were not known, with what was asked.
        self._unknown: list[tuple[NightRecord, str]] = []
        self._still_unknown = 0
        self._trouble = ""
        # What is said of entries that are still on disk.
        self._left: list[str] = []

    def work(self, seconds: float, pause_seconds: float) -> None:
        until = time.monotonic() + seconds
        try:
            self._timed(lambda: begin(self._memory))
            while True:
                self._case()
                if time.monotonic() >= until:
                    break
                time.sleep(pause_seconds * self._rng.random() * 2)
            self._ask_once_more()
            notes = notes_of(self._memory)
            deadline = time.monotonic() + END_SECONDS
            while any("go in with the next session" in each for each in notes) and time.monotonic() < deadline:
                time.sleep(0.5)
                notes = notes_of(self._memory)
            self._left = [each for each in notes if "spooled in" in each]
        except HistoryError as error:
            self._trouble = str(error)
        record = {
            "name": self._name,
            "waits": self._waits,
            "uuids": self._uuids,
            "unknown": len(self._unknown),
            "still_unknown": self._still_unknown,
            "trouble": self._trouble,
            "left": self._left,
        }
        self._file.write_text(json.dumps(record))

    def _case(self) -> None:
        """One case of a session: what is known, two runs, and the night; in the end a baseline is recorded."""
        number, memory = len(self._uuids), self._memory
        session = f"{self._name}-{number}"
        runs = [replace(made_run(0, 0, self._rng), session=session) for _ in range(2)]
        night = made_night(0, 0, (5.0,), tuple(run.uuid for run in runs))
        night = replace(night, session=session)
        past = []
        self._timed(lambda: past.append(self._past(night, session)))
        if past[0].unreachable:
            self._unknown.append((night, session))
        for run in runs:
            self._timed(lambda run=run: memory.add_result(run))  # type: ignore[misc]
            self._uuids.append(run.uuid)
        self._timed(lambda: memory.add_night(night))
        start = SegmentStart(night.case_id, "v100", dict(night.segment), night.created, f"{session}", "")
        if number == 0:
            self._timed(lambda: memory.start_segment(start))

    def _past(self, night: NightRecord, session: str) -> Past:
        return self._memory.past(night.case_id, "v100", night.segment, night.cards, session)

    def _ask_once_more(self) -> None:
        """As the night's end does for the cases that are unknown. A suite of long ago does not."""
        answers = getattr(self._memory, "answers", lambda: False)
        known = [True]
        self._still_unknown = len(self._unknown)
        for night, session in self._unknown:
            self._timed(lambda: known.append(answers()))
            if not known[-1]:
                return
            self._timed(lambda night=night, session=session: known.append(not self._past(night, session).unreachable))  # type: ignore[misc]
            self._still_unknown -= known[-1]

    def _timed(self, call: Callable[[], object]) -> None:
        started = time.perf_counter()
        call()
        self._waits.append(time.perf_counter() - started)


if __name__ == "__main__":
    main()
