"""The Chinese pages follow the English ones: the same blocks, parts and rows, and in each the same names and figures.

A test cannot hold what the words say; it can hold a number, a key, a status or an option.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import CHINESE, ROOT
from tests.for_each import for_each

FOLDER = ROOT / "docs" / CHINESE
INDEX = FOLDER / "README.md"
# Each Chinese page that follows an English one, and that one.
FOLLOWING = {ROOT / "README.zh-CN.md": ROOT / "README.md"} | {
    page: ROOT / "docs" / page.name for page in sorted(FOLDER.glob("*.md")) if page != INDEX
}
MOST_TERMS = 25
# A pair of runs is no logarithm, and a card has one name.
OTHER_WORDS = ("对数", "显卡", "网卡")

_BLOCK = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
_PART = re.compile(r"^(?=#+ )", re.MULTILINE)
_ROW = re.compile(r"^\| .*(?=\|$)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]+))?\)")
_TITLE = re.compile(r"^#+ (.*)$", re.MULTILINE)
_HAN = re.compile(r"[\u4e00-\u9fff]")
_SPAN = re.compile(r"`([^`]+)`")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
# Statuses, and names that a reader replaces.
_CAPITALS = re.compile(r"\b([A-Z]{4,}|[A-Z]+_[A-Z_]+)s?\b", re.ASCII)
# A Chinese sign is no letter to \w here, so a number may stand beside it.
_FIGURE = re.compile(
    r"(?<![\w.+/-])[+-]?(\d{4}-\d\d(?:-\d\d)?|\d[\d,]*(?:\.\d+)*)(?:th)?(?!\w|-\d)"
    r"\s*(%|GB|kB|(?:s|seconds|minutes?|hours?|days?)\b|秒|分钟|小时|天)?",
    re.ASCII,
)
_UNITS = {"seconds": "s", "minute": "minutes", "hour": "hours", "day": "days",
          "秒": "s", "分钟": "minutes", "小时": "hours", "天": "days"}  # fmt: skip
_WORDS = {"one": "1", "once": "1", "twice": "2", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6",
          "seven": "7", "eight": "8"}  # fmt: skip
_WORD = re.compile(rf"\b({'|'.join(_WORDS)})\b", re.IGNORECASE)
NO_UNIT = ""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return _COMMENT.sub("", _BLOCK.sub("", page.read_text(encoding="utf-8")))


def figures(text: str, *, words: bool = False) -> set[tuple[str, str]]:
    """Every number with its unit, and every number alone; with ``words``, those that are spelled, too."""
    plain = _LINK.sub("]", text)
    if words:
        plain = _WORD.sub(lambda found: _WORDS[found[0].lower()], plain)
    found = {(number.replace(",", ""), unit) for number, unit in _FIGURE.findall(plain)}
    return {each for number, unit in found for each in ((number, NO_UNIT), (number, _UNITS.get(unit, unit)))}


def same(chinese: str, english: str, place: str) -> None:
    """Both have the same pieces of code, statuses and figures."""
    assert spans(chinese) == spans(english), place
    assert set(_CAPITALS.findall(chinese)) == set(_CAPITALS.findall(english)), place
    assert figures(chinese) - figures(english, words=True) == set(), f"{place}: not on the English page"
    assert figures(english) - figures(chinese) == set(), f"{place}: missing"


def spans(text: str) -> set[str]:
    """The pieces of code, in which a line may break."""
    return {" ".join(found.split()) for found in _SPAN.findall(text)}


def test_the_chinese_pages_are_those() -> None:
    names = {page.stem for page in FOLLOWING if page.parent == FOLDER}
    assert names == {"start", "gate", "results", "verdicts", "reference"}
    assert set(re.findall(r"^\d+\. \[[^]]+\]\((\w+)\.md\)", INDEX.read_text(encoding="utf-8"), re.MULTILINE)) == names
    assert 0 < len(_ROW.findall(INDEX.read_text(encoding="utf-8"))) - 2 <= MOST_TERMS


@for_each("page", [INDEX, *FOLLOWING], ids=name)
def test_a_page_is_in_chinese_and_uses_its_words(page: Path) -> None:
    text = prose(page)
    assert len(_HAN.findall(text)) > len(text) / 6
    assert [word for word in OTHER_WORDS if word in text] == []


@pytest.mark.parametrize("page", FOLLOWING, ids=name)
def test_every_block_and_part_is_that_of_the_english_page(page: Path) -> None:
    blocks, english = (_BLOCK.findall(each.read_text(encoding="utf-8")) for each in (page, FOLLOWING[page]))
    assert blocks == english, "the English page has other blocks: translate what changed"
    parts, english = (_HEADING.findall(prose(each)) for each in (page, FOLLOWING[page]))
    assert parts == english, "the English page has other parts: translate what changed"


@pytest.mark.parametrize("page", FOLLOWING, ids=name)
def test_every_name_and_figure_of_a_part_is_that_of_the_english_page(page: Path) -> None:
    for part, english in zip(_PART.split(prose(page)), _PART.split(prose(FOLLOWING[page])), strict=True):
        same(part, english, english.partition("\n")[0])


@pytest.mark.parametrize("page", FOLLOWING, ids=name)
def test_every_row_of_a_table_is_that_of_the_english_page(page: Path) -> None:
    for row, english in zip(_ROW.findall(prose(page)), _ROW.findall(prose(FOLLOWING[page])), strict=True):
        same(row, english, english)
        cells, others = (re.split(r"(?<!\\)\|", each) for each in (row, english))
        assert len(cells) == len(others), english
        # What has no Chinese in it is as it was: a key, a code, a default.
        for cell, other in zip(cells, others, strict=True):
            assert _HAN.search(cell) or cell.replace("、", ", ") == other, english


@pytest.mark.parametrize("page", [INDEX, *FOLLOWING], ids=name)
def test_every_link_leads_to_a_page_and_a_part_of_it(page: Path) -> None:
    links = _LINK.findall(prose(page))
    assert links
    for target, part in links:
        if target.startswith(("https:", "../../actions/")):  # The badge of GitHub's own page.
            continue
        there = page.parent / target if target else page
        assert there.exists(), target
        if part:
            titles = [re.sub(r"[^\w -]", "", title).lower() for title in _TITLE.findall(there.read_text("utf-8"))]
            assert part in [title.replace(" ", "-") for title in titles], f"{target}#{part}"
