"""A pytest plugin (``-p benchmarks.same_build``) for A/A nights: the build under test may be its own good build."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.session.suite import Suite, SuiteOptions


@pytest.hookimpl(tryfirst=True)
def pytest_perf_suite(options: SuiteOptions) -> Suite:
    return Suite.load(replace(options, same_build=True))
