"""Foreign text in the formats that give characters a meaning; ``printable`` comes first in each."""

from __future__ import annotations

import re

from helpers.trainers.contract.errors import printable

# A column's end, code, HTML, what makes a link or a picture that a reader's browser would fetch, and a backslash where
# it would be taken for the escape of what follows.
_MARKDOWN = re.compile(r"[|`<]|\](?=[(\[])|\\(?=[!-/:-@\[-`{-~])")


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it stands, also in a table's cell."""
    return _MARKDOWN.sub(lambda found: "&lt;" if found[0] == "<" else f"\\{found[0]}", printable(text))
