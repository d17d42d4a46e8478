"""The configuration of a PaddleClas run, from its launcher, its command line and the configuration it prints.

Source: PaddlePaddle/PaddleClas. ``ppcls/utils/config.py`` prints the configuration as a tree, four spaces a level, the
overrides of ``-o`` already in it. What the batch sizes are of:

- ``DataLoader.Train.sampler.batch_size`` (2.2 and later) is one card's.
- ``TRAIN.batch_size`` (before, ``ppcls/data/reader.py``: ``batch_size // trainers_num``) is of all cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.logs.formats.dllogger import count, facts_of, finished, quoted
from helpers.logs.formats.naming import architecture, precision_of, settings_of_name
from helpers.logs.formats.paddle_launch import (
    Launch,
    config_file,
    first,
    framework_version,
    launch_of,
    options_of,
    present,
)
from helpers.logs.record import Context, Said, Setting

_TREE = re.compile(r"\d\d:\d\d:\d\d\]? (?:\w+ )?INFO: ( *)([\w.-]+) :(?: (.*))?$")
_INDENT = 4
_LOGGED_SEED = re.compile(r"Set random seed to \((\d+) \+")
_AMPERE = re.compile(r"GPU Compute Capability: (?:[89]|\d\d)\.\d")
_EMPTY = ("", "None", "null")


@dataclass(frozen=True)
class _Tree:
    """The printed configuration by its path (``Arch.name``), with the command line's overrides over it."""

    values: Mapping[str, Said]
    printed: bool

    def said(self, *paths: str) -> Said | None:
        return next((self.values[path] for path in paths if path in self.values), None)

    def switched(self, *paths: str) -> bool | None:
        """Whether it is on; None where nothing says so."""
        said = self.said(*paths)
        return None if said is None else said.value.lower() == "true"

    def where(self, path: str) -> str:
        """Of a section: its first value's place."""
        return next(said.where for key, said in self.values.items() if key == path or key.startswith(path + "."))

    def has(self, section: str) -> bool:
        return any(key == section or key.startswith(section + ".") for key in self.values)


def of_paddleclas(context: Context) -> Mapping[Setting, Said]:
    """Of a static graph."""
    return _configured(context, Said("static", "the form of its lines"))


def of_paddleclas_dynamic(context: Context) -> Mapping[Setting, Said]:
    """Of a dynamic graph, unless the configuration says that it was made static."""
    return _configured(context, None)


def _configured(context: Context, execution: Said | None) -> Mapping[Setting, Said]:
    tree, launch = _tree_of(context), launch_of(context)
    said = present(
        {
            Setting.FRAMEWORK: Said("paddle", "lines of PaddleClas"),
            Setting.MODEL: _model(context, tree),
            Setting.PRECISION: _precision(context, tree),
            Setting.CARDS: launch.cards,
            Setting.NODES: launch.nodes,
            Setting.DATA: _data(tree),
            Setting.EXECUTION: execution or _execution(tree),
            Setting.FRAMEWORK_VERSION: framework_version(context),
            Setting.SEED: first(context, _LOGGED_SEED) or tree.said("Global.seed"),
        }
    )
    batch = _batch_size(context, tree, launch)
    return finished(facts_of(context), {**said, Setting.BATCH_SIZE_PER_CARD: batch})


def _tree_of(context: Context) -> _Tree:
    values: dict[str, Said] = {}
    path: list[str] = []
    printed = False
    for line in context.lines:
        match = _TREE.search(line.text)
        if match is None:
            continue
        level = len(match[1]) // _INDENT
        path[level:] = [match[2]]
        printed = printed or match[2] in ("Arch", "ARCHITECTURE")
        value = (match[3] or "").strip()
        where = f"line {line.number}: {quoted(line.text[match.start(2) :])}"
        values.setdefault(".".join(path), Said(value, where))
    return _Tree({**values, **options_of(context)}, printed)


def _model(context: Context, tree: _Tree) -> Said | None:
    said = tree.said("Arch.name", "ARCHITECTURE.name")
    if said is not None:
        return Said(architecture(said.value), said.where)
    config = config_file(context)
    found = settings_of_name(config.value.rsplit("/", 1)[-1]).get(Setting.MODEL) if config else None
    return Said(found.value, config.where) if found and config else None


def _precision(context: Context, tree: _Tree) -> Said | None:
    said = _printed_precision(tree)
    if said is None:
        config = config_file(context)
        found = precision_of(config.value.rsplit("/", 1)[-1].rsplit(".", 1)[0]) if config else None
        said = Said(found, config.where) if found and config else None
    capability = first(context, _AMPERE)
    if said is None or said.value != "fp32" or capability is None:
        return said
    # Paddle leaves TF32 on where the card has it (docs/measuring-rules.md, "Traps in the published tables").
    return Said("tf32", f"{said.where}; TF32 is the default of this card ({capability.where})")


def _printed_precision(tree: _Tree) -> Said | None:
    for path in ("AMP.use_pure_fp16", "use_pure_fp16"):
        if tree.switched(path):
            return Said("amp_o2", tree.where(path))
    if tree.switched("use_amp"):
        return Said("amp", tree.where("use_amp"))
    if tree.has("AMP"):
        level = tree.said("AMP.level")
        if tree.switched("AMP.use_amp") is False:
            return Said("fp32", tree.where("AMP.use_amp"))
        if level is not None and level.value.upper() in ("O1", "O2"):
            return Said(f"amp_{level.value.lower()}", level.where)
        return Said("amp", tree.where("AMP"))
    return Said("fp32", "no AMP in the configuration") if tree.printed else None


def _batch_size(context: Context, tree: _Tree, launch: Launch) -> Said | None:
    of_card = count(tree.said("DataLoader.Train.sampler.batch_size"))
    if of_card is not None:
        return of_card
    total = count(tree.said("TRAIN.batch_size"))
    cards = count(launch.cards or settings_of_name(context.name).get(Setting.CARDS))
    if total is None or cards is None or int(total.value) % int(cards.value):
        return None
    each = int(total.value) // int(cards.value)
    return Said(str(each), f"{total.where}, of {cards.value} cards ({cards.where})")


def _data(tree: _Tree) -> Said | None:
    said = tree.said("Global.use_dali", "use_dali")
    if said is not None and said.value not in _EMPTY:
        return Said("dali" if said.value.lower() == "true" else "native", said.where)
    return Said("native", "no use_dali in the configuration") if tree.printed else None


def _execution(tree: _Tree) -> Said | None:
    said = tree.said("Global.to_static")
    if said is not None and said.value.lower() == "true":
        return Said("to_static", said.where)
    return Said("dynamic", "the form of its lines")
