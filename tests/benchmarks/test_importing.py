"""When the importer's speed or memory fails, from processes that nobody had to wait for; and what the logs are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import importing
from benchmarks.importing import CLEAN, HASH, IMPORT, SMALL, Taken, report
from benchmarks.importing_logs import SAMPLES, Sample, Written, write_log
from helpers.logs.formats import FORMATS
from helpers.logs.sources.source import open_logs

WRITTEN = Written(5_000_000, 4_990_000, 10**9)


def taken(import_seconds: float, peak_mib: int) -> dict[str, list[Taken]]:
    """Two rounds: a large log, a small one that took 0.1 s and 90 MiB, and the yardsticks."""
    return {
        IMPORT: [
            Taken(10**9, seconds, seconds, peak_mib * 2**20) for seconds in (import_seconds, import_seconds * 0.9)
        ],
        SMALL: [Taken(16 * 10**6, 0.1, 0.08, 90 * 2**20)] * 2,
        CLEAN: [Taken(10**9, 1.25, 1.25, 60 * 2**20)] * 2,
        HASH: [Taken(10**9, 0.5, 0.5, 50 * 2**20)] * 2,
    }


def test_a_fast_importer_of_constant_memory_passes() -> None:
    lines, missed = report("paddleclas", WRITTEN, taken(5.0, 100))
    assert missed == []
    assert lines == [
        "paddleclas: 1000 MB, 5000000 lines, 4990000 records",
        "  imported: 211 MB/s (200 to 222, n=2; 211 by processor time), 100 MiB",
        "  16 MB of the same: 160 MB/s (160 to 160, n=2; 200 by processor time), 90 MiB",
        "  cleaned alone: 800 MB/s (800 to 800, n=2; 800 by processor time), 60 MiB; "
        "sha256 alone: 2000 MB/s (2000 to 2000, n=2; 2000 by processor time), 50 MiB",
        "  importing takes 9.5 times as long as sha256; "
        "a byte of the large log 0.76 times as long as one of the small; +10.0 MiB at the peak",
    ]


def test_a_slow_importer_fails() -> None:
    assert report("fleetx", WRITTEN, taken(11.0, 100))[1] == ["fleetx: 96 MB/s, at least 100"]


@pytest.mark.parametrize(
    ("peak_mib", "missed"), [(122, []), (123, ["x: 33.0 MiB more than the small log, at most 32"])]
)
def test_an_importer_whose_memory_grows_fails(peak_mib: int, missed: list[str]) -> None:
    assert report("x", WRITTEN, taken(5.0, peak_mib))[1] == missed


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.format)
def test_a_made_log_goes_on_as_a_real_one(sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    written = write_log(path, sample, 600_000)
    (log,) = open_logs(path)
    data = b"".join(chunk.data for chunk in log.chunks())
    found = [match.groupdict() for match in FORMATS[sample.format].record.finditer(data)]
    assert written.size_bytes == path.stat().st_size >= 600_000
    assert (len(found), data.count(b"\n")) == (written.records, written.lines)
    places = [(int(each["epoch"]), int(each["step"])) for each in found]
    assert places == sorted(set(places))
    assert places[-1][0] > 1
    times = re.findall(rb"\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d", data)
    assert times == sorted(times)
    rates = [float(each["images_per_s"]) for each in found]
    assert len(set(rates)) > 400, "no line is like another"


@pytest.mark.slow
def test_the_program_measures_both_sizes_in_a_folder_of_any_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # A log's path that ends so states a batch of 2.
    folder = tmp_path / "x_b2"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(importing, "SMALL_MB", 1)
    monkeypatch.setattr(importing, "GOAL_MB_PER_S", 0.1)
    assert importing.main(["--megabytes", "2", "--rounds", "1", "--formats", "nvidia-mxnet"]) == 0
    assert re.match(r"nvidia-mxnet: 2 MB, \d+ lines, \d+ records\n  imported: \d+ MB/s ", capsys.readouterr().out)


@pytest.mark.slow
def test_a_log_that_is_not_read_whole_stops_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (sample,) = (each for each in SAMPLES if each.format == "paddleclas")
    written = write_log(tmp_path / "a.log", sample, 10**5)
    wrong = Written(written.lines + 1, written.records, written.size_bytes)
    with pytest.raises(SystemExit, match=rf"paddleclas: lines {written.lines}, expected {written.lines + 1}"):
        importing.measured(sample, {tmp_path / "a.log": wrong, tmp_path / "b.log": wrong}, 1)
