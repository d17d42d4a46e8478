"""The shapes of the statuses."""

from __future__ import annotations

import xml.etree.ElementTree

from helpers.judging.case.verdict import Status
from helpers.report.html.marks import GOOD, definitions, mark, name_of


def test_every_status_has_a_shape_of_its_own_or_another_inside_and_an_unknown_one_has_one_too() -> None:
    named = {each.get("id") for each in xml.etree.ElementTree.fromstring(str(definitions()))}
    assert {name_of(each.value) for each in Status} <= named and "s-unknown" in named
    assert 'href="#s-unknown"' in str(mark("A STATUS OF TOMORROW", 1, 2))


def test_the_good_build_has_a_shape_that_no_status_has() -> None:
    shapes = {each.get("id"): each.get("d") for each in xml.etree.ElementTree.fromstring(str(definitions()))}
    good = shapes.pop(name_of(GOOD))
    assert good not in {shape for name, shape in shapes.items() if name and not name.startswith("t")}
