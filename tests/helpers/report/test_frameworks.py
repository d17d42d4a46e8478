"""The comparison of frameworks as text and Markdown."""

from __future__ import annotations

from dataclasses import replace

from helpers.report.frameworks import FrameworksReport, render_frameworks, render_frameworks_markdown
from helpers.session.frameworks.comparison import Cell, ConfigurationOutcome, PublishedCell, Ratio

PADDLE = Cell(
    "paddle", "paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static", (1.0, 2.0), 10936.8, 10900.0, 10980.0,
    status="NO_BASELINE", reason="2 runs", runs_here=True, build="paddle 3.3.1", run_folders=("r0", "r1"),
)  # fmt: skip
PYTORCH = replace(
    PADDLE, framework="pytorch", case_id="pytorch-resnet50v1.5-amp_o2-bs256-1x8-dali-compile", samples_per_s=5889.05,
    low=5800.0, high=6000.0, build="pytorch 2.13.0", ratio=Ratio(0.5385, 0.53, 0.547, 3),
)  # fmt: skip
PUBLISHED = PublishedCell(
    "pytorch", 0.538, "001.txt", "V100-AMP comparison, GPU=8,BS=256", "p", 10936.815, "c", 5889.05, "V100-SXM2-32GB",
)  # fmt: skip
ROW = ConfigurationOutcome(
    "v100-x", "v100", "resnet50v1.5", "amp_o2", 256, 8, 1, "dali", "static", (PADDLE, PYTORCH), (PUBLISHED,)
)  # fmt: skip


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_row_a_configuration_and_a_column_a_framework() -> None:
    lines = render_frameworks(FrameworksReport([ROW]), 110).splitlines()
    assert lines[0] == "v100, resnet50v1.5, amp_o2: images/s (Paddle: static)"
    assert lines[1].split("  ")[0] == "parameters" and lines[1].endswith("published")
    assert flat(lines[3]) == (
        "GPU=8,BS=256 dali 10937 [10900, 10980] 5889(compile) [5800, 6000] 0.538 [0.530, 0.547] 0.538 (1)"
    )
    assert "(1) V100-AMP comparison, GPU=8,BS=256, V100-SXM2-32GB (001.txt): Paddle 10937, PyTorch 5889" in flat(
        "\n".join(lines)
    )
    assert "builds: paddle 3.3.1, pytorch 2.13.0" in lines


def test_four_frameworks_have_four_columns_and_a_ratio_each_but_the_first() -> None:
    tensorflow, mxnet = (
        replace(PYTORCH, framework=name, case_id=f"{name}-resnet50v1.5-amp-bs256-1x8-dali{xla}", build=name)
        for name, xla in (("tensorflow", "-xla"), ("mxnet", ""))
    )
    published = [replace(PUBLISHED, framework=each) for each in ("pytorch", "tensorflow", "mxnet")]
    row = replace(ROW, cells=(PADDLE, PYTORCH, tensorflow, mxnet), published=tuple(published))
    lines = render_frameworks(FrameworksReport([row]), 250).splitlines()
    headings = "parameters Paddle PyTorch TensorFlow MXNet PyTorch / Paddle published TensorFlow / Paddle published"
    assert flat(lines[1]) == f"{headings} MXNet / Paddle published"
    rates = "10937 [10900, 10980] 5889(compile) [5800, 6000] 5889(xla) [5800, 6000] 5889 [5800, 6000]"
    assert flat(lines[3]).startswith(f"GPU=8,BS=256 dali {rates} 0.538 [0.530, 0.547] 0.538 (1) 0.538")
    assert lines[3].count("0.538 [0.530, 0.547]") == 3
    assert "images/s: the median over runs, with its 95% interval" in lines
    narrow = render_frameworks(FrameworksReport([row]), 80).splitlines()
    assert [line.split()[0] for line in narrow[2:6]] == ["Paddle", "PyTorch", "TensorFlow", "MXNet"]


def test_a_narrow_terminal_has_a_line_a_framework() -> None:
    lines = render_frameworks(FrameworksReport([ROW]), 80).splitlines()
    assert lines[1:4] == [
        "GPU=8,BS=256 dali",
        "    Paddle         10937 [10900, 10980]",
        "    PyTorch  5889(compile) [5800, 6000]  0.538 [0.530, 0.547]  published 0.538 (1)",
    ]
    # A framework's line is never broken: a figure and its ratio belong together.
    assert max(len(line) for line in lines if not line.startswith("    PyTorch")) <= 80


def test_an_empty_cell_has_its_reason_below_and_no_ratio() -> None:
    empty = Cell("pytorch", PYTORCH.case_id, status="INVALID", reason="contended: 9%", runs_here=True)
    text = render_frameworks(FrameworksReport([replace(ROW, cells=(PADDLE, empty))]), 110)
    assert flat(text.splitlines()[3]) == "GPU=8,BS=256 dali 10937 [10900, 10980] 0.538 (1)"
    assert "PyTorch: not measured, resnet50v1.5 amp_o2 GPU=8,BS=256 dali: INVALID: contended: 9%" in flat(text)


def test_what_cannot_run_here_at_all_is_a_reason_and_no_table() -> None:
    cells = tuple(Cell(each.framework, each.case_id, status="not run", reason="no V100") for each in ROW.cells)
    rows = [replace(ROW, cells=cells, cards=cards) for cards in (1, 8)]
    assert render_frameworks(FrameworksReport(rows), 80) == "Paddle, PyTorch: not measured, 2 rows: no V100"


def test_one_run_has_no_interval() -> None:
    one = replace(PADDLE, samples_per_s=2.0, low=None, high=None)
    wide = replace(PYTORCH, samples_per_s=2.0, low=0.5, high=7.0, ratio=Ratio(1.0, None, None, 1))
    line = render_frameworks(FrameworksReport([replace(ROW, cells=(one, wide))]), 110).splitlines()[3]
    assert flat(line) == "GPU=8,BS=256 dali 2 2(compile) [0.5, 7] 1.000 0.538 (1)"


def test_an_interval_without_an_end_has_no_endless_number() -> None:
    wide = replace(PYTORCH, ratio=Ratio(1.024, 3e-8, 32007431.463, 2))
    assert "1.024 [0.000, over 999]" in render_frameworks(FrameworksReport([replace(ROW, cells=(PADDLE, wide))]), 110)


def test_a_disputed_figure_and_a_disturbed_one_have_a_star() -> None:
    disputed = replace(PUBLISHED, disputed=True, differs=("8 cards, here 1",))
    marked = replace(PADDLE, marks=("contended",))
    text = flat(
        render_frameworks(FrameworksReport([replace(ROW, cells=(marked, PYTORCH), published=(disputed,))]), 110)
    )
    assert "10937* [10900" in text and "0.538* (1)" in text
    assert "0.538* [0.530, 0.547]" in text
    assert "unlike GPU=8,BS=256 dali: 8 cards, here 1; * disputed: its own logs contradict it" in text
    assert "* measured nevertheless; do not rely on these figures: contended" in text


def test_a_documents_row_says_what_it_pairs_once() -> None:
    rows = [replace(ROW, documented=True, cards=cards) for cards in (1, 8)]
    text = flat(render_frameworks(FrameworksReport(rows), 110))
    assert text.count("v100 amp_o2: as the documents pair them: Paddle amp_o2, dali; PyTorch amp_o2, dali") == 1


def test_frameworks_that_are_not_trained_alike_are_told_once_a_table() -> None:
    unlike = {
        "amp_level": {"paddle": "O2", "pytorch": "O1"},
        "decay_norms": {"paddle": True, "pytorch": False},
        "loss_scaling": {"paddle": 128.0, "pytorch": None},
    }
    text = flat(
        render_frameworks(FrameworksReport([replace(ROW, unlike=unlike, cards=cards) for cards in (1, 8)]), 110)
    )
    told = (
        "v100 resnet50v1.5 amp_o2: not trained alike (perfgate show CASE): amp_level O2 (Paddle), O1 (PyTorch); "
        "decay_norms true (Paddle), false (PyTorch); loss_scaling 128.0 (Paddle), null (PyTorch)"
    )
    assert text.count(told) == 1
    assert "not trained alike" not in render_frameworks(FrameworksReport([ROW]), 110)


def test_foreign_text_is_no_markup() -> None:
    empty = Cell("pytorch", PYTORCH.case_id, status="INFRA_ERROR", reason="<img src=x>|`\x1b[2J", runs_here=True)
    text = render_frameworks_markdown(FrameworksReport([replace(ROW, cells=(PADDLE, empty))], {"machine": "<b>"}))
    assert "<img" not in text and "<b>" not in text and "\x1b" not in text
    assert "\x1b" not in render_frameworks(FrameworksReport([replace(ROW, cells=(PADDLE, empty))]), 80)


def test_nothing_to_show_is_empty() -> None:
    assert render_frameworks(FrameworksReport([]), 80) == ""
