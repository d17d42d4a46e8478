"""PaddleClas' logs: the formats of its versions, and how a run's configuration is read from them.

Source: PaddlePaddle/PaddleClas. Images/s are of one card. The steps over which a record is a mean (``batch_time.avg``,
which is reset at the step named):

- static, tools/static/program.py and ppcls/static/program.py: since step 5 of the epoch; this has never changed.
- dynamic 2.0 and 2.1, tools/program.py: since step 10. These lines have commas behind the epoch and the step.
- dynamic 2.2 to 2.5, ppcls/engine/train/: since step 5. Since April 2024 the develop branch resets the mean at every
  printed line (be33107). Its lines look the same; the differences of the records show it (figures/series.py).

``ppcls/utils/config.py`` prints the configuration as a tree with four spaces for each level; it contains the overrides
of ``-o``. The batch sizes in it:

- ``DataLoader.Train.sampler.batch_size`` (2.2 and later) is of one card.
- ``TRAIN.batch_size`` (before, ``ppcls/data/reader.py``: ``batch_size // trainers_num``) is of all cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from helpers.logs.formats.common import (
    BARE_NUMBER,
    BETWEEN,
    COUNT,
    SPACES,
    Facts,
    compiled,
    count,
    group,
    launch_of,
    paddle_version,
    quoted,
)
from helpers.logs.formats.naming import architecture
from helpers.logs.record import FormatSpec, RateOf, Settings
from helpers.logs.settings import LogSetting, Stated

_TREE = re.compile(r"\d\d:\d\d:\d\d\]? (?:\w+ )?INFO: ( *)([\w.-]+) :(?: (.*))?$")
_INDENT = 4
_AMPERE = re.compile(r"GPU Compute Capability: (?:[89]|\d\d)\.\d")
_EMPTY = ("", "None", "null")


@dataclass(frozen=True)
class _Tree:
    """The printed configuration by path (``Arch.name``); options of the command line replace its values."""

    values: Mapping[str, Stated]
    printed: bool

    def first(self, *paths: str) -> Stated | None:
        return next((self.values[path] for path in paths if path in self.values), None)

    def switched(self, *paths: str) -> bool | None:
        """Whether the first of ``paths`` that is there is on; None if the configuration has none of them."""
        found = self.first(*paths)
        return None if found is None else found.value.lower() == "true"

    def where(self, section: str) -> str:
        """The place of a section's first value; empty if there is no such section."""
        found = (each for path, each in self.values.items() if path == section or path.startswith(f"{section}."))
        return next((each.where for each in found), "")


def of_paddleclas(facts: Facts) -> Settings:
    """The configuration of a static graph's run."""
    return _configured(facts, Stated("static", "the form of its lines"))


def of_paddleclas_dynamic(facts: Facts) -> Settings:
    """The configuration of a run with a dynamic graph, or to_static if the log states that the graph was converted."""
    return _configured(facts, None)


def _configured(facts: Facts, execution: Stated | None) -> Settings:
    tree = _tree_of(facts)
    return {
        LogSetting.FRAMEWORK: Stated("paddle", "lines of PaddleClas"),
        LogSetting.MODEL: _model(tree),
        LogSetting.PRECISION: _precision(facts, tree),
        **launch_of(facts),
        LogSetting.DATA: _data(tree),
        LogSetting.EXECUTION: execution or _execution(tree),
        LogSetting.FRAMEWORK_VERSION: paddle_version(facts),
        LogSetting.BATCH_SIZE_PER_CARD: count(tree.first("DataLoader.Train.sampler.batch_size")),
        LogSetting.GLOBAL_BATCH_SIZE: count(tree.first("TRAIN.batch_size")),
    }


def _tree_of(facts: Facts) -> _Tree:
    values: dict[str, Stated] = {}
    path: list[str] = []
    printed = False
    for line in facts.lines:
        match = _TREE.search(line.text)
        if match is None:
            continue
        level = len(match[1]) // _INDENT
        path[level:] = [match[2]]
        printed = printed or match[2] in ("Arch", "ARCHITECTURE")
        value = (match[3] or "").strip()
        where = f"line {line.number}: {quoted(line.text[match.start(2) :])}"
        values.setdefault(".".join(path), Stated(value, where))
    return _Tree({**values, **facts.paddleclas_options()}, printed)


def _model(tree: _Tree) -> Stated | None:
    stated = tree.first("Arch.name", "ARCHITECTURE.name")
    return Stated(architecture(stated.value), stated.where) if stated else None


def _precision(facts: Facts, tree: _Tree) -> Stated | None:
    stated, capability = _printed_precision(tree), facts.line(_AMPERE)
    if stated is None or stated.value != "fp32" or capability is None:
        return stated
    # Paddle leaves TF32 on if the card has it (docs/published.md, "Traps in the published tables").
    return Stated("tf32", f"{stated.where}; TF32 is the default of this card ({capability.where})")


def _printed_precision(tree: _Tree) -> Stated | None:
    for path in ("AMP.use_pure_fp16", "use_pure_fp16"):
        if tree.switched(path):
            return Stated("amp_o2", tree.where(path))
    if tree.switched("use_amp"):
        return Stated("amp", tree.where("use_amp"))
    if section := tree.where("AMP"):
        level = tree.first("AMP.level")
        if tree.switched("AMP.use_amp") is False:
            return Stated("fp32", tree.where("AMP.use_amp"))
        if level is not None and level.value.upper() in ("O1", "O2"):
            return Stated(f"amp_{level.value.lower()}", level.where)
        return Stated("amp", section)
    return Stated("fp32", "no AMP in the configuration") if tree.printed else None


def _data(tree: _Tree) -> Stated | None:
    stated = tree.first("Global.use_dali", "use_dali")
    if stated is not None and stated.value not in _EMPTY:
        return Stated("dali" if stated.value.lower() == "true" else "native", stated.where)
    return Stated("native", "no use_dali in the configuration") if tree.printed else None


def _execution(tree: _Tree) -> Stated:
    stated = tree.first("Global.to_static")
    if stated is not None and stated.value.lower() == "true":
        return Stated("to_static", stated.where)
    return Stated("dynamic", "the form of its lines")


# ---- the formats


def _stamp(behind: str) -> str:
    """The pattern of the time stamp, if the line has one; ``behind`` is the text from the stamp to where this pattern
    is inserted.

    It looks back from behind the literal that begins a record, so that the search for that literal stays fast:
    ``[2022/12/02 18:10:52] ppcls INFO: epoch:``.
    """
    return f"(?:(?<={_DAY_AND_TIME}{behind}))?"


_DAY_AND_TIME = group("time", r"\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d")
_STAMP_OF_STATIC = _stamp(r"\] ppcls INFO: epoch:")
_STAMP_OF_DYNAMIC = _stamp(r"\] ppcls INFO: \[Train\]\[Epoch ")
_STAMP_OF_2020 = _stamp(" INFO: epoch:")
_EPOCH, _STEP = group("epoch", COUNT), group("step", COUNT)
_STEP_SECONDS, _READER_SECONDS = group("step_seconds", BARE_NUMBER), group("reader_seconds", BARE_NUMBER)
_RATE = f"ips:{SPACES}{group('images_per_s', BARE_NUMBER)} (?:images|samples)/s"
_COSTS = f"batch_cost:{SPACES}{_STEP_SECONDS} s,{SPACES}reader_cost:{SPACES}{_READER_SECONDS} s,{SPACES}{_RATE}"

_RULES = ("paddleclas-trimmed", "paddleclas-mean")
# Lines that only one process of a job prints, before the rest of its configuration.
_STARTS = (
    compiled("-----------  Configuration(?: Arguments)? +----------"),
    compiled("==        PaddleClas is powered by PaddlePaddle !        =="),
)
_PRINTED = MappingProxyType({"epoch": compiled(f"END epoch:{_EPOCH}{SPACES},?{SPACES}train {BETWEEN}{_RATE}")})

_format = partial(FormatSpec, rate_of=RateOf.CARD, rules=_RULES, starts=_STARTS)

STATIC = _format(
    name="paddleclas",
    marker=b" train step:",
    record=compiled(f"epoch:{_STAMP_OF_STATIC}{_EPOCH}{SPACES}train step:{_STEP} {BETWEEN}{_COSTS}"),
    configure=of_paddleclas,
    printed=_PRINTED,
    running_mean=5,
)

DYNAMIC = _format(
    name="paddleclas-dynamic",
    marker=b", eta: ",
    record=compiled(
        rf"\[Train\]\[Epoch {_STAMP_OF_DYNAMIC}{_EPOCH}/{COUNT}\]\[Iter: {_STEP}/{COUNT}\]{BETWEEN}batch_cost:{SPACES}"
        rf"{_STEP_SECONDS}{SPACES}s,{SPACES}reader_cost:{SPACES}{_READER_SECONDS}{SPACES}s?,{SPACES}{_RATE}"
    ),
    configure=of_paddleclas_dynamic,
    running_mean=5,
    may_reset=True,
)

DYNAMIC_2021 = _format(
    name="paddleclas-dynamic-2021",
    marker=b", train step:",
    record=compiled(f"epoch:{_STAMP_OF_2020}{_EPOCH}{SPACES}, train step:{_STEP}{SPACES},{BETWEEN}{_COSTS}"),
    configure=of_paddleclas_dynamic,
    printed=_PRINTED,
    running_mean=10,
)
