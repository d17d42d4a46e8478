"""How many devices of a kind a node has, by Slurm's list of its generic resources (``Gres`` of ``scontrol show node``).

By slurm.conf(5) an entry is ``name[:type][:no_consume]:number`` with K, M, G, T or P behind the number. Slurm takes 1
where no number is given (``gpu:a100``), reads a last part that begins with a digit as the number, and adds the sockets,
whose list may have commas: ``gpu:a100:8(S:0,2-3)``.
"""

from __future__ import annotations

import re

from helpers.trainers.contract.errors import ConfigError

_SOCKETS = re.compile(r"\(S:[0-9,-]+\)(?=,|$)")
_NUMBER = re.compile(r"([0-9]+)([KMGTP]?)", re.IGNORECASE)
_WORD = re.compile(r"\w[^()\s]*")
_SUFFIXES = " KMGTP"
_NO_CONSUME = "no_consume"
_NONE = ("", "(null)")


def devices(listed: str, gres: str, node: str) -> int:
    """How many of ``gres`` (``gpu``, ``gpu:a100``) the list has. Raises ConfigError for an entry that cannot be read,
    because its cards would be missed in silence."""
    name, _, model = gres.partition(":")
    count = 0
    for entry in _SOCKETS.sub("", listed).split(",") if listed not in _NONE else ():
        read = _read(entry)
        if read is None:
            raise ConfigError(
                f"node {node}",
                field="Gres",
                got=listed,
                expected=f"entries like name[:type][:no_consume]:number (slurm.conf), which {entry!r} is not",
                remedy="Say with --cards N on how many cards of each node to measure",
            )
        if read[0] == name and model in ("", read[1]):
            count += read[2]
    return count


def _read(entry: str) -> tuple[str, str, int] | None:
    """Name, type and number of an entry without its sockets; None if it cannot be read."""
    *words, last = entry.split(":")
    number: int | None = 1
    if not words:
        words = [last]
    elif last[:1].isdigit():
        number = _number(last)
    else:
        words.append(last)
    if len(words) > 1 and words[-1] == _NO_CONSUME:
        words.pop()
    if number is None or len(words) > 2 or not all(map(_WORD.fullmatch, words)):
        return None
    return words[0], words[1] if len(words) > 1 else "", number


def _number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text)
    return int(found[1]) * 1024 ** _SUFFIXES.index(found[2].upper() or " ") if found else None
