"""The comparison of frameworks that docs/frameworks.md shows, with runs that are answered instead of trained."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import helpers.session.suite
from helpers.commands import compare_frameworks
from helpers.commands.main import parsed
from helpers.machine.frameworks import FrameworkBuild
from helpers.session.gate import EXIT_OK
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.frameworks import Framework
from tests.docs.blocks import ROOT, Command, Mode, all_blocks
from tests.docs.shape import difference
from tests.helpers.commands.conftest import MACHINE
from tests.helpers.frameworks_double import TurnsRunner, TwoFrameworks

# Those of the page.
VERSIONS = {
    Framework.PADDLE: "3.3.1",
    Framework.PYTORCH: "2.13.0+cpu",
    Framework.TENSORFLOW: "2.21.0",
    Framework.MXNET: "1.9.1",
}


class AllFrameworks(TwoFrameworks):
    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        return FrameworkBuild(f"/envs/{framework.value}/bin/python", framework, framework.value, VERSIONS[framework])


def comparisons() -> list[Command]:
    commands = [command for block in all_blocks() if block.mode is Mode.STAND_IN for command in block.commands]
    return [command for command in commands if compare_frameworks.NAME in command.arguments]


@pytest.mark.slow
@pytest.mark.parametrize("command", comparisons(), ids=lambda command: " ".join(command.words))
def test_a_comparison_prints_what_the_page_shows(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", AllFrameworks)
    monkeypatch.setattr(helpers.session.suite, "discover", lambda **_: MACHINE)
    # The width of the page.
    monkeypatch.setenv("COLUMNS", "100")
    runner = TurnsRunner(tmp_path / "runs", drift=0.01)

    def load(options: SuiteOptions) -> Suite:
        runner.session = options.session
        return Suite.load(options, runner=runner, machine=MACHINE)

    places = [f"--config={ROOT / 'perf.yaml'}", f"--baselines={ROOT / 'baselines'}", f"--runs-dir={tmp_path / 'runs'}"]
    out = io.StringIO()
    assert compare_frameworks.run(parsed([*command.arguments, *places]), out, load=load) == EXIT_OK
    assert difference(command.output, out.getvalue()) == "", out.getvalue()
