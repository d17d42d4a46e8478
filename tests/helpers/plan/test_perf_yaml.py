"""perf.yaml: how a file is read, and every way in which it can be wrong."""

from __future__ import annotations

import datetime
import json
import math
import re
import shlex
from pathlib import Path

import pytest
import yaml

from helpers.judging.case.evidence import Budget
from helpers.launch.launchers import CHOICES
from helpers.plan.case_plan import matrix
from helpers.plan.clusters import ClusterConfig
from helpers.plan.matrix import ByCase, Tolerances
from helpers.plan.perf_yaml import SHIPPED, SSH, Config, HostConfig, TimeLimits, load_config
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import FRAMEWORKS, Framework
from helpers.trainers.contract.models import MODELS, Model
from tests.hostile_strings import TEXTS

SMALL = """
protocols:
  cpu: {warmup_steps: 2, window_steps: 5, runs: 2, rules: [dlperf-log]}
matrix:
  cpu:
    - framework: paddle
      model: resnet50v1.5
      precision: [fp32, amp_o1]
      batch_size_per_card: [4]
      cards: [1, 2]
      data: dali
      execution: dynamic
      protocol: cpu
"""

FIRST = "{name: n0, address: 10.0.0.1}"


def load(folder: Path, text: str) -> Config:
    (folder / "perf.yaml").write_text(text, encoding="utf-8")
    return load_config(folder / "perf.yaml")


def refusal(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    assert str(folder / "perf.yaml") in str(caught.value)
    return caught.value


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


def steady(warmup: int, window: int, most: int) -> str:
    text = f"warmup_steps: {warmup}, steady_window_steps: {window}, most_warmup_steps: {most}"
    return changed("warmup_steps: 2", text)


# ---- budgets and history


def test_a_budget_is_the_general_one_with_what_the_last_matching_pattern_changes(tmp_path: Path) -> None:
    told = {
        "pairs": 8,
        "cases": [
            {"pattern": "a*", "pairs": 4, "repeats": 0},
            {"pattern": "*-b", "screen_runs": 1, "pairs": 5, "retries": 3},
            {"pattern": "d*", "case_minutes": 7.5},
            {"pattern": "d-all", "case_minutes": None},
        ],
        "case_minutes": 20,
    }
    budgets = load(tmp_path, SMALL + yaml.safe_dump({"budgets": told})).budgets
    assert budgets.of("c") == Budget(pairs=8, case_minutes=20)
    assert budgets.of("a-c") == Budget(pairs=4, repeats=0, case_minutes=20)
    assert budgets.of("a-b") == Budget(pairs=5, repeats=0, screen_runs=1, retries=3, case_minutes=20)
    assert [budgets.of(each).case_minutes for each in ("d", "d-all")] == [7.5, None]
    assert Budget().case_minutes is None


# ---- reading


def test_a_block_expands_to_the_product_of_its_dimensions_in_the_files_order(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    assert [item.case.id for item in config.matrix] == [
        "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic",
        "paddle-resnet50v1.5-fp32-bs4-1x2-dali-dynamic",
        "paddle-resnet50v1.5-amp_o1-bs4-1x1-dali-dynamic",
        "paddle-resnet50v1.5-amp_o1-bs4-1x2-dali-dynamic",
    ]
    assert {(item.target, item.protocol, item.short) for item in config.matrix} == {("cpu", "cpu", False)}


def test_what_the_file_leaves_out_has_its_default(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    assert set(config.frameworks) == set(Framework)
    assert config.frameworks == load_config(SHIPPED).frameworks
    assert config.data.root is None
    assert (config.tolerances, config.limits) == (ByCase(Tolerances()), TimeLimits())
    assert config.contention.max_foreign_share == 0.05
    assert dict(config.machines) == {}


def test_what_a_file_says_holds_key_by_key_over_the_shipped_defaults(tmp_path: Path) -> None:
    shipped = load_config(SHIPPED)
    own = """
tolerances: {recorded: 0.02}
protocols:
  mine: {warmup_steps: 0, window_steps: 5, runs: 2, rules: [dlperf-log]}
cases:
  gpu:
    - {framework: pytorch, model: vgg16, precision: bf16, batch_size_per_card: 7, cards: 1, data: dali, protocol: mine}
"""
    config = load(tmp_path, own)
    assert config.tolerances.general == Tolerances(recorded=0.02)
    assert [each.case.id for each in config.matrix if each not in shipped.matrix] == ["pytorch-vgg16-bf16-bs7-1x1-dali"]
    assert config.protocol_for_rule("dlperf-log").name == "mine"
    assert config.protocol_for_rule("dlperf-time").name == "dlperf"
    assert config.frameworks == shipped.frameworks


@pytest.mark.parametrize("name", ["compile", "graphs", "xla"])
def test_a_block_switches_a_feature_of_its_cases_on(tmp_path: Path, name: str) -> None:
    config = load(tmp_path, changed("execution: dynamic", f"execution: dynamic\n      {name}: true"))
    assert all(getattr(each.case, name) and each.case.id.endswith(f"-{name}") for each in config.matrix)


def test_a_machine_is_found_by_its_host_name_in_either_case(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL + 'machines: {lab: {host: "Lab-[0-9]*", cpu_cards: 2}}\n')
    machine = config.machine_for("LAB-12")
    assert machine is not None
    assert (machine.name, machine.cpu_cards, machine.gate) == ("lab", 2, ())
    assert config.machine_for("laboratory") is None


RESNET = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"


def test_of_several_owners_and_quarantines_the_last_that_matches_counts(tmp_path: Path) -> None:
    text = (
        'owners: [{pattern: "*", owner: all}, {pattern: "*-1x1-*", owner: one}, '
        '{pattern: "*-1x2-*", owner: two, target: cpu}]\n'
        'quarantine: [{pattern: "*-1x1-*", reason: flaky, until: 2026-12-24}, '
        '{pattern: "*-fp32-*-1x1-*", reason: hangs, until: "2026-12-25"}]\n'
    )
    cases = {each.case.id: each for each in matrix(load(tmp_path, SMALL + text), {})}
    one, two = cases[RESNET], cases[RESNET.replace("1x1", "1x2")]
    assert (one.owner, two.owner, two.quarantine) == ("one", "two", None)
    assert one.quarantine is not None
    assert (one.quarantine.reason, one.quarantine.until) == ("hangs", datetime.date(2026, 12, 25))


# ---- refusing

_NO_CASE = "*-vgg19-*"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("tolerances: {cases: [{pattern: '%s', recorded: 0.1}]}", "tolerances.cases[0].pattern"),
        ("budgets: {cases: [{pattern: '*', pairs: 8}, {pattern: '%s', pairs: 8}]}", "budgets.cases[1].pattern"),
        ("owners: [{pattern: '%s', owner: x}]", "owners[0].pattern"),
        ("quarantine: [{pattern: '%s', reason: flaky, until: 2026-12-24}]", "quarantine[0].pattern"),
        ("machines: {of_others: {host: far, gate: [{cases: '%s', needs: both}]}}", "machines.of_others.gate[0].cases"),
    ],
)
def test_a_pattern_that_matches_no_case_is_refused_with_the_nearest(tmp_path: Path, text: str, field: str) -> None:
    config = load(tmp_path, SMALL + text % _NO_CASE)
    with pytest.raises(ConfigError) as caught:
        matrix(config, {})
    assert str(tmp_path / "perf.yaml") in str(caught.value)
    assert (caught.value.field or "").endswith(field)
    assert caught.value.got == _NO_CASE
    assert "Nearest: paddle-resnet50v1.5-" in str(caught.value)
    assert matrix(load(tmp_path, SMALL + text % "*-resnet50v1.5-*"), {})


@pytest.mark.parametrize(
    ("text", "field", "got"),
    [
        (SMALL + "tolerance: {}\n", "tolerance", "an unknown key"),
        (changed("runs: 2", "runs: 0"), "protocols.cpu.runs", 0),
        (changed("runs: 2", "runs: true"), "protocols.cpu.runs", True),
        (changed("window_steps: 5, ", ""), "protocols.cpu.window_steps", "nothing"),
        (changed("[dlperf-log]", "[dlperf-logs]"), "protocols.cpu.rules[0]", "dlperf-logs"),
        (SMALL.replace("matrix:", "  b: {warmup_steps: 2, window_steps: 5, runs: 2, rules: [dlperf-log]}\nmatrix:"),
         "protocols.b.rules", "dlperf-log"),
        (changed("runs: 2", "runs: 2, steady_window_steps: 2"), "protocols.cpu", None),
        (steady(5, 2, 9), "protocols.cpu", None),
        (changed("[4]", "[4, 4]"), "matrix.cpu[0]", "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"),
        (changed("resnet50v1.5", "resnet50v15"), "matrix.cpu[0].model[0]", "resnet50v15"),
        (changed("cards: [1, 2]", "cards: [1, 0]"), "matrix.cpu[0].cards[1]", 0),
        (changed("      execution: dynamic\n", ""), "matrix.cpu[0].execution", None),
        (changed("protocol: cpu", "protocol: gpus"), "matrix.cpu[0].protocol", "gpus"),
        (changed("  cpu:\n", "  h100:\n"), "matrix", "h100"),
        (SMALL + "short: [paddle-resnet50v1.5-fp32-bs4-1x3-dali-dynamic]\n", "short[0]", None),
        (SMALL + "tolerances: {published: 0}\n", "tolerances.published", 0),
        (SMALL + 'tolerances: {cases: [{pattern: "a*", recorded: 2}]}\n', "tolerances.cases[0].recorded", 2),
        (SMALL + "budgets: {pair: 3}\n", "budgets.pair", "an unknown key"),
        (SMALL + "budgets: {pairs: 2}\n", "budgets.pairs", 2),
        (SMALL + "budgets: {case_minutes: 0}\n", "budgets.case_minutes", 0),
        (SMALL + "budgets: {night_minutes: 0}\n", "budgets.night_minutes", 0),
        (SMALL + "budgets: {cases: [{pairs: 3}]}\n", "budgets.cases[0].pattern", "nothing"),
        (SMALL + "limits: {run_seconds: .inf}\n", "limits.run_seconds", math.inf),
        (SMALL + f"limits: {{run_seconds: {'9' * 4000}}}\n", "limits.run_seconds", None),
        (SMALL + "contention: {max_foreign_share: 1.5}\n", "contention.max_foreign_share", 1.5),
        (SMALL + "frameworks: {torch: {}}\n", "frameworks", "torch"),
        (SMALL + "frameworks: {paddle: {requirements: none}}\n", "frameworks.paddle.requirements", "none"),
        (SMALL + "frameworks: {paddle: {launcher: mpirun}}\n", "frameworks.paddle.launcher", "mpirun"),
        (SMALL + "builds: {commit_url: https://a/b.whl}\n", "builds.commit_url", "https://a/b.whl"),
        (SMALL + "machines: {a: {}}\n", "machines.a", None),
        (SMALL + "machines: {no: {host: a}}\n", "machines", False),
        (SMALL + "machines: {a: {host: a, gate: [{cases: x, needs: all}]}}\n", "machines.a.gate[0].needs", "all"),
        (SMALL + 'owners: [{pattern: "*"}]\n', "owners[0].owner", "nothing"),
        (SMALL + "quarantine: [{pattern: a, reason: b, until: soon}]\n", "quarantine[0].until", "soon"),
        (SMALL + "clusters: {c: {queue: x}}\n", "clusters.c.queue", "an unknown key"),
        (SMALL + "clusters: {c: {name: x}}\n", "clusters.c.name", "an unknown key"),
        (SMALL + "nodes: {of_slurm: true}\n", "nodes.of_slurm", "an unknown key"),
        (SMALL + 'clusters: {c: {account: "a\\nb"}}\n', "clusters.c.account", "a\nb"),
        (SMALL + 'clusters: {c: {options: ["--x=1\\n#SBATCH --y"]}}\n', "clusters.c.options[0]", None),
        (SMALL + "clusters: {c: {options: [--nodes=4]}}\n", "clusters.c.options[0]", "--nodes=4"),
        (SMALL + "nodes: {hosts: [{name: n0}]}\n", "nodes.hosts[0].address", "nothing"),
        (SMALL + f"nodes: {{hosts: [{FIRST}, {FIRST}]}}\n", "nodes.hosts[1]", "n0"),
        (SMALL + "nodes: {hosts: [{name: n0, address: a, connect: [ssh, a]}]}\n", "nodes.hosts[0]", "n0"),
        (SMALL + "nodes: {hosts: [{name: n0, address: a, environment: {A: 1}}]}\n",
         "nodes.hosts[0].environment.A", 1),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_field(tmp_path: Path, text: str, field: str, got: object) -> None:
    error = refusal(tmp_path, text)
    assert error.field == field
    assert got is None or (type(error.got), error.got) == (type(got), got)
    assert error.expected


@pytest.mark.parametrize(
    ("registry", "name", "told"),
    [
        (MODELS, Model.VGG16, "model vgg16: got 'no entry', expected an entry in MODELS of "),
        (FRAMEWORKS, Framework.MXNET, "framework mxnet: got 'no entry', expected an entry in FRAMEWORKS of "),
    ],
)
def test_a_model_or_framework_without_its_entry_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, registry: dict[object, object], name: object, told: str
) -> None:
    monkeypatch.delitem(registry, name)
    with pytest.raises(ConfigError, match=re.escape(told)):
        load_config(tmp_path / "perf.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL + "protocols: {}\n", "line 14: got 'key protocols occurs twice'"),
        (changed("runs: 2", "runs: 2, runs: 3"), "key runs occurs twice"),
        (SMALL + "a: [1\n", "expected valid YAML"),
        (SMALL + "a: 2026-99-99\n", "expected valid YAML"),
        (SMALL + "a: \0\n", "expected valid YAML"),
        (SMALL + "owners: [{pattern: *-vgg16-*, owner: x}]\n", "in quotes"),
    ],
)
def test_what_is_not_plain_yaml_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in str(refusal(tmp_path, text))


def aliases_of_aliases(first: str, line: str) -> str:
    """A dozen lines that stand for 10¹² values."""
    return first + "".join(line.format(n=n, ten=", ".join([f"*a{n - 1}"] * 10)) for n in range(1, 13))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (aliases_of_aliases("a0: &a0 [x]\n", "a{n}: &a{n} [{ten}]\n"), "more than 10000 values"),
        (aliases_of_aliases("a0: &a0 {x: 1}\n", "a{n}: &a{n} {{<<: [{ten}]}}\n"), "more than 10000 values"),
        (f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]\n", "more than 10000 values"),
        ("a: &a {<<: *a}\n", "an alias inside of its own value"),
        ("a: !!python/object/apply:os.system [x]\n", "could not determine a constructor"),
        ("a: {<<: {x: 1}, x: 2, x: 3}\n", "key x occurs twice"),
        ("a: " + "[" * 50_000, "within each other"),
        ("a: [" + "1," * 60_000 + "]\n", "more than 10000 values"),
        ("limits: {run_seconds: " + "9" * 100_000 + "}\n", "expected valid YAML"),
        ("limits: {run_seconds: " + ":".join(["59"] * 10_000) + "}\n", "expected"),
    ],
    ids=range(10),
)
def test_a_file_that_would_take_all_memory_or_time_is_refused(tmp_path: Path, text: str, words: str) -> None:
    error = str(refusal(tmp_path, text))
    assert words in error
    assert len(error) < 1000


def test_without_a_file_the_shipped_defaults_hold_and_a_folder_is_refused(tmp_path: Path) -> None:
    found = load_config(tmp_path / "perf.yaml")
    assert found.matrix == load_config(SHIPPED).matrix and found.path == tmp_path / "perf.yaml"
    with pytest.raises(ConfigError, match="expected a readable file"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("chosen", "case_id", "launcher"),
    [
        ("torchrun", "paddle-vgg16-fp32-bs8-1x2-dali-static", "torchrun"),
        # The framework's own is no choice: what was recorded without it stays comparable.
        ("paddle.distributed.launch", "paddle-vgg16-fp32-bs8-1x2-dali-static", ""),
        ("torchrun", "paddle-vgg16-fp32-bs8-1x1-dali-static", ""),
        ("torchrun", "paddle-vgg16-fp32-bs8-2x2-dali-static", ""),
        ("torchrun", "pytorch-vgg16-fp32-bs8-1x2-dali", ""),
    ],
)
def test_a_launcher_is_chosen_for_cases_of_one_node_and_several_cards(
    tmp_path: Path, chosen: str, case_id: str, launcher: str
) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text(SMALL + f"frameworks: {{paddle: {{launcher: {chosen}}}}}\n", encoding="utf-8")
    assert load_config(path, CHOICES).launcher_for(Case.parse(case_id)) == launcher


# ---- hosts and clusters


def test_each_host_has_what_is_said_of_it_and_else_what_is_said_of_all(tmp_path: Path) -> None:
    text = f"""
nodes:
  port: 36000
  connect_seconds: 5
  interface: ib0
  environment: {{NCCL_DEBUG: WARN}}
  hosts:
    - {FIRST}
    - name: n1
      address: node-1.example
      connect: [ip, netns, exec, n1]
      data: /data/image net
      environment: {{NCCL_IB_HCA: mlx5_0}}
      interface: eth0
      cpu_cards: 2
    - {{name: n2, address: 10.0.0.3}}
"""
    nodes = load(tmp_path, SMALL + text).nodes
    of_all = {"NCCL_DEBUG": "WARN"}
    of_n1 = {**of_all, "NCCL_IB_HCA": "mlx5_0"}
    words = ("ip", "netns", "exec", "n1")
    assert (nodes.port, nodes.connect_seconds, nodes.interface) == (36000, 5.0, "ib0")
    assert nodes.hosts == (
        HostConfig("n0", "10.0.0.1", environment=of_all, interface="ib0"),
        HostConfig("n1", "node-1.example", words, "/data/image net", of_n1, "eth0", 2),
        HostConfig("n2", "10.0.0.3", (*SSH, "10.0.0.3"), environment=of_all, interface="ib0"),
    )


SMUGGLED = ["-oProxyCommand=touch owned", "-F/tmp/x", "--", "n1 -o=x", "a@b", "n1;true", "n1\n", "$(x)", "~", "::1"]


@pytest.mark.parametrize("text", [*SMUGGLED, *TEXTS.values(), "n1.example"])
def test_no_name_or_address_of_a_host_is_an_option_or_a_word_for_a_shell(tmp_path: Path, text: str) -> None:
    for key in ("name", "address"):
        hosts = [{"name": "n0", "address": "10.0.0.1"}, {"name": "n1", "address": "n1", key: text}]
        try:
            nodes = load(tmp_path, SMALL + json.dumps({"nodes": {"hosts": hosts}})[1:-1]).nodes
        except ConfigError as error:
            assert str(error).isprintable()
            assert text not in SMUGGLED or f"hosts[1].{key}" in str(error)
            continue
        taken = getattr(nodes.hosts[1], key)
        assert shlex.quote(taken) == taken and not taken.startswith("-")


def test_everything_that_a_cluster_can_say_is_read(tmp_path: Path) -> None:
    text = (
        "clusters:\n  c: {partition: gpu, account: perf, gres: 'gpu:a100', exclusive: false, container: /i.sqsh, "
        "options: ['--constraint=a&b', --no-kill]}\n  d: {}\n"
    )
    assert load(tmp_path, SMALL + text).clusters == {
        "c": ClusterConfig("c", "gpu", "perf", "gpu:a100", False, "/i.sqsh", ("--constraint=a&b", "--no-kill")),
        "d": ClusterConfig("d"),
    }
