"""A hook of the site (mkdocs.yml). The words behind a fence's language say how a test tries the block; Markdown would
not take such a line for a fence."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^( *```[a-z]+) .*$", re.MULTILINE)


def on_page_markdown(markdown: str, **_site: object) -> str:
    """Called by mkdocs with the text of each page."""
    return _FENCE.sub(r"\1", markdown)
