"""``perfgate publish`` as a user calls it; what it writes is tested with the site."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from helpers.commands.main import main
from tests.helpers.commands.known import CASE, two_builds


def asked(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    return main(["publish", *arguments], out), out.getvalue()


@pytest.mark.slow
def test_it_says_what_it_made_and_where_to_look(tmp_path: Path) -> None:
    two_builds(tmp_path / "runs", 0.05)
    where = [str(tmp_path / "site"), f"--runs-dir={tmp_path / 'runs'}", "--title=Paddle, nightly"]
    status, text = asked(*where)
    assert status == 0
    assert re.search(r"^\d+ files of 14 nights written, 0 removed, [\d.]+ s\n", text)
    assert f"look at it: {tmp_path / 'site' / 'index.html'}\n" in text
    page = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert "Paddle, nightly" in page and CASE in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["site"], "expected what measuring leaves"),
        (["a-file", "--runs-dir=runs"], "a-file, a file', expected a folder"),
        (["site", "--url=javascript:alert(1)"], "is no address: expected http://"),
    ],
)
def test_what_it_cannot_use_is_refused_with_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    two_builds(tmp_path / "runs", 0.05)
    (tmp_path / "a-file").touch()
    try:
        status = main(["publish", f"--runs-dir={tmp_path / 'nowhere'}", *arguments], io.StringIO())
    except SystemExit as end:
        assert isinstance(end.code, int)
        status = end.code
    assert status == 4 and words in capsys.readouterr().err
    assert not (tmp_path / "site").exists()
