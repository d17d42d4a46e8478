"""The kernel's OOM killer: its counts of this process's group and of the machine, and what they say of a SIGKILL."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from helpers.machine.facts.host import OomKills, oom_evidence, read_oom_kills

AT_WORK = "the kernel's OOM killer was at work"
GROUPS = Path("/sys/fs/cgroup/memory")


def machine(root: Path, groups: str, **files: str) -> Path:
    """A root folder with these counts; ``__`` in a name stands for ``/``."""
    for name, text in {"proc__self__cgroup": groups, **files}.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def write_events(folder: Path, count: int, name: str = "memory.events") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"low 0\noom 7\noom_kill {count}\noom_group_kill 9\n")


def test_the_own_group_is_read_in_version_2(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job/a\n", proc__vmstat="nr_free 5\noom_kill 3\n")
    write_events(root / "sys/fs/cgroup/job/a", 2)
    write_events(root / "sys/fs/cgroup/job", 50)
    assert read_oom_kills(root) == OomKills(2, 3, inherits=True)


def test_a_container_reads_the_mounts_root(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/../other\n", proc__vmstat="oom_kill 3\n")
    write_events(root / "sys/fs/cgroup", 4)
    assert read_oom_kills(root) == OomKills(4, 3, inherits=True)


def test_the_own_group_is_read_in_version_1(tmp_path: Path) -> None:
    root = machine(tmp_path, "4:memory:/x\n1:cpu:/\n0::/\n", proc__vmstat="oom_kill 3\n")
    write_events(root / "sys/fs/cgroup/memory/x", 1, "memory.oom_control")
    write_events(root / "sys/fs/cgroup/memory", 9, "memory.oom_control")
    assert read_oom_kills(root) == OomKills(1, 3, inherits=False)


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert read_oom_kills(tmp_path) == OomKills()


@pytest.mark.parametrize(
    ("before", "after", "struck", "text"),
    [
        (OomKills(1, 5, True), OomKills(3, 7, True), True, f"{AT_WORK} (oom_kill +2)"),
        # Another container's shortage: the own group would have counted it.
        (OomKills(1, 5, True), OomKills(1, 9, True), False, "not the kernel's OOM killer (oom_kill +0)"),
        # Version 1 does not count the groups below, so the machine's count decides.
        (OomKills(0, 5), OomKills(0, 6), True, f"{AT_WORK} on this machine (oom_kill +1)"),
        (OomKills(0, 5), OomKills(0, 5), False, "not the kernel's OOM killer (oom_kill +0)"),
        (OomKills(None, 5), OomKills(None, 6), True, f"{AT_WORK} on this machine (oom_kill +1)"),
        (OomKills(), OomKills(), False, "whether by the kernel's OOM killer cannot be read here"),
        (OomKills(None, 5), OomKills(), False, "whether by the kernel's OOM killer cannot be read here"),
    ],
)  # fmt: skip
def test_counts_that_grew_are_the_evidence(before: OomKills, after: OomKills, struck: bool, text: str) -> None:
    assert oom_evidence(before, after) == (struck, text)


@pytest.fixture
def tight_group() -> Generator[Path, None, None]:
    """A memory group of 64 MiB below this machine's own; where none can be made the test has nothing to try."""
    folder = GROUPS / f"perfgate-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no memory control group (version 1) can be made here")
    (folder / "memory.limit_in_bytes").write_text(str(64 * 2**20))
    yield folder
    folder.rmdir()


def test_a_real_kill_for_want_of_memory_is_seen(tight_group: Path) -> None:
    enters = f"open({str(tight_group / 'cgroup.procs')!r}, 'w').write('0'); "
    before = read_oom_kills()
    done = subprocess.run([sys.executable, "-c", enters + "b = b'x' * 2**30"], check=False)
    assert done.returncode == -9
    struck, text = oom_evidence(before, read_oom_kills())
    assert struck, text
    assert "OOM killer was at work" in text
