import json
import shlex
from pathlib import Path

import pytest

from helpers.plan.perf_yaml import HostConfig, NodesConfig, read_nodes
from helpers.plan.yaml_file import YamlValue, read_yaml
from helpers.trainers.contract.errors import ConfigError
from tests.hostile_strings import TEXTS


def read(folder: Path, text: str) -> NodesConfig:
    path = folder / "perf.yaml"
    path.write_text(text)
    return read_nodes(YamlValue(str(path), "nodes", read_yaml(path).value))


FIRST = "{name: n0, address: 10.0.0.1}"


def test_everything_that_a_host_can_say_is_read(tmp_path: Path) -> None:
    nodes = read(
        tmp_path,
        f"""
port: 36000
connect_seconds: 5
hosts:
  - {FIRST}
  - name: n1
    address: node-1.example
    connect: [ip, netns, exec, n1]
    data: /data/image net
    environment: {{NCCL_IB_HCA: mlx5_0}}
    interface: eth0
    cpu_cards: 2
""",
    )
    assert (nodes.port, nodes.connect_seconds) == (36000, 5.0)
    assert nodes.hosts == (
        HostConfig("n0", "10.0.0.1"),
        HostConfig(
            "n1", "node-1.example", ("ip", "netns", "exec", "n1"), "/data/image net", {"NCCL_IB_HCA": "mlx5_0"}, "eth0",
            2,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port: 36000", "nodes.hosts"),
        ("{hosts: slurmm}", "nodes.hosts"),
        ("{hosts: [], interface: ib0}", "nodes.interface"),
        ("hosts: []\nports: 3", "Did you mean 'port'"),
        ("hosts: [{name: n0}]", "hosts[0].address"),
        ("hosts: [{name: n0, address: -oProxyCommand=x}]", "an IPv4 address or a host name"),
        ("hosts: [{name: n0, address: '::1'}]", "an IPv4 address or a host name"),
        ("hosts: [{name: n0, address: a, connect: [ssh, a]}]", "the first host is this machine"),
        ("hosts: [{name: n0, address: a, environment: {A: 1}}]", "hosts[0].environment.A"),
        (f"hosts: [{FIRST}, {FIRST}]", "every name and address once"),
        (f"hosts: [{FIRST}, {{name: n1, address: 10.0.0.1}}]", "every name and address once"),
        (f"hosts: [{FIRST}, {{name: n1, address: b, connect: []}}]", "a list of at least 1"),
        (f"hosts: [{FIRST}, {{name: n1, address: b, data: images}}]", "an absolute path of that host"),
    ],
)
def test_what_cannot_be_meant_is_an_error_at_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert told in str(raised.value)


SMUGGLED = [
    "-oProxyCommand=touch owned",
    "-F/tmp/x",
    "--",
    "n1 -oProxyCommand=x",
    "a@b",
    "n1;true",
    "n1\n",
    "$(x)",
    "~",
]


@pytest.mark.parametrize("text", [*SMUGGLED, *TEXTS.values()])
def test_no_name_or_address_of_a_host_is_an_option_or_a_word_for_a_shell(tmp_path: Path, text: str) -> None:
    for key in ("name", "address"):
        host = {"name": "n1", "address": "n1", key: text}
        try:
            nodes = read(tmp_path, json.dumps({"hosts": [{"name": "n0", "address": "10.0.0.1"}, host]}))
        except ConfigError as error:
            assert str(error).isprintable()
            continue
        taken = getattr(nodes.hosts[1], key)
        assert shlex.quote(taken) == taken and not taken.startswith("-")


def test_the_nodes_of_a_slurm_job_have_what_the_file_says_of_all_of_them(tmp_path: Path) -> None:
    assert read(tmp_path, "slurm") == NodesConfig(of_slurm=True)
    nodes = read(tmp_path, "{hosts: slurm, port: 36000, interface: ib0, environment: {NCCL_IB_HCA: mlx5_0}}")
    assert (nodes.of_slurm, nodes.hosts, nodes.port, nodes.interface) == (True, (), 36000, "ib0")
    assert nodes.environment == {"NCCL_IB_HCA": "mlx5_0"}
