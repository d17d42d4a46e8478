"""The Chinese pages follow the English ones: same commands and outputs, same parts, and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/zh-CN"
INDEX = FOLDER / "README.md"
# Each Chinese page and the English one that it follows.
PAGES = {ROOT / "README.zh-CN.md": ROOT / "README.md"} | {
    page: ROOT / "docs" / page.name for page in sorted(FOLDER.glob("*.md")) if page != INDEX
}
_BLOCK = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
# Not yet translated anew: their English page is another one, or several, now.
_BEHIND = {
    *(FOLDER / name for name in ("extending.md", "frameworks.md", "gpu-proof.md", "import.md", "multi-node.md")),
    *(page for page, english in PAGES.items() if not english.exists()),
}
# These leave the evidence, or what concerns developers, to the English page.
_SHORTER = {FOLDER / "bisect.md", FOLDER / "page.md"}
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")
_TITLE = re.compile(r"^#+ (.*)$", re.MULTILINE)
_HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in _BEHIND], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_block_and_part_is_that_of_the_english_page(page: Path) -> None:
    blocks, parts = _blocks_and_parts(page)
    english_blocks, english_parts = _blocks_and_parts(PAGES[page])
    if page in _SHORTER:
        blocks, english_blocks = sorted(set(blocks) - set(english_blocks)), []
        parts = english_parts
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
