"""``perfgate builds`` on real environments of small wheels."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import helpers.commands.builds
import helpers.history.taking_in
import helpers.session.programs
from helpers.builds.cache import cache_of
from helpers.builds.making import prepare
from helpers.commands.main import EXIT_USAGE, main
from helpers.history import open_history
from helpers.launch.programs import BuildReport, BuildState
from helpers.plan.case_plan import SuiteCase
from helpers.plan.perf_yaml import load_config
from helpers.session.programs import OnReport
from helpers.trainers.contract.errors import HistoryError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.program import PROGRAM_FACT
from tests.helpers.builds.conftest import Shop, make_wheel, sha256, shop

__all__ = ["shop"]

pytestmark = pytest.mark.usefixtures("machine")
ROOT = Path(__file__).parents[3]
WHEEL = "paddlepaddle-3.2.2-py3-none-any.whl"


def all_built(cases: Sequence[SuiteCase], interpreter: str, on_report: OnReport) -> tuple[BuildReport, ...]:
    """In the place of build_programs: the small wheel holds no Paddle that could build one."""
    return tuple(BuildReport(BuildState.BUILT, facts={PROGRAM_FACT: "old"}) for _ in cases)


@pytest.fixture
def here(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Path:
    chosen = functools.partial(prepare, companions=shop.folder / "companions.yaml")
    monkeypatch.setattr(helpers.commands.builds, "prepare", chosen)
    monkeypatch.setattr(helpers.session.programs, "build_programs", all_built)
    monkeypatch.chdir(shop.folder)
    (shop.folder / "perf.yaml").write_text((ROOT / "helpers/plan/defaults.yaml").read_text())
    make_wheel(shop.folder)
    return shop.folder


def call(folder: Path, *words: str) -> tuple[int, str]:
    out = io.StringIO()
    status = main([*words, "--config", str(folder / "perf.yaml")], out)
    return status, out.getvalue()


@pytest.mark.slow
def test_a_build_is_made_listed_checked_and_removed(here: Path) -> None:
    status, text = call(here, "builds", "make", WHEEL)
    assert status == 0
    assert text.startswith("paddlepaddle 3.2.2 @abcdef0123 in .cache/builds/")
    assert "MB of its own" in text
    digest = text.split("/")[2]
    status, text = call(here, "builds")
    assert digest in text.splitlines()[1]
    assert text.splitlines()[-1].startswith("pinned as the reference build: none")
    (record,) = json.loads(call(here, "builds", "--json")[1])["builds"]
    assert (record["digest"], record["source"], record["in_use"]) == (digest, WHEEL, False)
    # The machine's double has its builds everywhere, so all cases of a CPU would run.
    status, text = call(here, "builds", "check", digest[:8])
    assert status == 0
    assert "imports      paddle 3.2.2 (paddlepaddle 3.2.2)" in text
    assert "CUDA         none: for a CPU" in text
    assert "DALI         ModuleNotFoundError" in text
    matrix = load_config(here / "perf.yaml").matrix
    of_paddle = [each for each in matrix if each.case.framework is Framework.PADDLE and each.target == "cpu"]
    on_one_node = sum(each.case.nodes == 1 for each in of_paddle)
    assert f"trains here  {on_one_node} cases of cpu" in text
    # No case of a GPU runs here, so they are the published rows' programs.
    assert "programs     8 built (old)" in text
    build = json.loads(call(here, "builds", "check", digest[:8], "--json")[1])["build"]
    assert (build["commit"], build["digest"]) == ("abcdef0123", digest)
    assert call(here, "builds", "remove", digest[:6])[1] == f"removed {digest}: paddlepaddle 3.2.2 @abcdef0123\n"
    assert call(here, "builds")[1].startswith("0 in .cache/builds")


@pytest.mark.slow
def test_a_build_that_does_not_build_a_program_is_broken(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (here / "perf.yaml").read_text()
    owners = 'owners: [{pattern: "*-amp_o2-*", owner: "amp team"}]'
    (here / "perf.yaml").write_text(
        text.replace("owners: []", owners) if "owners: []" in text else f"{text}\n{owners}\n"
    )

    def build(cases: Sequence[SuiteCase], interpreter: str, on_report: OnReport) -> tuple[BuildReport, ...]:
        broken = BuildReport(BuildState.FAILED, "exit status 1: TypeError: any(): argument must be Value")
        whole = BuildReport(BuildState.BUILT, facts={PROGRAM_FACT: "old"})
        return tuple(broken if each.case.precision.value == "amp_o2" else whole for each in cases)

    monkeypatch.setattr(helpers.session.programs, "build_programs", build)
    status, text = call(here, "builds", "check", WHEEL)
    assert status == EXIT_USAGE
    assert "programs     2 failed, 6 built (old)" in text
    told = capsys.readouterr().err
    assert f"build {WHEEL} does not build a program: got " in told
    assert (
        "amp_o2-bs256-1x1-dali-static and 1 more with its program (owner: amp team): exit status 1: TypeError" in told
    )


def test_what_cannot_be_done_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (["builds", "remove", "abcd"], "a build that is kept, by its digest: none"),
        (["builds", "check", "nowhere"], "a virtual environment's folder"),
        (["builds", "make", f"{WHEEL}#sha256={'0' * 64}"], "has the wrong digest"),
        (["builds", "pin", WHEEL], "why it is good"),
        (["builds", "pin", "none", "--reason", "r"], "set builds.reference and builds.reason to null"),
    ):
        assert call(here, *words)[0] == EXIT_USAGE
        assert told in capsys.readouterr().err
    for words, told in (
        (["builds", "make"], "required: BUILD"),
        (["builds", "list", "x"], "unrecognized arguments: x"),
        (["builds", "frobnicate"], "choose from 'list', 'make', 'check', 'remove', 'pin'"),
    ):
        with pytest.raises(SystemExit) as caught:
            call(here, *words)
        assert caught.value.code == EXIT_USAGE
        assert told in capsys.readouterr().err.replace("\n", " ")


def test_options_may_stand_before_the_build(here: Path) -> None:
    digest = json.loads(call(here, "builds", "make", "--json", WHEEL)[1])["build"]["digest"]
    other = here / "other"
    other.mkdir()
    config = ["--config", str(here / "perf.yaml")]
    # What stands last counts: the folder of perf.yaml is the one of its builds.
    for words in ([*config, "list", "--json"], ["--config", str(other / "perf.yaml"), "list", "--json", *config]):
        out = io.StringIO()
        assert main(["builds", *words], out) == 0
        assert [each["digest"] for each in json.loads(out.getvalue())["builds"]] == [digest]


@pytest.mark.slow
def test_a_pin_is_in_perf_yaml_and_who_did_it_in_the_history(here: Path) -> None:
    before = (here / "perf.yaml").read_text()
    runs = ["--runs-dir", str(here / "runs")]
    assert call(here, "builds", "pin", *runs) == (0, "0 pinned\n")
    status, text = call(here, "builds", "pin", WHEEL, "--reason", "the release: 3.2.2", "--who", "ana", *runs)
    assert status == 0
    lasting = f"{here / WHEEL}#sha256={sha256(here / WHEEL)}"
    assert text == f"pinned by ana: {lasting} (paddlepaddle 3.2.2 abcdef0123): the release: 3.2.2\n"
    found = load_config(here / "perf.yaml").builds
    assert (found.reference, found.reason) == (lasting, "the release: 3.2.2")
    kept = [line for line in (here / "perf.yaml").read_text().splitlines() if line.strip().startswith("#")]
    assert kept == [line for line in before.splitlines() if line.strip().startswith("#")]
    make_wheel(here / "links", "3.1.0")
    assert call(here, "builds", "pin", "paddlepaddle<3.2", "--reason", "back", "--who", "bo", *runs)[0] == 0
    with open_history(f"sqlite:///{here}/runs/history.sqlite") as history:
        first, second = history.pins()
    assert (first.who, first.before, first.version, first.commit) == ("ana", "", "3.2.2", "abcdef0123")
    assert (second.build, second.before, second.reason) == ("paddlepaddle==3.1.0", lasting, "back")
    assert [path.name.split("-")[1] for path in (here / "runs" / "decisions").iterdir()] == ["pin", "pin"]
    lines = call(here, "builds", "pin", *runs)[1].splitlines()
    assert "ana: " in lines[0] and lines[-1] == "2 pinned"
    assert "pinned as the reference build: paddlepaddle==3.1.0 (back)" in call(here, "builds")[1]


@pytest.mark.slow
def test_a_build_that_cannot_be_had_is_not_pinned(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (here / "perf.yaml").read_text()
    broken = make_wheel(here / "broken", text="raise ImportError('no libgomp')")
    runs = ["--runs-dir", str(here / "runs")]
    assert call(here, "builds", "pin", str(broken), "--reason", "x", *runs)[0] == EXIT_USAGE
    assert "cannot be imported" in capsys.readouterr().err
    # Nor one of which nobody could look up who pinned it.
    assert (
        call(here, "builds", "pin", WHEEL, "--reason", "x", "--history", "postgresql://127.0.0.1:9/x")[0] == EXIT_USAGE
    )
    assert (here / "perf.yaml").read_text() == before
    assert cache_of(here, 1).kept()[0].note["source"] == WHEEL


@pytest.mark.slow
def test_a_pin_stays_where_its_remark_is_on_file_and_goes_where_it_is_not(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (here / "perf.yaml").read_text()
    runs = ["--runs-dir", str(here / "runs")]
    pin = ["builds", "pin", WHEEL, "--reason", "the release", *runs]
    (here / "runs").mkdir()
    (here / "runs" / "decisions").touch()
    assert call(here, *pin)[0] == EXIT_USAGE
    assert "nothing was decided" in capsys.readouterr().err
    assert (here / "perf.yaml").read_text() == before
    (here / "runs" / "decisions").unlink()

    def full(*_: object) -> None:
        raise HistoryError("history", got="disk full", expected="room")

    with monkeypatch.context() as patched:
        patched.setattr(helpers.history.taking_in, "take_in", full)
        assert call(here, *pin)[0] == EXIT_USAGE
    assert "It is decided, in " in capsys.readouterr().err
    assert load_config(here / "perf.yaml").builds.reason == "the release"
    assert call(here, "builds", "pin", *runs)[1] == "0 pinned\n"
    assert call(here, "reindex", *runs)[0] == 0
    assert call(here, "builds", "pin", *runs)[1].splitlines()[-1] == "1 pinned"
