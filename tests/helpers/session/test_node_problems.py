"""What the doctor says of configured hosts."""

from __future__ import annotations

import socket
import threading

from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.session.node_problems import loopback_problem, node_problems
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
