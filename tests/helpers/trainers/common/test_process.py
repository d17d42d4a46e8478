"""The frame of a trainer: where it runs, and how its log ends in every case."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.steplog_reader import read_step_log
from helpers.trainers.common import process
from helpers.trainers.common.process import (
    EXIT_COMPLETE,
    EXIT_FAILED,
    EXIT_REFUSED,
    CardPlace,
    RankPlace,
    Refused,
    Trainer,
    run,
)
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import SLOWDOWN_FACT, SLOWDOWN_VARIABLE, JobSpec
from helpers.trainers.contract.steplog import COMPLETE, FAILED, REFUSED, WINDOW, Step

ROOT = Path(__file__).parents[4]
NAMES = ("T_RANK", "T_LOCAL", "T_WORLD")


@pytest.fixture(autouse=True)
def this_process_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in process.THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")
    pinned = [set(os.sched_getaffinity(0))]

    def pin(pid: int, cores: object) -> None:
        wanted = set(cores)  # type: ignore[call-overload]
        if not wanted or not wanted <= {0, 1}:
            raise OSError(22, "Invalid argument")
        pinned[0] = wanted

    monkeypatch.setattr(os, "sched_setaffinity", pin)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: pinned[0])


def _spec(folder: Path, cards: int = 1, cores: tuple[tuple[int, ...], ...] = ()) -> JobSpec:
    case = Case.parse(f"paddle-vgg16-fp32-bs1-1x{cards}-synthetic-dynamic")
    spec = JobSpec("job", case, 3, str(folder), "cpu", 0, 1, cores=cores, environment={"T_FROM_JOB": "yes"})
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    return spec


def _step(trainer: Trainer) -> None:
    trainer.record([Step(0, 1, WINDOW, 1.0, 2.0, 4, 0.1, 3.0)])


def test_a_run_that_ends_is_complete_and_its_header_has_the_facts_known_at_the_first_step(tmp_path: Path) -> None:
    def program(trainer: Trainer) -> None:
        trainer.device.framework_version = "3.3.1"
        trainer.device.facts["late"] = "fact"
        _step(trainer)

    spec = _spec(tmp_path, cores=((1,),))
    assert run([str(spec.spec_path)], NAMES, program) == EXIT_COMPLETE
    log = read_step_log(spec.step_log_path(0), "job", 0)
    assert (log.footer.status, len(log.window)) == (COMPLETE, 1)
    assert log.footer.peak_host_bytes > 1_000_000
    assert (log.header.framework_version, log.header.replicate) == ("3.3.1", 3)
    facts = log.header.facts
    assert (facts["late"], facts["cores"], facts["threads"], facts["pinned"]) == ("fact", "1", "1", "yes")


def test_what_is_left_is_done_once_the_log_is_complete_and_only_then(tmp_path: Path) -> None:
    found: list[str] = []

    def program(trainer: Trainer, refuse: bool = False) -> None:
        def look() -> None:
            found.append(read_step_log(trainer.spec.step_log_path(0), "job", 0).footer.status)

        trainer.afterwards.append(look)
        _step(trainer)
        if refuse:
            raise Refused("not here")

    assert run([str(_spec(tmp_path).spec_path)], NAMES, program) == EXIT_COMPLETE
    assert found == [COMPLETE]
    (tmp_path / "refused").mkdir()
    spec = _spec(tmp_path / "refused")
    assert run([str(spec.spec_path)], NAMES, lambda trainer: program(trainer, refuse=True)) == EXIT_REFUSED
    assert found == [COMPLETE]


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_a_gpu_s_header_has_the_libraries_that_are_loaded_after_the_first_step(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: dict[str, str] = {}
    monkeypatch.setattr(process, "loaded_facts", lambda: loaded)

    def program(trainer: Trainer) -> None:
        trainer.device.facts.update(cudnn="8.6.0", build_cudnn="8.6.0")
        loaded.update(cudnn="8.9.7", nccl="2.18.5")
        _step(trainer)
        loaded.update(cudnn="none of this log any more")

    spec = replace(_spec(tmp_path), device=device)
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    assert run([str(spec.spec_path)], NAMES, program) == EXIT_COMPLETE
    facts = read_step_log(spec.step_log_path(0)).header.facts
    # On a CPU nothing of CUDA is asked.
    assert (facts["cudnn"], facts.get("nccl")) == (("8.9.7", "2.18.5") if device == "gpu" else ("8.6.0", None))
    assert facts["build_cudnn"] == "8.6.0"


def test_a_refusal_has_its_own_exit_status_and_its_reason_in_the_footer(tmp_path: Path) -> None:
    def program(trainer: Trainer) -> None:
        raise Refused("no such\n  device")

    spec = _spec(tmp_path)
    assert run([str(spec.spec_path)], NAMES, program) == EXIT_REFUSED == 3
    footer = read_step_log(spec.step_log_path(0)).footer
    assert (footer.status, footer.reason) == (REFUSED, "no such device")


def test_a_failure_leaves_one_line_in_the_log_and_its_traceback_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(trainer: Trainer) -> None:
        _step(trainer)
        raise RuntimeError("kernel\nof conv2d " + "x" * 3000)

    spec = _spec(tmp_path)
    assert run([str(spec.spec_path)], NAMES, program) == EXIT_FAILED
    log = read_step_log(spec.step_log_path(0))
    assert (log.footer.status, len(log.steps)) == (FAILED, 1)
    assert log.footer.reason.startswith("RuntimeError: kernel of conv2d xxx")
    assert len(log.footer.reason) == 1000
    assert "Traceback" in capsys.readouterr().err


def test_a_rank_of_a_job_of_another_size_fails_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("T_WORLD", "2")
    spec = _spec(tmp_path, cards=1)
    assert run([str(spec.spec_path)], NAMES, _step) == EXIT_FAILED
    assert "world size" in read_step_log(spec.step_log_path(0)).footer.reason


@pytest.mark.parametrize("cores", [((7,),), ((),)])
def test_cores_that_this_process_may_not_use_are_an_error(tmp_path: Path, cores: tuple[tuple[int, ...], ...]) -> None:
    spec = _spec(tmp_path, cores=cores)
    assert run([str(spec.spec_path)], NAMES, _step) == EXIT_FAILED
    assert "'cores'" in read_step_log(spec.step_log_path(0)).footer.reason


def test_one_process_of_several_cards_has_the_cores_of_all_and_the_threads_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case.parse("mxnet-resnet50v1.5-fp32-bs1-2x2-synthetic")
    spec = JobSpec("job", case, 3, str(tmp_path), "cpu", 0, 1, cores=((0,), (1,)), settings={"cards_per_process": 2})
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    for name, value in (("T_RANK", "1"), ("T_LOCAL", "0"), ("T_WORLD", "2")):
        monkeypatch.setenv(name, value)
    seen: list[object] = []

    def program(trainer: Trainer) -> None:
        seen.extend(trainer.cards)
        seen.append({os.environ[name] for name in process.THREAD_VARIABLES})
        _step(trainer)

    assert run([str(spec.spec_path)], NAMES, program) == EXIT_COMPLETE
    assert seen == [CardPlace(2, 0, (0,)), CardPlace(3, 1, (1,)), {"1"}]
    header = read_step_log(spec.step_log_path(1), "job", 1).header
    assert (header.world_size, header.cards_per_process) == (2, 2)
    wanted = {"cores": "0,1", "threads": "1", "pinned": "yes", "cards_per_process": "2"}
    assert {name: header.facts[name] for name in wanted} == wanted


def test_ranks_come_from_the_launcher_s_variables() -> None:
    assert RankPlace.from_environment({"T_RANK": "5", "T_LOCAL": "1", "T_WORLD": "8"}, NAMES) == RankPlace(5, 1, 8)
    assert RankPlace.from_environment({}, NAMES) == RankPlace(0, 0, 1)
    with pytest.raises(ConfigError, match="T_RANK"):
        RankPlace.from_environment({"T_RANK": "", "T_LOCAL": "1", "T_WORLD": "8"}, NAMES)


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["missing.json"]])
def test_a_wrong_command_line_is_one_line_and_status_1(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv, NAMES, _step) == EXIT_FAILED
    error = capsys.readouterr().err
    assert error.startswith("trainer: ")
    assert "Traceback" not in error


def test_a_log_of_an_earlier_run_is_never_written_over(tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    assert run([str(spec.spec_path)], NAMES, _step) == EXIT_COMPLETE
    before = spec.step_log_path(0).read_bytes()
    with pytest.raises(FileExistsError):
        run([str(spec.spec_path)], NAMES, _step)
    assert spec.step_log_path(0).read_bytes() == before


# ---- the tests' slowdown


@pytest.mark.parametrize(
    ("text", "status", "told"), [("5e-2", EXIT_COMPLETE, "0.05"), ("0", EXIT_COMPLETE, None)]
    + [(wrong, EXIT_FAILED, None) for wrong in ("5%", "-0.05", "nan", "11")],
)  # fmt: skip
def test_a_slowdown_stands_in_the_header_and_one_that_is_none_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, status: int, told: str | None
) -> None:
    monkeypatch.setenv(SLOWDOWN_VARIABLE, text)
    spec = _spec(tmp_path)
    assert run([str(spec.spec_path)], NAMES, _step) == status
    log = read_step_log(spec.step_log_path(0))
    assert log.header.facts.get(SLOWDOWN_FACT) == told
    assert (SLOWDOWN_VARIABLE in log.footer.reason) is (status == EXIT_FAILED)
