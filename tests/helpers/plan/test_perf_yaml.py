"""perf.yaml: how a file is read, and every way in which it can be wrong."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.case.evidence import Budget
from helpers.launch.launchers import CHOICES
from helpers.plan.case_plan import matrix
from helpers.plan.matrix import ByCase, Tolerances
from helpers.plan.perf_yaml import SHIPPED, Config, TimeLimits, load_config
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
        ({"retries": 11}, "budgets.retries", "from 0 to 10"),
        ({"case_minutes": 0}, "budgets.case_minutes", "above 0"),
        ({"cases": [{"pattern": "a*"}]}, "budgets.cases[0]", "a number beside the pattern"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(
    tmp_path: Path, budgets: dict[str, object], field: str, told: str
) -> None:
    error = refusal(tmp_path, SMALL + yaml.safe_dump({"budgets": budgets}))
    assert error.field == field
    assert told in str(error)


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
    assert one.quarantine.place == "quarantine[1]"


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


@pytest.mark.parametrize("pattern", ["*x", "*-vgg16-*", "[ab]*", "!x"])
@pytest.mark.parametrize("entry", ["- pattern: {}\n", "- {{pattern: {}, owner: x}}\n"])
def test_a_pattern_that_needs_quotes_is_told_so(tmp_path: Path, pattern: str, entry: str) -> None:
    error = refusal(tmp_path, f"{SMALL}owners:\n{entry.format(pattern)}")
    assert error.remedy == f'Quote it: "{pattern}"'


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (SMALL + "tolerance: {}\n", "tolerance", "Did you mean 'tolerances'?"),
        (changed("runs: 2", "runs: 0"), "protocols.cpu.runs", "got 0, expected a whole number from 1"),
        (changed("runs: 2", "runs: true"), "protocols.cpu.runs", "got True, expected a whole number"),
        (changed("warmup_steps: 2", "warmup_steps: -1"), "protocols.cpu.warmup_steps", "got -1"),
        (changed("window_steps: 5, ", ""), "protocols.cpu.window_steps", "expected a value"),
        (changed("[dlperf-log]", "[dlperf-logs]"), "protocols.cpu.rules[0]", "Did you mean 'dlperf-log'?"),
        (changed("runs: 2", "runs: 2, steady_window_steps: 2"), "protocols.cpu", "both steady_window_steps and most_w"),
        (steady(5, 2, 9), "protocols.cpu.warmup_steps", "got 5, expected 6 or more: 3 windows of steady_window_steps"),
        (changed("[4]", "[4, 4]"), "matrix.cpu[0]", "expected every case once. It is already in matrix.cpu[0]"),
        (changed("resnet50v1.5", "resnet50v15"), "matrix.cpu[0].model", "Did you mean 'resnet50v1.5'?"),
        (changed("      execution: dynamic\n", ""), "matrix.cpu[0].execution", "expected static, dynamic or to_static"),
        (changed("  cpu:\n", "  h100:\n"), "matrix.h100", "expected one of the keys cpu, v100, a100"),
        (SMALL + "short: [paddle-resnet50v1.5-fp32-bs4-1x3-dali-dynamic]\n", "short[0]", "Did you mean 'paddle-res"),
        (SMALL + "tolerances: {published: 0}\n", "tolerances.published", "above 0 and below 1"),
        (SMALL + "tolerances: {recorded: .nan}\n", "tolerances.recorded", "got nan"),
        (
            SMALL + 'tolerances: {cases: [{pattern: "a*"}]}\n',
            "tolerances.cases[0]",
            "published, recorded or unconfirmed",
        ),
        (SMALL + "limits: {run_seconds: .inf}\n", "limits.run_seconds", "got inf"),
        (SMALL + "contention: {max_foreign_share: 1.5}\n", "contention.max_foreign_share", "got 1.5"),
        (SMALL + "frameworks: {torch: {}}\n", "frameworks.torch", "Did you mean 'pytorch'?"),
        (SMALL + 'frameworks: {paddle: {interpreter: ""}}\n', "frameworks.paddle.interpreter", "expected text"),
        (SMALL + "data: {root: ~nobody_of_this_name/x}\n", "data.root", "expected a path"),
        (SMALL + "machines: {a: {}}\n", "machines.a.host", "expected a value"),
        (SMALL + "machines: {a: {host: a, gate: [{cases: x, needs: all}]}}\n", "machines.a.gate[0].needs", "got 'all'"),
        (SMALL + "owners: [{pattern: a}]\n", "owners[0].owner", "expected a value"),
        (SMALL + "owners: [{pattern: a, owner: b, target: x}]\n", "owners[0].target", "expected one of"),
        (SMALL + "quarantine: [{pattern: a, reason: b}]\n", "quarantine[0].until", "expected a value"),
        (SMALL + QUARANTINE + "soon}]\n", "quarantine[0].until", "got 'soon', expected a day, as 2026-12-24"),
        (SMALL + "machines: {no: {host: a}}\n", "machines", "got False, expected keys of letters"),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(tmp_path: Path, text: str, field: str | None, words: str) -> None:
    error = refusal(tmp_path, text)
    assert error.field == field
    assert words in str(error)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL + "protocols: {}\n", "line 14: got 'key protocols occurs twice, first in line 2'"),
        (changed("runs: 2", "runs: 2, runs: 3"), "key runs occurs twice"),
        (SMALL + "a: [1\n", "expected valid YAML"),
        (SMALL + "a: 2026-99-99\n", "expected valid YAML"),
        (SMALL + "a: \0\n", "expected valid YAML"),
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

    "a merge with itself": ("a: &a {<<: *a}\n", "an alias inside of its own value"),
    "an object of Python's": ("a: !!python/object/apply:os.system [x]\n", "could not determine a constructor"),





    "a key twice in a merge's target": ("a: {<<: {x: 1}, x: 2, x: 3}\n", "key x occurs twice"),
    "deep lists": ("a: " + "[" * 50_000, "within each other"),


    "many values": ("a: [" + "1," * 60_000 + "]\n", "more than 10000 values"),


    "a long number": ("limits: {run_seconds: " + "9" * 100_000 + "}\n", "expected valid YAML"),
    "a long number of base 60": ("limits: {run_seconds: " + ":".join(["59"] * 10_000) + "}\n", "expected"),

}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_would_take_all_memory_or_time_is_refused(tmp_path: Path, name: str) -> None:
    text, words = HOSTILE[name]
    error = str(refusal(tmp_path, text))
    assert words in error
    assert len(error) < 1000


@pytest.mark.parametrize(
    "number",
    [
        "9" * 4000,
        "0x" + "f" * 90_000,
        ".nan",
    ],
)
def test_a_number_that_no_limit_has_is_refused_with_its_field(tmp_path: Path, number: str) -> None:
    error = refusal(tmp_path, SMALL + f"limits: {{run_seconds: {number}}}\n")
    assert error.field == "limits.run_seconds"
    assert "a number above 0" in str(error)


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


@pytest.mark.slow
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
