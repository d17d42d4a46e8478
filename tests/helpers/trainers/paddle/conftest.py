"""Environments of several lines of Paddle, made as a user makes them (``perfgate builds make``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from helpers.builds.cache import cache_of
from helpers.builds.making import prepare
from helpers.builds.naming import parse_build
from helpers.plan.perf_yaml import load_config
from helpers.trainers.contract import ROOT

# Their environments share the files of uv's cache.
MOST_GIGABYTES = 60


@pytest.fixture(scope="session")
def interpreter_of() -> Iterator[Callable[[str], str]]:
    """The interpreter of a build by its name, such as ``paddlepaddle==3.0.0``; a GPU's wheel as on a machine without
    one. Environments stay in .cache/builds."""
    config = load_config(ROOT / "helpers/plan/defaults.yaml")
    with cache_of(ROOT, MOST_GIGABYTES) as cache:

        def make(build: str) -> str:
            return str(prepare(parse_build(build, ROOT, config), cache=cache, has_gpu=False).interpreter)

        yield make
