"""Loads the suite's pytest layer for every folder below, and pytest's own for testing plugins."""

import pytest

from fixtures.missing import SUITE, refuse_without

pytest_plugins = ["fixtures.plugin", "pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Pytest calls this before it imports the plugins named above, which need the packages."""
    refuse_without(SUITE, "the suite", "make env, then .venv/bin/python -m pytest perf_tests")
