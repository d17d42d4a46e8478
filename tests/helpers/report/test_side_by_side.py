"""The comparison of frameworks as text, and as the table of pages."""

from __future__ import annotations

from dataclasses import replace

from helpers.judging.case.verdict import Reason
from helpers.report.side_by_side import frameworks_table, render_frameworks
from helpers.session.side_by_side.comparison import Cell, ConfigurationOutcome, Ratio
from helpers.trainers.contract.frameworks import Framework

PADDLE = Cell(
    Framework.PADDLE, "paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static", (1.0, 2.0), 10936.8, 10900.0, 10980.0,
    status="NO_BASELINE", reason=Reason("", "2 runs"), runs_here=True, build="paddle 3.3.1",
)  # fmt: skip
PYTORCH = replace(
    PADDLE, framework=Framework.PYTORCH, case_id="pytorch-resnet50v1.5-amp_o2-bs256-1x8-dali-compile",
    samples_per_s=5889.05, low=5800.0, high=6000.0, build="pytorch 2.13.0", ratio=Ratio(0.5385, 0.53, 0.547),
    published=0.538,
)  # fmt: skip
NAME = "v100-resnet50v1.5-amp_o2-bs256-1x8-dali"
ROW = ConfigurationOutcome(NAME, (PADDLE, PYTORCH))


def lines(*rows: ConfigurationOutcome) -> list[str]:
    return [" ".join(line.split()) for line in render_frameworks(rows, 200).splitlines()]


def test_a_line_a_framework_below_its_configuration() -> None:
    found = lines(ROW)
    assert found[0] == "framework images/s over Paddle published"
    assert found[2:5] == [
        NAME,
        "Paddle 10937(static) [10900, 10980]",
        "PyTorch 5889(compile) [5800, 6000] 0.538 [0.530, 0.547] 0.538",
    ]
    assert found[-1] == "builds: paddle 3.3.1, pytorch 2.13.0"
    table, notes = frameworks_table([ROW])
    assert table.cells[1] == (NAME, "PyTorch", "5889(compile) [5800, 6000]", "0.538 [0.530, 0.547]", "0.538")
    assert list(notes) == found[5:]


def test_an_empty_cell_has_its_reason_once_and_no_line() -> None:
    why = Reason("", "out of memory")
    empty = Cell(Framework.PYTORCH, PYTORCH.case_id, status="INFRA_ERROR", reason=why, runs_here=True)
    rows = [replace(ROW, name=name, cells=(PADDLE, empty)) for name in ("one", "two")]
    found = lines(*rows)
    assert [each for each in found if each.startswith("PyTorch")] == [
        "PyTorch: not measured, 2 configurations: INFRA_ERROR: out of memory"
    ]
    absent = [Cell(each.framework, each.case_id, status="not run", reason=Reason("", "no V100")) for each in ROW.cells]
    assert lines(replace(ROW, cells=tuple(absent))) == [f"Paddle, PyTorch: not measured, {NAME}: no V100"]
    assert lines() == []


def test_an_interval_without_an_end_has_no_endless_number() -> None:
    wide = replace(PYTORCH, ratio=Ratio(1.024, 3e-8, 32007431.463))
    assert "1.024 [0.000, over 999]" in lines(replace(ROW, cells=(PADDLE, wide)))[4]


def test_a_disputed_figure_and_a_disturbed_one_have_a_star() -> None:
    found = lines(replace(ROW, cells=(replace(PADDLE, marks=("contended",)), replace(PYTORCH, disputed=True))))
    assert "10937(static)* [10900" in found[3] and found[4].endswith(" 0.538*")
    assert any(each.endswith("do not rely on these figures: contended") for each in found)


def test_frameworks_that_are_not_trained_alike_are_told() -> None:
    found = lines(replace(ROW, unlike={"loss_scaling": {"paddle": 128.0, "pytorch": None}}))
    assert f"{NAME}: not trained alike: loss_scaling 128.0 (Paddle), null (PyTorch)" in found
