"""The worked example of docs/extending.md, done in a clone: its case is there then."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, all_blocks

MODELS = "helpers/trainers/contract/models.py"


@pytest.mark.slow
def test_the_model_of_the_example_has_its_case(tmp_path: Path) -> None:
    code, cases, listed, *_ = [block.text for block in all_blocks() if block.place.startswith("docs/extending.md:")]
    clone = tmp_path / "perfgate"
    for name in ("helpers", "fixtures", "perf_tests", "baselines", "requirements", "conftest.py", "pytest.ini"):
        _copy(name, clone)
    name = code.partition("\n")[2].split()[0]
    if re.search(rf"^    {name} = ", (clone / MODELS).read_text(encoding="utf-8"), re.MULTILINE):
        pytest.skip(f"this checkout has the page's model already: {name}")
    _insert(clone / MODELS, code)
    vgg16 = (clone / "perf_tests/test_vgg16.py").read_text(encoding="utf-8")
    test = clone / "perf_tests/test_resnet101.py"
    test.write_text(vgg16.replace('model="vgg16"', 'model="resnet101v1.5"'), encoding="utf-8")
    (clone / "perf.yaml").write_text(cases, encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "perf_tests", "-m", "resnet101", "--collect-only", "-q"]
    done = subprocess.run(argv, cwd=clone, capture_output=True, text=True, timeout=120)
    assert listed.strip() in done.stdout.splitlines(), done.stdout + done.stderr


def _copy(name: str, clone: Path) -> None:
    """What git knows of it, as it is now."""
    listed = subprocess.run(["git", "ls-files", "-z", name], cwd=ROOT, capture_output=True, text=True, check=True)
    for path in filter(None, listed.stdout.split("\0")):
        if (ROOT / path).is_file():
            (clone / path).parent.mkdir(parents=True, exist_ok=True)
            (clone / path).write_bytes((ROOT / path).read_bytes())


def _insert(file: Path, code: str) -> None:
    """Each part of the block behind the line in the file that begins as the part does."""
    text = file.read_text(encoding="utf-8")
    for part in code.strip().split("\n\n"):
        first, _, rest = part.partition("\n")
        begin = re.compile(rf"^{re.escape(first.partition(' = ')[0])}.*\n", re.MULTILINE)
        (found,) = begin.finditer(text)
        text = f"{text[: found.end()]}{rest}\n{text[found.end() :]}"
    file.write_text(text, encoding="utf-8")
