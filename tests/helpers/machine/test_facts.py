"""The suite's own commit, asked of real git work trees; disks, networks, cards and libraries that the kernel lists."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.machine.facts import (
    Storage,
    cpu_list,
    interconnect,
    nvidia_cards_on_bus,
    storage_of,
    suite_commit,
)
from helpers.machine.libraries import library_versions
from tests.helpers.machines import write

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def _git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(folder), *names, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@needs_git
def test_the_suite_s_commit_is_told_whatever_its_tags_and_the_hook_of_another_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
        for words in (("init", "-q"), ("add", "file"), ("commit", "-qm", "one"), ("tag", "v1")):
            _git(folder, *words)
    commit = _git(own, "rev-parse", "HEAD")[:12]
    for name, path in (("GIT_DIR", ".git"), ("GIT_WORK_TREE", "."), ("GIT_INDEX_FILE", ".git/index")):
        monkeypatch.setenv(name, str(other / path))
    assert suite_commit(own) == commit
    (own / "file").write_text("changed")
    assert suite_commit(own) == f"{commit}-dirty"


def test_git_s_reason_and_advice_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = tmp_path / "git"
    lines = [
        "fatal: detected dubious ownership in repository at '/x'", "To add an exception for this directory, call:", "",
        "\tgit config --global --add safe.directory /x",
    ]  # fmt: skip
    git.write_text("#!/bin/sh\ncat >&2 <<'END'\n" + "\n".join(lines) + "\nEND\nexit 128\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(
        ValueError, match=r"^fatal: detected dubious ownership in repository at '/x' To add an exception"
    ):
        suite_commit(tmp_path)


@pytest.mark.parametrize(("cpus", "text"), [({0, 1, 2, 40, 42, 43}, "0-2,40,42-43"), ({7}, "7"), (set(), "")])
def test_cpus_are_written_as_the_kernel_does(cpus: set[int], text: str) -> None:
    assert cpu_list(frozenset(cpus)) == text


def test_a_folders_disk_is_told(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    other, own = (
        "21 1 0:99 / /x rw - tmpfs none rw\n",
        f"22 1 {os.major(number)}:{os.minor(number)} / / rw - ext4 /dev/sda1 rw\n",
    )
    root = write(tmp_path / "root", {"proc/self/mountinfo": other + own})
    assert storage_of(tmp_path / "not" / "there" / "yet", root).describe() == "ext4 on /dev/sda1"
    assert Storage("lustre", "server:/x").describe() == "lustre over the network"
    with pytest.raises(ValueError, match="no mount"):
        storage_of(tmp_path, write(tmp_path, {"proc/self/mountinfo": other}))


def test_infiniband_is_told_with_its_rate_else_the_network_cards_are_named(tmp_path: Path) -> None:
    assert interconnect(tmp_path) == "no InfiniBand; no network card"
    write(tmp_path, {
        "sys/class/net/eth0/device/x": "", "sys/class/net/eth0/speed": "10000\n", "sys/class/net/eth1/device/x": "",
        "sys/class/net/eth1/speed": "-1\n", "sys/class/net/lo/mtu": "",
    })  # fmt: skip
    assert interconnect(tmp_path) == "no InfiniBand; eth0 10000 Mb/s, eth1"
    port = "sys/class/infiniband/mlx5_0/ports/1"
    write(tmp_path, {f"{port}/link_layer": "InfiniBand\n", f"{port}/rate": "100 Gb/sec (4X EDR)\n"})
    assert interconnect(tmp_path) == "InfiniBand 100 Gb/sec (4X EDR) (mlx5_0)"


def test_nvidia_cards_are_counted_without_a_driver(tmp_path: Path) -> None:
    assert nvidia_cards_on_bus(tmp_path) == 0
    devices = "sys/bus/pci/devices"
    write(tmp_path, {
        f"{devices}/a/vendor": "0x10de\n", f"{devices}/a/class": "0x030200\n",
        f"{devices}/b/vendor": "0x10de\n", f"{devices}/b/class": "0x068000\n",
        f"{devices}/c/vendor": "0x8086\n", f"{devices}/c/class": "0x030000\n",
    })  # fmt: skip
    assert nvidia_cards_on_bus(tmp_path) == 1


def test_a_librarys_version_is_its_file_names(tmp_path: Path) -> None:
    write(
        tmp_path, {"libcudnn.so.8.9.7": "", "libcudnn.so.8": "", "libcudnn_ops.so.8.9.7": "", "libnccl.so.2.18.5": ""}
    )
    variables = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert library_versions("cudnn", variables, tmp_path) == ("8.9.7",)
    assert library_versions("nccl", variables, tmp_path) == ("2.18.5",)
