"""The house plan over the syntax trees: who may import whom, and which files an old Python must parse.

Imports inside functions and under TYPE_CHECKING count like all others, and so does a constant name
given to import_module, __import__ or importorskip.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AREAS = ("helpers", "fixtures", "perf_tests", "benchmarks", "tests")

# From the ground up; a unit imports from its own layer and from those before it. A package is one unit.
LAYERS = (
    ("errors", "case", "stats", "files", "unknown", "wall_clock"),
    ("job", "steplog", "rules", "config", "dataset", "environment", "baseline", "recipe", "utilisation"),
    ("devices", "launch", "verdict", "policy", "system"),
    ("history",),
    ("plan", "importing", "peers", "runner", "session", "trend", "compare", "calibration", "doctor"),
    ("report",),
    ("suite",),
    ("fixtures", "cli"),
    ("perf_tests", "benchmarks"),
)
LAYER_OF = {unit: number for number, layer in enumerate(LAYERS) for unit in layer}
# Modules that belong to a unit of another name: a part of it that got a file of its own.
PART_OF = {
    "control_groups": "devices",
    "environments": "launch",
    "evidence": "verdict",
    "gate": "suite",
    "health": "devices",
    "image_folder": "dataset",
    "installed": "suite",
    "judging": "verdict",
    "leased": "suite",
    "leases": "devices",
    "measuring": "suite",
    "nvml": "devices",
    "nvml_details": "devices",
    "overrides": "recipe",
    "peers_measuring": "suite",
    "planning": "suite",
    "recording": "suite",
    "replay": "suite",
    "replay_fit": "suite",
    "replay_index": "suite",
    "replay_logs": "suite",
    "replay_own": "suite",
    "replay_results": "suite",
    "replay_suite": "suite",
    "results": "history",
    "results_check": "history",
    "share_of_peak": "suite",
    "suite_history": "suite",
    "suite_options": "suite",
    "topology": "system",
}
FAMILIES = ("baseline", "compare", "config", "peers", "recipe", "steplog", "system")

FRAMEWORK_OF = {
    "paddle": "paddle",
    "torch": "torch",
    "torchvision": "torch",
    "tensorflow": "tensorflow",
    "mxnet": "mxnet",
    "gluoncv": "mxnet",
}
# Programs with a framework, or a trainer's double, in a process of their own, which nothing imports.
BENCHMARK_PROGRAMS = (
    "benchmarks.bare_paddle_loop",
    "benchmarks.bare_pytorch_loop",
    "benchmarks.fault_table.stand_in_trainer",
    "benchmarks.product_error",
    "benchmarks.trainer_worker",
)
PYTEST = ("pytest", "_pytest", "pluggy", "xdist", "pytest_benchmark")
TRAINERS_MAY_IMPORT = ("helpers.errors", "helpers.case", "helpers.job", "helpers.steplog")
TRAINERS_LIBRARIES = ("numpy", "nvidia.dali", "PIL")
OLD_SYNTAX = (
    "helpers/errors.py",
    "helpers/case.py",
    "helpers/job.py",
    "helpers/steplog.py",
    "helpers/launch/framework_probe.py",
)
# In the standard library of a newer Python than the trainers'.
NEWER_THAN_3_8 = ("graphlib", "tomllib", "zoneinfo")

Sources = Mapping[str, str]


def read_tree() -> dict[str, str]:
    """Every Python file of the project, by its path from the root."""
    files = [*sorted(ROOT.glob("*.py")), *(path for area in AREAS for path in sorted((ROOT / area).rglob("*.py")))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def imports_of(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a file imports; ``from a import b`` gives ``a.b``."""
    package = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if not path.endswith("__init__.py"):
        package = package[:-1]
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0].value
            if called in ("import_module", "__import__", "importorskip") and isinstance(name, str):
                yield node.lineno, name


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def unit_of(name: str) -> str | None:
    """The unit of the plan that a dotted name of the house belongs to; None outside the house."""
    parts = name.split(".")
    if parts[0] in ("fixtures", "perf_tests", "benchmarks"):
        return parts[0]
    if parts[0] != "helpers" or len(parts) == 1:
        return None
    unit = PART_OF.get(parts[1], parts[1])
    return next((family for family in FAMILIES if unit.startswith(family + "_")), unit)


def framework_of(name: str) -> str | None:
    return "nvidia.dali" if within(name, ("nvidia.dali",)) else FRAMEWORK_OF.get(name.split(".")[0])


def violations(sources: Sources) -> list[str]:
    """Every import that the plan forbids, as ``path:line: why``."""
    found = []
    for path, text in sources.items():
        module = path.removesuffix(".py").replace("/", ".")
        if path.startswith("tests/"):
            continue
        check = _trainer_refusal if path.startswith("helpers/trainers/") else _refusal
        for line, name in imports_of(path, text):
            why = check(module, name)
            if why:
                found.append(f"{path}:{line}: {why}")
        if path.startswith("helpers/trainers/"):
            used = {framework_of(name) for _, name in imports_of(path, text)} - {None, "nvidia.dali"}
            if len(used) > 1:
                found.append(f"{path}: two frameworks: {', '.join(sorted(map(str, used)))}")
    return found


def _refusal(module: str, name: str) -> str | None:
    if within(name, BENCHMARK_PROGRAMS):
        return f"{name} is a program with a framework; it runs in a process of its own"
    if module in BENCHMARK_PROGRAMS and (framework_of(name) or within(name, ("helpers.trainers",))):
        return None
    if framework_of(name):
        return f"{name} is a framework; only trainers import one"
    if within(name, ("helpers.trainers",)):
        return f"{name} is a trainer; it runs in a process of its own, and only tests import it"
    if within(name, ("tests",)):
        return f"{name} is a test"
    if module.startswith("helpers.") and within(name, PYTEST):
        return f"{name} is pytest's; only fixtures know pytest"
    own, other = unit_of(module), unit_of(name)
    if own is None or other is None or own == other:
        return None
    for unit in (own, other):
        if unit not in LAYER_OF:
            return f"{unit} stands in no layer; add it to LAYERS in tests/test_layers.py"
    if LAYER_OF[own] < LAYER_OF[other]:
        return f"{own} imports {other}, which stands above it"
    return None


def _trainer_refusal(module: str, name: str) -> str | None:
    top = name.split(".")[0]
    if within(name, (*TRAINERS_MAY_IMPORT, "helpers.trainers", *TRAINERS_LIBRARIES)) or framework_of(name):
        return None
    if top in sys.stdlib_module_names and top not in NEWER_THAN_3_8:
        return None
    return f"{name} is not for trainers"


def cycles(sources: Sources) -> list[str]:
    """The units of ``sources`` that import each other in a ring, each ring once."""
    edges: dict[str, set[str]] = {}
    for path, text in sources.items():
        own = unit_of(path.removesuffix(".py").replace("/", "."))
        if own is not None and own != "trainers":
            others = {unit_of(name) for _, name in imports_of(path, text)}
            edges.setdefault(own, set()).update(unit for unit in others if unit not in (None, own))
    found = set()

    def follow(unit: str, way: tuple[str, ...]) -> None:
        if unit in way:
            ring = way[way.index(unit) :]
            first = ring.index(min(ring))
            found.add(" <- ".join([*ring[first:], *ring[:first], ring[first]]))
            return
        for other in sorted(edges.get(unit, ())):
            follow(other, (*way, unit))

    for unit in sorted(edges):
        follow(unit, ())
    return sorted(found)


def too_new(sources: Sources) -> list[str]:
    """The files that run in the frameworks' own interpreters and that Python 3.8 cannot parse."""
    found = []
    for path, text in sources.items():
        if path.startswith("helpers/trainers/") or path in OLD_SYNTAX:
            try:
                ast.parse(text, path, feature_version=(3, 8))
            except SyntaxError as error:
                found.append(f"{path}:{error.lineno}: {error.msg}")
    return found


# ---- the project itself


@pytest.fixture(scope="module")
def tree() -> dict[str, str]:
    return read_tree()


def test_the_project_keeps_to_its_layers(tree: dict[str, str]) -> None:
    assert {"helpers/errors.py", "helpers/case.py", "fixtures/plugin.py"} <= set(tree)
    assert violations(tree) == []


def test_no_two_units_import_each_other(tree: dict[str, str]) -> None:
    assert cycles(tree) == []


def test_what_the_frameworks_pythons_run_is_python_3_8(tree: dict[str, str]) -> None:
    assert set(OLD_SYNTAX) <= set(tree)
    assert too_new(tree) == []


def test_every_module_of_the_engine_has_its_layer(tree: dict[str, str]) -> None:
    units = {unit_of(path.removesuffix(".py").replace("/", ".")) for path in tree if path.startswith("helpers/")}
    assert units - {None, "__init__", "trainers"} <= set(LAYER_OF)


# ---- the checker itself


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("helpers/rules.py", "import paddle", "helpers/rules.py:1: paddle is a framework; only trainers import one"),
        ("helpers/rules.py", "def f():\n    import torch.nn", "helpers/rules.py:2: torch.nn is a framework"),
        ("helpers/rules.py", "from nvidia.dali import fn", "nvidia.dali.fn is a framework"),
        ("helpers/rules.py", "from nvidia import dali", "nvidia.dali is a framework"),
        ("helpers/rules.py", "import importlib\nimportlib.import_module('mxnet')", "rules.py:2: mxnet is a framework"),
        ("helpers/rules.py", "__import__('tensorflow')", "tensorflow is a framework"),
        ("fixtures/job.py", "if TYPE_CHECKING:\n    import paddle", "fixtures/job.py:2: paddle is a framework"),
        ("perf_tests/test_resnet50.py", "import paddle", "paddle is a framework"),
        ("conftest.py", "import paddle", "paddle is a framework"),
        ("helpers/session.py", "import pytest", "pytest is pytest's; only fixtures know pytest"),
        ("benchmarks/arms.py", "import paddle", "benchmarks/arms.py:1: paddle is a framework"),
        ("benchmarks/arms.py", "from benchmarks.trainer_worker import main", "is a program with a framework"),
        ("helpers/cli.py", "from _pytest.config import Config", "_pytest.config.Config is pytest's"),
        ("helpers/cli.py", "import fixtures.plugin\nimport tests.helpers", "helpers/cli.py:2: tests.helpers is a test"),
        ("helpers/stats.py", "from helpers.job import JobSpec", "stats imports job, which stands above it"),
        ("helpers/stats.py", "from helpers import job", "stats imports job, which stands above it"),
        ("helpers/stats.py", "from . import job", "stats imports job, which stands above it"),
        ("helpers/launch/local.py", "from ..session import x", "launch imports session, which stands above it"),
        ("helpers/verdict.py", "def f():\n    from helpers.session import x", "verdict.py:2: verdict imports session"),
        ("helpers/baseline_update.py", "import helpers.verdict", "baseline imports verdict, which stands above it"),
        ("helpers/results.py", "from helpers.suite import Suite", "history imports suite, which stands above it"),
        ("helpers/report/text.py", "import fixtures.plugin", "report imports fixtures, which stands above it"),
        ("fixtures/plugin.py", "from perf_tests import x", "fixtures imports perf_tests, which stands above it"),
        ("helpers/stats.py", "import helpers.novelty", "novelty stands in no layer; add it to LAYERS"),
        ("helpers/launch/local.py", "from helpers.trainers import loop", "only tests import it"),
        ("fixtures/plugin.py", "import helpers.trainers.loop", "only tests import it"),
        ("helpers/trainers/loop.py", "from helpers.rules import wall_clock", "helpers.rules.wall_clock is not for tr"),
        ("helpers/trainers/loop.py", "from helpers.steplog_reader import x", "helpers.steplog_reader.x is not for tra"),
        ("helpers/trainers/loop.py", "from helpers import config", "helpers.config is not for trainers"),
        ("helpers/trainers/loop.py", "import yaml", "yaml is not for trainers"),
        ("helpers/trainers/loop.py", "def f():\n    import tomllib", "loop.py:2: tomllib is not for trainers"),
        ("helpers/trainers/data.py", "import paddle\nimport torch", "data.py: two frameworks: paddle, torch"),
    ],
)
def test_a_forbidden_import_is_found(path: str, text: str, why: str) -> None:
    found = violations({path: text})
    assert len(found) == 1
    assert why in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "helpers/session.py",
            "from helpers.judging.judge import judge\nfrom helpers import results\nimport json, helpers",
        ),
        ("helpers/baseline.py", "from helpers.baseline_files import read\nfrom helpers.errors import BaselineError"),
        ("helpers/job.py", "from helpers.case import Case"),
        ("fixtures/plugin.py", "import pytest\nfrom helpers.suite import Suite\nfrom fixtures import options"),
        ("perf_tests/test_resnet50.py", "import pytest\nfrom fixtures.cases import cases"),
        ("helpers/trainers/loop.py", "import json, numpy\nfrom helpers.job import JobSpec\nfrom . import data"),
        ("helpers/trainers/paddle_trainer.py", "def f():\n    import paddle.nn\n    from nvidia.dali import fn"),
        ("helpers/trainers/pytorch_trainer.py", "import torch, torchvision"),
        ("tests/helpers/trainers/test_loop.py", "import paddle\nfrom helpers.trainers import loop"),
        ("helpers/launch/local.py", 'command = "helpers.trainers.paddle_trainer"'),
        ("helpers/rules.py", "import paddleocr, nvidia_smi"),
    ],
)
def test_an_allowed_import_is_left_alone(path: str, text: str) -> None:
    assert violations({path: text}) == []


def test_a_ring_of_units_is_found_once() -> None:
    ring = {
        "helpers/devices.py": "def f():\n    from helpers.launch import local",
        "helpers/launch/local.py": "from helpers.verdict import Status",
        "helpers/verdict.py": "from helpers.leases import lease",
        "helpers/stats.py": "import helpers.errors",
    }
    assert violations(ring) == []
    assert cycles(ring) == ["devices <- launch <- verdict <- devices"]


def test_syntax_that_python_3_8_lacks_is_found() -> None:
    text = "match 1:\n    case 1: pass"
    assert len(too_new({"helpers/trainers/loop.py": text})) == 1
    assert too_new({"helpers/session.py": text}) == []


def test_syntax_that_python_3_8_has_passes() -> None:
    assert too_new({"helpers/case.py": "from __future__ import annotations\ndef f(a: int | None, /): ..."}) == []
