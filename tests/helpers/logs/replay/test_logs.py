"""What is found in a folder of logs: which files, of which configuration and card, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.logs.importer import ImportBatch
from helpers.logs.replay.logs import LogFolder, LoggedRun, read_folder
from helpers.logs.replay.own import OwnRun
from helpers.logs.replay.suite import read_log
from helpers.logs.settings import LogSetting, Stated
from helpers.trainers.contract.errors import LogError
from tests.helpers.importing_double import MXNET, imported, read_double, write_log
from tests.helpers.replay_double import write_result, write_run

CPU_CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"


def found(root: Path, gpu: str | None = None) -> LogFolder:
    return read_folder(root, read_double, gpu)


def only(root: Path, gpu: str | None = None) -> LoggedRun:
    (run,) = found(root, gpu).runs
    assert isinstance(run, LoggedRun)
    return run


def settings(**changes: str) -> dict[str, str]:
    return {**MXNET, **changes}


# --- which files


def test_every_file_below_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b/2.log", "a.log", "b/1.txt", ".hidden", ".git/x.log"):
        write_log(tmp_path / name, MXNET)
    folder = found(tmp_path)
    assert [run.name for run in folder.runs] == ["a.log", "b/1.txt", "b/2.log"]
    assert (folder.files, folder.unread) == (3, ())


def test_what_a_session_keeps_beside_its_runs_is_no_log(tmp_path: Path) -> None:
    write_run(tmp_path / "s1" / CPU_CASE / "r0", CPU_CASE)
    write_run(tmp_path / "s1" / CPU_CASE / "r0.aside1", CPU_CASE)
    for name in ("history.sqlite", "history.sqlite-wal", f"s1/{CPU_CASE}/night.json", "s0/c/r0/result.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    folder = found(tmp_path)
    assert [run.name for run in folder.runs] == [f"s1/{CPU_CASE}/r0"]
    assert (folder.files, folder.unread) == (1, ())


def test_one_file_is_a_folder_of_one(tmp_path: Path) -> None:
    write_log(tmp_path / "other.log", MXNET)
    assert only(write_log(tmp_path / "a.log", MXNET)).name == "a.log"


def test_a_file_that_is_no_log_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    write_log(tmp_path / "a.log", MXNET)
    (tmp_path / "README.md").write_text("# Logs")
    folder = found(tmp_path)
    assert [run.name for run in folder.runs] == ["a.log"]
    assert folder.unread == ("README.md: no format is known",)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("Input/output error"), "a.log: Input/output error"),
        (ZeroDivisionError("a mistake"), "a.log: the suite failed to read it: ZeroDivisionError: a mistake"),
    ],
)
def test_a_file_that_cannot_be_read_costs_no_other(tmp_path: Path, error: Exception, told: str) -> None:
    def broken(path: Path, said: Mapping[LogSetting, Stated]) -> ImportBatch:
        if path.name == "a.log":
            raise error
        return read_double(path, said)

    for name in ("a.log", "b.log"):
        write_log(tmp_path / name, MXNET)
    folder = read_folder(tmp_path, broken)
    assert folder.unread == (told,)
    assert [run.name for run in folder.runs] == ["b.log"]


def test_the_same_bytes_twice_are_one_run(tmp_path: Path) -> None:
    # The double's content is the file's name.
    for name in ("x/a.log", "y/a.log"):
        write_log(tmp_path / name, MXNET)
    folder = found(tmp_path)
    assert [run.name for run in folder.runs] == ["x/a.log"]
    assert folder.notes == ("y/a.log: the same run as x/a.log, counted once",)


def test_the_same_bytes_of_two_cards_are_of_none(tmp_path: Path) -> None:
    for name in ("V100-LOG/a.log", "A100-LOG/a.log"):
        write_log(tmp_path / name, MXNET)
    folder = found(tmp_path)
    assert folder.runs == ()
    assert folder.unread == (
        "V100-LOG/a.log: the same bytes as A100-LOG/a.log, with other settings: gpu A100, not V100",
    )


def test_a_run_of_ours_that_lies_there_twice_is_one(tmp_path: Path) -> None:
    for name in ("s1", "copy of s1"):
        for number in range(2):
            write_run(tmp_path / name / CPU_CASE / f"r{number}", CPU_CASE, job_id=f"j{number}", replicate=number)
    folder = found(tmp_path)
    assert len(folder.runs) == 2
    assert len(folder.notes) == 2


# --- INDEX.csv


def index(folder: Path, *rows: str) -> None:
    (folder / "INDEX.csv").write_text("\n".join(["file,gpu,precision,data,rule", *rows]) + "\n")


def test_what_a_log_leaves_open_stands_in_the_index(tmp_path: Path) -> None:
    index(tmp_path, "./logs//a.log,V100,AMP,dali,ngc")
    write_log(tmp_path / "logs/a.log", settings(precision="amp"))
    run = only(tmp_path)
    assert run.settings[LogSetting.DATA] == Stated("dali", "INDEX.csv line 2")
    assert run.settings[LogSetting.GPU] == Stated("V100", "INDEX.csv line 2")
    # The log's own word stands.
    assert run.settings[LogSetting.PRECISION] == Stated("amp", "line 7")


def test_a_log_that_the_index_contradicts_is_no_log(tmp_path: Path) -> None:
    index(tmp_path, "a.log,V100,fp32,,")
    write_log(tmp_path / "a.log", settings(precision="amp"))
    folder = found(tmp_path)
    assert folder.runs == ()
    (told,) = folder.unread
    assert "precision amp (line 7) and precision fp32 (INDEX.csv line 2)" in told


@pytest.mark.parametrize(("cards", "names"), [("8", ["a.log (run 1 of 2)", "a.log (run 2 of 2)"]), ("4", [])])
def test_a_row_is_of_one_of_a_files_runs_at_least(tmp_path: Path, cards: str, names: list[str]) -> None:
    def two(path: Path, said: Mapping[LogSetting, Stated]) -> ImportBatch:
        runs = (imported({**MXNET, "cards": each}, runs_in_file=2) for each in ("1", "8"))
        return ImportBatch(tuple(replace(run, number=number) for number, run in enumerate(runs, 1)))

    write_log(tmp_path / "a.log", MXNET)
    (tmp_path / "INDEX.csv").write_text(f"file,gpu,cards,data\na.log,V100,{cards},dali\n")
    folder = read_folder(tmp_path, two)
    assert [run.name for run in folder.runs] == names
    assert len(folder.unread) == 2 - len(names)
    said = [run.stated(LogSetting.DATA) for run in folder.runs if isinstance(run, LoggedRun)]
    assert said == ([None, "dali"] if names else [])


def test_a_row_of_a_log_that_is_not_there_is_told(tmp_path: Path) -> None:
    index(tmp_path, "b.log,V100,,,", "a.log,V100,,,")
    write_log(tmp_path / "a.log", MXNET)
    assert found(tmp_path).notes == ("INDEX.csv names b.log: there is no such log below this folder",)
    # Of one file the others are no matter.
    assert found(tmp_path / "a.log").notes == ()


def test_a_quotation_without_its_end_is_an_error(tmp_path: Path) -> None:
    index(tmp_path, 'a.log,V100,"amp,,', "b.log,V100,amp,,")
    with pytest.raises(LogError, match=r"INDEX\.csv.*unexpected end of data"):
        found(tmp_path)


def test_a_log_that_is_refused_without_it_is_read_with_it(tmp_path: Path) -> None:
    bare = {name: value for name, value in MXNET.items() if name != "precision"}
    write_log(tmp_path / "a.log", bare)
    assert found(tmp_path).unread == ("a.log: precision: give --precision",)
    index(tmp_path, "a.log,V100,fp32,,")
    assert only(tmp_path).stated(LogSetting.PRECISION) == "fp32"


def test_what_two_rows_of_a_file_differ_in_is_said_of_neither(tmp_path: Path) -> None:
    index(tmp_path, "a.log,V100,amp,dali,", "a.log,V100,amp,native,")
    write_log(tmp_path / "a.log", MXNET)
    run = only(tmp_path)
    assert (run.gpu, run.stated(LogSetting.DATA)) == ("V100", None)


def test_an_index_without_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "INDEX.csv").write_text("name,gpu\na.log,V100\n")
    with pytest.raises(LogError, match=r"INDEX\.csv.*file"):
        found(tmp_path)


# --- the card


@pytest.mark.parametrize(
    ("folder", "card"),
    [
        ("V100-LOG", "V100"),
        ("a100_logs", "A100"),
        ("V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("2021-12-27_88e0341", ""),
        ("ResNet50V1.5", ""),
    ],
)
def test_a_folder_names_the_card(tmp_path: Path, folder: str, card: str) -> None:
    write_log(tmp_path / folder / "deep" / "a.log", MXNET)
    assert only(tmp_path).gpu == card


def test_the_folder_that_is_given_may_be_the_one(tmp_path: Path) -> None:
    write_log(tmp_path / "V100-LOG" / "a.log", MXNET)
    assert only(tmp_path / "V100-LOG").gpu == "V100"


def test_an_option_tells_it_only_where_nothing_else_does(tmp_path: Path) -> None:
    write_log(tmp_path / "a.log", MXNET)
    write_log(tmp_path / "b.log", settings(gpu="A100-SXM4-40GB"))
    runs = found(tmp_path, "V100").runs
    assert [run.gpu for run in runs] == ["V100", "A100-SXM4-40GB"]
    assert runs[0].settings[LogSetting.GPU].where == "--replay-gpu"  # type: ignore[union-attr]


def test_who_tells_most_of_it_is_believed(tmp_path: Path) -> None:
    index(tmp_path, "V100-LOG/a.log,V100-SXM2-32GB,,,")
    write_log(tmp_path / "V100-LOG/a.log", settings(gpu="V100"))
    assert only(tmp_path).gpu == "V100-SXM2-32GB"


@pytest.mark.parametrize(("own", "listed"), [("A100", "V100"), ("V100-SXM2-16GB", "V100-SXM2-32GB")])
def test_a_contradiction_is_no_log(tmp_path: Path, own: str, listed: str) -> None:
    index(tmp_path, f"a.log,{listed},,,")
    write_log(tmp_path / "a.log", settings(gpu=own))
    write_log(tmp_path / "b.log", MXNET)
    folder = found(tmp_path)
    assert [run.name for run in folder.runs] == ["b.log"]
    (why,) = folder.unread
    assert why.startswith(f"a.log: field 'gpu': got '{own} (line 7) and {listed} (INDEX.csv line 2)'")


@pytest.mark.parametrize(
    ("gpu", "precision", "judged_as"),
    [("A100", "fp32", "tf32"), ("H200", "fp32", "tf32"), ("A100", "amp", "amp"), ("V100", "fp32", "fp32")],
)
def test_fp32_on_a_card_with_tf32_is_that(tmp_path: Path, gpu: str, precision: str, judged_as: str) -> None:
    """A100 "FP32" is TF32 (docs/measuring-rules.md), in Paddle's and in NVIDIA's logs."""
    write_log(tmp_path / "a.log", settings(precision=precision))
    said = only(tmp_path, gpu).settings[LogSetting.PRECISION]
    assert said.value == judged_as
    assert said.where == ("line 7" if judged_as == precision else f"line 7; the default of a {gpu}")


# --- runs of our own


def own(root: Path, gpu: str | None = None) -> OwnRun:
    (run,) = found(root, gpu).runs
    assert isinstance(run, OwnRun)
    return run


def test_a_folder_of_rank_logs_is_one_run_and_nothing_else_in_it_is_a_log(tmp_path: Path) -> None:
    case_id = CPU_CASE.replace("1x1", "1x2")
    folder = write_run(tmp_path / "s1" / case_id / "r0", case_id, ranks=2)
    (folder / "trainer.log").write_text("words")
    run = own(tmp_path)
    assert (run.name, run.session, run.case_id) == (f"s1/{case_id}/r0", "s1", case_id)
    assert (run.device, run.gpu, len(run.logs)) == ("cpu", "", 2)
    assert found(tmp_path).files == 1
    assert own(folder).name == "r0"


def test_a_run_without_its_footer_a_rank_or_an_end_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "s/c/r0", CPU_CASE, end=None)
    write_run(tmp_path / "s/c/r1", CPU_CASE, ranks=2)
    (tmp_path / "s/c/r1/rank0.jsonl").unlink()
    write_run(tmp_path / "s/c/r2", CPU_CASE, end="failed")
    folder = found(tmp_path)
    assert folder.runs == ()
    for told, word in zip(folder.unread, ("footer", "ranks [1] of [2]", "failed: why"), strict=True):
        assert word in told


def test_the_card_of_a_run_is_its_results_then_the_trainers_then_the_folders(tmp_path: Path) -> None:
    case_id = CPU_CASE.replace("dynamic", "static")
    write_run(tmp_path / "V100-LOG/s/c/r0", case_id, device="gpu", facts={"device_name": "Tesla V100-PCIE-16GB"})
    assert own(tmp_path).gpu == "Tesla V100-PCIE-16GB"
    write_run(tmp_path / "x/V100-LOG/s/c/r0", case_id, device="gpu")
    assert own(tmp_path / "x").gpu == "V100"
    write_run(tmp_path / "y/s/c/r0", case_id, device="gpu")
    assert own(tmp_path / "y", "A100").gpu == "A100"


def test_a_result_of_other_logs_or_of_logs_is_refused(tmp_path: Path, make_plan, make_run) -> None:  # type: ignore[no-untyped-def]
    plan = make_plan()
    result = make_run(plan)
    for name, changes, word in (
        ("r0", {"uuid": "other"}, "other"),
        ("r1", {"origin": "replayed"}, "only what ran is judged again"),
    ):
        folder = write_run(tmp_path / name, plan.case.id, ranks=2)
        write_result(folder, result, **changes)
        (told,) = found(folder).unread
        assert word in told


def test_a_failed_run_has_its_result_and_no_logs(tmp_path: Path, make_plan, make_run) -> None:  # type: ignore[no-untyped-def]
    plan = make_plan()
    folder = write_run(tmp_path / "s/c/r0", plan.case.id, ranks=2, end=None)
    write_result(folder, make_run(plan, failure="killed by a signal"))
    run = own(tmp_path)
    assert run.result is not None
    assert (run.logs, run.result.failure, run.case_id) == ((), "killed by a signal", plan.case.id)


def test_one_step_log_stands_for_its_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "s1" / CPU_CASE / "r0", CPU_CASE.replace("1x1", "1x2"), ranks=2)
    (read,) = found(run / "rank1.jsonl").runs
    assert isinstance(read, OwnRun)
    assert (read.name, len(read.logs)) == ("r0", 2)


def test_a_run_that_broke_off_before_its_first_step_is_a_run(tmp_path: Path, make_plan, make_run) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "s1" / CPU_CASE / "r0"
    folder.mkdir(parents=True)
    for name in ("spec.json", "output.log", "rank0.heartbeat"):
        (folder / name).write_text("{}")
    assert "no step log, and no result.json either" in found(tmp_path).unread[0]
    assert found(tmp_path).broken == (f"s1/{CPU_CASE}/r0",)
    result = make_run(make_plan())
    write_result(folder, result)
    assert "no step log, and a result.json that calls it measured" in found(tmp_path).unread[0]
    write_result(folder, result, failure="never started")
    (run,) = found(tmp_path).runs
    assert isinstance(run, OwnRun)
    assert (run.logs, run.case_id, run.result and run.result.failure) == ((), result.case_id, "never started")


def test_a_spec_beside_other_programs_logs_makes_no_run_of_them(tmp_path: Path) -> None:
    write_log(tmp_path / "a.log", MXNET)
    (tmp_path / "spec.json").write_text("{}")
    assert [run.name for run in found(tmp_path).runs] == ["a.log"]


def test_logs_that_contradict_their_result_or_their_case_are_refused(tmp_path: Path, make_plan, make_run) -> None:  # type: ignore[no-untyped-def]
    plan = make_plan()
    folder = write_run(tmp_path / "s" / "c" / "r0", plan.case.id, ranks=2)
    write_result(folder, make_run(plan), window_seconds=2.0)
    assert "got '40 images in 2.5 s', expected the 40 in 2 s of its result.json" in found(tmp_path).unread[0]
    write_result(folder, make_run(plan), samples_per_step=(4, 4))
    assert "got '40 images in 2.5 s', expected the 8 in 2.5 s of its result.json" in found(tmp_path).unread[0]
    larger = found(write_run(tmp_path / "t" / "c" / "r0", CPU_CASE, batch=5))
    assert "got '5 images in a step', expected at most the 4 of its case" in larger.unread[0]


def test_a_process_that_drives_several_cards_is_as_many_ranks(tmp_path: Path) -> None:
    case_id = "mxnet-resnet50v1.5-fp32-bs4-1x2-synthetic"
    write_run(tmp_path / "one" / "c" / "r0", case_id, batch=8, cards_per_process=2)
    assert [own(tmp_path / "one").logs[0].header.cards_per_process] == [2]
    lost = found(write_run(tmp_path / "lost" / "c" / "r0", case_id))
    assert f"field 'cards': got '1 in 1 step logs', expected the 2 of {case_id}" in lost.unread[0]
    larger = found(write_run(tmp_path / "large" / "c" / "r0", case_id, batch=9, cards_per_process=2))
    assert "got '9 images in a step', expected at most the 8 of its case" in larger.unread[0]


def test_a_step_log_outside_of_its_runs_folder_is_refused(tmp_path: Path) -> None:
    def steps(path: Path, said: Mapping[LogSetting, Stated]) -> ImportBatch:
        return ImportBatch((imported(MXNET, format="steplog"),))

    write_log(tmp_path / "V100-LOG" / "copy.jsonl", MXNET)
    folder = read_folder(tmp_path, steps)
    assert folder.runs == ()
    assert "a step log of this suite" in folder.unread[0]


def test_what_was_left_out_of_an_archive_is_told(tmp_path: Path) -> None:
    write_log(tmp_path / "a.zip", MXNET)
    folder = read_folder(tmp_path, lambda path, said: ImportBatch((), (), ("a.zip!b: left out, no log",)))
    assert folder.notes == ("a.zip!b: left out, no log",)


def test_a_file_that_is_no_log_is_told_in_short(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing of a log\n")
    folder = read_folder(tmp_path, read_log)
    (told,) = folder.unread
    assert "no records of a format that is known" in told
    assert "perfgate import-log" in told
    assert len(told) < 400
