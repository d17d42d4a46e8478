"""The nightly job's own steps, as far as they run without GitHub: what they leave, and that the commands exist."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml

from helpers.commands.main import commands, parser_of

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"


def steps_of(name: str) -> list[dict[str, Any]]:
    (job,) = yaml.safe_load((WORKFLOWS / name).read_text())["jobs"].values()
    return [dict(step) for step in job["steps"]]


def run_step(step: dict[str, Any], folder: Path) -> None:
    """As GitHub runs a step without ``shell``."""
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, check=True)


def test_a_night_that_fails_early_shows_nothing_of_the_last_one(tmp_path: Path) -> None:
    steps = steps_of("nightly.yml")
    (start,) = [place for place, step in enumerate(steps) if step.get("id") == "start"]
    # Whatever may fail comes after it, and what runs in spite of a failure runs only where it did.
    assert all("run" not in step for step in steps[:start])
    late = [step for step in steps if "always()" in str(step.get("if", ""))]
    assert [step["if"] for step in late] == ["always() && steps.start.outcome == 'success'"] * 2
    gather, upload = late
    for left in ("gate/results.json", "night/monday/result.json", "runs/monday/result.json"):
        (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / left).write_text("GATE PASSED: 12 of 12")
    os.utime(tmp_path / "runs" / "monday", (1.0, 1.0))
    run_step(steps[start], tmp_path)
    run_step(gather, tmp_path)
    assert upload["with"]["path"].split() == ["gate/", "night/"]
    assert sorted(each.name for each in (tmp_path / "night").iterdir()) == ["started"]
    assert not (tmp_path / "gate").exists()
    # What this night made is there.
    (tmp_path / "runs" / "tuesday").mkdir()
    (tmp_path / "runs" / "history.sqlite").write_text("rows")
    for new in ("tuesday", "history.sqlite"):
        os.utime(tmp_path / "runs" / new, (4e9, 4e9))
    run_step(gather, tmp_path)
    assert sorted(each.name for each in (tmp_path / "night").iterdir()) == ["history.sqlite", "started", "tuesday"]


def test_the_image_is_built_as_the_page_says_and_the_case_runs_in_it() -> None:
    jobs = yaml.safe_load((WORKFLOWS / "container.yml").read_text())["jobs"]
    lines = [line for step in jobs["image"]["steps"] for line in step.get("run", "").splitlines()]
    (build,) = [shlex.split(line.rstrip("\\")) for line in lines if line.startswith("docker build")]
    recipe = ROOT / build[build.index("--file") + 1]
    assert f"AS {build[build.index('--target') + 1]}\n" in recipe.read_text()
    assert jobs["case"]["needs"] == "image"
    # By the digest that was pushed, and not by a tag that may have moved.
    assert jobs["case"]["container"]["image"] == "${{ needs.image.outputs.name }}"
    assert ".RepoDigests" in lines[-1]
    # A token is handed over as a variable: in a command line everybody could read it.
    assert not [line for line in lines if "github.token" in line]


def test_the_commands_and_options_exist() -> None:
    lines = [
        line for step in steps_of("nightly.yml") for line in step.get("run", "").splitlines() if "/perfgate " in line
    ]
    assert lines
    for line in lines:
        words = shlex.split(line.partition("|")[0])[1:]
        assert parser_of(commands()).parse_args(words).command == words[0]


def test_the_action_gates_a_wheel_of_the_workspace_in_its_own_folder(tmp_path: Path) -> None:
    workspace, folder = tmp_path / "workspace", tmp_path / "state"
    program = folder / ".venv-gate/bin/perfgate"
    for each in (workspace / "dist", program.parent):
        each.mkdir(parents=True)
    (workspace / "dist/paddle.whl").touch()
    program.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (step,) = [each for each in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"] if "id" in each]
    given = {"FOLDER": f"{folder}", "BUILD": "dist/paddle.whl", "REFERENCE": "paddlepaddle==3.3.1"}
    given |= {"OPTIONS": "--history 'a b' -- -n 2", "GITHUB_OUTPUT": f"{tmp_path}/output"}
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=workspace, env={**os.environ, **given}, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        f"{folder}", "gate", "--build", f"{workspace}/dist/paddle.whl", "--reference-build", "paddlepaddle==3.3.1",
        "--history", "a b", "--", "-n", "2",
    ]  # fmt: skip
    assert (tmp_path / "output").read_text() == f"page={folder}/gate/night.html\n"
