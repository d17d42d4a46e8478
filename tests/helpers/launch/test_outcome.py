from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.failure import BAD_LOG, DIVERGED, KILLED, NATIVE_CRASH, RANK_LOST, Failure
from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.outcome import ending_of, guilty_rank
from helpers.launch.tail import RankWatch
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import COMPLETE, FAILED, WARMUP, WINDOW, Footer, Header, Step, StepLogWriter

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs8-1x2-synthetic-dynamic")


def job(folder: Path) -> JobSpec:
    return JobSpec("job", CASE, 3, str(folder), "cpu", warmup_steps=1, window_steps=2)


def log(
    spec: JobSpec,
    rank: int,
    footer: Footer | None = None,
    /,
    steps: int = 3,
    warmup: int = 1,
    samples: int = 8,
    loss: float | None = None,
    **header: object,
) -> RankWatch:
    """A rank that wrote its log and is gone."""
    # No process ids of this machine.
    facts = Header("job", CASE.id, 3, rank, 2, "host", 2**22 + 1 + rank, "paddle", "3", "", "cpu")
    writer = StepLogWriter(spec.step_log_path(rank), replace(facts, **header))
    for number in range(1, steps + 1):
        writer.step(Step(0, number, WARMUP if number <= warmup else WINDOW, number, number + 1.0, samples, 0.0, loss))
    if footer is not None:
        writer.footer(footer)
    watch = RankWatch(spec, rank)
    watch.poll(0.0)
    return watch


def command(spec: JobSpec, output: str = "", *rank_outputs: str) -> LaunchCommand:
    (Path(spec.run_folder) / "output.log").write_text(output)
    paths = [Path(spec.run_folder) / f"worker.{rank}" for rank in range(len(rank_outputs))]
    for path, text in zip(paths, rank_outputs, strict=True):
        path.write_text(text)
    return LaunchCommand(("x",), rank_logs=tuple(map(str, paths)))


@pytest.mark.parametrize(
    ("header", "field"),
    [
        ({"case_id": CASE.id.replace("bs8", "bs4")}, "case_id"),
        ({"replicate": 4}, "replicate"),
        ({"world_size": 4}, "world_size"),
        ({"device": "gpu"}, "device"),
        ({"job_id": "other"}, "job_id"),
        # Two logs of one rank, and of one process.
        ({"rank": 0}, "rank"),
        ({"pid": 2**22 + 1}, "pid"),
    ],
)
def test_a_log_of_something_else_is_no_measurement(tmp_path: Path, header: dict[str, object], field: str) -> None:
    spec = job(tmp_path)
    ranks = [log(spec, 0, Footer(COMPLETE)), log(spec, 1, Footer(COMPLETE), **header)]
    ending = ending_of(spec, command(spec), ranks, 0)
    assert (ending.failure, ending.guilty_rank, ending.logs) == (BAD_LOG, 1, ())
    assert f"field '{field}'" in ending.reason and "rank1.jsonl" in ending.reason


@pytest.mark.parametrize(
    ("footer", "spoil", "failure", "told"),
    [
        (None, "cut", BAD_LOG, 'rank1.jsonl:5: got b\'{"kind": "step", "epo\''),
        (COMPLETE, "not finite", DIVERGED, "rank1.jsonl:4: field 'loss': got nan"),
        (COMPLETE, "a link", BAD_LOG, "[Errno 22] not a regular file but a symbolic link"),
        (COMPLETE, "a stray log", BAD_LOG, "rank7.jsonl: field 'rank': expected logs of ranks 0 to 1"),
    ],
)
def test_a_log_that_cannot_be_trusted_gives_no_figure(
    tmp_path: Path, footer: str | None, spoil: str, failure: Failure, told: str
) -> None:
    spec = job(tmp_path)
    ranks = [log(spec, 0, Footer(COMPLETE)), log(spec, 1, footer and Footer(footer), loss=6.9)]
    path = spec.step_log_path(1)
    if spoil == "cut":
        ranks[1].gone_at = 5.0
        path.write_text(path.read_text() + '{"kind": "step", "epo')
    elif spoil == "not finite":
        *lines, last, end = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines, last.replace("6.9", "NaN"), end]))
    elif spoil == "a link":
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
    else:
        (tmp_path / "rank7.jsonl").write_text("{}\n")
    ending = ending_of(spec, command(spec), ranks, 0)
    assert (ending.failure, ending.logs) == (failure, ())
    assert told in ending.reason


MX = Case.parse("mxnet-resnet50v1.5-fp32-bs8-2x2-dali")


@pytest.mark.parametrize(
    ("samples", "header", "told"),
    [
        (16, {"cards_per_process": 1}, "field 'cards_per_process': got 1, expected 2, as the job says"),
        (8, {}, "step 1 of epoch 0: field 'samples': got 8, expected 16, the batch of its rank's 2 cards"),
        (16, {"world_size": 4}, "field 'world_size': got 4, expected 2, as the job says"),
    ],
)
def test_a_process_that_counts_other_cards_than_its_own_is_no_measurement(
    tmp_path: Path, samples: int, header: dict[str, object], told: str
) -> None:
    spec = replace(job(tmp_path), case=MX, settings={"cards_per_process": 2})
    whole = {"case_id": MX.id, "world_size": 2, "cards_per_process": 2}
    ranks = [
        log(spec, 0, Footer(COMPLETE), samples=16, **whole),
        log(spec, 1, Footer(COMPLETE), samples=samples, **{**whole, **header}),
    ]
    ending = ending_of(spec, command(spec), ranks, 0)
    assert (ending.failure, ending.guilty_rank) == (BAD_LOG, 1)
    assert told in ending.reason


@pytest.mark.parametrize(
    ("warmups", "guilty", "told"),
    [
        ((5, 5), 0, "got 5, expected 6 to 10"),
        ((11, 11), 0, "got 11, expected 6 to 10"),
        ((6, 8), 1, "got 8, expected 6, as in rank 0"),
    ],
)
def test_a_warm_up_outside_its_budget_or_unlike_another_rank_s_is_no_measurement(
    tmp_path: Path, warmups: tuple[int, int], guilty: int, told: str
) -> None:
    spec = replace(job(tmp_path), warmup_steps=6, steady_window_steps=2, most_warmup_steps=10)
    ranks = [log(spec, rank, Footer(COMPLETE), steps=made + 2, warmup=made) for rank, made in enumerate(warmups)]
    ending = ending_of(spec, command(spec), ranks, 0)
    assert (ending.failure, ending.guilty_rank) == (BAD_LOG, guilty)
    assert f"field 'warm-up steps': {told}" in ending.reason


def test_a_missing_log_and_a_bad_exit_are_no_measurement(tmp_path: Path) -> None:
    spec = job(tmp_path)
    first = log(spec, 0, Footer(COMPLETE))
    ending = ending_of(spec, command(spec), [first, RankWatch(spec, 1)], 0)
    assert (ending.failure, ending.guilty_rank) == (BAD_LOG, 1)
    ending = ending_of(spec, command(spec), [first, log(spec, 1, Footer(COMPLETE))], 139)
    assert ending.failure is NATIVE_CRASH and "SIGSEGV" in ending.reason and ending.guilty_rank is None


def test_the_dead_rank_is_told_once_with_its_own_last_words(tmp_path: Path) -> None:
    spec = job(tmp_path)
    watch = log(spec, 1, steps=2)
    watch.gone_at = 5.0
    told = "Container rank 1 status failed cmd ['python'] code -9 log worker.1\n"
    ending = ending_of(spec, command(spec, told, "", "MemoryError\n"), [log(spec, 0, steps=2), watch], 241)
    assert ending.guilty_rank == 1
    assert ending.reason == (
        "rank 1 ended without a footer at step 2: ended by SIGKILL (killed from outside): MemoryError"
    )
    assert ending.failure is not None and ending.failure.what == "out of host memory"


def test_who_failed_by_itself_is_blamed_first_then_who_is_missed_then_who_lost_another_or_is_behind(
    tmp_path: Path,
) -> None:
    def ranks(name: str, *footers: Footer | None, steps: int = 3) -> list[RankWatch]:
        (tmp_path / name).mkdir()
        return [log(job(tmp_path / name), rank, footer, steps=steps - rank) for rank, footer in enumerate(footers)]

    failed, aborted = ranks("own", Footer(FAILED, "DatasetError: bad JPEG"), None)
    aborted.gone_at = aborted.last_growth = 1.0
    assert guilty_rank([failed, aborted]) is failed
    lost, missed = ranks("lost", Footer(FAILED, "RuntimeError: Connection closed by peer"), None)
    missed.gone_at, lost.last_growth = 9.0, 1.0
    assert guilty_rank([lost, missed]) is missed
    missed.gone_at = None
    assert guilty_rank([lost, missed]) is lost
    first, behind = ranks("behind", *[Footer(FAILED, "ValueError: x")] * 2)
    first.last_growth = behind.last_growth = 2.0
    assert guilty_rank([first, behind]) is behind


def test_a_rank_that_its_launcher_says_failed_and_that_never_showed_life_is_blamed(tmp_path: Path) -> None:
    spec = job(tmp_path)
    ended_with_it = log(spec, 0, steps=2)
    ended_with_it.gone_at = 5.0
    told = "Container rank 1 status failed cmd ['python'] code 1 log worker.1\n"
    ranks = [ended_with_it, RankWatch(spec, 1)]
    ending = ending_of(spec, command(spec, told, "", "FileExistsError: rank0.jsonl\n"), ranks, 1)
    assert ending.guilty_rank == 1
    assert ending.reason == (
        "rank 1 ended without a footer at phase 'start': exited with 1: FileExistsError: rank0.jsonl"
    )
    # A launcher that quotes a long traceback behind it has said so all the same, and ends itself by SIGTERM.
    quoted = told + "  File x\n" * 60 + "FileExistsError: rank0.jsonl\n"
    assert ending_of(spec, command(spec, quoted, "", "FileExistsError: rank0.jsonl\n"), ranks, -15) == ending
    assert ending_of(spec, command(spec, told, "", ""), [ended_with_it, log(spec, 1, steps=2)], 1).guilty_rank == 0


def test_how_a_rank_ended_that_lost_its_peer_says_nothing_of_the_peer(tmp_path: Path) -> None:
    spec = job(tmp_path)
    killed, aborted = log(spec, 1, steps=2), log(spec, 0, steps=2)
    killed.gone_at, aborted.gone_at = 5.0, 5.5
    told = "Container rank 0 status failed cmd ['python'] code -6 log worker.0\n"
    ending = ending_of(spec, command(spec, told, "", ""), [aborted, killed], 250)
    assert (ending.guilty_rank, ending.failure) == (1, RANK_LOST)
    assert ending.reason == (
        "rank 1 ended without a footer at step 2: the launcher says only how another rank ended: "
        "rank 0 ended by SIGABRT (native code gave up)"
    )


def test_a_rank_that_its_launcher_ended_is_not_blamed_for_the_one_that_it_names(tmp_path: Path) -> None:
    # torch.distributed.run ends the others so quickly that both may be missed at the same look.
    said = """api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 42) of binary: python
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 41)  (SIGTERM)
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 42)  (SIGKILL)
"""
    spec = job(tmp_path)
    ranks = [log(spec, 0, steps=1), log(spec, 1, steps=2)]
    for rank in ranks:
        rank.gone_at = 3.0
    ending = ending_of(spec, command(spec, said), ranks, 1)
    assert (ending.guilty_rank, ending.failure) == (1, KILLED)
    assert ending.reason == "rank 1 ended without a footer at step 2: ended by SIGKILL (killed from outside)"
