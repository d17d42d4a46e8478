"""Fixtures of the tests of ``--replay``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from helpers.plan.baseline_files import BASELINES
from helpers.plan.published import PublishedSet, load_published
from tests.helpers.logs.replay.bench import Bench, MakeRun, Recorded


@pytest.fixture(scope="module")
def published() -> Mapping[str, PublishedSet]:
    return {target: load_published(BASELINES / "published" / f"{target}.json") for target in ("a100", "v100")}


@pytest.fixture
def bench(tmp_path: Path, published: Mapping[str, PublishedSet]) -> Bench:
    return Bench(tmp_path, published)


@pytest.fixture
def recorded(bench: Bench, make_run: MakeRun) -> Recorded:
    return Recorded(bench, make_run)
