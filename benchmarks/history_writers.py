"""How long runners wait for one PostgreSQL that they all write, and whether it keeps every entry once: ``make bench``.

Starts a real server (a wheel of requirements/dev.txt) and as many runners as asked for, each a process with a session's
own history. Then the server is restarted or killed in the middle, the network freezes or drops the connections, a newer
suite migrates the tables while runners of the older one write, and a replica answers reports. Afterwards every run and
night must be in the database once. Exit status 1 if one is missing or there twice, or if somebody waited too long.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.history_scale import made_night
from helpers.history import open_history
from helpers.history.tables import HEAD
from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT
from tests.faults.postgres import Server, running_replica, running_server
from tests.faults.postgres_network import Network, network_to

RUNNERS = 64
SECONDS = 20.0
# A runner waits 5 s for an answer; if none comes, it cuts the connection (1 s) and tries another one twice (2 s each).
MOST_SECONDS = 11.0
# Between two cases of a runner, on average. Real cases take minutes, and 64 runners have more cores than this machine.
PAUSE_SECONDS = 5.0
START_SECONDS = 60.0
# Runners of an older suite wait for two minutes several times. A replica is behind by less than a second.
END_SECONDS = 1200.0
CATCH_UP_SECONDS = 60.0
# The names of an older suite's runners begin so.
_OLDER = "old"
CASE = made_night(0, 0, (5.0,), ()).case_id


@dataclass(frozen=True)
class Asked:
    """What the command line asks of each scene."""

    runners: int
    seconds: float
    # The folder of the suite whose runners they are.
    suite: Path


@dataclass
class Scene:
    """One server with runners, to which something happens."""

    name: str
    server: Server
    folder: Path
    database: str
    network: Network
    suite: Path = ROOT
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    runners: int = 0
    reports: list[dict[str, Any]] = field(default_factory=list)
    # What else there is to say about it.
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.server.url(self.database)

    def begin(self, name: str, runners: int, url: str, seconds: float, suite: Path | None = None) -> None:
        """Start runners, of the suite in that folder."""
        suite = suite or self.suite
        argv = [sys.executable, "-P", str(Path(__file__).with_name("history_runners.py"))]
        argv += [url, str(self.folder), name, str(runners), str(seconds), str(PAUSE_SECONDS)]
        environment = {**os.environ, "PYTHONPATH": str(suite)}
        process = subprocess.Popen(
            argv, cwd=suite, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("history_writers: the runners did not start")
        self.runners += runners

    def end(self) -> None:
        """Wait for the runners, and read what they report."""
        for process in self.processes:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                raise SystemExit(f"history_writers: runners have not ended after {END_SECONDS:g} s") from None
        self.reports = [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]
        if len(self.reports) != self.runners:
            raise SystemExit("history_writers: a runner ended without a report")

    def count(self, statement: str, server: Server | None = None) -> int:
        """What ``server`` answers; without one, the server that is written."""
        with psycopg.connect((server or self.server).url(self.database)) as connection:
            return int((connection.execute(statement.encode()).fetchone() or (-1,))[0])

    def judged(self, most_seconds: float = MOST_SECONDS) -> bool:
        """Print what the runners saw and what the database has; whether all is well."""
        waits = sorted(wait for each in self.reports for wait in each["waits"])
        made = [uuid for each in self.reports for uuid in each["uuids"]]
        spooled = [json.loads(path.read_text()) for path in self.folder.glob("*/.history-spool/*/*.json*")]
        runs_spooled = {json.loads(each["entry"])["uuid"] for each in spooled if each["kind"] == "result"}
        kept = {
            "runs": self.count("SELECT count(*) FROM results"),
            "steps": self.count("SELECT count(*) FROM steps"),
            "nights": 2 * self.count("SELECT count(*) FROM nights"),
        }
        with psycopg.connect(self.url) as connection:
            there = {uuid for (uuid,) in connection.execute("SELECT uuid FROM results").fetchall()}
        lost = len(set(made) - there - runs_spooled)
        twice = sum(each - len(made) for each in kept.values() if each > len(made))
        # All runners begin one segment, and give their session as the reason. Two of an older suite may both keep it,
        # but no runner keeps it twice, and of this suite's only one.
        twice += self.count("SELECT count(*) - count(DISTINCT reason) FROM segment_starts")
        own = self.count(f"SELECT count(*) FROM segment_starts WHERE reason NOT LIKE '{_OLDER}%'")
        twice += max(0, own - 1)
        left = sorted({text for each in self.reports for text in each["left"]})
        trouble = sorted({str(each["trouble"]) for each in self.reports if each["trouble"]})
        unknown, still = (sum(each[name] for each in self.reports) for name in ("unknown", "still_unknown"))
        well = not (lost or twice or spooled or trouble) and set(kept.values()) == {len(made)}
        in_time = waits[-1] <= most_seconds
        print(
            f"{self.name}: {len(made)} runs and {len(made) // 2} nights of {len(self.reports)} runners"
            f"{'' if well else ': WRONG'}",
            f"{lost} lost, {twice} twice, {len(spooled)} still on disk; earlier nights unknown to {unknown} cases, "
            f"at the night's end to {still}",
            f"a call took {1000 * statistics.median(waits):.0f} ms (median), "
            f"{1000 * waits[int(0.99 * len(waits))]:.0f} ms (99%), {waits[-1]:.1f} s (worst)"
            f"{'' if in_time else f', more than {most_seconds:g} s: MISSED'}",
            *self.said,
            *left,
            *trouble,
            sep="\n  ",
            flush=True,
        )
        return well and in_time


@contextmanager
def scene(name: str, server: Server, suite: Path = ROOT, *, with_tables: bool = True) -> Iterator[Scene]:
    server.start()
    database = psycopg.conninfo.conninfo_to_dict(server.new_database())["dbname"]
    if with_tables:
        open_history(server.url(str(database))).close()
    with tempfile.TemporaryDirectory() as folder, network_to(server.folder) as network:
        made = Scene(name, server, Path(folder), str(database), network, suite)
        try:
            yield made
        finally:
            for process in made.processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def _writing(
    server: Server, asked: Asked, name: str, happens: Callable[[Scene], object] = lambda made: None, far: float = 0.0
) -> bool:
    """Something ``happens`` after half of the time. The network is between the server and a share ``far`` of the
    runners."""
    with scene(name, server, asked.suite) as made:
        behind = int(far * asked.runners)
        for where, runners, url in (
            ("near", asked.runners - behind, made.url),
            ("far", behind, made.network.url(made.database)),
        ):
            if runners:
                made.begin(where, runners, url, asked.seconds)
        time.sleep(asked.seconds / 2)
        happens(made)
        made.end()
        return made.judged()


def _at_once(server: Server, asked: Asked) -> bool:
    return _writing(server, replace(asked, seconds=0.0), "all end a case at once")


def _again(made: Scene, how: signal.Signals) -> None:
    made.server.end(how)
    time.sleep(1.0)
    made.server.start()


def _freeze(made: Scene) -> None:
    """New connections are carried after 2 s."""
    made.network.freeze()
    time.sleep(2.0)
    made.network.carry_new()


def _drop(made: Scene) -> None:
    for _ in range(10):
        made.network.drop()
        time.sleep(0.1)


def _migrated(server: Server, asked: Asked) -> bool:
    """Half of the runners are an older suite's, and a report reads a table while the newer suite migrates it."""
    name = "a newer suite migrates while the older one writes"
    with _older_suite() as older, scene(name, server, asked.suite, with_tables=False) as made:
        if older is None:
            print(f"{made.name}: left out, because this folder has no commit with tables before {HEAD}")
            return True
        made.begin(_OLDER, asked.runners // 2, made.url, asked.seconds, older)
        # The runners make the tables themselves.
        _until(START_SECONDS, lambda: made.count("SELECT count(*) FROM nights"), "no runner has kept a night")
        time.sleep(asked.seconds / 2)
        begun = time.perf_counter()
        with psycopg.connect(made.url) as report:
            report.execute("SELECT count(*) FROM acknowledgements, nights")
            newer = threading.Thread(target=lambda: open_history(made.url).close())
            newer.start()
            time.sleep(2.0)
            made.said.append("a report reads for 2 s; the migration " + ("waits" if newer.is_alive() else "is DONE"))
        newer.join()
        made.said.append(f"the migration took {time.perf_counter() - begun:.1f} s with that wait")
        made.begin("new", asked.runners - asked.runners // 2, made.url, asked.seconds / 2)
        made.end()
        with psycopg.connect(made.url) as connection:
            found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        made.said.append(f"the tables are of version {'' if found is None else found[0]}")
        return made.judged() and found == (HEAD,)


@contextmanager
def _older_suite() -> Iterator[Path | None]:
    """The suite of the newest commit whose tables are older; None if there is no such commit here."""
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run(
        [*git, "log", "--format=%H", "--reverse", f"-SHEAD = \"{HEAD}\"", "--", "helpers/history/tables.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    first = found.stdout.split()[:1]
    with tempfile.TemporaryDirectory() as folder:
        archive, suite = Path(folder) / "suite.tar", Path(folder) / "suite"
        packed = first and subprocess.run([*git, "archive", "--output", str(archive), f"{first[0]}^"], check=False)
        if not packed or packed.returncode:
            yield None
            return
        with tarfile.open(archive) as members:
            members.extractall(suite, filter="data")
        yield suite


def _replicated(server: Server, asked: Asked) -> bool:
    """Reports are made of a replica, which takes over what the runners write and a change of the tables."""
    with scene("reports of a replica while they write", server, asked.suite) as made:
        with running_replica(server, "max_standby_streaming_delay=1s") as replica:
            report_seconds: list[float] = []
            wrong: list[str] = []
            stop = threading.Event()

            def report() -> None:
                with open_history(replica.url(made.database), writes=False) as history:
                    while not stop.is_set():
                        begun = time.perf_counter()
                        try:
                            history.series(CASE)
                        except Exception as error:  # noqa: BLE001 - told below
                            wrong.append(str(error))
                        report_seconds.append(time.perf_counter() - begun)

            reporter = threading.Thread(target=report, daemon=True)
            reporter.start()
            made.begin("r", asked.runners, made.url, asked.seconds)
            time.sleep(asked.seconds / 2)
            with psycopg.connect(made.url, autocommit=True) as connection:
                connection.execute("ALTER TABLE nights ADD COLUMN later TEXT NOT NULL DEFAULT ''")
                connection.execute("VACUUM FULL nights")
            made.end()
            stop.set()
            reporter.join()
            late = _caught_up(made, replica)
        made.said.append(
            f"{len(report_seconds)} reports: {len(wrong)} refused, {statistics.median(report_seconds):.2f} s (median), "
            f"{max(report_seconds):.2f} s (worst); the replica had everything {late:.1f} s after the last entry"
        )
        made.said.extend(sorted(set(wrong)))
        return made.judged() and not wrong and max(report_seconds) < MOST_SECONDS


def _caught_up(made: Scene, replica: Server) -> float:
    statement = "SELECT count(*) FROM results"
    wanted = made.count(statement)
    return _until(CATCH_UP_SECONDS, lambda: made.count(statement, replica) == wanted, "the replica lacks entries")


def _until(most_seconds: float, done: Callable[[], object], missing: str) -> float:
    """How long it takes until ``done`` says so; SystemExit if that is too long."""
    begun = time.perf_counter()
    while time.perf_counter() < begun + most_seconds:
        with suppress(psycopg.Error):
            if done():
                return time.perf_counter() - begun
        time.sleep(0.05)
    raise SystemExit(f"history_writers: {missing} after {most_seconds:g} s")


_FROZEN = "the network of half of them freezes for 2 s, and old connections for ever"
SCENES: dict[str, Callable[[Server, Asked], bool]] = {
    "at-once": _at_once,
    "spread": partial(_writing, name="nothing happens"),
    "restarted": partial(_writing, name="the server is restarted", happens=partial(_again, how=signal.SIGINT)),
    "killed": partial(_writing, name="the server is killed and started", happens=partial(_again, how=signal.SIGKILL)),
    "frozen": partial(_writing, name=_FROZEN, happens=_freeze, far=0.5),
    "dropped": partial(_writing, name="every connection is reset, ten times", happens=_drop, far=1.0),
    "migrated": _migrated,
    "replicated": _replicated,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runners", type=int, default=RUNNERS, help="Start N runners")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="Let each scene take so long")
    parser.add_argument("--scene", choices=SCENES, action="append", help="Make only this one; may be repeated")
    parser.add_argument(
        "--suite", type=Path, default=ROOT, help="Take the runners of the suite in FOLDER, an older one"
    )
    arguments = parser.parse_args()
    asked = Asked(arguments.runners, arguments.seconds, arguments.suite.absolute())
    chosen = arguments.scene or list(SCENES)
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(
        f"{arguments.runners} runners and a server on {cores} cores, {arguments.seconds:g} s a scene, load {load:.1f}",
        flush=True,
    )
    with running_server() as server:
        well = [SCENES[name](server, asked) for name in chosen]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(ended(main, "history_writers"))
