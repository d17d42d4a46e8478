"""The fixtures of the tests of whole suites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.plan.installed
import helpers.session.suite
from helpers.history.run_folders import ResultStore
from helpers.plan.baseline_files import BASELINES
from helpers.plan.published import PublishedSet, load_published
from tests.helpers.session.workshop import (
    Bench,
    Builds,
    FakeRunner,
    MakeRun,
)


@pytest.fixture(scope="module")
def published() -> Mapping[str, PublishedSet]:
    return {target: load_published(BASELINES / "published" / f"{target}.json") for target in ("a100", "v100")}


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    found = Builds()
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", lambda: found)
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: replace(found, named_in=named_in))
    return found


@pytest.fixture
def bench(tmp_path: Path, make_run: MakeRun, builds: Builds, published: Mapping[str, PublishedSet]) -> Bench:
    return Bench(tmp_path, FakeRunner(make_run, ResultStore(tmp_path / "runs", "s")), published)
