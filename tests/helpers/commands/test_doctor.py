"""``perfgate doctor`` as a user calls it: exit status, formats, and the real machine."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.commands import doctor
from helpers.commands.main import main
from helpers.machine.devices import Machine
from helpers.machine.doctor.finding import Context
from tests.helpers.machine.doctor.context import context, with_card
from tests.helpers.machines import CPU_MACHINE, gpu_machine, v100s

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands where the examination stands: answers ``seen.context``."""
    stand_in = SimpleNamespace(context=context(), asked={})

    def examine(config: object, **values: object) -> Context:
        stand_in.asked = values
        return stand_in.context

    monkeypatch.setattr(doctor, "examine", examine)
    return stand_in


def call(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    return main(["doctor", *words], out), out.getvalue()


def test_a_fit_machine_is_status_0_and_a_blocked_one_1(seen: SimpleNamespace) -> None:
    assert call() == (0, call()[1])
    assert call()[1].endswith("FIT to measure: nothing found\n")
    seen.context = with_card(persistence=False)
    assert call()[0] == 0
    seen.context = with_card(processes=(7,))
    status, text = call()
    assert status == 1
    assert "NOT FIT to measure: 1 blocker" in text.splitlines()[-1]


def test_json_and_markdown_tell_the_same(seen: SimpleNamespace) -> None:
    seen.context = with_card(processes=(7,))
    status, text = call("--json")
    assert (status, json.loads(text)["findings"][0]["severity"]) == (1, "blocker")
    status, text = call("--format", "markdown")
    assert status == 1
    assert "| blocker | processes on a card |" in text


def test_the_options_name_what_is_looked_at(seen: SimpleNamespace, tmp_path: Path) -> None:
    call("--data", str(tmp_path / "images"), "--runs-dir", str(tmp_path / "runs"))
    assert (seen.asked["data_root"], seen.asked["runs_folder"]) == (tmp_path / "images", tmp_path / "runs")
    call()
    assert (seen.asked["data_root"], seen.asked["runs_folder"]) == (None, ROOT / "runs")


@pytest.mark.parametrize(
    ("machine", "batch"), [(CPU_MACHINE, 0), (gpu_machine(v100s()), 2048), (gpu_machine(v100s()[:1]), 256)]
)
def test_the_largest_batch_is_that_of_the_cases_the_cards_can_run(
    seen: SimpleNamespace, machine: Machine, batch: int
) -> None:
    call()
    assert seen.asked["largest_batch_on"](machine) == batch


def test_what_a_night_writes_grows_with_the_cards(seen: SimpleNamespace) -> None:
    call()
    of = seen.asked["runs_bytes_on"]
    assert 0 < of(CPU_MACHINE) < of(gpu_machine(v100s()[:1])) < of(gpu_machine(v100s())) < 2**30


def test_a_database_that_nobody_serves_is_told(seen: SimpleNamespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        call("--history", f"postgresql://ann@127.0.0.1:{port}/perf")
        assert seen.asked["history_problem"]() == ""
    told = seen.asked["history_problem"]()
    assert "does not answer" in told
    call()
    assert seen.asked["history_problem"]() == ""


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--config", str(tmp_path / "none.yaml")) == (4, "")
    assert "perfgate doctor: error:" in capsys.readouterr().err


@pytest.mark.slow
def test_this_machine_is_told_without_importing_a_framework() -> None:
    program = "import sys\nfrom helpers.commands.main import main\nstatus = main(['doctor', '--json'])\n" \
              "assert not {'paddle', 'torch', 'nvidia.dali'} & set(sys.modules)\nsys.exit(status)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    record = json.loads(done.stdout)
    assert done.returncode == (0 if record["fit"] else 1)
    assert {"system", "GPU", "CPU", "memory", "interconnect and storage"} <= set(record["system"])
    assert all(each["why"] and each["remedy"] for each in record["findings"])
