from __future__ import annotations

import json
from dataclasses import replace

from helpers.commands.doctor import WIDTH, doctor_markdown, doctor_record, doctor_text, report_text
from helpers.machine.doctor import Diagnosis, diagnose
from helpers.machine.doctor.finding import Finding, Severity
from helpers.machine.facts.tables import SystemReport, report_of
from tests.helpers.machine.doctor.context import context, facts, with_card

MATRIX = """\
        GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7  CPU Affinity  NUMA Affinity
  GPU0  X     NV2   NV2   NV1   NV1   NODE  NODE  NODE  0-23          ?
  GPU1  NV2   X     NV1   NV1   NODE  NV2   NODE  NODE  0-23          ?
"""


def test_the_matrix_is_printed_in_columns_with_its_legend() -> None:
    text = report_text(report_of(facts()))
    assert MATRIX in text
    assert "  SYS   Connection traversing PCIe as well as the SMP interconnect between NUMA nodes" in text


def test_a_table_has_its_name_and_its_values_in_one_column() -> None:
    report = SystemReport({"memory": {"memory": "24 GiB", "/dev/shm": "64 MiB"}, "CPU": {"CPU": "x * 2"}})
    assert report_text(report) == "memory\n  memory    24 GiB\n  /dev/shm  64 MiB\n\nCPU\n  CPU  x * 2"


def test_findings_come_after_the_tables_and_the_verdict_is_the_last_line() -> None:
    text = doctor_text(diagnose(with_card(persistence=False)))
    assert text.index("Tesla V100-SXM2-32GB * 8") < text.index("WARNING persistence mode off: GPU3")
    assert "    do:  sudo nvidia-smi -pm 1\n" in text
    assert text.splitlines()[-1] == "FIT to measure, with reservations: 1 warning"


def test_without_findings_only_the_verdict_stands_there() -> None:
    text = doctor_text(diagnose(context()))
    assert "what spoils" not in text
    assert text.endswith("\n\nFIT to measure: nothing found")


def test_lines_keep_to_the_width() -> None:
    finding = Finding(Severity.NOTE, "long", "word " * 60, "word " * 60, "word " * 60)
    diagnosis = Diagnosis(report_of(facts()), (finding,))
    assert max(map(len, doctor_text(diagnosis).splitlines())) <= WIDTH + 10
    assert max(len(line) for line in doctor_text(diagnosis).splitlines() if "word" in line) <= WIDTH


def test_control_characters_of_a_foreign_name_are_escaped_everywhere() -> None:
    finding = Finding(Severity.NOTE, "x", "evil\x1b[2J\nFIT | to measure", "why", "do")
    diagnosis = Diagnosis(SystemReport({"CPU": {"CPU": "bad\x1b[31m|name"}}), (finding,))
    for text in (doctor_text(diagnosis), doctor_markdown(diagnosis)):
        assert "\x1b" not in text
        assert "evil\\x1b[2J" in text
        assert "\nFIT | to" not in text
    assert "bad\\x1b[31m\\|name" in doctor_markdown(diagnosis)


def test_markdown_has_a_table_a_section_and_the_matrix_as_it_is() -> None:
    text = doctor_markdown(diagnose(with_card(persistence=False)))
    assert "## paddle\n\n|  |  |\n| --- | --- |\n| version | 2.6.2 (paddlepaddle-gpu) |" in text
    assert "## topology\n\n```\n      GPU0  GPU1" in text
    assert "| warning | persistence mode off | GPU3 |" in text
    assert text.endswith("**FIT to measure, with reservations: 1 warning**")


def test_markdown_without_findings_says_so_with_the_verdict() -> None:
    assert doctor_markdown(diagnose(context())).endswith("\n\n**FIT to measure: nothing found**")


def test_the_record_is_json_and_has_everything_the_text_has() -> None:
    record = json.loads(json.dumps(doctor_record(diagnose(with_card(processes=(41,))))))
    assert sorted(record) == ["findings", "fit", "schema_version", "system", "verdict"]
    assert (record["schema_version"], record["fit"]) == (1, False)
    assert record["findings"][0]["name"] == "processes on a card"
    assert record["system"]["topology"]["GPU0"].startswith("X\tNV2")


def test_the_record_of_a_machine_in_order_is_fit() -> None:
    assert doctor_record(diagnose(replace(context(), variables={})))["fit"] is True
