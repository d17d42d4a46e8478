"""docs/architecture.md over the syntax trees: who may import whom, and which files an old Python must parse.

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

# From the ground up: a folder of helpers/ imports from itself and from those before it. contract is trainers/contract,
# the only part of the trainers that the suite imports.
ORDER = [
    "contract",
    "drawing",
    "machine",
    "judging",
    "plan",
    "builds",
    "launch",
    "history",
    "session",
    "logs",
    "report",
    "commands",
]
ROOMS = [*ORDER, "fixtures", "perf_tests", "benchmarks"]
CONTRACT = "helpers.trainers.contract"

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
    "benchmarks.explain_plants_mxnet",
    "benchmarks.explain_plants_paddle",
    "benchmarks.explain_plants_pytorch",
    "benchmarks.explain_plants_tensorflow",
    "benchmarks.explain_worker",
    "benchmarks.paddleclas_worker",
    "benchmarks.product_error",
    "benchmarks.reader_speed",
)
PYTEST = ("pytest", "_pytest", "pluggy", "xdist", "pytest_benchmark")
TRAINERS_LIBRARIES = ("numpy", "nvidia.dali", "PIL", "cv2")
OLD_SYNTAX = ("helpers/machine/framework_probe.py",)
# In the standard library of a newer Python than the trainers'.
NEWER_THAN_3_8 = ("graphlib", "tomllib", "zoneinfo")
# Methods and functions of the standard library that a parser for 3.8 accepts and 3.8 does not have.
NAMES_NEWER_THAN_3_8 = (
    "removeprefix", "removesuffix", "is_relative_to", "with_stem", "readlink", "hardlink_to", "bit_count", "pairwise",
    "to_thread", "lcm", "nextafter", "cbrt", "randbytes", "unparse", "waitstatus_to_exitcode", "pidfd_open",
    "ParamSpec", "TypeAlias", "Annotated", "StrEnum", "KW_ONLY", "add_note", "get_annotations",
)  # fmt: skip
# Their arguments: ``zip(strict=True)``, ``@dataclass(slots=True)``, ``glob(root_dir=...)``.
KEYWORDS_NEWER_THAN_3_8 = {
    "zip": {"strict"},
    "dataclass": {"slots", "kw_only", "match_args"},
    "glob": {"root_dir", "include_hidden"},
    "write_text": {"newline"},
    "TemporaryDirectory": {"ignore_cleanup_errors", "delete"},
    "shutdown": {"cancel_futures"},
    "Popen": {"user", "group", "extra_groups", "umask", "process_group"},
}

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


def room_of(name: str) -> str | None:
    """The folder that a dotted name of the house belongs to; None outside the house and for trainers."""
    parts = name.split(".")
    if within(name, (CONTRACT,)):
        return "contract"
    if parts[0] in ROOMS[len(ORDER) :]:
        return parts[0]
    return parts[1] if parts[0] == "helpers" and len(parts) > 1 and parts[1] != "trainers" else None


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
        imports = list(imports_of(path, text))
        for line, name in imports:
            why = check(module, name)
            if why:
                found.append(f"{path}:{line}: {why}")
        if path.startswith("helpers/trainers/"):
            used = {framework_of(name) for _, name in imports} - {None, "nvidia.dali"}
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
    if within(name, ("helpers.trainers",)) and not within(name, (CONTRACT,)) and name != "helpers.trainers.contract":
        return f"{name} is a trainer; it runs in a process of its own, and only tests import it"
    # What watching costs is measured in the workshop in which the faults are made.
    if within(name, ("tests",)) and not (module.startswith("benchmarks.") and within(name, ("tests.faults",))):
        return f"{name} is a test"
    if module.startswith("helpers.") and within(name, PYTEST):
        return f"{name} is pytest's; only fixtures know pytest"
    own, other = room_of(module), room_of(name)
    if own is None or other is None or own == other:
        return None
    for room in (own, other):
        if room not in ROOMS:
            return f"{room} stands in no order; put it into a folder of ORDER in tests/test_layers.py"
    if ROOMS.index(own) < ROOMS.index(other):
        return f"{own} imports {other}, which stands above it"
    return None


def _trainer_refusal(module: str, name: str) -> str | None:
    top = name.split(".")[0]
    own, other = module.split(".")[2], [*name.split("."), "", ""][2]
    if own == "contract" and within(name, ("helpers",)) and other != "contract":
        return f"{name} stands above the contract, which imports nothing of the suite"
    if within(name, ("helpers.trainers",)) and other not in (own, "contract", "common"):
        return f"{name} is another framework's; what two of them share belongs into trainers/common"
    if within(name, ("helpers.trainers", *TRAINERS_LIBRARIES)) or framework_of(name):
        return None
    if top in sys.stdlib_module_names and top not in NEWER_THAN_3_8:
        return None
    return f"{name} is not for trainers"


def too_new(sources: Sources) -> list[str]:
    """What Python 3.8 cannot parse, or does not have, in the files that run in the frameworks' own interpreters."""
    found = []
    for path, text in sources.items():
        if path.startswith("helpers/trainers/") or path in OLD_SYNTAX:
            try:
                tree = ast.parse(text, path, feature_version=(3, 8))
            except SyntaxError as error:
                found.append(f"{path}:{error.lineno}: {error.msg}")
                continue
            found += [f"{path}:{line}: Python 3.8 has no {name}" for line, name in _newer_than_3_8(tree)]
    return found


def _newer_than_3_8(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in NAMES_NEWER_THAN_3_8:
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in NAMES_NEWER_THAN_3_8)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            newer = KEYWORDS_NEWER_THAN_3_8.get(called, set())
            yield from ((node.lineno, f"{called}({each.arg}=)") for each in node.keywords if each.arg in newer)


# ---- the project itself


@pytest.fixture(scope="module")
def tree() -> dict[str, str]:
    return read_tree()


def test_the_project_keeps_to_its_layers(tree: dict[str, str]) -> None:
    assert {"helpers/trainers/contract/errors.py", "fixtures/plugin.py"} <= set(tree)
    assert violations(tree) == []


def test_what_the_frameworks_pythons_run_is_python_3_8(tree: dict[str, str]) -> None:
    assert set(OLD_SYNTAX) <= set(tree)
    assert too_new(tree) == []


def test_no_module_lies_flat_under_helpers(tree: dict[str, str]) -> None:
    assert [path for path in tree if path.startswith("helpers/") and path.count("/") == 1] == ["helpers/__init__.py"]


def test_every_folder_of_the_engine_has_its_place(tree: dict[str, str]) -> None:
    folders = {path.split("/")[1] for path in tree if path.startswith("helpers/") and path.count("/") > 1}
    assert folders == {*ORDER, "trainers"} - {"contract"}


# ---- the checker itself

RULES = "helpers/judging/rules.py"
LOOP = "helpers/trainers/common/loop.py"


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        (RULES, "import paddle", "helpers/judging/rules.py:1: paddle is a framework; only trainers import one"),
        (RULES, "def f():\n    import torch.nn", "helpers/judging/rules.py:2: torch.nn is a framework"),
        (RULES, "from nvidia.dali import fn", "nvidia.dali.fn is a framework"),
        (RULES, "from nvidia import dali", "nvidia.dali is a framework"),
        (RULES, "import importlib\nimportlib.import_module('mxnet')", "rules.py:2: mxnet is a framework"),
        (RULES, "__import__('tensorflow')", "tensorflow is a framework"),
        ("fixtures/job.py", "if TYPE_CHECKING:\n    import paddle", "fixtures/job.py:2: paddle is a framework"),
        ("perf_tests/test_resnet50.py", "import paddle", "paddle is a framework"),
        ("conftest.py", "import paddle", "paddle is a framework"),
        ("helpers/session/measure.py", "import pytest", "pytest is pytest's; only fixtures know pytest"),
        ("benchmarks/cores.py", "import paddle", "benchmarks/cores.py:1: paddle is a framework"),
        ("benchmarks/cores.py", "from benchmarks.reader_speed import main", "is a program with a framework"),
        ("benchmarks/cores.py", "from helpers.trainers.common.block_worker import main", "only tests import it"),
        ("helpers/commands/show.py", "from _pytest.config import Config", "_pytest.config.Config is pytest's"),
        ("helpers/commands/show.py", "import json\nimport tests.helpers", "show.py:2: tests.helpers is a test"),
        (RULES, "from helpers.plan.case_plan import CasePlan", "judging imports plan, which stands above it"),
        (RULES, "from helpers import session", "judging imports session, which stands above it"),
        (RULES, "from ..launch import guard", "judging imports launch, which stands above it"),
        ("helpers/machine/nvml.py", "from helpers.judging import verdict", "machine imports judging, which stands"),
        ("helpers/launch/tail.py", "def f():\n    from helpers.session import x", "tail.py:2: launch imports session"),
        ("helpers/history/results.py", "from helpers.report import text", "history imports report, which stands above"),
        ("helpers/report/text.py", "import fixtures.plugin", "report imports fixtures, which stands above it"),
        ("fixtures/plugin.py", "from perf_tests import x", "fixtures imports perf_tests, which stands above it"),
        (RULES, "import helpers.novelty", "novelty stands in no order; put it into a folder of ORDER"),
        ("helpers/launch/guard.py", "from helpers.trainers import common", "only tests import it"),
        ("fixtures/plugin.py", "import helpers.trainers.common.loop", "only tests import it"),
        (LOOP, "from helpers.judging.rules import figures", "helpers.judging.rules.figures is not for trainers"),
        (LOOP, "from helpers import machine", "helpers.machine is not for trainers"),
        (LOOP, "from helpers.trainers.paddle import data", "helpers.trainers.paddle.data is another framework's"),
        ("helpers/trainers/pytorch/steps.py", "import helpers.trainers.paddle.data", "is another framework's"),
        ("helpers/trainers/contract/job.py", "from helpers.trainers.common import loop", "stands above the contract"),
        (LOOP, "import yaml", "yaml is not for trainers"),
        (LOOP, "def f():\n    import tomllib", "loop.py:2: tomllib is not for trainers"),
        (LOOP, "import paddle\nimport torch", "loop.py: two frameworks: paddle, torch"),
    ],
)
def test_a_forbidden_import_is_found(path: str, text: str, why: str) -> None:
    found = violations({path: text})
    assert len(found) == 1
    assert why in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("helpers/session/measure.py", "from helpers.judging.judge import judge\nimport json, helpers"),
        (RULES, "from helpers.judging.verdict import Status\nfrom helpers.trainers.contract.errors import SuiteError"),
        (RULES, "from helpers.trainers.contract import errors"),
        ("helpers/trainers/contract/job.py", "from helpers.trainers.contract.case import Case"),
        ("fixtures/plugin.py", "import pytest\nfrom helpers.session.suite import Suite\nfrom fixtures import options"),
        ("perf_tests/test_resnet50.py", "import pytest\nfrom fixtures.cases import cases"),
        (LOOP, "import json, numpy\nfrom helpers.trainers.contract.job import JobSpec\nfrom . import images"),
        ("helpers/trainers/paddle/trainer.py", "def f():\n    import paddle.nn\n    from nvidia.dali import fn"),
        ("helpers/trainers/paddle/trainer.py", "from helpers.trainers.common import loop\nfrom . import steps"),
        ("helpers/trainers/pytorch/trainer.py", "import torch, torchvision"),
        ("tests/helpers/trainers/test_loop.py", "import paddle\nfrom helpers.trainers.common import loop"),
        ("helpers/launch/guard.py", 'command = "helpers.trainers.paddle.trainer"'),
        (RULES, "import paddleocr, nvidia_smi"),
    ],
)
def test_an_allowed_import_is_left_alone(path: str, text: str) -> None:
    assert violations({path: text}) == []


def test_syntax_that_python_3_8_lacks_is_found() -> None:
    text = "match 1:\n    case 1: pass"
    assert len(too_new({LOOP: text})) == 1
    assert too_new({"helpers/session/measure.py": text}) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [("'a.py'.removesuffix('.py')", "removesuffix"), ("zip([1], [2], strict=True)", "zip(strict=)"),
     ("from itertools import pairwise", "pairwise"), ("import math\nmath.lcm(4, 6)", "lcm")],
)  # fmt: skip
def test_what_the_library_of_python_3_8_lacks_is_found(text: str, name: str) -> None:
    (found,) = too_new({LOOP: text})
    assert found.endswith(f": Python 3.8 has no {name}")
    assert too_new({"helpers/session/measure.py": text}) == []


def test_syntax_that_python_3_8_has_passes() -> None:
    text = "from __future__ import annotations\ndef f(a: int | None, /): ..."
    assert too_new({"helpers/trainers/contract/case.py": text}) == []
