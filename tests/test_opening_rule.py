"""Nothing in helpers or fixtures opens a file but by helpers/machine/files.py, over the syntax trees.

Whoever opens one elsewhere stands here with why nobody else can have put it there. Benchmarks are no part of it: what
they read they have just made in folders of their own. Nor are trainers: they run in a framework's interpreter on the
job that the suite wrote for them, and import nothing of it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.test_layers import Sources, read_tree

NOT_HERE = ("helpers/machine/files.py", "helpers/trainers/")
OPENERS = ("open", "open_code", "fdopen", "read_text", "read_bytes", "fromfile", "memmap")
# Without one of them a file opens nothing, and need not be parsed.
_OPENER = re.compile(rf"\b({'|'.join(OPENERS)})\b")
# Not a file's: a history, an image that image_folder has looked at, the connection of a device's library.
OF_OTHERS = ("History", "Image", "importlib")

KERNEL = "the kernel's own files"
OWN_NEW = "makes a new file, which nobody had put there (O_EXCL)"
ALLOWED = {
    "helpers/builds/fetching.py": "writes into a temporary folder that the cache made",
    "helpers/plan/baseline_files.py": "this project's schemas, and its checker's source",
    "helpers/commands/main.py": "/dev/null",
    "helpers/drawing/axes.py": "this suite's own style",
    "helpers/machine/host.py": KERNEL,
    "helpers/machine/devices.py": KERNEL,
    "helpers/machine/drivers.py": f"{KERNEL}, and this project's table",
    "helpers/machine/libraries.py": "the linker's settings in /etc of this machine",
    "helpers/machine/environment.py": f"{KERNEL}, and /etc of this machine",
    "helpers/logs/own.py": "writes into a temporary folder that it made",
    "helpers/logs/sources/source.py": "a member of an archive that files opened",
    "helpers/machine/watch/contention.py": KERNEL,
    "helpers/machine/watch/cpu_health.py": KERNEL,
    "helpers/machine/framework_probe.py": "the framework's own files, of the interpreter that it runs in",
    "helpers/launch/guard.py": f"{KERNEL}, and /dev/null",
    "helpers/machine/watch/meters.py": KERNEL,
    "helpers/launch/nodes/job.py": OWN_NEW,
    "helpers/launch/nodes/others.py": "goes on with a log in the run folder that it made",
    "helpers/machine/watch/processes.py": KERNEL,
    "helpers/launch/supervisor.py": OWN_NEW,
    "helpers/launch/nodes/wire.py": f"this project's sources; {KERNEL}",
    "helpers/machine/leases.py": "locks, which are never read: see files.open_lock",
    "helpers/plan/recipes/common.py": KERNEL,
    "helpers/machine/facts.py": KERNEL,
    "helpers/report/github.py": "appends to the page that the CI's runner made for the step",
    "helpers/report/unforeseen.py": OWN_NEW,
    "fixtures/unforeseen.py": "/dev/null",
}
# These read what others may have put there too: here each call counts.
MOST = {"helpers/plan/baseline_files.py": 1, "helpers/logs/own.py": 1, "helpers/machine/leases.py": 1}


def opened(sources: Sources) -> Iterator[tuple[str, int]]:
    """File and line of every call that opens something."""
    for path, text in sources.items():
        if not path.startswith(("helpers/", "fixtures/", "conftest.py")) or path.startswith(NOT_HERE):
            continue
        if not _OPENER.search(text):
            continue
        for node in ast.walk(ast.parse(text, path)):
            if isinstance(node, ast.Call) and _opens(node.func):
                yield path, node.lineno


def _opens(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in OPENERS
    if not isinstance(called, ast.Attribute) or called.attr not in OPENERS:
        return False
    return not (isinstance(called.value, ast.Name) and called.value.id in OF_OTHERS)


def test_nothing_opens_a_file_but_the_one_module_and_those_with_a_reason() -> None:
    found = list(opened(read_tree()))
    more = [f"{path}:{line}" for path, line in found if path not in ALLOWED]
    assert not more, f"Open these by helpers/machine/files.py: {more}"
    counts = Counter(path for path, _ in found)
    assert {path: counts[path] for path in MOST} == MOST
    needless = set(ALLOWED) - {path for path, _ in found}
    assert not needless, f"These open nothing any more: {needless}"


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "path.open('rb')",
        "os.open(path, os.O_RDONLY)",
        "path.read_text()",
        "(root / name).read_bytes()",
        "io.open(path)",
        "np.fromfile(path)",
    ],
)
def test_every_way_of_opening_is_seen(line: str) -> None:
    assert list(opened({"helpers/new.py": f"import os\n{line}\n"})) == [("helpers/new.py", 2)]


@pytest.mark.parametrize("line", ["History.open(url)", "Image.open(path)", "open_regular(path)", "opener(path)"])
def test_what_opens_no_file_is_none(line: str) -> None:
    assert not list(opened({"helpers/new.py": line}))
