"""Sets the reference build in a user's perf.yaml. The rest of the file stays as it is, with its comments.

The section ``builds`` is changed line by line, and the new text is read again before it counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from helpers.common.files import MOST_NOTE_BYTES, named_by_user, read_text_limited, write_whole
from helpers.plan.yaml_file import BoundedLoader, read_yaml
from helpers.trainers.contract.errors import ConfigError


def set_values(path: Path, section: str, values: Mapping[str, str]) -> str:
    """Set the texts ``values`` in the file's mapping ``section``; both are made if they are missing. Returns the file's
    former text.

    Raises ConfigError for a file that is no YAML, cannot be written, or would change in more than these values.
    """
    before, text = None, ""
    if path.exists() or path.is_symlink():
        before = read_yaml(path)
        text = read_text_limited(named_by_user(path), MOST_NOTE_BYTES)
    wanted = dict(before) if isinstance(before, dict) else {}
    old = wanted.get(section) or {}
    new = with_values(text, section, values)
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
        write_whole(place, text.encode())
    except OSError as error:
        raise ConfigError(str(path), got=str(error), expected="a file that can be written") from error


def with_values(text: str, section: str, values: Mapping[str, str]) -> str:
    """The text with the values as lines of the section; those that it has are replaced."""
    lines = text.splitlines()
    heads = [
        number for number, line in enumerate(lines) if re.match(rf"{section}:\s*(null\s*|\{{\}}\s*)?(#.*)?$", line)
    ]
    if not heads:
        lines += ["", f"{section}:"] if lines else [f"{section}:"]
        heads = [len(lines) - 1]
    start = heads[0] + 1
    lines[start - 1] = re.sub(r":\s*(null|\{\})", ":", lines[start - 1])
    end = next((number for number in range(start, len(lines)) if re.match(r"[^\s#]", lines[number])), len(lines))
    body = [line for line in lines[start:end] if not re.match(rf"\s+({'|'.join(values)}):", line)]
    indent = next((line[: len(line) - len(line.lstrip())] for line in body if re.match(r"\s+[^\s#]", line)), "  ")
    own = [f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    return "\n".join([*lines[:start], *own, *body, *lines[end:], ""])


def _read(text: str) -> object:
    try:
        return yaml.load(text, Loader=BoundedLoader)
    except (yaml.YAMLError, ValueError, TypeError):
        return None
