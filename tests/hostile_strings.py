"""Texts from outside that no output may be forged, coloured, cut, turned or run by: the one list for all of them, also
for outputs that are yet to come.

An output gets each of TEXTS wherever foreign text may stand (a log's name, a process, a commit, a reason) and is then
checked by what it is: ``check_lines`` for a terminal and plain text, ``check_markdown``, ``check_xml`` (SVG, JUnit) and
``check_json``.
"""

from __future__ import annotations

import json
import re
import unicodedata
import xml.etree.ElementTree
from collections.abc import Iterator

# What begins a line of which is forged.
FORGED = "FORGED"

TEXTS = {
    "blank": "a b",
    "quotes": "a'b\"c",
    "shell": "a;rm -rf / $(touch owned) `touch owned`",
    "path": "../../etc/passwd",
    "newline": f"a\n{FORGED}: PASS",
    "carriage return": f"a\r{FORGED}",
    "windows newline": f"a\r\n{FORGED}: PASS\r\n",
    "backspaces": f"a\b\b\b{FORGED}",
    "vertical": f"a\v{FORGED}\f{FORGED}",
    "colour": "\x1b[2J\x1b[31mred",
    "8-bit colour": "\x9b31m",
    "title": "\x1b]0;title\x07",
    "link of a terminal": "\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "nul": "a\x00b",
    "delete": "a\x7f",
    "right to left": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "no width": "a\u200bb\u200d\ufeff",
    "line separator": f"\u2028{FORGED}",
    "next line": f"\x85{FORGED}",
    "tag letters": "a\U000e0041",
    "lone surrogate": "a\udc80b\ud800",
    "not of XML": "\ufffe\uffff\x0b",
    "private": "\ue000",
    "columns": "a|b|c\\|d",
    "script": "<script>alert(1)</script>",
    "image": '<img src=x onerror="alert(1)">',
    "svg": '"/><image href="http://evil/t.png"/><g x="',
    "entity": "&amp;&lt;&#x1b;&evil;",
    "cdata": "]]><x>",
    "comment": "--><x><!--",
    "declaration": "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>&e;",
    "picture": "![x](http://evil/t.png)",
    "link": "[x](javascript:alert(1)) [y][z]",
    "code": "```\n## " + FORGED,
    "emphasis": "*a* _b_ **c** ~~d~~ #e",
    "CI's command": f"::error file=x::{FORGED}",
    "CI's command on a line": f"\n::error file=x::{FORGED}",
    "CI's older command": f"##[error]{FORGED} ##vso[task.complete]",
    "formula": '=HYPERLINK("http://evil","x")',
    "formula of a minus": "-2+3+cmd|' /C calc'!A0",
    "formats": "%s {0} %n {x!r} $x",
    "markup of the house": "[bold]x[/bold]",
    "letters": "图像 ü é e\u0301",
    "emoji": "\U0001f469\u200d\U0001f52c",
    "long": "x" * 10_000,
    "long, in words": "word " * 2_000,
    "nothing": "",
}

# "::error", and no ":: " or "::1", which a CI takes for text.
_COMMAND = re.compile(r"\s*::[A-Za-z]")
_TAG = re.compile(r"<[a-z!/?]", re.IGNORECASE)
_NOT_ESCAPED = r"(?<!\\)(?:\\\\)*"
_LINK = re.compile(_NOT_ESCAPED + r"\]\(")
_CODE = re.compile(_NOT_ESCAPED + "`")
_COLUMN = re.compile(_NOT_ESCAPED + r"\|")


def check_lines(text: str, about: str) -> None:
    """Plain text: printable lines, none of which a terminal, a reader or a CI takes for another's."""
    for line in text.split("\n"):
        assert line.isprintable(), (about, line[:200])
        categories = {unicodedata.category(character) for character in line}
        assert not categories & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}, (about, line[:200])
        assert not line.lstrip().startswith(FORGED), (about, line[:200])
        assert not _COMMAND.match(line), (about, line[:200])
        assert "##[" not in line and "##vso[" not in line, (about, line[:200])


def check_markdown(text: str, about: str) -> None:
    """Markdown that a browser shows: nothing of it is HTML, a link or a picture, and no table has a row of its own."""
    check_lines(text, about)
    for table in _tables(text):
        columns = {len(_COLUMN.findall(line)) for line in table}
        assert len(columns) == 1, (about, table)
        for line in table:
            assert not _TAG.search(line) and not _LINK.search(line), (about, line[:200])
            assert not len(_CODE.findall(line)) % 2, (about, line[:200])


def _tables(text: str) -> Iterator[list[str]]:
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line.startswith("|")]
        if lines:
            yield lines


def check_xml(text: str, about: str) -> None:
    """SVG or JUnit: well formed, its words printable, nothing in it that runs or is fetched."""
    assert "<!DOCTYPE" not in text and "<!ENTITY" not in text, about
    root = xml.etree.ElementTree.fromstring(text)
    for element in root.iter():
        tag = element.tag.rpartition("}")[2].lower()
        assert tag not in ("script", "image", "img", "foreignobject", "iframe"), (about, tag)
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on"), (about, name)
            assert not (name.endswith("href") and not value.startswith("#")), (about, name, value)
            assert value.replace("\n", "").isprintable(), (about, value[:200])
    words = "".join(root.itertext()).replace("\n", "")
    assert words.isprintable(), (about, words[:200])


def check_json(text: str, about: str) -> None:
    """JSON that may be shown in a terminal: ASCII in printable lines, and no number that JSON does not know."""

    def unknown(constant: str) -> object:
        raise AssertionError((about, constant))

    assert text.isascii(), about
    assert all(line.isprintable() for line in text.split("\n")), about
    json.loads(text, parse_constant=unknown)
