"""A figure that stands on several pages is the same on each."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT
from tests.for_each import for_each

# What the figure is: the pages, each with a pattern whose groups are the figure.
PLACES: dict[str, dict[str, str]] = {
    "share of 2% drops found at once": {
        "README.md": r"(\d+)% \(95%: (\d+)% to\s+(\d+)%\) of 2% drops",
        "docs/accuracy.md": r"Drops of 2% found at once: \.(\d+) \(95% \.(\d+) to \.(\d+)",
    },
    "false alarms and nights": {
        "README.md": r"with (\d) false alarm\s+in (\d+) nights",
        "docs/accuracy.md": r"that is (\d) on (\d+) nights",
    },
    "most false alarms a night": {
        "README.md": r"at\s+most 0\.(\d\d) a\s+night, 95%",
        "docs/accuracy.md": r"0\.\d+ a night \(95% \S+ to\s+0\.(\d\d)0\)",
    },
    "minutes of make perf": {
        "README.md": r"make perf .*: (\d) to (\d) minutes on two cores",
        "docs/start.md": r"`make perf` takes (\d) to (\d) minutes",
    },
    "published figures": {
        "README.md": r"with (\d+) published V100 and A100 figures",
        "CHANGELOG.md": r"with (\d+) published V100 and A100 figures",
        "docs/published.md": r"holds (\d+) throughput figures",
    },
    "Python": {
        "README.md": r"Python 3\.(\d+) to 3\.(\d+)",
        "docs/start.md": r"Python 3\.(\d+) to 3\.(\d+)",
        "docs/limitations.md": r"Python 3\.(\d+) to 3\.(\d+)",
        "Makefile": r"Python 3\.(\d+) to 3\.(\d+)",
    },
    "evidence that decides": {
        "README.md": r"threshold\s+(\d+)",
        "docs/results.md": r"from (\d+) on A/B pairs",
        "docs/verdicts.md": r"evidence ≥ (\d+) and a drop beyond",
    },
    "tolerance of pairs, %": {
        "README.md": r"tolerance (0\.\d)%",
        "docs/verdicts.md": r"beyond the tolerance \((0\.\d)%\)",
    },
    "largest data set of the suite's own, GB": {
        "docs/start.md": r"up to (\d\.\d) GB",
        "docs/choosing.md": r"\((\d\.\d) GB",
    },
    "spread of runs on 32 cards, %": {
        "docs/accuracy.md": r"\(0\.07 to (\d\.\d+)% by number of cards",
        "docs/verdicts.md": r"(\d\.\d+)% on 32 \(DLPerf",
    },
}


@for_each("figure", PLACES)
def test_a_figure_is_the_same_on_all_its_pages(figure: str) -> None:
    found = {}
    for page, pattern in PLACES[figure].items():
        match = re.search(pattern, (ROOT / page).read_text(encoding="utf-8"))
        assert match is not None, f"{figure}: {page} has it no longer, or in other words: correct the pattern {pattern}"
        found[page] = match.groups()
    assert len(set(found.values())) == 1, f"{figure}: {found}"
