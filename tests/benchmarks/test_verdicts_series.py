"""Real series become nights; a folder without them says so."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.verdict_real import RealSize, real_series_text
from benchmarks.verdict_replay import Scores
from benchmarks.verdict_series import DLPERF, KOKKOS, MLPERF, TIGERBEETLE, dlperf, kokkos, mlperf, tigerbeetle
from benchmarks.verdict_worlds import At
from helpers.history.trend import ChangePoint
from helpers.judging.evidence import Build
from helpers.trainers.contract.errors import SuiteError

SMALL = RealSize(machines=1, quiet=1, dropped=1, nights=20)
RECORDED = 7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two MLPerf systems (one never steady), two DLPerf configurations, three Kokkos series, TigerBeetle."""
    generator = np.random.default_rng(0)

    def rate(level: float, spread: float = 0.0005) -> float:
        return level * math.exp(generator.normal(0, spread))

    windows = ["round,submitter,system,run,start_ms,node,host,epoch,b0,b1,samples_per_s"]
    for system, spread in (("steady", 0.0005), ("wild", 0.2)):
        for run in range(5):
            for epoch in range(5):
                for b0 in range(0, 200, 20):
                    level = 10.0 if b0 == 0 or epoch < 2 else 1000.0
                    windows.append(f"v1,A,{system},{run},,0,h,{epoch},{b0},{b0 + 20},{rate(level, spread)}")
    with gzip.open(tmp_path / MLPERF, "wt") as file:
        file.write("\n".join(windows))
    repeats = ["file,config,run,samples_per_s"]
    repeats += [f"R.md,logs/{config}/x,{run},{rate(500)}" for config in ("1n1g", "4n8g") for run in range(5)]
    (tmp_path / DLPERF).write_text("\n".join(repeats))
    for name in (KOKKOS, TIGERBEETLE):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    runs = ["build,date,commit,benchmark,real_time,unit,n_rep"]
    for benchmark, nights in (("a", 40), ("b", 38), ("short", 5)):
        # Newest first, as a file may have them.
        runs += [
            f"g,2024-{1 + n // 28:02}-{1 + n % 28:02},c,{benchmark},{1 / (1 + n)},s,1" for n in reversed(range(nights))
        ]
    with gzip.open(tmp_path / KOKKOS, "wt") as file:
        file.write("\n".join(runs))
    (tmp_path / TIGERBEETLE).write_text(
        "\n".join(str(rate(100 if n < 15 else 80 if n < 71 else 120)) for n in range(100))
    )
    return tmp_path


def spread(replay: object, machines: object) -> list[Scores]:
    return [replay(machine) for machine in machines]  # type: ignore[operator,attr-defined]


def test_an_mlperf_run_is_measured_where_the_system_is_steady(folder: Path) -> None:
    nights = mlperf(folder, 1)
    assert len(nights.cases) == len(nights.runs) == 1
    drawn = [nights.run(At(0, 0), 0, Build.CANDIDATE, number) for number in range(50)]
    assert {len(run.step_seconds) for run in drawn} == {5}
    # Neither the first epochs nor an epoch's first window, which are a hundred times slower.
    assert all(math.exp(run.log_rate) == pytest.approx(1000, rel=0.01) for run in drawn)
    assert len({run.log_rate for run in drawn}) > 10


def test_resampled_runs_are_the_same_when_asked_again_and_others_for_the_other_build(folder: Path) -> None:
    nights = mlperf(folder, 1)
    at = At(2, 41)
    one = [nights.run(at, 0, Build.CANDIDATE, number).log_rate for number in range(9)]
    assert one == [mlperf(folder, 1).run(at, 0, Build.CANDIDATE, number).log_rate for number in range(9)]
    assert one != [nights.run(at, 0, Build.REFERENCE, number).log_rate for number in range(9)]
    assert one != [mlperf(folder, 2).run(at, 0, Build.CANDIDATE, number).log_rate for number in range(9)]


def test_a_dlperf_run_is_one_of_the_repeats(folder: Path) -> None:
    nights = dlperf(folder, 1)
    assert [case.cards for case in nights.cases] == [1, 32]
    drawn = {nights.run(At(0, night), 0, Build.CANDIDATE, 0).log_rate for night in range(80)}
    assert len(drawn) == 5


def test_a_long_series_is_replayed_in_the_order_of_its_dates(folder: Path) -> None:
    nights = kokkos(folder, RECORDED)
    assert len(nights.cases) == 2
    assert {len(series) for series in nights.log_rates} == {38}
    rates = [math.exp(nights.run(At(0, night), 0, Build.CANDIDATE, 0).log_rate) for night in range(3)]
    assert rates == pytest.approx([8, 9, 10])
    recorded = {round(math.exp(nights.run(At(0, 0), 0, Build.REFERENCE, number).log_rate)) for number in range(7)}
    assert recorded == {1, 2, 3, 4, 5, 6, 7}


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / MLPERF).write_bytes(b"no gzip")
    with pytest.raises(SuiteError, match=MLPERF):
        mlperf(folder, 1)
    with pytest.raises(SuiteError, match="tigerbeetle"):
        tigerbeetle(folder / "elsewhere", RECORDED)


@pytest.mark.slow
def test_every_series_is_told(folder: Path) -> None:
    told = real_series_text(
        folder, 1, SMALL, lambda series: tuple((ChangePoint(15, 2.0, 1.0, 0.0),) for _ in series), spread
    )
    assert f"{MLPERF}: 1 ResNet-50" in told
    assert f"{DLPERF}: 2 configurations" in told
    assert "of published" not in told
    assert "2 series of shared runners, 20 nights" in told
    assert "0 REGRESSION" in told
    assert "Otava, asked once at the end, 3 steps" in told
    beetle = told[told.index(TIGERBEETLE) :]
    assert "agreed changes at 15 (-20%), 71 (+50%)" in beetle
    # The drop is told the night it comes, and not as a regression: there is no other build.
    assert "nights: 15" in beetle
    assert beetle.endswith("Otava: 15")


def test_series_that_the_folder_has_not_are_left_out_by_name(folder: Path) -> None:
    for name in (MLPERF, DLPERF, KOKKOS, TIGERBEETLE):
        (folder / name).unlink()
    told = real_series_text(folder, 1, SMALL, None, spread)
    assert told.split("\n\n") == [
        f"{name}: left out, the folder has none" for name in (MLPERF, DLPERF, KOKKOS, TIGERBEETLE)
    ]
