"""Foreign text in Markdown, which gives characters a meaning."""

from __future__ import annotations

import re

from helpers.trainers.contract.errors import printable

# Ends a column, begins code or HTML, makes a link or a picture that a browser would fetch, or is a backslash that would
# escape what follows.
_MARKDOWN = re.compile(r"[|`<]|\](?=[(\[])|\\(?=[!-/:-@\[-`{-~])")


def markdown_text(text: str) -> str:
    """The text so that Markdown shows it unchanged, also in a table's cell."""
    return _MARKDOWN.sub(lambda found: "&lt;" if found[0] == "<" else f"\\{found[0]}", printable(text))
