"""The builds of a session by the names that a user gave."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.session.builds
from helpers.builds.making import prepare
from helpers.judging.case.evidence import Build
from helpers.plan.case_plan import CasePlan, build_label
from helpers.plan.perf_yaml import Config
from helpers.session import SuiteOptions
from helpers.session.builds import NamedBuilds, named_builds, wants_builds, with_builds
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.builds.conftest import Shop, make_wheel, shop
from tests.helpers.session.workshop import GOOD_PYTHON, SYNTHETIC, Bench, Builds, case_of
from tests.helpers.session_double import named_build

__all__ = ["shop"]


@pytest.fixture
def shelf(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Two wheels: 3.1.0 in ``good`` and 3.2.2 in ``bad``."""
    chosen = functools.partial(prepare, companions=shop.folder / "companions.yaml")
    monkeypatch.setattr(helpers.session.builds, "prepare", chosen)
    monkeypatch.chdir(shop.folder)
    for folder, version in (("good", "3.1.0"), ("bad", "3.2.2")):
        make_wheel(shop.folder / folder, version)
    return shop


GOOD, BAD = "good/paddlepaddle-3.1.0-py3-none-any.whl", "bad/paddlepaddle-3.2.2-py3-none-any.whl"


def options(**values: object) -> SuiteOptions:
    folder = Path("nowhere")
    return replace(SuiteOptions(folder, folder, folder, "s"), **values)  # type: ignore[arg-type]


def named(shelf: Shop, config: Config | None = None, **values: object) -> NamedBuilds:
    return named_builds(options(**values), config or shelf.config, shelf.cache, shelf.said.append)


def pinned(shelf: Shop, text: str) -> Config:
    return replace(shelf.config, builds=replace(shelf.config.builds, reference=text, reason="a release"))


@pytest.mark.slow
def test_both_builds_are_made_ready_and_the_tested_ones_framework_runs_in_it(shelf: Shop) -> None:
    found = named(shelf, build=BAD, reference_build=GOOD)
    assert (found[Build.CANDIDATE.value]["version"], found[Build.REFERENCE.value]["version"]) == ("3.2.2", "3.1.0")
    assert (found[Build.CANDIDATE.value]["frameworks"], found[Build.REFERENCE.value]["pinned"]) == ("paddle", "")
    config = with_builds(shelf.config, found)
    assert config.frameworks[Framework.PADDLE].interpreter == found[Build.CANDIDATE.value]["interpreter"]
    assert config.frameworks[Framework.PYTORCH] == shelf.config.frameworks[Framework.PYTORCH]
    # The environment of a build, named as such, is the same build.
    folder = str(Path(found[Build.REFERENCE.value]["interpreter"]).parents[1])
    again = named(shelf, build=folder)[Build.CANDIDATE.value]
    assert (again["frameworks"], again["version"], again["made"]) == ("paddle", "3.1.0", "")


@pytest.mark.slow
def test_one_build_on_both_sides_is_refused_but_where_that_is_the_purpose(shelf: Shop) -> None:
    with pytest.raises(ConfigError, match=r"got 'one build, paddlepaddle 3\.2\.2"):
        named(shelf, build=BAD, reference_build=BAD)
    assert named(shelf, build=BAD, reference_build=BAD, same_build=True)
    assert named(shelf, pinned(shelf, BAD), build=BAD, pinned_reference=True)[Build.REFERENCE.value]["pinned"] == "yes"


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, False),
        ({"pinned_reference": True}, True),
        ({"pinned_reference": True, "reference_build": "none"}, False),
        ({"build": "x"}, True),
    ],
)
def test_the_pinned_build_is_the_good_one_where_none_is_named(
    shelf: Shop, values: dict[str, object], wanted: bool
) -> None:
    assert wants_builds(options(**values), pinned(shelf, GOOD)) is wanted
    assert not wants_builds(options(pinned_reference=True), shelf.config)


def test_a_mistake_is_told_before_anything_is_made(shelf: Shop) -> None:
    with pytest.raises(ConfigError, match="nothing there"):
        named(shelf, build=BAD, reference_build="nowhere")
    assert shelf.entries() == []


# ---- a suite with named builds


def test_a_result_holds_what_was_named_and_the_digests(bench: Bench, builds: Builds) -> None:
    builds.digests["/opt/new"] = "d1"
    tested = named_build("/opt/new", "paddlepaddle==3.0.0", "3.0.0")
    suite = bench.suite(
        builds={Build.CANDIDATE.value: tested, Build.REFERENCE.value: named_build(GOOD_PYTHON, "good", "3.0.0")}
    )
    suite.measurer.prepare([case_of(suite, SYNTHETIC)])
    plan = suite.measurer.plan(case_of(suite, SYNTHETIC))
    assert isinstance(plan, CasePlan)
    assert plan.build["interpreter"] == "/opt/new"
    assert (plan.build["digest"], plan.build["environment"]) == ("d1", "digest of paddlepaddle==3.0.0")
    assert build_label(plan.build) == "paddle 3.0.0 @abcdef (paddlepaddle==3.0.0)"
    assert plan.reference["source"] == "good"
    suite.measurer.measure(case_of(suite, SYNTHETIC))
    (kept,) = bench.runner.store.results(SYNTHETIC)[:1]
    assert kept.build["source"] == "paddlepaddle==3.0.0"


def test_the_good_build_of_another_framework_is_none(bench: Bench) -> None:
    named = named_build(GOOD_PYTHON, "torch==2.13.0", "2.13.0", frameworks="pytorch")
    suite = bench.suite(builds={Build.REFERENCE.value: named})
    suite.measurer.prepare([case_of(suite, SYNTHETIC)])
    found = suite.installed.reference(case_of(suite, SYNTHETIC))
    assert found == "the reference build torch==2.13.0 is of pytorch"


@pytest.mark.parametrize("is_pinned", [True, False])
def test_the_pinned_build_may_be_the_one_under_test(bench: Bench, builds: Builds, is_pinned: bool) -> None:
    """Whoever measures the release that is pinned need not take the pin out; who names it twice is told."""
    builds.digests["/opt/python"] = builds.digests[GOOD_PYTHON] = "d1"
    named = named_build(GOOD_PYTHON, "paddlepaddle==3.0.0", "3.0.0", pinned="yes" if is_pinned else "")
    suite = bench.suite(builds={Build.REFERENCE.value: named})
    if is_pinned:
        suite.measurer.prepare([case_of(suite, SYNTHETIC)])
        assert "the build under test itself" in str(suite.installed.reference(case_of(suite, SYNTHETIC)))
        return
    with pytest.raises(ConfigError, match=r"--reference-build paddlepaddle==3\.0\.0: got 'the build under test itself"):
        suite.measurer.prepare([case_of(suite, SYNTHETIC)])
