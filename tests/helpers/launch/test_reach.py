"""What can be reached: names, ports and a database, tried with real sockets of this machine."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from helpers.history.reach import history_problem
from helpers.launch.reach import loopback_problem, node_problems
from helpers.plan.nodes import HostConfig, NodesConfig
from helpers.trainers.contract.errors import LaunchError

HERE = HostConfig("a", "127.0.0.1")


def test_two_processes_of_this_machine_can_meet() -> None:
    assert loopback_problem() == ""


def test_hosts_that_resolve_and_a_free_port_are_no_problem() -> None:
    assert node_problems(NodesConfig()) == ()
    assert node_problems(NodesConfig((HERE, HostConfig("b", "127.0.0.2")))) == ()


def test_a_rendezvous_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (problem,) = node_problems(NodesConfig((HERE,), port=port))
    assert f"127.0.0.1:{port}" in problem and "a free port" in problem


def test_a_first_host_that_is_not_this_machine_is_told() -> None:
    (problem,) = node_problems(NodesConfig((HostConfig("a", "192.0.2.7"),)))
    assert "host a" in problem and "an address of this machine" in problem


def test_names_that_do_not_resolve_are_each_told() -> None:
    def resolve(host: HostConfig) -> str:
        if host.name == "b":
            raise LaunchError("host b", field="address", got="b", expected="a name that resolves")
        return "127.0.0.1"

    (problem,) = node_problems(NodesConfig((HERE, HostConfig("b", "b"))), resolve)
    assert "host b" in problem and "a name that resolves" in problem


def test_all_names_are_asked_for_at_once() -> None:
    # Else forty names of a service that hangs would take forty times as long.
    everyone = threading.Barrier(40)

    def resolve(host: HostConfig) -> str:
        everyone.wait(30)
        return "127.0.0.1"

    many = tuple(HostConfig(f"n{number}", f"n{number}") for number in range(40))
    node_problems(NodesConfig(many), resolve, patience_seconds=30)
    assert not everyone.broken


def test_a_name_service_that_hangs_does_not_keep_the_doctor() -> None:
    release = threading.Event()

    def resolve(host: HostConfig) -> str:
        release.wait(10)
        return "127.0.0.1"

    problems = node_problems(NodesConfig((HERE, HostConfig("b", "b"))), resolve, patience_seconds=0.05)
    release.set()
    assert problems == (
        "host a: 127.0.0.1 is not resolved within 0.05 s",
        "host b: b is not resolved within 0.05 s",
    )


def test_a_database_that_listens_answers_and_one_that_does_not_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql://ann:secret@127.0.0.1:{server.getsockname()[1]}/perf"
        assert history_problem(url) == ""
    told = history_problem(url)
    assert "does not answer at 127.0.0.1:" in told and "secret" not in told


@pytest.mark.parametrize("url", [None, "postgresql:///perf", "postgresql:///perf?host=/run/postgresql"])
def test_a_file_of_the_runs_folder_and_a_socket_here_are_not_asked(url: str | None) -> None:
    assert history_problem(url) == ""


def test_a_history_file_needs_a_place_where_it_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert history_problem(f"sqlite:///{tmp_path}/history.sqlite") == ""
    assert history_problem(f"sqlite:///{tmp_path}/new/history.sqlite") == ""
    (tmp_path / "file").touch()
    assert "file is no folder" in history_problem(f"sqlite:///{tmp_path}/file/history.sqlite")
    # Root may write anywhere, so the kernel's answer is made up.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "cannot be written" in history_problem(f"sqlite:///{tmp_path}/history.sqlite")


@pytest.mark.parametrize("url", ["postgresql://host:port/x", "host=db password=secret", "postgresql://ann:secret"])
def test_a_url_that_is_none_is_told(url: str) -> None:
    told = history_problem(url)
    assert "is no URL of a database" in told and "secret" not in told


def test_a_slash_in_a_password_does_not_make_it_a_host() -> None:
    told = history_problem("postgresql://ann:12/secret@127.0.0.1:1/perf")
    assert "does not answer at 127.0.0.1:1" in told and "secret" not in told
