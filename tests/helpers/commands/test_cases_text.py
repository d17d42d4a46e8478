"""The table of cases: footnotes are shared, and nothing could forge a terminal or a table."""

from __future__ import annotations

from helpers.commands.cases import COMPLETE, CaseLine, CaseTable, render, render_markdown

HERE = CaseLine("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu", (), COMPLETE, None, "1 CPU card")
BUILT = CaseLine(
    "paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static",
    "v100",
    ("39972.131 (gate)",),
    COMPLETE,
    "looked for a V100, found no NVIDIA GPU",
    "4 nodes of 8 x V100",
)
REFUSED = CaseLine(
    "mxnet-resnet50v1.5-fp32-bs128-1x1-dali",
    "v100",
    ("389.44 (reference)", "400.0 (disputed)"),
    "field 'framework': no\x1b[31m such thing",
    "looked for a V100, found no NVIDIA GPU",
    "1 x V100",
)
TABLE = CaseTable([HERE, BUILT, REFUSED], "a|b\x1b[2J")


def test_a_case_is_two_lines_and_a_reason_that_cases_share_one_footnote() -> None:
    lines = render(TABLE).splitlines()
    assert max(map(len, lines)) <= 100
    place = lines.index("paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static [v100]")
    assert lines[place + 1].split()[:5] == ["39972.131", "(gate)", "complete", "no", "[1]"]
    assert lines[place + 4].split()[:7] == ["389.44", "(reference),", "400.0", "(disputed)", "incomplete", "[2]", "no"]
    assert "\n".join(lines).count("looked for a V100, found no NVIDIA GPU") == 1


def test_markdown_cells_are_kept_apart() -> None:
    rows = [line for line in render_markdown(TABLE).splitlines() if line.startswith("|")]
    assert len(rows) == 5 and {row.count("|") for row in rows} == {7}
    assert (
        "| `paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static` | v100 | 39972.131 (gate) | complete | no [1] |"
        in rows[3]
    )


def test_the_summary_counts_every_kind() -> None:
    assert [int(each) for each in TABLE.summary.split() if each.isdecimal()] == [3, 2, 1]
