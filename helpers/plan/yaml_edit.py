"""Sets values of one section of a YAML file. The rest of the file stays as it is, with its comments.

PyYAML's own marks give the places, and the new text is read again before it counts. So no second YAML library is needed
for four lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from helpers.machine.files import MOST_NOTE_BYTES, named_by_user, read_text_limited, write_whole
from helpers.plan.yaml_file import BoundedLoader, read_yaml
from helpers.trainers.contract.errors import ConfigError


def set_values(path: Path, section: str, values: Mapping[str, str]) -> str:
    """Set the texts ``values`` in the file's mapping ``section``, which is made if it is missing. Returns the file's
    former text.

    Raises ConfigError for a file that is no YAML, cannot be written, or would change in more than these values.
    """
    before = read_yaml(path).value
    place = named_by_user(path)
    text = read_text_limited(place, MOST_NOTE_BYTES)
    new = with_values(text, section, values)
    wanted = dict(before) if isinstance(before, dict) else {}
    old = wanted.get(section) or {}
    if not isinstance(old, dict) or _read(new) != {**wanted, section: {**old, **values}}:
        shown = ", ".join(f"{name}: {json.dumps(value)}" for name, value in values.items())
        raise ConfigError(
            str(path), field=section, got="a form that cannot be changed by a program",
            expected="plain lines, KEY: VALUE", remedy=f"Set these yourself: {shown}",
        )  # fmt: skip
    replace_text(path, new)
    return text


def replace_text(path: Path, text: str) -> None:
    """Write the whole file, with its former permissions. Raises ConfigError."""
    place = named_by_user(path)
    try:
        mode = place.stat().st_mode & 0o777
        write_whole(place, text.encode())
        place.chmod(mode)
    except OSError as error:
        raise ConfigError(str(path), got=str(error), expected="a file that can be written") from error


def with_values(text: str, section: str, values: Mapping[str, str]) -> str:
    """The text with the values in it, in the form of its section."""
    top = yaml.compose(text, Loader=BoundedLoader)
    found = _entry(top, section) if isinstance(top, yaml.MappingNode) else None
    if found is None:
        lines = "".join(f"  {name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in values.items())
        return f"{text.rstrip()}\n\n{section}:\n{lines}" if text.strip() else f"{section}:\n{lines}"
    key, node = found
    edits: list[tuple[int, int, str]] = []
    missing = {}
    for name, value in values.items():
        shown = json.dumps(value, ensure_ascii=False)
        at = _entry(node, name) if isinstance(node, yaml.MappingNode) else None
        if at is None:
            missing[name] = shown
            continue
        start, end = at[1].start_mark.index, at[1].end_mark.index
        # A block of text ends behind the end of its last line.
        tail = "\n" if text[start:end].endswith("\n") else ""
        space = " " if start == end and text[start - 1 : start] == ":" else ""
        edits.append((start, end, f"{space}{shown}{tail}"))
    if missing:
        edits.append(_inserted(text, key, node, missing))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _inserted(text: str, key: yaml.Node, node: yaml.Node, values: Mapping[str, str]) -> tuple[int, int, str]:
    pairs = [f"{name}: {value}" for name, value in values.items()]
    start = node.start_mark.index
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        indent = " " * node.start_mark.column
        return start, start, "".join(f"{each}\n{indent}" for each in pairs)
    if isinstance(node, yaml.MappingNode) and node.value:
        return start + 1, start + 1, ", ".join(pairs) + ", "
    # The section is empty, null or {}, so the values get lines of their own.
    end = max(node.end_mark.index, key.end_mark.index + 1)
    lines = "".join(f"\n{' ' * (key.start_mark.column + 2)}{each}" for each in pairs)
    return key.end_mark.index + 1, end, lines


def _entry(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next((pair for pair in node.value if getattr(pair[0], "value", None) == name), None)


def _read(text: str) -> Any:
    try:
        return yaml.load(text, Loader=BoundedLoader)
    except (yaml.YAMLError, ValueError, TypeError):
        return None
