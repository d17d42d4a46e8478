"""Colours: the same rules as pytest's, and a status in the colour of what it does to a case's test."""

from __future__ import annotations

import io
import itertools

import pytest
from _pytest._io.terminalwriter import should_do_markup

from helpers.report.colours import GREEN, PLAIN, RED, YELLOW, wanted, with_colours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("out", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_colours_are_where_pytest_has_them(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "PY_COLORS": (None, "0", "1"),
        "NO_COLOR": (None, "", "1"),
        "FORCE_COLOR": (None, "1"),
        "TERM": ("dumb", "x"),
    }
    for given in itertools.product(*values.values()):
        environment = {name: value for name, value in zip(values, given, strict=True) if value is not None}
        for name in values:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert wanted(out, environment) == should_do_markup(out), environment


def test_a_status_has_the_colour_of_its_effect_and_nothing_else_has_one() -> None:
    text = "PASS (excluded)  REGRESSION  INCONCLUSIVE  PASSED  NO-PASS  case-PASS"
    good, bad, open_ = f"{GREEN}PASS{PLAIN}", f"{RED}REGRESSION{PLAIN}", f"{YELLOW}INCONCLUSIVE{PLAIN}"
    assert with_colours(text) == f"{good} (excluded)  {bad}  {open_}  PASSED  NO-PASS  case-PASS"
