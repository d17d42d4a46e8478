"""The matrix of perf.yaml: blocks of dimensions, expanded to cases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.plan.yaml_file import YamlValue, close_to
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model

# "gpu" is any NVIDIA card; the others name a model.
TARGETS = ("cpu", "v100", "a100", "gpu")
# Features of a case that a block switches on.
_SWITCHES = ("compile", "graphs", "auto")
# The published tables have 110 figures; dimensions multiply, so that a few lines could ask for billions.
_MOST_CASES = 10_000


@dataclass(frozen=True)
class MatrixCase:
    """One case of the matrix."""

    case: Case
    target: str
    # The name of one of Config.protocols.
    protocol: str
    # Whether the case runs where no marker is given.
    short: bool = False


def read_matrix(field: YamlValue, short: YamlValue | None, protocols: Sequence[str]) -> tuple[MatrixCase, ...]:
    """Every case of ``matrix:`` in the file's order, with ``short:`` marked; ConfigError on one given twice."""
    places: dict[tuple[str, str], str] = {}
    found: list[tuple[Case, str, str]] = []
    for target, blocks in field.mapping(optional=TARGETS).items():
        for block in blocks.sequence():
            protocol, cases = _block(block, protocols)
            for case in cases:
                other = places.get((target, case.id))
                if other is not None:
                    raise block.refuse("every case once", f"It stands in {other} already", got=case.id)
                places[target, case.id] = block.place
                found.append((case, target, protocol))
            if len(found) > _MOST_CASES:
                raise block.refuse(f"a matrix of up to {_MOST_CASES} cases", got=f"{len(found)} cases up to here")
    chosen = _short(short, [case.id for case, _, _ in found])
    return tuple(MatrixCase(case, target, protocol, case.id in chosen) for case, target, protocol in found)


def _block(block: YamlValue, protocols: Sequence[str]) -> tuple[str, list[Case]]:
    """A block's protocol and the product of its dimensions, in the order of the id's fields."""
    keys = block.mapping(
        required=("framework", "model", "precision", "batch_size_per_card", "cards", "data", "protocol"),
        optional=("nodes", "execution", *_SWITCHES),
    )
    dimensions = (
        [item.member(Framework) for item in keys["framework"].one_or_many()],
        [item.member(Model) for item in keys["model"].one_or_many()],
        [item.member(Precision) for item in keys["precision"].one_or_many()],
        [item.whole(1, 1_000_000) for item in keys["batch_size_per_card"].one_or_many()],
        [item.whole(1, 1024) for item in keys["nodes"].one_or_many()] if "nodes" in keys else [1],
        [item.whole(1, 1024) for item in keys["cards"].one_or_many()],
        [item.member(DataSource) for item in keys["data"].one_or_many()],
        [item.member(Execution) for item in keys["execution"].one_or_many()] if "execution" in keys else [None],
    )
    switches: dict[str, Any] = {name: keys[name].truth() for name in _SWITCHES if name in keys}
    protocol = keys["protocol"].one_of(protocols)
    product = math.prod(len(values) for values in dimensions)
    if product > _MOST_CASES:
        raise block.refuse(f"up to {_MOST_CASES} cases", got=f"a product of {product} cases")
    try:
        return protocol, [replace(Case(*values), **switches) for values in itertools.product(*dimensions)]
    except ConfigError as error:
        raise ConfigError(
            block.about,
            field=f"{block.place}.{error.field}",
            got=error.got,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def _short(field: YamlValue | None, ids: list[str]) -> frozenset[str]:
    chosen: set[str] = set()
    known = set(ids)
    for entry in field.sequence() if field else []:
        case_id = entry.text()
        if case_id not in known:
            raise entry.refuse("a full case id of the matrix", close_to(case_id, ids))
        if case_id in chosen:
            raise entry.refuse("every id once")
        chosen.add(case_id)
    return frozenset(chosen)
