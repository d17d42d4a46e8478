import json
import re
import shlex
from pathlib import Path

import pytest

from helpers.plan.perf_yaml import SSH, HostConfig, NodesConfig, read_nodes
from helpers.plan.yaml_file import YamlValue, read_yaml
from helpers.trainers.contract.errors import ConfigError
from tests.hostile_strings import TEXTS


def read(folder: Path, text: str) -> NodesConfig:
    path = folder / "perf.yaml"
    path.write_text(text)
    return read_nodes(YamlValue(str(path), "nodes", read_yaml(path).value))


DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "multi-node.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
FIRST = "{name: n0, address: 10.0.0.1}"


def test_no_section_is_no_host() -> None:
    assert read_nodes(None) == NodesConfig((), None, 30.0)


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
    root: /home/user/perfgate
    interpreter: /opt/python3.11/bin/python
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
            "n1", "node-1.example", ("ip", "netns", "exec", "n1"), "/home/user/perfgate", "/opt/python3.11/bin/python",
            "/data/image net", {"NCCL_IB_HCA": "mlx5_0"}, "eth0", 2,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_documents_examples_name_two_hosts(tmp_path: Path, example: str) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text(example)
    nodes = read_nodes(read_yaml(path).mapping(required=["nodes"])["nodes"])
    assert [host.name for host in nodes.hosts] == ["n0", "n1"]


def test_a_host_is_reached_by_ssh_without_a_password_prompt(tmp_path: Path) -> None:
    nodes = read(tmp_path, f"hosts: [{FIRST}, {{name: n1, address: 10.0.0.2}}]")
    assert nodes.hosts[1].connect == (*SSH, "10.0.0.2")
    assert "BatchMode=yes" in SSH


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port: 36000", "nodes.hosts"),
        ("{hosts: slurmm}", "nodes.hosts"),
        ("{hosts: [], interface: ib0}", "nodes.interface"),
        ("hosts: 3", "expected a list"),
        ("hosts: []\nports: 3", "Did you mean 'port'"),
        ("hosts: []\nport: 22", "from 1024 to 65535"),
        ("hosts: [{name: n0}]", "hosts[0].address"),
        ("hosts: [{name: n0, address: -oProxyCommand=x}]", "an IPv4 address or a host name"),
        ("hosts: [{name: n0, address: '::1'}]", "an IPv4 address or a host name"),
        ("hosts: [{name: ../n0, address: a}]", "a name of letters"),
        ("hosts: [{name: n0, address: a, connect: [ssh, a]}]", "the first host is this machine"),
        ("hosts: [{name: n0, address: a, interface: eth 0}]", "a network interface"),
        ("hosts: [{name: n0, address: a, environment: {A: 1}}]", "hosts[0].environment.A"),
        (f"hosts: [{FIRST}, {FIRST}]", "every name and address once"),
        (f"hosts: [{FIRST}, {{name: n1, address: 10.0.0.1}}]", "every name and address once"),
        (f"hosts: [{FIRST}, {{name: n1, address: b, connect: []}}]", "a list of at least 1"),
        (f"hosts: [{FIRST}, {{name: n1, address: b, root: ~/perfgate}}]", "an absolute path of that host"),
        (f"hosts: [{FIRST}, {{name: n1, address: b, root: /a b}}]", "a path of letters"),
        (f"hosts: [{FIRST}, {{name: n1, address: b, interpreter: /bin/python;true}}]", "a path of letters"),
        (f"hosts: [{FIRST}, {{name: n1, address: b, data: images}}]", "an absolute path of that host"),
        (f"hosts: [{FIRST}, {{name: n1, address: b, user: me}}]", "one of the keys"),
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
def test_no_name_address_or_path_of_a_host_is_an_option_or_a_word_for_a_shell(tmp_path: Path, text: str) -> None:
    for key in ("name", "address", "root", "interpreter"):
        for value in (text, f"/{text}") if key in ("root", "interpreter") else (text,):
            host = {"name": "n1", "address": "n1", key: value}
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


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        (NodesConfig(), "perf.yaml names none (nodes.hosts; docs/multi-node.md)"),
        (NodesConfig((HostConfig("a", "b"),)), "perf.yaml names 1 host (nodes.hosts; docs/multi-node.md)"),
        (NodesConfig(of_slurm=True), "this process is on no node of a Slurm job (docs/slurm.md)"),
        (NodesConfig((HostConfig("a", "b"),), of_slurm=True), "this process's job of Slurm has 1 (docs/slurm.md)"),
    ],
)
def test_who_names_the_hosts_is_told(nodes: NodesConfig, told: str) -> None:
    assert nodes.described == told
