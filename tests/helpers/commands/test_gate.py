"""``perfgate gate`` runs pytest in its own process: exit codes, signals, reports and the last line are pytest's."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from helpers.commands import gate
from helpers.commands.main import main, parser_of
from helpers.trainers.contract import ROOT
from tests.fixtures.conftest import scenario as scenario
from tests.helpers.builds.conftest import PARTS, make_wheel

RESNET = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"
VGG = "paddle-vgg16-fp32-bs4-1x1-dali-dynamic"

# The command as a user types it, with the scenario's folder in the place of the project's.
COMMAND = """
import sys
from pathlib import Path
from helpers.commands import gate, main
gate.ROOT = Path(sys.argv[1])
sys.exit(main.main(sys.argv[2:]))
"""


def started(folder: pytest.Pytester, *options: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", COMMAND, str(folder.path), "gate", *options]
    return subprocess.Popen(argv, cwd=folder.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and the last line."""
    output, _ = process.communicate(timeout=120)
    return process.returncode, output.rstrip().rpartition("\n")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "code", "line"),
    [
        ("PASS", 0, "GATE PASSED: 2 of 2"),
        ("REGRESSION", 1, "GATE FAILED: 1 REGRESSION of 2"),
        ("INVALID", 6, "GATE FAILED: 1 INVALID of 2"),
    ],
)
def test_the_exit_code_and_the_last_line_are_those_of_the_session(
    scenario: Callable[..., pytest.Pytester], status: str, code: int, line: str
) -> None:
    folder = scenario({"id": RESNET}, {"id": VGG, "status": status})
    assert ended(started(folder, "--output", "reports", "--session", "monday")) == (code, line)
    found = json.loads((folder.path / "reports" / "results.json").read_text())
    assert (found["gate"]["line"], found["exit_code"], found["session"]) == (line, code, "monday")
    assert line in (folder.path / "reports" / "results.md").read_text()
    assert line in (folder.path / "reports" / "junit.xml").read_text()
    assert line in (folder.path / "reports" / "night.html").read_text()


@pytest.mark.slow
def test_one_interrupt_ends_the_session_in_order_and_the_gate_did_not_pass(
    scenario: Callable[..., pytest.Pytester],
) -> None:
    folder = scenario({"id": RESNET}, {"id": VGG, "then": "wait"})
    process = started(folder)
    while not (folder.path / "waiting").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (2, "GATE FAILED: interrupted; 1 not reached of 2")
    assert json.loads((folder.path / "gate" / "results.json").read_text())["gate"]["state"] == "FAILED"


@pytest.mark.slow
def test_a_night_that_is_killed_leaves_no_verdict_of_an_earlier_one(scenario: Callable[..., pytest.Pytester]) -> None:
    folder = scenario({"id": VGG, "then": "wait"})
    (folder.path / "gate").mkdir()
    for name in ("results.json", "results.md", "night.html", "junit.xml"):
        (folder.path / "gate" / name).write_text("GATE PASSED: 12 of 12")
    process = started(folder)
    while not (folder.path / "waiting").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    assert list((folder.path / "gate").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["build", "reference-build"])
def test_a_build_whose_import_fails_is_refused_with_its_own_error_before_anything_is_trained(
    tmp_path: Path, broken: str
) -> None:
    """It was "not run", "Paddle is not installed", after 52 s of the trainers."""
    case = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
    gate_of = f"machines:\n  here:\n    host: '*'\n    gate: [{{cases: {case}, needs: recorded}}]"
    (tmp_path / "perf.yaml").write_text(gate_of)
    error = "libcudart.so.12: cannot open shared object file"
    texts = {"build": PARTS, "reference-build": PARTS, broken: f"raise ImportError({error!r})"}
    options = ["gate", "--config", "perf.yaml", "--history", "sqlite:///history.sqlite", "--runs-dir", "runs"]
    for name, version in (("build", "3.4.0"), ("reference-build", "3.3.1")):
        venv.create(tmp_path / name, symlinks=True, with_pip=False)
        (packages,) = (tmp_path / name).glob("lib/*/site-packages")
        with zipfile.ZipFile(make_wheel(tmp_path / "wheels", version, text=texts[name])) as wheel:
            wheel.extractall(packages)
        options += [f"--{name}", name]
    done = subprocess.run(
        [sys.executable, "-m", "helpers.commands", *options], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout.rstrip().rpartition("\n")[2]) == (4, "GATE FAILED: refused, exit code 4")
    assert f"Its import says: ImportError: {error}" in done.stdout + done.stderr
    version = {"build": "3.4.0", "reference-build": "3.3.1"}[broken]
    assert f"build paddle {version}" in done.stdout + done.stderr
    assert not (tmp_path / "runs").exists()


def test_every_option_goes_on_to_pytest(tmp_path: Path) -> None:
    options = [
        *("--build", "w.whl", "--reference-build", "torch==2.0", "--data", "d"),
        *("--runs-dir", "r", "--history", "sqlite:///h", "--session", "s", "--wait-for-quiet", "20"),
        *("--config", str(tmp_path / "perf.yaml"), "--baselines", str(tmp_path), "--output", str(tmp_path / "night")),
        *("--", "-n", "2"),
    ]
    begun: list[list[str]] = []
    (tmp_path / "perf.yaml").touch()
    with pytest.raises(AssertionError):
        gate.run(parser_of([gate]).parse_args(["gate", *options]), io.StringIO(), lambda _, argv: begun.append([*argv]))
    (argv,) = begun
    assert argv[:5] == [sys.executable, "-m", "pytest", str(ROOT / "perf_tests"), "--gate"]
    night = tmp_path / "night"
    assert argv[5:] == [
        *(f"--perf-config={tmp_path / 'perf.yaml'}", f"--baselines-dir={tmp_path}"),
        *("--build=w.whl", "--reference-build=torch==2.0", "--data=d"),
        *("--runs-dir=r", "--history=sqlite:///h", "--session=s", "--wait-for-quiet=20"),
        *(f"--results={night / name}" for name in ("results.json", "results.md", "night.html")),
        f"--junitxml={night / 'junit.xml'}",
        *("-n", "2"),
    ]


def test_a_place_that_takes_no_report_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["gate", "--output", str(tmp_path / "file")], io.StringIO()) == 4
    assert "--output: got " in capsys.readouterr().err


@pytest.mark.training
@pytest.mark.untimed
def test_a_gate_of_a_real_case(tmp_path: Path) -> None:
    """Nothing is recorded, so the case was trained, has its figure, and does not pass."""
    case = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"
    config = yaml.safe_load((ROOT / "helpers/plan/defaults.yaml").read_text())
    config["machines"] = {"here": {"host": "*", "gate": [{"target": "cpu", "cases": case, "needs": "recorded"}]}}
    config["contention"]["max_foreign_share"] = 0.99
    config["owners"] = [{"pattern": "*-resnet50*", "owner": "vision"}]
    config["protocols"]["cpu"] = {"warmup_steps": 1, "window_steps": 2, "runs": 1}
    (tmp_path / "perf.yaml").write_text(yaml.safe_dump(config))
    shutil.copytree(ROOT / "baselines" / "published", tmp_path / "baselines" / "published")
    argv = [sys.executable, "-m", "helpers.commands", "gate", "--config", str(tmp_path / "perf.yaml")]
    argv += ["--baselines", str(tmp_path / "baselines"), "--runs-dir", str(tmp_path / "runs")]
    argv += ["--output", str(tmp_path / "night")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GITHUB_"))}
    # With cards of its own to lease it waits for no other session.
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800)
    line = "GATE FAILED: 1 NO_BASELINE of 1"
    assert (done.returncode, done.stdout.rstrip().rpartition("\n")[2]) == (6, line), done.stdout + done.stderr
    found = json.loads((tmp_path / "night" / "results.json").read_text())
    assert found["gate"]["line"] == line
    (measured,) = found["cases"]
    assert measured["images_per_s"] > 0
    assert (measured["case_id"], measured["owner"], measured["effect"]) == (case, "vision", "fail")
