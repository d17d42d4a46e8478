"""The Chinese README follows the English one: same commands and outputs, same parts. Links of all Chinese pages lead
somewhere; what these pages say follows the book before this one until they are translated again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/zh-CN"
INDEX = FOLDER / "README.md"
# Each Chinese page that follows an English one, and that one.
FOLLOWING = {ROOT / "README.zh-CN.md": ROOT / "README.md"}
PAGES = [*FOLLOWING, *(page for page in sorted(FOLDER.glob("*.md")) if page != INDEX)]
_BLOCK = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")
_TITLE = re.compile(r"^#+ (.*)$", re.MULTILINE)
_HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize("page", FOLLOWING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_and_part_is_that_of_the_english_page(page: Path) -> None:
    blocks, parts = _blocks_and_parts(page)
    english_blocks, english_parts = _blocks_and_parts(FOLLOWING[page])
    assert blocks == english_blocks, "the English page has other blocks: translate what changed"
    assert parts == english_parts, "the English page has other parts: translate what changed"


def _blocks_and_parts(page: Path) -> tuple[list[str], list[str]]:
    text = page.read_text()
    return _BLOCK.findall(text), _HEADING.findall(_BLOCK.sub("", text))


def test_every_page_is_in_the_index_and_in_chinese() -> None:
    listed = set(re.findall(r"^\| \[([^]]+)\]", INDEX.read_text(), re.MULTILINE))
    assert listed == {page.name for page in PAGES if page.parent == FOLDER}
    for page in [INDEX, *PAGES]:
        text = _BLOCK.sub("", page.read_text())
        assert len(_HAN.findall(text)) > len(text) / 6, page


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_part_of_it(page: Path) -> None:
    links = _LINK.findall(_BLOCK.sub("", page.read_text()))
    assert links
    for name, part in links:
        target = page.parent / name if name else page
        assert target.exists(), name
        if part:
            titles = [re.sub(r"[^\w -]", "", title).lower() for title in _TITLE.findall(target.read_text())]
            assert part in [title.replace(" ", "-") for title in titles], f"{name}#{part}"
