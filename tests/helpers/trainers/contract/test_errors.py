"""Errors: one line that says what, where, what instead, and what to do."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.trainers.contract import errors
from helpers.trainers.contract.errors import ConfigError, SuiteError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SuiteError)]


def test_names_object_field_got_expected_and_remedy() -> None:
    error = ConfigError("perf.yaml", field="runs", got=0, expected="1 or more", remedy="Write how many runs")
    assert str(error) == "perf.yaml: field 'runs': got 0, expected 1 or more. Write how many runs"


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_a_suite_error_and_survives_pickling(kind: type[SuiteError]) -> None:
    error = kind("a file", field="b", got=[1], expected="c", remedy="d")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.field, copy.got) == (kind, str(error), "b", [1])


@given(st.text())
def test_what_was_got_never_reaches_the_terminal_raw(got: str) -> None:
    assert str(SuiteError("x", got=got)).isprintable()


def test_a_value_too_deep_to_print_is_told_by_its_type() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert "an unprintable list" in str(SuiteError("x", got=nested))
