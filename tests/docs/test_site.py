"""The site (mkdocs.yml) lists every page, and its Markdown reads the fences of the pages."""

from __future__ import annotations

import re

from docs.site_hook import on_page_markdown
from tests.docs.blocks import CHINESE, ROOT

CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
DOCS = ROOT / "docs"


def test_the_contents_are_the_pages() -> None:
    folders = (DOCS, DOCS / CHINESE, DOCS / "evidence")
    pages = {str(page.relative_to(DOCS)) for folder in folders for page in folder.glob("*.md")}
    listed = re.findall(r": (\S+\.md)$", CONFIG, re.MULTILINE)
    assert sorted(listed) == sorted(pages)


def test_the_site_reads_every_fence() -> None:
    assert "hooks: [docs/site_hook.py]" in CONFIG
    for page in DOCS.rglob("*.md"):
        before = page.read_text(encoding="utf-8")
        after = on_page_markdown(before, page=None)
        assert set(re.findall(r"^ *```(.*)$", after, re.MULTILINE)) <= {"", "sh", "console", "yaml", "text", "python"}
        assert re.sub(r"```.*", "```", after) == re.sub(r"```.*", "```", before)
