"""Our own step logs as logs to import: all ranks of a job are one run, and a lost one is an error."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.judging.rules.own import RULES, WALL_CLOCK
from helpers.logs import own
from helpers.logs.record import HONEST, Imported
from helpers.logs.settings import LogSetting, Stated
from helpers.logs.source import LogFile, open_logs
from helpers.trainers.contract.errors import LogError
from helpers.trainers.contract.job import SLOWDOWN_FACT
from helpers.trainers.contract.steplog import COMPLETE, FAILED, WARMUP, WINDOW, Footer, Header, Step, StepLogWriter

CASE = "paddle-resnet50v1.5-fp32-bs256-1x2-dali-static"
HEADER = Header("j1", CASE, 0, 0, 2, "h", 1, "paddle", "3.0", "abc", "gpu")
DONE = Footer(COMPLETE)


def write(
    path: Path,
    rank: int = 0,
    seconds: Sequence[float] = (0.5,) * 140,
    warmup: int = 20,
    footer: Footer | None = DONE,
    header: Header = HEADER,
) -> Path:
    writer = StepLogWriter(path, replace(header, rank=rank))
    now = 10.0
    for number, taken in enumerate(seconds):
        phase = WARMUP if number < warmup else WINDOW
        writer.step(Step(0, number + 1, phase, now, now + taken, 256, taken / 10))
        now += taken
    if footer is not None:
        writer.footer(footer)
    return path


def logs(*paths: Path) -> list[LogFile]:
    return [log for path in paths for log in open_logs(path).logs]


def read(*paths: Path, rule: str = "auto", asked: dict[LogSetting, Stated] | None = None) -> Imported:
    (job,) = own.jobs(logs(*paths))
    return own.read_job(job, asked or {}, rule)


@pytest.fixture
def ranks(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "rank0.jsonl", 0), write(tmp_path / "rank1.jsonl", 1)


def test_the_ranks_of_a_job_are_one_run(ranks: tuple[Path, Path]) -> None:
    found = read(ranks[1], ranks[0])
    # Two ranks of 256 images in 0.5 s each.
    assert {each.rule: each.samples_per_s for each in found.figures} == {
        rule.name: None if rule.steps > 140 else pytest.approx(1024 if rule.counts_waits else 1024 / 0.9)
        for rule in RULES.values()
    }
    assert (found.usual, found.honest.rule, found.honest.samples_per_s) == (WALL_CLOCK, HONEST, pytest.approx(1024))
    assert (found.honest.used, found.honest.unused) == (120, ("20 steps of warm-up",))
    assert found.reader_share == pytest.approx(0.1)
    assert found.source == f"{ranks[0]} and 1 more ranks"
    assert (found.number, found.runs_in_file, found.first_line, found.last_line) == (1, 1, 1, 142)
    assert found.spread is not None
    assert (found.spread.records, found.spread.median_samples_per_s) == (120, pytest.approx(1024))
    assert found.spread.variation == pytest.approx(0, abs=1e-6)
    assert (found.format, found.warnings, found.dropped) == ("steplog", (), ())


def test_the_configuration_is_the_cases(ranks: tuple[Path, Path]) -> None:
    found = read(*ranks)
    assert {each.value: said.value for each, said in found.settings.items()} == {
        "framework": "paddle",
        "model": "resnet50v1.5",
        "precision": "fp32",
        "batch_size_per_card": "256",
        "cards": "2",
        "nodes": "1",
        "data": "dali",
        "execution": "static",
        "xla": "false",
        "framework_version": "3.0",
    }
    assert found.settings[LogSetting.CARDS].where == f"line 1: case_id {CASE}"
    with pytest.raises(LogError, match=r"field 'cards': got '8 \(--cards\)', expected '2'"):
        read(*ranks, asked={LogSetting.CARDS: Stated("8", "--cards")})


def test_a_rule_may_be_asked_for(ranks: tuple[Path, Path]) -> None:
    assert read(*ranks, rule="dlperf-time").usual == "dlperf-time"
    foreign = read(*ranks, rule="tipc-summary").figure("tipc-summary")
    assert foreign is not None
    assert (foreign.samples_per_s, foreign.reason) == (None, "rule tipc-summary is for other programs' logs")


def test_a_missing_rank_is_named(ranks: tuple[Path, Path]) -> None:
    with pytest.raises(LogError, match=r"got 'ranks 1 of 2', .*Give those of rank 0 too"):
        read(ranks[1])


def test_a_rank_twice_is_refused(ranks: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"again\.jsonl: field 'rank': got 1, expected each rank once"):
        read(*ranks, write(tmp_path / "again.jsonl", 1, seconds=(0.6,) * 140))


def test_ranks_that_disagree_are_refused(tmp_path: Path) -> None:
    other = replace(HEADER, framework_version="3.1")
    paths = write(tmp_path / "a.jsonl", 0), write(tmp_path / "b.jsonl", 1, header=other)
    with pytest.raises(LogError, match=r"b\.jsonl: field 'framework_version': got '3.1', expected '3.0'"):
        read(*paths)


def test_one_process_that_drives_both_cards_is_the_whole_run(tmp_path: Path) -> None:
    one = replace(HEADER, world_size=1, cards_per_process=2)
    found = read(write(tmp_path / "rank0.jsonl", header=one))
    assert found.source == str(tmp_path / "rank0.jsonl")
    assert found.honest.samples_per_s == pytest.approx(512)
    with pytest.raises(LogError, match=r"field 'cards': got '1 in 1 step logs', expected the 2 of paddle-resnet50"):
        read(write(tmp_path / "lost.jsonl", header=replace(one, cards_per_process=1)))


def test_processes_that_drive_different_numbers_of_cards_are_refused(tmp_path: Path) -> None:
    other = replace(HEADER, cards_per_process=2)
    with pytest.raises(LogError, match=r"b\.jsonl: field 'cards_per_process': got 2, expected 1, as in"):
        read(write(tmp_path / "a.jsonl", 0), write(tmp_path / "b.jsonl", 1, header=other))


def test_a_run_that_failed_is_no_measurement(tmp_path: Path) -> None:
    failed = write(tmp_path / "b.jsonl", 1, footer=Footer(FAILED, "out of memory"))
    with pytest.raises(LogError, match=r"b\.jsonl: field 'status': got 'failed: out of memory'"):
        read(write(tmp_path / "a.jsonl", 0), failed)


@pytest.mark.parametrize("cut_bytes", [1, 30])
def test_a_damaged_log_is_refused_by_its_own_name(tmp_path: Path, cut_bytes: int) -> None:
    path = write(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    with pytest.raises(LogError, match=rf"step log {path}:142: got .* expected a line with its end"):
        read(path)


def test_a_log_without_a_footer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"a\.jsonl:141: field 'footer'"):
        read(write(tmp_path / "a.jsonl", footer=None))


def test_ranks_may_lie_in_an_archive(ranks: tuple[Path, Path], tmp_path: Path) -> None:
    archive = tmp_path / "run.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in ranks:
            file.write(path, f"r0/{path.name}")
    packed = tmp_path / "rank1.jsonl.gz"
    packed.write_bytes(gzip.compress(ranks[1].read_bytes()))
    plain = read(*ranks)
    assert read(archive).figures == plain.figures
    assert read(archive).source == f"{archive}!r0/rank0.jsonl and 1 more ranks"
    assert read(archive).sha256 == plain.sha256 == read(ranks[0], packed).sha256


def test_logs_are_one_run_a_job(ranks: tuple[Path, Path], tmp_path: Path) -> None:
    other = write(tmp_path / "c.jsonl", header=replace(HEADER, job_id="j2"))
    nameless = tmp_path / "d.jsonl"
    nameless.write_text('{"kind": "header"}\n', encoding="utf-8")
    found = own.jobs(logs(ranks[0], other, ranks[1], nameless))
    assert [[Path(log.source).name for log in job] for job in found] == [
        ["rank0.jsonl", "rank1.jsonl"],
        ["c.jsonl"],
        ["d.jsonl"],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"kind": "header", "job_id": "x"}\n', True),
        ('\n\n{"kind": "step"}\n', True),
        ('{"kind": "else"}\n', False),
        ('{"model_name": "x", "ips": 5}\n', False),
        ('["kind", "header"]\n', False),
        ('{"kind": "header"\n', False),
        ('text\n{"kind": "header"}\n', False),
        ('{"kind": ' + "[" * 100_000 + "\n", False),
    ],
)
def test_a_step_log_is_told_by_its_first_line(tmp_path: Path, text: str, expected: bool) -> None:
    path = tmp_path / "a.log"
    path.write_text(text, encoding="utf-8")
    (log,) = open_logs(path).logs
    assert own.is_step_log(log) is expected


def test_doubts_are_told(tmp_path: Path) -> None:
    header = replace(HEADER, case_id=CASE.replace("1x2", "1x1"), world_size=1, facts={SLOWDOWN_FACT: "0.05"})
    found = read(write(tmp_path / "a.jsonl", seconds=(0.5,) * 12, warmup=2, header=header))
    assert found.warnings == (
        "rank 0 was slowed down on purpose, by 0.05 of each step: no measurement",
        "few steps: 10 in the measured window, fewer than 30",
    )


def test_a_log_without_a_window_has_reasons_instead_of_figures(tmp_path: Path) -> None:
    header = replace(HEADER, case_id=CASE.replace("1x2", "1x1"), world_size=1)
    found = read(write(tmp_path / "a.jsonl", seconds=(0.5,) * 20, warmup=20, header=header))
    assert (found.honest.samples_per_s, found.reader_share, found.spread) == (None, None, None)
    assert found.honest.reason and found.reader_reason == "the log has no measured window"


def test_a_header_of_no_case_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", header=replace(HEADER, world_size=1, case_id="case"))
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[0])["case_id"] == "case"
    with pytest.raises(LogError, match="case id"):
        read(path)
