"""perf.yaml: how a file is read, and every way in which it can be wrong."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.evidence import Budget
from helpers.launch.launchers import CHOICES
from helpers.machine.frameworks import FrameworkConfig
from helpers.plan.case_plan import matrix
from helpers.plan.matrix import ByCase, Tolerances
from helpers.plan.perf_yaml import Config, TimeLimits, load_config
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

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

QUARANTINE = "quarantine: [{pattern: a, reason: b, until: "


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


@pytest.mark.parametrize(
    ("budgets", "field", "told"),
    [
        ({"pair": 3}, "budgets.pair", "Did you mean 'pairs'"),
        ({"pairs": 2}, "budgets.pairs", "from 3 to 100"),
        ({"screen_runs": 0}, "budgets.screen_runs", "from 1 to 100"),
        ({"first_runs": 1}, "budgets.first_runs", "from 2 to 100"),
        ({"repeats": -1}, "budgets.repeats", "from 0 to 100"),
        ({"retries": 11}, "budgets.retries", "from 0 to 10"),
        ({"retries": -1}, "budgets.retries", "from 0 to 10"),
        ({"rotation": 1.5}, "budgets.rotation", "whole number"),
        ({"case_minutes": 0}, "budgets.case_minutes", "above 0"),
        ({"case_minutes": "long"}, "budgets.case_minutes", "number"),
        ({"cases": [{"pattern": "a*"}]}, "budgets.cases[0]", "a number beside the pattern"),
        ({"cases": [{"pairs": 5}]}, "budgets.cases[0].pattern", "a value"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(
    tmp_path: Path, budgets: dict[str, object], field: str, told: str
) -> None:
    error = refusal(tmp_path, SMALL + yaml.safe_dump({"budgets": budgets}))
    assert error.field == field
    assert told in str(error)


def test_a_history_is_a_url_or_the_file_in_the_runs_folder(tmp_path: Path) -> None:
    assert load(tmp_path, SMALL).history.url is None
    assert load(tmp_path, SMALL + "history: {url: null}\n").history.url is None
    assert load(tmp_path, SMALL + "history: {url: 'postgresql://u@h/d'}\n").history.url == "postgresql://u@h/d"


@pytest.mark.parametrize(("text", "field"), [("{url: 5}", "history.url"), ("{file: x}", "history.file")])
def test_a_history_that_is_no_url_is_refused(tmp_path: Path, text: str, field: str) -> None:
    assert refusal(tmp_path, SMALL + f"history: {text}\n").field == field


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


def test_nodes_are_a_dimension_too(tmp_path: Path) -> None:
    config = load(tmp_path, changed("cards: [1, 2]", "cards: 8\n      nodes: [1, 4]"))
    assert {(item.case.nodes, item.case.cards_per_node) for item in config.matrix} == {(1, 8), (4, 8)}


def test_the_same_case_may_stand_under_two_targets(tmp_path: Path) -> None:
    document = yaml.safe_load(SMALL)
    document["matrix"]["v100"] = document["matrix"]["cpu"]
    assert {item.target for item in load(tmp_path, yaml.safe_dump(document)).matrix} == {"cpu", "v100"}


def test_what_the_file_leaves_out_has_its_default(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL)
    assert set(config.frameworks) == set(Framework)
    assert all(each.interpreter is None for each in config.frameworks.values())
    assert config.data.root is None
    assert (config.tolerances, config.limits) == (ByCase(Tolerances()), TimeLimits())
    assert config.contention.max_foreign_share == 0.05
    assert dict(config.machines) == {}


def test_a_relative_path_starts_at_the_files_folder(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL + "frameworks: {paddle: {interpreter: env/bin/python}}\ndata: {root: images}\n")
    assert config.frameworks[Framework.PADDLE].interpreter == str(tmp_path / "env/bin/python")
    assert config.data.root == str(tmp_path / "images")


def test_a_framework_says_what_its_environment_is_built_of(tmp_path: Path) -> None:
    told = "frameworks: {pytorch: {interpreter: env/bin/python, requirements: pytorch-cpu}}\n"
    config = load(tmp_path, SMALL + told)
    assert config.frameworks[Framework.PYTORCH] == FrameworkConfig(str(tmp_path / "env/bin/python"), "pytorch-cpu")


@pytest.mark.parametrize("name", ["compile", "graphs", "xla"])
def test_a_block_switches_a_feature_of_its_cases_on(tmp_path: Path, name: str) -> None:
    config = load(tmp_path, changed("execution: dynamic", f"execution: dynamic\n      {name}: true"))
    assert all(getattr(each.case, name) and each.case.id.endswith(f"-{name}") for each in config.matrix)


def test_the_users_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert load(tmp_path, SMALL + "data: {root: ~/imagenet}\n").data.root == "/home/someone/imagenet"


def test_an_absolute_path_stays_and_null_is_none(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL + "frameworks: {paddle: {interpreter: null}}\ndata: {root: /data/imagenet}\n")
    assert config.frameworks[Framework.PADDLE].interpreter is None
    assert config.data.root == "/data/imagenet"


def test_of_several_matching_tolerances_the_last_that_has_a_value_counts() -> None:
    tolerances = ByCase(
        Tolerances(published=0.05, recorded=0.04),
        (
            ("paddle-*", {"published": 0.1, "recorded": 0.2}),
            ("paddle-vgg16-*", {"recorded": 0.3}),
            ("*-bs8-*", {"published": 0.4, "unconfirmed": 0.5}),
        ),
    )
    assert tolerances.of("paddle-vgg16-fp32-bs1-1x1-dali-static").published == 0.1
    assert tolerances.of("paddle-vgg16-fp32-bs1-1x1-dali-static").recorded == 0.3
    assert tolerances.of("pytorch-vgg16-fp32-bs8-1x1-dali").published == 0.4
    assert tolerances.of("pytorch-vgg16-fp32-bs8-1x1-dali").recorded == 0.04
    assert tolerances.of("pytorch-vgg16-fp32-bs8-1x1-dali").unconfirmed == 0.5
    assert tolerances.of("paddle-vgg16-fp32-bs1-1x1-dali-static").unconfirmed == 0.05


def test_a_rule_that_no_protocol_serves_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no protocol with the rule .*ngc-tf-mean.*protocols.NAME.rules"):
        load(tmp_path, SMALL).protocol_for_rule("ngc-tf-mean")


def test_a_machine_is_found_by_its_host_name_in_either_case(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL + 'machines: {lab: {host: "Lab-[0-9]*", cpu_cards: 2}}\n')
    machine = config.machine_for("LAB-12")
    assert machine is not None
    assert (machine.name, machine.cpu_cards, machine.gate) == ("lab", 2, ())
    assert config.machine_for("laboratory") is None


def test_two_machines_for_one_host_are_an_error(tmp_path: Path) -> None:
    config = load(tmp_path, SMALL + 'machines: {a: {host: "node-*"}, b: {host: "*-1"}}\n')
    with pytest.raises(ConfigError, match=r"a and b for host .*node-1.*expected at most one"):
        config.machine_for("node-1")


RESNET = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"


def test_of_several_owners_and_quarantines_the_last_that_matches_counts(tmp_path: Path) -> None:
    text = (
        'owners: [{pattern: "*", owner: all}, {pattern: "*-1x1-*", owner: one}, '
        '{pattern: "*", owner: v, target: v100}]\n'
        'quarantine: [{pattern: "*-1x1-*", reason: flaky, until: 2026-12-24}, '
        '{pattern: "*-fp32-*-1x1-*", reason: hangs, until: "2026-12-25"}]\n'
    )
    cases = {each.case.id: each for each in matrix(load(tmp_path, SMALL + text), {})}
    one, two = cases[RESNET], cases[RESNET.replace("1x1", "1x2")]
    assert (one.owner, two.owner, two.quarantine) == ("one", "all", None)
    assert one.quarantine is not None
    assert (one.quarantine.reason, one.quarantine.until) == ("hangs", datetime.date(2026, 12, 25))
    assert one.quarantine.place == "quarantine[1]"


# ---- refusing


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (SMALL + "tolerance: {}\n", "tolerance", "Did you mean 'tolerances'?"),
        (SMALL + "zzz: 1\n", "zzz", "field 'zzz': got 'zzz', expected one of the keys"),
        (SMALL + "zzz: 1\n", "zzz", "expected one of the keys protocols, matrix"),
        ("protocols: {}\n", "matrix", "expected a value"),
        ("matrix: {}\n", "protocols", "expected a value"),
        ("", None, "got 'nothing', expected a mapping"),
        ("[1, 2]", None, "expected a mapping"),
        ("protocols: [1]\nmatrix: {}\n", "protocols", "expected a mapping"),
        (changed("runs: 2", "runs: 0"), "protocols.cpu.runs", "got 0, expected a whole number from 1"),
        (changed("runs: 2", "runs: true"), "protocols.cpu.runs", "got True, expected a whole number"),
        (changed("runs: 2", "runs: 2.0"), "protocols.cpu.runs", "got 2.0, expected a whole number"),
        (changed("runs: 2", 'runs: "2"'), "protocols.cpu.runs", "got '2', expected a whole number"),
        (changed("warmup_steps: 2", "warmup_steps: -1"), "protocols.cpu.warmup_steps", "got -1"),
        (changed("window_steps: 5", "window_steps: 0"), "protocols.cpu.window_steps", "got 0"),
        (changed("window_steps: 5, ", ""), "protocols.cpu.window_steps", "expected a value"),
        (changed("window_steps", "windows_steps"), "protocols.cpu.windows_steps", "Did you mean 'window_steps'?"),
        (changed("rules: [dlperf-log]", "rules: dlperf-log"), "protocols.cpu.rules", "expected a list"),
        (changed("[dlperf-log]", "[a, a]"), "protocols.cpu.rules[1]", "is already at protocols.cpu.rules[0]"),
        (changed("runs: 2", "runs: 2, steady_window_steps: 2"), "protocols.cpu", "both steady_window_steps and most_w"),
        (changed("runs: 2", "runs: 2, most_warmup_steps: 9"), "protocols.cpu", "got 'most_warmup_steps alone'"),
        (steady(2, 1, 9), "protocols.cpu.steady_window_steps", "got 1, expected a whole number from 2"),
        (steady(5, 2, 9), "protocols.cpu.warmup_steps", "got 5, expected 6 or more: 3 windows of steady_window_steps"),
        (steady(6, 2, 5), "protocols.cpu.most_warmup_steps", "got 5, expected a whole number from 6"),
        (changed("[4]", "[4, 0]"), "matrix.cpu[0].batch_size_per_card[1]", "got 0, expected a whole number from 1"),
        (changed("[4]", "[4, 4]"), "matrix.cpu[0]", "expected every case once. It is already in matrix.cpu[0]"),
        (changed("[4]", "[]"), "matrix.cpu[0].batch_size_per_card", "got 'an empty list'"),
        (changed("[1, 2]", "0"), "matrix.cpu[0].cards", "got 0"),
        (changed("resnet50v1.5", "resnet50v15"), "matrix.cpu[0].model", "Did you mean 'resnet50v1.5'?"),
        (changed("amp_o1", "fp16"), "matrix.cpu[0].precision[1]", "expected one of fp32, tf32, bf16"),
        (changed("framework: paddle", "framework: padle"), "matrix.cpu[0].framework", "Did you mean 'paddle'?"),
        (changed("data: dali", "data: [dali, no]"), "matrix.cpu[0].data[1]", "got False, expected one of dali"),
        (changed("execution: dynamic", "execution: eager"), "matrix.cpu[0].execution", "expected one of static"),
        (changed("      execution: dynamic\n", ""), "matrix.cpu[0].execution", "expected static, dynamic or to_static"),
        (changed("execution: dynamic", "auto: sure"), "matrix.cpu[0].auto", "got 'sure', expected true or false"),
        (changed("protocol: cpu", "protocol: gpu"), "matrix.cpu[0].protocol", "expected one of cpu"),
        (changed("  cpu:\n", "  h100:\n"), "matrix.h100", "expected one of the keys cpu, v100, a100"),
        (changed("cards: [1, 2]", "card: 1"), "matrix.cpu[0].card", "Did you mean 'cards'?"),
        (SMALL + "short: [paddle-resnet50v1.5-fp32-bs4-1x3-dali-dynamic]\n", "short[0]", "Did you mean 'paddle-res"),
        (SMALL + "short: paddle\n", "short", "expected a list"),
        (SMALL + "tolerances: {published: 0}\n", "tolerances.published", "above 0 and below 1"),
        (SMALL + "tolerances: {published: 5}\n", "tolerances.published", "got 5"),
        (SMALL + "tolerances: {unconfirmed: 5}\n", "tolerances.unconfirmed", "got 5"),
        (SMALL + "tolerances: {recorded: .nan}\n", "tolerances.recorded", "got nan"),
        (SMALL + "tolerances: {recorded: 5%}\n", "tolerances.recorded", "got '5%'"),
        (SMALL + "tolerances: {recorded: yes}\n", "tolerances.recorded", "got True"),
        (
            SMALL + 'tolerances: {cases: [{pattern: "a*"}]}\n',
            "tolerances.cases[0]",
            "published, recorded or unconfirmed",
        ),
        (SMALL + "tolerances: {cases: [{published: 0.1}]}\n", "tolerances.cases[0].pattern", "expected a value"),
        (SMALL + 'tolerances: {cases: [{pattern: "a b", published: 0.1}]}\n', "tolerances.cases[0].pattern", "'a b'"),
        (SMALL + "limits: {run_seconds: .inf}\n", "limits.run_seconds", "got inf"),
        (SMALL + "limits: {run_second: 3}\n", "limits.run_second", "Did you mean 'run_seconds'?"),
        (SMALL + "limits: {stop_grace_seconds: 0}\n", "limits.stop_grace_seconds", "got 0"),
        (SMALL + "contention: {max_foreign_share: 1.5}\n", "contention.max_foreign_share", "got 1.5"),
        (SMALL + "frameworks: {torch: {}}\n", "frameworks.torch", "Did you mean 'pytorch'?"),
        (SMALL + 'frameworks: {paddle: {interpreter: ""}}\n', "frameworks.paddle.interpreter", "expected text"),
        (SMALL + "frameworks: {paddle: {interpreter: 3.11}}\n", "frameworks.paddle.interpreter", "got 3.11"),
        (SMALL + "frameworks: {pytorch: {requirements: pytorch}}\n", "frameworks.pytorch.requirements", "bin/python"),
        (
            SMALL + "frameworks: {pytorch: {interpreter: /usr/bin/python3, requirements: pytorch}}\n",
            "frameworks.pytorch.requirements",
            "got '/usr/bin/python3', expected interpreter: FOLDER/bin/python beside it",
        ),
        (
            SMALL + "frameworks: {pytorch: {interpreter: e/bin/python, requirements: ../x}}\n",
            "frameworks.pytorch.requirements",
            "got '../x', expected a name of requirements/bootstrap.py",
        ),
        (SMALL + "frameworks: {paddle: null}\n", "frameworks.paddle", "got 'nothing', expected a mapping"),
        (SMALL + "data: {root: [a]}\n", "data.root", "expected text"),
        (SMALL + "data: {root: ~nobody_of_this_name/x}\n", "data.root", "expected a path"),
        (SMALL + "machines: {a: {}}\n", "machines.a.host", "expected a value"),
        (SMALL + "machines: {a: {host: a, cpu_cards: 0}}\n", "machines.a.cpu_cards", "got 0"),
        (SMALL + "machines: {a: {host: a, gate: [{cases: x, needs: all}]}}\n", "machines.a.gate[0].needs", "got 'all'"),
        (SMALL + "machines: {a: {host: a, gate: [{needs: both}]}}\n", "machines.a.gate[0].cases", "expected a value"),
        (SMALL + "owners: {a: b}\n", "owners", "expected a list"),
        (SMALL + "owners: [{pattern: a}]\n", "owners[0].owner", "expected a value"),
        (SMALL + "owners: [{pattern: a, owner: ''}]\n", "owners[0].owner", "expected text"),
        (SMALL + "owners: [{pattern: 'a b', owner: b}]\n", "owners[0].pattern", "expected a pattern"),
        (SMALL + "owners: [{pattern: a, owner: b, target: x}]\n", "owners[0].target", "expected one of"),
        (SMALL + "quarantine: [{pattern: a, reason: b}]\n", "quarantine[0].until", "expected a value"),
        (SMALL + "quarantine: [{pattern: a, until: 2026-12-24}]\n", "quarantine[0].reason", "expected a value"),
        (SMALL + QUARANTINE + "soon}]\n", "quarantine[0].until", "got 'soon', expected a day, as 2026-12-24"),
        (SMALL + QUARANTINE + "2026-12-24 10:00:00}]\n", "quarantine[0].until", "expected a day"),
        (SMALL + QUARANTINE + "'2026-13-01'}]\n", "quarantine[0].until", "expected a day"),
        (SMALL + QUARANTINE + "2026}]\n", "quarantine[0].until", "expected a day"),
        (SMALL + "machines: {no: {host: a}}\n", "machines", "got False, expected keys of letters"),
        (SMALL + "machines: {~: {host: a}}\n", "machines", "got 'an empty key'"),
        (SMALL + "machines: {7: {host: a}}\n", "machines", "Quote the key"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(tmp_path: Path, text: str, field: str | None, words: str) -> None:
    error = refusal(tmp_path, text)
    assert error.field == field
    assert words in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL + "protocols: {}\n", "line 14: got 'key protocols occurs twice'"),
        (changed("runs: 2", "runs: 2, runs: 3"), "key runs occurs twice"),
        (SMALL + "a: [1\n", "expected valid YAML"),
        (SMALL + "a: *missing\n", "undefined alias"),
        (SMALL + "a: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        (SMALL + "a: 2026-99-99\n", "expected valid YAML"),
        (SMALL + "a: " + "9" * 5000 + "\n", "expected valid YAML"),
        (SMALL + "a: " + "[" * 20000 + "\n", "expected valid YAML"),
        (SMALL + "a: \0\n", "expected valid YAML"),
        (SMALL + "? [1, 2]\n: 3\n", "expected"),
        ("a: 1\n---\nb: 2\n", "expected valid YAML"),
    ],
)
def test_what_is_not_plain_yaml_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in str(refusal(tmp_path, text))


def aliases_of_aliases(first: str, line: str) -> str:
    """A dozen lines that stand for 10¹² values."""
    return first + "".join(line.format(n=n, ten=", ".join([f"*a{n - 1}"] * 10)) for n in range(1, 13))


HOSTILE = {
    "aliases of lists": (aliases_of_aliases("a0: &a0 [x]\n", "a{n}: &a{n} [{ten}]\n"), "aliases that stand for more"),
    "aliases of merges": (
        aliases_of_aliases("a0: &a0 {x: 1}\n", "a{n}: &a{n} {{<<: [{ten}]}}\n"), "aliases that stand for more"
    ),
    "an alias of itself": ("a: &a [*a]\n", "an alias inside of its own value"),
    "a merge with itself": ("a: &a {<<: *a}\n", "an alias inside of its own value"),
    "an object of Python's": ("a: !!python/object/apply:os.system [x]\n", "could not determine a constructor"),
    "a name of Python's": ("a: !!python/name:os.system\n", "could not determine a constructor"),
    "a module of Python's": ("a: !!python/module:os\n", "could not determine a constructor"),
    "a tag of one's own": ("a: !mine x\n", "could not determine a constructor"),
    "a tag on a wrong form": ("a: !!int x\n", "expected valid YAML"),
    "a key twice, quoted": ("a: 1\n'a': 2\n", "key a occurs twice"),
    "a key twice in a merge's target": ("a: {<<: {x: 1}, x: 2, x: 3}\n", "key x occurs twice"),
    "deep lists": ("a: " + "[" * 50_000, "within each other"),
    "deep mappings": ("{a: " * 20_000, "within each other"),
    "deep lines": ("- " * 60_000, "within each other"),
    "many values": ("a: [" + "1," * 60_000 + "]\n", "more than 10000 values"),
    "a million values": ("a: [" + "1," * 1_000_000 + "]\n", "more than 131072 bytes"),
    "many keys": ("{" + ",".join(f"k{n}: 1" for n in range(9000)) + "}", "more than 10000 values"),
    "a long number": ("limits: {run_seconds: " + "9" * 100_000 + "}\n", "expected valid YAML"),
    "a long number of base 60": ("limits: {run_seconds: " + ":".join(["59"] * 40_000) + "}\n", "expected"),
    "a long number of base 16": ("limits: {run_seconds: 0x" + "f" * 100_000 + "}\n", "expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_would_take_all_memory_or_time_is_refused(tmp_path: Path, name: str) -> None:
    text, words = HOSTILE[name]
    error = str(refusal(tmp_path, text))
    assert words in error
    assert len(error) < 1000


@pytest.mark.parametrize("number", ["9" * 4000, "0x" + "f" * 90_000, ".nan", ".inf", "-.inf", "1e999", "-1", "0"])
def test_a_number_that_no_limit_has_is_refused_with_its_field(tmp_path: Path, number: str) -> None:
    error = refusal(tmp_path, SMALL + f"limits: {{run_seconds: {number}}}\n")
    assert error.field == "limits.run_seconds"
    assert "a number above 0" in str(error)


def test_text_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "perf.yaml").write_bytes(b"protocols: \xff\xfe\n")
    with pytest.raises(ConfigError, match="expected UTF-8 text"):
        load_config(tmp_path / "perf.yaml")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "perf.yaml")
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


def test_the_launcher_of_one_process_is_a_choice_where_a_process_can_drive_several_cards(tmp_path: Path) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text(SMALL + "frameworks: {tensorflow: {launcher: process}}\n", encoding="utf-8")
    config = load_config(path, CHOICES)
    assert config.launcher_for(Case.parse("tensorflow-vgg16-fp32-bs8-1x2-native")) == "process"
    assert config.launcher_for(Case.parse("tensorflow-vgg16-fp32-bs8-2x2-native")) == ""


@pytest.mark.parametrize("launcher", ["mpirun", "process"])
def test_a_launcher_that_does_not_exist_or_starts_one_rank_is_refused_with_the_names(
    tmp_path: Path, launcher: str
) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text(SMALL + f"frameworks: {{paddle: {{launcher: {launcher}}}}}\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"frameworks\.paddle\.launcher.*one of paddle\.distributed\.launch, torchrun"
    ):
        load_config(path, CHOICES)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["protocols", "matrix", "frameworks", "data", "tolerances", "limits", "short", "machines"]),
)
def test_any_other_value_loads_or_is_refused_with_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, value: object, key: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    text = yaml.safe_dump({**yaml.safe_load(SMALL), key: value})
    try:
        config = load(folder, text)
    except ConfigError as error:
        assert str(folder) in str(error)
    else:
        assert isinstance(config, Config)


@given(st.floats(allow_nan=True))
def test_a_tolerance_is_kept_exactly_when_it_lies_between_nought_and_one(
    tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    text = SMALL + yaml.safe_dump({"tolerances": {"published": share}})
    folder = tmp_path_factory.mktemp("share")
    if 0 < share < 1:
        assert load(folder, text).tolerances.general.published == share
    else:
        assert refusal(folder, text).field == "tolerances.published"
