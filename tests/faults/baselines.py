"""Row 15: a merge or an editor spoils a file of recorded baselines, or two sessions update it at once."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from helpers.machine.devices import discover
from helpers.plan.proposals import Proposal, ProposalKind, write_recorded
from helpers.plan.recorded import Provenance, RecordedEntry, load_recorded
from tests.faults.data import refused
from tests.faults.fault import Fault, Seen, expect
from tests.faults.workshop import ONE_CARD, ROOT, TWO_CARDS, Running, Workshop

# On a machine that others use a run may be refused as disturbed.
_ATTEMPTS = 4
# An entry that no case of a workshop touches.
_STANDING = "paddle-vgg16-fp32-bs1-1x1-synthetic-dynamic"


def _recorded(workshop: Workshop) -> tuple[Path, str]:
    """This machine's file in the workshop, written with one good entry of another case, and the machine's key."""
    key = discover().machine_key("cpu")
    path = workshop.folder / "baselines" / "recorded" / f"{key}.json"
    path.unlink(missing_ok=True)
    provenance = Provenance("0", "2026-11-21", "a machine", "recorded for the fault table")
    entry = RecordedEntry(
        _STANDING, 2.0, "median-step", (2.0,), None, {"host": "a"}, {"host": "a"}, provenance
    )  # fmt: skip
    write_recorded(path, key, [Proposal(_STANDING, ProposalKind.CREATED, None, entry, "none recorded before")])
    return path, key


# ---- spoilt


def _conflict(workshop: Workshop) -> Seen:
    path, _ = _recorded(workshop)
    head, figure, tail = path.read_text(encoding="utf-8").partition('      "images_per_s": 2.0,\n')
    theirs = figure.replace("2.0", "3.0")
    path.write_text(f"{head}<<<<<<< HEAD\n{figure}=======\n{theirs}>>>>>>> their branch\n{tail}", encoding="utf-8")
    before = path.read_bytes()
    seen = refused(workshop, workshop.run("--update-baselines"), path.name, "<<<<<<< HEAD")
    return replace(seen, wrong=(*seen.wrong, *expect((path.read_bytes() == before, "the file was rewritten"))))


# ---- two at once


def _two_updates(workshop: Workshop) -> Seen:
    """Repeats the two updates until neither was refused for what others did on this machine meanwhile."""
    for attempt in range(_ATTEMPTS):
        seen, disturbed = _both_at_once(workshop, attempt)
        if not disturbed:
            break
    return seen


def _both_at_once(workshop: Workshop, attempt: int) -> tuple[Seen, bool]:
    """Holds two sessions back before they write, until both have measured; says also whether one was disturbed."""
    path, key = _recorded(workshop)
    nights = 2 * (attempt + 1)
    second: list[subprocess.Popen[bytes]] = []
    with (workshop.folder / "second.txt").open("wb") as output, FileLock(f"{path}.lock") as lock:

        def during(running: Running) -> None:
            argv = workshop.argv("--update-baselines", "--results", str(workshop.folder / "second.json"),
                                 case=TWO_CARDS, session=f"second{attempt}")  # fmt: skip
            second.append(subprocess.Popen(argv, cwd=ROOT, env=workshop.environment, stdout=output, stderr=output))
            # A session whose run was refused as disturbed ends without waiting for the lock.
            with contextlib.suppress(TimeoutError):
                running.wait_for(lambda: len(list((workshop.folder / "runs").glob("*/*/night.json"))) == nights)
            lock.release()
            second[0].wait(120)

        done = workshop.run("--update-baselines", session=f"first{attempt}", during=during)
    second_output = (workshop.folder / "second.txt").read_text(encoding="utf-8")
    entries = load_recorded(path, key).entries
    wrong = expect(
        (done.exit_code == 0, f"exit code {done.exit_code}"),
        (second[0].returncode == 0, f"exit code of the second {second[0].returncode}: {second_output[-500:]}"),
        *((case in entries, f"no entry of {case}") for case in (ONE_CARD, TWO_CARDS, _STANDING)),
        (not list(path.parent.glob(".*.tmp")), "a half-written file was left"),
    )
    seen = Seen(done.status, done.exit_code, done.reason, None, len(done.left), workshop.lost(), wrong)
    return seen, bool(wrong) and any("Baselines: 1 refused" in text for text in (done.output, second_output))


FAULTS: list[Fault] = [
    Fault(15, "merge conflict in baselines", "both sides of a merge stand in the file", _conflict),
    Fault(
        15,
        "two updates at once",
        "two sessions record different cases, both write at one moment",
        _two_updates,
    ),
]
