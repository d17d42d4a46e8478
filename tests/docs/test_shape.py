"""What counts as the same shape, and what does not."""

from __future__ import annotations

import pytest

from tests.docs.shape import difference

SHOWN = """\
case              images/s  status
----------------------------------
vgg [cpu]     0.7416 ± 6.1% (n=5)  PASS
  against recorded 2026-11-21, 7688495538f4 alone
"""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (SHOWN, SHOWN),
        (SHOWN, SHOWN.replace("0.7416", "12.4").replace("6.1%", "+0.33%").replace("2026-11-21", "2031-01-02")),
        (SHOWN, SHOWN.replace("\n  against recorded", " against\n    recorded").replace("------", "---------")),
        ("…\nvgg [cpu] … PASS\n…", SHOWN),
        ("session 20261121-020000-1a2b took 0:43", "session 20301121-020000-ffff took 12:01:07"),
    ],
)
def test_the_same_shape(shown: str, printed: str) -> None:
    assert difference(shown, printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed", "told"),
    [
        (SHOWN, SHOWN.replace("PASS", "INCONCLUSIVE"), "the page has 'PASS"),
        (SHOWN, SHOWN.replace("2026-11-21", "5"), "the page has 'DATE"),
        ("a … b … a", "b a", "the page has 'a … b … a', the output 'b a'".replace("…", "ANY")),
        ("words", "", "the page has 'words'"),
    ],
)
def test_another_shape_is_told_with_its_place(shown: str, printed: str, told: str) -> None:
    assert told in difference(shown, printed)
