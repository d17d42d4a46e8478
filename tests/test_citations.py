"""What the code, the tests and the pages cite exists: a page of docs/ or of the root, and its section by title."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AREAS = ("helpers", "fixtures", "perf_tests", "benchmarks", "tests", "requirements", "docs", ".github", ".ci")
SUFFIXES = (".py", ".md", ".yaml", ".yml", ".txt", ".toml")

PAGE = re.compile(r"(?<![\w/.-])(docs/(?:evidence/)?[a-z-]+\.md|[A-Z]{3,}\.md)\b")
# Of the folder that --series names.
ELSEWHERE = ("INDEX.md",)
# A link of a page to a file or a heading, or both.
LINK = re.compile(r"\]\((?!https?:)([\w./-]*)(?:#([\w-]+))?\)")
# docs/gate.md, "Section" and "Section".
SECTIONS = re.compile(r'(docs/[a-z-]+\.md), ((?:"[^"]+"(?:, | and )?)+)')


def cited(text: str) -> Iterator[tuple[str, str]]:
    """Page and section of every citation, the section empty where a whole page is cited; lines may break in it."""
    running = re.sub(r"\n[ \t]*(#[ \t]+)?", " ", text).replace('\\"', '"').replace("\\'", "'")
    for page in PAGE.findall(running):
        if page not in ELSEWHERE:
            yield page, ""
    for page, sections in SECTIONS.findall(running):
        for section in re.findall(r'"([^"]+)"', sections):
            yield page, section


def titles(page: str) -> list[str]:
    return [line.lstrip("#").strip() for line in page.splitlines() if line.startswith("#")]


def files() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in SUFFIXES]
    found += [path for area in AREAS for path in (ROOT / area).rglob("*") if path.suffix in SUFFIXES]
    # The changelog tells of what is gone, too.
    return sorted(path for path in found if path not in (Path(__file__), ROOT / "CHANGELOG.md"))


@pytest.mark.slow
def test_every_cited_page_and_section_exists() -> None:
    missing = []
    for path in files():
        for page, section in cited(path.read_text(encoding="utf-8", errors="replace")):
            there = ROOT / page
            if not there.is_file() or (section and section not in titles(there.read_text(encoding="utf-8"))):
                missing.append(f"{path.relative_to(ROOT)}: {page}" + (f', "{section}"' if section else ""))
    assert missing == []


def test_the_index_lists_every_page_and_links_between_pages_lead_somewhere() -> None:
    pages = sorted((ROOT / "docs").glob("*.md"))
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert [page.name for page in pages if page.name != "README.md" and f"]({page.name})" not in index] == []
    pages += sorted((ROOT / "docs/evidence").glob("*.md"))
    pages += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    links = [(page, *link) for page in pages for link in LINK.findall(page.read_text(encoding="utf-8"))]
    assert links
    assert [f"{page.name}: {link}#{heading}" for page, link, heading in links if not leads(page, link, heading)] == []


def leads(page: Path, link: str, heading: str) -> bool:
    if link.startswith("../../actions/"):  # Of GitHub's own pages of the repository.
        return True
    there = page.parent / link if link else page
    return there.is_file() and (not heading or heading in map(anchor, titles(there.read_text(encoding="utf-8"))))


def anchor(title: str) -> str:
    """The name by which GitHub links to a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
