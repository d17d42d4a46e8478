"""The builds of a search in their order, from a file, from commits, and from an index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from helpers.builds import series
from helpers.builds.naming import BuildUnavailable, Why
from helpers.builds.series import BuildSeries, newest_of_index, series_of_lines, series_of_releases
from helpers.launch.launchers import CHOICES
from helpers.plan.perf_yaml import BuildsConfig, Config, load_config
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError
from tests.helpers.builds.conftest import Shop, make_wheel

RELEASES = ("2.6.2", "3.0.0", "3.1.0", "3.1.1", "3.2.0", "3.3.0", "3.3.1")
SHAS = ("a" * 40, "b" * 40, "c" * 40)


@pytest.fixture(scope="module")
def config() -> Config:
    found = load_config(ROOT / "helpers/plan/defaults.yaml", CHOICES)
    template = "https://wheels.example/{commit}/paddlepaddle-0.0.0-cp311-cp311-linux_x86_64.whl"
    return replace(found, builds=BuildsConfig(commit_url=template))


def newest(requirement: str) -> str:
    name, _, wanted = requirement.partition(">")
    assert name == "paddlepaddle"
    allowed = [each for each in RELEASES if Version(each) in SpecifierSet(f">{wanted}")]
    return allowed[-1] if allowed else ""


def of_lines(
    text: str, good: str, bad: str, config: Config, root: Path = ROOT, *, commits: bool = False
) -> BuildSeries:
    return series_of_lines(text, "builds.txt", good, bad, root, config, commits=commits)


def requirements(*versions: str) -> list[str]:
    return [f"paddlepaddle=={each}" for each in versions]


def test_the_releases_between_two_requirements_come_from_the_index_in_order(config: Config) -> None:
    found = series_of_releases("paddlepaddle==3.0.0", "paddlepaddle == 3.3.0", ROOT, config, newest)
    assert list(found.builds) == requirements("3.0.0", "3.1.0", "3.1.1", "3.2.0", "3.3.0")


def test_a_file_is_cut_to_the_range_between_good_and_bad(config: Config) -> None:
    text = "# nightly\n\n" + "\n".join(requirements(*RELEASES)) + "\n"
    found = of_lines(text, "paddlepaddle==3.0.0", "paddlepaddle==3.2", config)
    assert (list(found.builds), found.left_out) == (requirements("3.0.0", "3.1.0", "3.1.1", "3.2.0"), 3)


def test_relative_paths_of_a_file_mean_the_same_wherever_the_search_is_resumed(config: Config, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin/python").touch()
    found = of_lines("a\nb\n", str(tmp_path / "a"), "b/", config, tmp_path)
    assert found.builds == (str(tmp_path / "a"), str(tmp_path / "b"))


def test_what_git_rev_list_prints_gets_the_good_commit_in_front(config: Config) -> None:
    good, *later = SHAS
    found = of_lines("\n".join(later), f"commit:{good[:8]}", f"commit:{later[-1][:8]}", config, commits=True)
    assert found.builds == (f"commit:{good[:8]}", *(f"commit:{each}" for each in later))
    whole = of_lines("\n".join(SHAS), f"commit:{good[:8]}", f"commit:{later[-1]}", config, commits=True)
    assert whole.builds == tuple(f"commit:{each}" for each in SHAS)
    with pytest.raises(ConfigError, match=r"line 1.*expected a commit, as git rev-list prints it"):
        of_lines("fix the reader\n", f"commit:{good}", f"commit:{later[-1]}", config, commits=True)


@pytest.mark.parametrize(
    ("lines", "good", "bad", "message"),
    [
        (RELEASES, "3.3.0", "3.0.0", "3.0.0 before paddlepaddle==3.3.0.*Exchange them"),
        (RELEASES, "3.0.0", "3.0", "which is one build"),
        (("3.0.0", "3.1.0", "3.1", "3.2.0"), "3.0.0", "3.2.0", "in line 2 and in line 3.*every build once"),
        (RELEASES[1:], "2.6.2", "3.3.1", "--good paddlepaddle==2.6.2.*0 such builds"),
        (RELEASES[:-1], "2.6.2", "3.3.1", "--bad paddlepaddle==3.3.1.*0 such builds"),
        ((), "2.6.2", "3.3.1", "builds.txt.*among 0"),
    ],
)
def test_a_list_that_cannot_be_searched_is_refused(
    lines: tuple[str, ...], good: str, bad: str, message: str, config: Config
) -> None:
    text = "\n".join(requirements(*lines))
    with pytest.raises(ConfigError, match=message):
        of_lines(text, f"paddlepaddle=={good}", f"paddlepaddle=={bad}", config)


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("paddlepaddle==3.3.0", "paddlepaddle==3.0.0", "paddlepaddle==3.0.0 is the older release.*Exchange them"),
        ("paddlepaddle==3.0.0", "paddlepaddle==3.0.0", "which is one build"),
        ("paddlepaddle==3.0.0", "paddlepaddle>=3.1", "no list of the builds between them.*--builds FILE"),
        ("paddlepaddle==3.0.0", "paddlepaddle-gpu==3.1.0", "two releases of one distribution"),
    ],
)
def test_ends_without_releases_between_them_are_refused(good: str, bad: str, message: str, config: Config) -> None:
    with pytest.raises(ConfigError, match=message):
        series_of_releases(good, bad, ROOT, config, newest)


@pytest.mark.slow
def test_the_index_is_asked_for_the_releases_until_it_has_no_more(shop: Shop, config: Config) -> None:
    """uv itself answers, from a folder of wheels."""
    for version in ("3.0.0", "3.1.0", "3.1.1", "3.3.1"):
        make_wheel(shop.folder / "links", version)
    found = series_of_releases("paddlepaddle==3.0.0", "paddlepaddle==3.3.1", ROOT, config)
    assert list(found.builds) == requirements("3.0.0", "3.1.0", "3.1.1", "3.3.1")


@pytest.mark.slow
def test_an_index_without_the_package_is_no_index_without_releases(shop: Shop, config: Config) -> None:
    with pytest.raises(BuildUnavailable):
        series_of_releases("paddlepaddle==3.0.0", "paddlepaddle==3.3.1", ROOT, config)


def test_an_index_that_does_not_answer_is_no_index_without_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_given: object, **_named: object) -> tuple[str, ...]:
        raise BuildUnavailable("x", Why.NOT_FETCHED, "Failed to fetch, there are no versions of x")

    monkeypatch.setattr(series.Uv, "of", lambda **_: SimpleNamespace(resolve=resolve))
    with pytest.raises(BuildUnavailable):
        newest_of_index(BuildsConfig())("paddlepaddle>3,<4")
