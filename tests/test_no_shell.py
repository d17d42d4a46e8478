"""No program of the project hands a text to a shell: names of commits, cases, hosts and files come from others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AREAS = ("helpers", "fixtures", "perf_tests", "benchmarks", "requirements")
# Each starts a shell.
SHELLS = {
    "os": ("system", "popen"),
    "subprocess": ("getoutput", "getstatusoutput"),
    "asyncio": ("create_subprocess_shell",),
    "pty": ("spawn",),
    "commands": ("getoutput", "getstatusoutput"),
}
STARTS = ("run", "Popen", "call", "check_call", "check_output")
# Programs whose first word may come from a text, as ["sh", "-c", text].
INTERPRETERS = ("sh", "bash", "/bin/sh", "/bin/bash", "zsh", "dash")
_SCRIPTED = ("-c", "-lc", "-ec")
# Without one of these a file has nothing for a shell, and need not be parsed.
_SIGNS = ("subprocess", "shell", *_SCRIPTED, *(name for names in SHELLS.values() for name in names))


def problems(path: str, text: str) -> Iterator[str]:
    """``path:line: why`` of every call that a shell could read."""
    if not any(sign in text for sign in _SIGNS):
        return
    tree = ast.parse(text, path)
    names = dict(_imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) > 2:
            first, second, script = node.elts[:3]
            # A script that stands there whole gets its values as words of their own ("$1").
            if _constant(first) in INTERPRETERS and _constant(second) in _SCRIPTED and _constant(script) is None:
                yield f"{path}:{node.lineno}: {_constant(first)} {_constant(second)}"
        if not isinstance(node, ast.Call):
            continue
        module, name = _called(node, names)
        if name in SHELLS.get(module, ()):
            yield f"{path}:{node.lineno}: {module}.{name}"
        for keyword in node.keywords:
            if keyword.arg == "shell" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield f"{path}:{node.lineno}: shell="
        if module == "subprocess" and name in STARTS:
            argv = (
                node.args[0] if node.args else next((each.value for each in node.keywords if each.arg == "args"), None)
            )
            if argv is None or _is_text(argv):
                yield f"{path}:{node.lineno}: a text and no list of words"


def _imported(tree: ast.AST) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in SHELLS:
            for alias in node.names:
                yield alias.asname or alias.name, (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in SHELLS:
                    yield alias.asname or alias.name, (alias.name, "")


def _called(node: ast.Call, names: dict[str, tuple[str, str]]) -> tuple[str, str]:
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return names.get(node.func.value.id, ("", ""))[0], node.func.attr
    if isinstance(node.func, ast.Name):
        return names.get(node.func.id, ("", ""))
    return "", ""


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        # "...".format(...), shlex.join(...), str(...)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in ("format", "join", "str", "replace")
    return (
        isinstance(node, ast.JoinedStr)
        or isinstance(_constant(node), str)
        or (isinstance(node, ast.BinOp) and (_is_text(node.left) or _is_text(node.right)))
    )


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def test_nothing_is_handed_to_a_shell() -> None:
    files = [ROOT / "conftest.py", *(path for area in AREAS for path in sorted((ROOT / area).rglob("*.py")))]
    assert len(files) > 150
    found = [each for path in files for each in problems(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.system('ls')",
        "import os as o\no.popen(x)",
        "from os import system\nsystem(x)",
        "from os import popen as p\np(x)",
        "import subprocess\nsubprocess.run(f'git log {x}')",
        "import subprocess\nsubprocess.run('git log', check=True)",
        "import subprocess\nsubprocess.Popen('git log ' + x)",
        "import subprocess\nsubprocess.check_output(args='ls')",
        "import subprocess as s\ns.call('%s' % x)",
        "from subprocess import run\nrun(' '.join(words))",
        "import subprocess\nsubprocess.run(words, shell=True)",
        "import subprocess\nsubprocess.run(words, shell=maybe)",
        "start(words, shell=1)",
        "import subprocess\nsubprocess.getoutput(x)",
        "import asyncio\nasyncio.create_subprocess_shell(x)",
        "argv = ['sh', '-c', x]",
        "argv = ('bash', '-lc', f'ls {x}')",
    ],
)
def test_what_a_shell_could_read_is_found(text: str) -> None:
    assert len(list(problems("x.py", text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess\nsubprocess.run(['git', '-C', str(x), 'log'], shell=False)",
        "import subprocess\nsubprocess.run(words)",
        "import subprocess\nsubprocess.run([*words, x])",
        "import os\nos.path.join(a, b)\nos.execvp(x, words)",
        "argv = ['sh', '-c', 'exec \"$@\"', x]",
        "def system(x): ...\nsystem('a')",
    ],
)
def test_words_are_left_alone(text: str) -> None:
    assert list(problems("x.py", text)) == []
