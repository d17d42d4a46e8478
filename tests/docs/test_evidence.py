"""docs/evidence/make.py writes a page's measured blocks anew, and nothing else."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest

from docs.evidence import make

BLOCK = '```console not-run takes-minutes\n$ {python} -c "{program}"\n{output}\n```\n'
OLD = "\nMeasured 2026-11-22 on 2 cores. Old words.\n"


def block(program: str, output: str) -> str:
    return BLOCK.format(python=sys.executable, program=program, output=output)


def test_a_measured_block_has_what_its_command_prints_now(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    before = block("print(5)", "no output: nothing says when it was measured") + "\nWords.\n\n"
    page.write_text(before + block("print(1)", "0") + OLD + "\nMore words.\n")
    make.write(page)
    new = f"\nMeasured {datetime.date.today()} {make.here()}\n"
    assert page.read_text() == before + block("print(1)", "1") + new + "\nMore words.\n"


def test_a_command_that_fails_leaves_the_page_as_it_was_and_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    text = block("print(1)", "0") + OLD + block("raise SystemExit(1)", "0") + OLD
    page.write_text(text)
    with pytest.raises(SystemExit, match="exit code 1 of"):
        make.write(page)
    assert page.read_text() == text
    assert "\n1\n" in capsys.readouterr().err


def test_only_pages_with_a_measured_block_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "words.md").write_text("Words.\n" + block("print(1)", "0"))
    (tmp_path / "measured.md").write_text(block("print(1)", "0") + OLD)
    assert make.pages(tmp_path) == [tmp_path / "measured.md"]
