"""``perfgate doctor`` as a user calls it: exit status, formats, and the real machine."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.commands import doctor
from helpers.commands.doctor import WIDTH, doctor_record, doctor_text, report_text
from helpers.commands.main import main
from helpers.machine.doctor import Diagnosis, diagnose
from helpers.machine.doctor.issue import Context, Issue, Severity
from helpers.machine.tables import tables_of
from tests.helpers.machine.doctor.context import context, facts, with_card
from tests.helpers.machines import CPU_MACHINE, gpu_machine, v100s

ROOT = Path(__file__).resolve().parents[3]
MATRIX = """\
          GPU0  GPU1  mlx5_0  CPU Affinity
  GPU0    X     NV2   NODE    0-23
  GPU1    NV2   X     NODE    0-23
"""


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


def test_the_options_name_what_is_looked_at(seen: SimpleNamespace, tmp_path: Path) -> None:
    call("--data", str(tmp_path / "images"), "--runs-dir", str(tmp_path / "runs"))
    assert (seen.asked["data_root"], seen.asked["runs_folder"]) == (tmp_path / "images", tmp_path / "runs")
    call()
    assert (seen.asked["data_root"], seen.asked["runs_folder"]) == (None, ROOT / "runs")


def test_what_a_night_writes_grows_with_the_cards(seen: SimpleNamespace) -> None:
    call()
    of = seen.asked["runs_bytes_on"]
    assert 0 < of(CPU_MACHINE) < of(gpu_machine(v100s()[:1])) < of(gpu_machine(v100s())) < 2**30


def test_a_database_that_nobody_serves_is_told(seen: SimpleNamespace) -> None:
    call("--history", "postgresql://ann@127.0.0.1:1/perf")
    assert "127.0.0.1" in seen.asked["history_problem"]()
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


def test_the_matrix_is_printed_in_columns_with_its_legend() -> None:
    text = report_text(tables_of(facts()))
    assert MATRIX in text
    assert "  NV#  Connection traversing a bonded set of # NVLinks" in text


def test_a_table_has_its_name_and_its_values_in_one_column() -> None:
    report = {"memory": {"memory": "24 GiB", "/dev/shm": "64 MiB"}, "CPU": {"CPU": "x * 2"}}
    assert report_text(report) == "memory\n  memory    24 GiB\n  /dev/shm  64 MiB\n\nCPU\n  CPU  x * 2"


def test_findings_come_after_the_tables_and_the_verdict_is_the_last_line() -> None:
    text = doctor_text(diagnose(with_card(persistence=False)))
    assert text.index("Tesla V100-SXM2-32GB * 8") < text.index("WARNING persistence mode off: GPU3")
    assert "    do:  sudo nvidia-smi -pm 1\n" in text
    assert text.splitlines()[-1] == "FIT to measure, with reservations: 1 warning"


def test_lines_keep_to_the_width() -> None:
    issue = Issue(Severity.NOTE, "long", "word " * 60, "word " * 60, "word " * 60)
    diagnosis = Diagnosis(tables_of(facts()), (issue,))
    assert max(map(len, doctor_text(diagnosis).splitlines())) <= WIDTH + 10
    assert max(len(line) for line in doctor_text(diagnosis).splitlines() if "word" in line) <= WIDTH


def test_the_record_is_json_and_has_everything_the_text_has() -> None:
    record = json.loads(json.dumps(doctor_record(diagnose(with_card(processes=(41,))))))
    assert sorted(record) == ["findings", "fit", "schema_version", "system", "verdict"]
    assert (record["schema_version"], record["fit"]) == (1, False)
    assert record["findings"][0]["name"] == "processes on a card"
    assert record["system"]["topology"]["GPU0"].startswith("X\tNV2")
