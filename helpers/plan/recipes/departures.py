"""In what the suite's programs differ from the programs behind the published figures (departures.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.plan.recipes import Source, publishers
from helpers.plan.yaml_file import read_section, read_yaml
from helpers.trainers.contract.case import Case

_FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Departure:
    """A difference between the suite's program and the one behind the published figures."""

    about: str
    # What the publisher had, and what the suite has in its place.
    published: str
    here: str
    # The name of the document that says what the publisher had, and the words or the place in it.
    source: tuple[str, ...]
    # The facts of a case for which it is true.
    when: Mapping[str, str | bool] = field(default_factory=dict)

    @property
    def told_by(self) -> Source:
        return Source(vars(publishers)[self.source[0]], *self.source[1:])


def departures_of(case: Case) -> tuple[Departure, ...]:
    """In what the suite's program differs from the one behind the published figures of ``case``, which has some."""
    facts = {
        "publisher": case.model.spec.follows.value,
        "execution": case.execution and case.execution.value,
        "precision": case.precision.value,
        "data": case.data.value,
        "read_from": case.read_from.value,
        "auto": case.auto,
        "several_cards": case.cards > 1,
    }
    known = read_section(read_yaml(_FILE), dict[str, tuple[Departure, ...]], str(_FILE))
    own = known.get(case.framework.value, ())
    return tuple(each for each in own if all(facts[name] == wanted for name, wanted in each.when.items()))
