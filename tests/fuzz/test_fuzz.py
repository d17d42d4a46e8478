"""The readers under Hypothesis, and every input that was a finding once; 'make fuzz' draws many more."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from helpers.judging.rules.own import figures
from helpers.launch import steplog_reader
from helpers.launch.steplog_reader import read_step_log
from helpers.logs import lines
from helpers.logs.record import Imported
from helpers.logs.settings import LogSetting, Stated
from helpers.plan import perf_yaml as config
from helpers.plan import yaml_file
from helpers.plan.recorded import document_of
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import SuiteError
from tests.fuzz import __main__ as fuzz
from tests.fuzz import logs as fuzz_logs
from tests.fuzz import targets as fuzz_targets
from tests.fuzz.growth import growths
from tests.fuzz.seeds import SMALL_CONFIG, recorded_document
from tests.fuzz.strategies import inputs, logs
from tests.fuzz.targets import Broken, Target, findings, targets
from tests.helpers.logs.one_file import import_file

TARGETS = ("step-log", "recorded-baseline", "published-baseline", "config", "case-id", "training-log")
LONG = "fuzz-long"
PROFILE = settings.get_profile(LONG if settings.get_current_profile_name() == LONG else "fuzz-quick")
FINDINGS = [(name, path) for name in TARGETS for path in findings(name)]


@pytest.fixture
def readers(tmp_path: Path) -> dict[str, Target]:
    return targets(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_lets_only_its_own_error_through_and_what_it_takes_holds(
    name: str, readers: dict[str, Target]
) -> None:
    PROFILE(given(inputs(readers[name]))(readers[name].check))()


@pytest.mark.parametrize("name", TARGETS)
def test_the_first_seed_is_taken_so_that_changes_start_from_what_is_right(
    name: str, readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[SuiteError] = []
    monkeypatch.setattr(fuzz_targets, "_check_message", refused.append)
    readers[name].check(readers[name].seeds[0])
    assert refused == []
    readers[name].check(b"no document")
    assert len(refused) == 1


@pytest.mark.parametrize(("name", "path"), FINDINGS, ids=[f"{name}/{path.name}" for name, path in FINDINGS])
def test_what_was_a_finding_once_is_none(name: str, path: Path, readers: dict[str, Target]) -> None:
    readers[name].check(path.read_bytes())


def test_findings_are_kept() -> None:
    assert len(FINDINGS) >= 12


@pytest.mark.parametrize(("power", "too_fast"), [(1, False), (2, True)])
def test_a_reader_whose_time_grows_faster_than_its_input_is_told(
    power: int, too_fast: bool, readers: dict[str, Target]
) -> None:
    now = 0.0

    def check(data: bytes) -> None:
        nonlocal now
        now += (len(data) / 1e4) ** power

    grown = list(growths({"step-log": replace(readers["step-log"], check=check)}, lambda: now))
    assert grown
    assert {each.too_fast for each in grown} == {too_fast}


@pytest.mark.parametrize(("size", "refused"), [(1 << 17, False), ((1 << 17) + 1, True)], ids=["at the limit", "above"])
def test_a_configuration_has_a_largest_size(size: int, refused: bool, tmp_path: Path) -> None:
    path = tmp_path / "perf.yaml"
    path.write_bytes(SMALL_CONFIG + b"#" * (size - len(SMALL_CONFIG)))
    if refused:
        with pytest.raises(SuiteError, match=r"perf\.yaml: .*at most 131072"):
            config.load_config(path)
    else:
        assert config.load_config(path).matrix


@settings(PROFILE, max_examples=50)
@given(drawn=logs())
def test_the_drawn_logs_are_whole(drawn: bytes) -> None:
    lines = [json.loads(line) for line in drawn.splitlines()]
    assert [line["kind"] for line in (lines[0], lines[-1])] == ["header", "footer"]
    assert {line["kind"] for line in lines[1:-1]} == {"step"}


# ---- a check that cannot fail finds nothing: each is shown a reader that is wrong


def test_a_log_with_an_infinite_loss_is_found(readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steplog_reader, "finite", lambda value: True)
    taken = readers["step-log"].seeds[0].replace(b'"loss": 6.9', b'"loss": 1e400')
    with pytest.raises(Broken, match="loss=inf"):
        readers["step-log"].check(taken)


def test_a_figure_that_is_none_is_found(readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_targets, "figures", lambda logs: dict.fromkeys(fuzz_targets.RULES, float("inf")))
    with pytest.raises(Broken, match="inf is no figure"):
        readers["step-log"].check(readers["step-log"].seeds[0])


def test_an_entry_that_is_lost_is_found(readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_targets, "document_of", lambda machine_key, entries: document_of(machine_key, {}))
    with pytest.raises(Broken, match="read otherwise"):
        readers["recorded-baseline"].check(readers["recorded-baseline"].seeds[0])


@pytest.mark.slow
def test_an_unknown_key_that_is_taken_is_found(readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_file, "read_as", lambda value, kind, place, defaults: msgspec.convert(value, kind))
    with pytest.raises(Broken, match="an unknown key was taken"):
        for number in range(200):
            # Another comment has the key put into another place.
            readers["config"].check(readers["config"].seeds[0] + b"# %d\n" % number)


def test_an_imported_figure_that_is_none_is_found(readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(path: Path, asked: Mapping[LogSetting, Stated]) -> tuple[Imported, ...]:
        (run,) = import_file(path, asked)
        return (replace(run, honest=replace(run.honest, samples_per_s=math.inf)),)

    monkeypatch.setattr(fuzz_logs, "import_file", endless)
    with pytest.raises(Broken, match="honest: inf images/s"):
        readers["training-log"].check(readers["training-log"].seeds[0])


def test_a_line_that_is_not_clean_is_found(readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_ESCAPE", re.compile(rb"never"))
    with pytest.raises(Broken, match="not clean"):
        readers["training-log"].check(b"\x1b[0m\n" + readers["training-log"].seeds[0])


def test_a_second_spelling_of_a_case_is_found(readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case.parse(readers["case-id"].seeds[0].decode())
    monkeypatch.setattr(Case, "parse", staticmethod(lambda text: case))
    with pytest.raises(Broken, match="is the case"):
        readers["case-id"].check(b"Paddle-vgg16")


def test_a_report_that_would_forge_its_lines_is_a_finding(
    readers: dict[str, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SuiteError, "__str__", lambda self: "step log\nPASS")
    with pytest.raises(Broken, match="a message of"):
        readers["case-id"].check(b"nothing")


# ---- the program


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A program in the place of atheris's Python; ``$artifacts`` is its folder for findings."""

    def make(body: str) -> Path:
        path = tmp_path / "python"
        path.write_text(f'#!/bin/sh\nwhile [ "$1" != --artifacts ]; do shift; done\nartifacts=$2\n{body}\n')
        path.chmod(0o755)
        return path

    yield make


def _main(tmp_path: Path, python: Path, *more: str) -> int:
    told = ["--targets", "case-id", "--seconds", "1", "--seed", "3", "--python", str(python)]
    return fuzz.main([*told, "--corpus", str(tmp_path / "kept"), *more])


def test_no_finding_exits_with_0(
    tmp_path: Path, stand_in: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    python = stand_in("echo 'stat::number_of_executed_units: 3232' >&2")
    assert _main(tmp_path, python) == 0
    assert "case-id: 3232 executions" in capsys.readouterr().out


def test_a_finding_exits_with_1_and_names_the_input(
    tmp_path: Path, stand_in: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    python = stand_in('echo bad > "$artifacts/crash-1"; exit 77')
    assert _main(tmp_path, python) == 1
    assert f"--reproduce case-id {tmp_path}/kept/case-id/findings/crash-1" in capsys.readouterr().out


def test_a_fuzzer_that_dies_is_no_clean_run(
    tmp_path: Path, stand_in: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _main(tmp_path, stand_in("echo out of memory >&2; kill -9 $$")) == 1
    assert "trouble: case-id: it ended with -9: out of memory" in capsys.readouterr().out


def test_without_atheris_the_program_says_how_to_get_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(tmp_path, tmp_path / "nothing") == 2
    assert "make env-fuzz" in capsys.readouterr().err


def test_the_longest_seed_has_a_figure_by_every_rule(readers: dict[str, Target], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(readers["step-log"].seeds[3])
    told = figures([read_step_log(path)])
    assert [rule for rule, figure in told.items() if isinstance(figure, str)] == []
    assert recorded_document()["entries"]
