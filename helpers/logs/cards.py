"""Names of GPU models as logs, tables and folders write them, and whether two of them may mean one model."""

from __future__ import annotations

import re
from pathlib import PurePath

# A card model as a part of a folder's name: V100-LOG, a100_logs.
_IN_NAME = re.compile(
    r"(?<![A-Za-z0-9])([AHVPB]\d{2,3}|T4|L4|L40S?)((?:[-_](?:SXM\d|PCIE|\d+GB))*)(?![A-Za-z0-9])", re.IGNORECASE
)
# Ampere and later: A100, H200, GB200, L40S, RTX A6000.
_WITH_TF32 = re.compile(r"(?:RTX )?(?:A|H|GH|B|GB|L)\d+[A-Z]?(?: .*)?")
_NOT_THE_MODEL = re.compile(r"NVIDIA|TESLA|GPU|HBM\d?E?|")


def card_words(name: str) -> dict[str, str]:
    """Model, form factor and memory of ``Tesla V100-SXM2-32GB``, as far as the name states them.

    A name with any further part (a MIG slice, a special edition) is another model.
    """
    words: dict[str, str] = {}
    for word in re.split(r"[\s_-]+", name.strip().upper()):
        if re.fullmatch(r"\d+GB", word):
            words["memory"] = word
        elif re.fullmatch(r"SXM\d?|PCIE", word):
            words["form"] = word
        elif not _NOT_THE_MODEL.fullmatch(word):
            words["model"] = f"{words['model']} {word}" if "model" in words else word
    return words


def same_card(one: str, other: str) -> bool:
    """Whether two names may mean one model of card: the same model, and no part that both name differs."""
    mine, theirs = card_words(one), card_words(other)
    if "model" not in mine or "model" not in theirs:
        return False
    return all(mine[part] == theirs[part] for part in mine.keys() & theirs.keys())


def is_of_target(name: str, target: str) -> bool:
    """Whether a card of this name belongs to a target, which a model names (``v100``)."""
    return card_words(name).get("model", "").lower() == target


def has_tf32(name: str) -> bool:
    """Whether FP32 is TF32 on such a card where nobody switches that off (docs/measuring-rules.md,
    "Traps in the published tables")."""
    return _WITH_TF32.fullmatch(card_words(name).get("model", "")) is not None


def card_of_folders(path: PurePath) -> tuple[str, str] | None:
    """Card and name of the innermost folder above ``path`` whose name has a card model as a part of its own."""
    for folder in path.parents:
        if match := _IN_NAME.search(folder.name):
            return "".join(match.groups()).upper().replace("_", "-"), folder.name
    return None
