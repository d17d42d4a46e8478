"""Row 7: a disk is full or read-only before, during or after a case. A small tmpfs stands in the folder's place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.plan.recorded import LEAST_RUNS
from tests.faults.fault import Fault, Seen, expect
from tests.faults.handled import measured
from tests.faults.small_disk import IN_A_JOB, small_disk, why_no_mount
from tests.faults.traces import (
    broken_baselines,
    one_card,
    recorded_cases,
    results,
    undisturbed,
    uuids,
    with_cases,
)
from tests.faults.workshop import ONE_CARD, Finished, Workshop

_RUNS = 2
_STEPS = 40
# The fault strikes in the second run, so that there is a first one to keep.
_IN_THE_WINDOW = """
def at_step(spec, rank, phase, number):
    if spec.replicate == 1 and phase == "window" and not made:
        made.append(fill())

made = []
"""


_NO_ROOM, _READ_ONLY = "No space left on device", "Read-only file system"


def _long_log(config: dict[str, Any]) -> None:
    """Two runs whose logs need more than one block of the disk, since within a block there is always room."""
    with_cases([1], runs=_RUNS)(config)
    config["protocols"]["cpu"] |= {"window_steps": _STEPS}


def _gone_on(workshop: Workshop, before: dict[Path, str]) -> tuple[tuple[str, ...], Finished]:
    """Expects that ``--resume``, with room again, makes what is missing and nothing twice."""
    done = workshop.run("--resume", "night", session="")
    after = uuids(workshop)
    wrong = expect(
        (done.exit_code == 0, f"--resume with room again ended with {done.exit_code}: {done.output[-600:]}"),
        (all(after.get(folder) == uuid for folder, uuid in before.items()), "a finished run was made again"),
        (_of_the_night(after) == _RUNS, f"{_of_the_night(after)} results after --resume"),
    )
    return wrong, done


def _of_the_night(found: dict[Path, str]) -> int:
    return sum("night" in folder.parts for folder in found)


def _named(done: Finished, *words: str) -> tuple[str, ...]:
    """Expects every word in the terminal's text, whatever its line breaks."""
    shown = " ".join(done.output.split())
    packed = "".join(done.output.split())
    return tuple(
        f"{word!r} is missing: {shown[-900:]}"
        for word in words
        if word not in shown and "".join(word.split()) not in packed
    )


def _before(workshop: Workshop) -> Seen:
    """The runs folder takes nothing from the start: nothing is measured, and it is said at once."""
    runs = workshop.folder / "runs"
    with small_disk(runs) as disk:
        disk.read_only()
        done = workshop.run()
        wrong = expect(
            # 4 is pytest's own for a session that cannot begin.
            (done.exit_code in (4, 6), f"exit code {done.exit_code}"),
            (not results(workshop), "a result on a disk that takes nothing"),
        )
        wrong += _named(done, str(runs), _READ_ONLY)
        if "Name another folder" not in done.output:
            wrong += _named(done, "Free the disk")
        status, reason = done.status, done.reason
        disk.writable()
        again = workshop.run(session="another")
        wrong += expect((again.exit_code == 0, f"with room again: exit code {again.exit_code}"))
        lost = workshop.lost()
    return Seen(status, done.exit_code, reason, None, len(done.left), lost, wrong)


def _mid_way(workshop: Workshop) -> Seen:
    """The runs folder takes nothing more in the second run."""
    workshop.configure(_long_log)
    runs = workshop.folder / "runs"
    with small_disk(runs) as disk:
        done = workshop.run(fault=IN_A_JOB.format(folder=str(runs)) + _IN_THE_WINDOW)
        kept = uuids(workshop)
        wrong = expect(
            (done.status == "INFRA_ERROR", f"status {done.status}: {done.reason}"),
            (done.exit_code == 6, f"exit code {done.exit_code}"),
            (len(kept) == 1, f"{len(kept)} of the 1 run finished before is kept"),
            (_NO_ROOM in done.reason, f"{_NO_ROOM!r} is missing: {done.reason}"),
            (str(runs / "night") in done.reason, f"no file named: {done.reason}"),
            ("Free the disk" in done.reason, f"no remedy: {done.reason}"),
        )
        disk.empty()
        resumed, again = _gone_on(workshop, kept)
        lost = workshop.lost()
    left = len(done.left) + len(again.left)
    return Seen(done.status, done.exit_code, done.reason, done.end_seconds, left, lost, (*wrong, *resumed))


def _baselines(workshop: Workshop) -> Seen:
    """The recorded file's folder takes nothing: the old file stays as it is, the results are kept."""
    workshop.configure(with_cases([1, 2], runs=_RUNS))
    other = one_card(2)
    with small_disk(workshop.folder / "baselines" / "recorded") as disk:
        first = undisturbed(lambda name: workshop.run("--update-baselines", case=other, session=name))
        (file,) = disk.folder.glob("*.json")
        old = file.read_bytes()
        disk.fill()
        nights: list[str] = []

        def night(name: str) -> Finished:
            nights.append(f"full-{name}")
            return workshop.run("--update-baselines", session=nights[-1])

        done = undisturbed(night)
        kept = {folder: uuid for folder, uuid in uuids(workshop).items() if nights[-1] in folder.parts}
        wrong = expect(
            (first.exit_code == 0, f"the entry before it: exit code {first.exit_code}"),
            (done.status == "NO_BASELINE", f"status {done.status}: {done.reason}"),
            (done.exit_code == 6, f"exit code {done.exit_code}"),
            (file.read_bytes() == old, "the recorded file has changed"),
            (len(kept) == LEAST_RUNS, f"{len(kept)} results kept"),
        )
        wrong += (
            *_named(done, "Baselines were not written", str(file), _NO_ROOM, "again"),
            *broken_baselines(workshop),
        )
        disk.empty()
        again = workshop.run("--resume", nights[-1], "--update-baselines", session="")
        wrong += expect(
            (again.exit_code == 0, f"--resume with room again ended with {again.exit_code}: {again.output[-500:]}"),
            (recorded_cases(workshop) == {ONE_CARD, other}, f"recorded: {sorted(recorded_cases(workshop))}"),
            (all(uuids(workshop).get(folder) == uuid for folder, uuid in kept.items()), "a run was made again"),
        )
        wrong += broken_baselines(workshop)
    left = len(done.left) + len(again.left)
    return Seen(done.status, done.exit_code, _error_of(done), None, left, workshop.lost(), wrong)


def _temporary(workshop: Workshop) -> Seen:
    """TMPDIR is full: the suite keeps nothing there, so the case is measured."""
    with small_disk(workshop.folder / "tmp", megabytes=1) as disk:
        disk.fill()
        done = workshop.run(environment={"TMPDIR": str(disk.folder)})
    return measured(workshop, done)


def _error_of(done: Finished) -> str:
    lines = [line.strip() for line in done.output.splitlines() if "not written" in line]
    return lines[0] if lines else done.reason


def _fault(name: str, what: str, make: Callable[[Workshop], Seen]) -> Fault:
    return Fault(7, name, what, make, needs=why_no_mount)


FAULTS = [
    _fault("TMPDIR full", "TMPDIR is a file system without a free byte", _temporary),
    _fault(
        "runs full in the window", "the second run's trainer fills the runs folder's disk in its window",
        _mid_way,
    ),
    _fault(
        "runs read-only before", "the runs folder's disk is read-only from the start",
        _before,
    ),
    _fault(
        "baselines full", "the recorded baselines' disk is full when they are to be written",
        _baselines,
    ),
]  # fmt: skip
