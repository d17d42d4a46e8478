"""Everything that four pages have their reader type, typed in the order of the page in a fresh clone (typed.py).

A block whose mode is ``not-run`` is not typed: it tells of a search in environments of its own, or simulates for hours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ANOTHER_MACHINE, CHINESE, COMMANDS, ROOT, TRANSCRIPT, Block, Mode, blocks
from tests.docs.typed import Clone, commit_of, environment, index, released
from tests.helpers.builds.conftest import make_wheel

PAGES = ("README.md", "docs/gate.md", "docs/choosing.md", "docs/bisect.md")
# The only part that is typed of a page, whose other parts choose cases of cards.
PARTS = {"docs/choosing.md": "Builds"}
TRANSLATED = tuple(f"docs/{CHINESE}/{name}.md" for name in ("gate", "reference"))
# The README names none.
NAMING_RELEASES = (*PAGES[1:], "docs/reference.md", *TRANSLATED)
# The suite's own tests are not run within themselves.
INSTEAD = {"make test": "make --dry-run test"}
_CODE = re.compile(r"#.*\bexit code (\d+)")
_RELEASE = re.compile(r"\b(paddlepaddle(?:-gpu)?)==(\d[\w.]*)")
_SECTION = re.compile(r"^## ", re.MULTILINE)
_FOUND = re.compile(r"^FIRST BAD: (\S+)", re.MULTILINE)
# What a reader has: builds of the last nights, of which those from the fourth on are slow, and tonight's.
NIGHTS, FIRST_SLOW = 6, 4


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return index(tmp_path_factory.mktemp("index") / "wheels")


def of_reader(clone: Clone) -> None:
    """What the pages say that the reader has beside the clone."""
    parent = clone.folder.parent
    for night in range(1, NIGHTS + 1):
        version = f"3.4.0.dev2026110{night}"
        make_wheel(parent / "nights", version, commit=commit_of(version, slow=night >= FIRST_SLOW))
    (tonight,) = (parent / "nights").glob(f"*0{NIGHTS}-*.whl")
    environment(parent / "tonight", tonight)
    (parent / "srv/nightly").mkdir(parents=True)
    (parent / "srv/nightly/newest").write_text("paddlepaddle==3.3.1\n", encoding="utf-8")
    (parent / "srv/perfgate").symlink_to(clone.folder)


def sections(page: str) -> Iterator[tuple[str, list[Block]]]:
    """The parts of a page between headings that are typed, each with its blocks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for part in _SECTION.split(text):
        if part.startswith(PARTS.get(page, "")):
            yield part, list(blocks(page, part))


@pytest.mark.parametrize("page", NAMING_RELEASES)
def test_every_release_that_a_page_names_is_on_the_index(page: str) -> None:
    named = set(_RELEASE.findall((ROOT / page).read_text(encoding="utf-8")))
    assert named
    assert named - set(released()) == set()


@pytest.mark.slow
# One and a half minutes on idle cores; beside other work more than the five that other tests have.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_says_can_be_typed(page: str, links: Path, tmp_path: Path) -> None:
    here = Clone(tmp_path / "here/perfgate", links)
    of_reader(here)
    for number, (_, found) in enumerate(sections(page)):
        clone, cards = here, False
        for block in found:
            if block.reason == ANOTHER_MACHINE:
                clone, cards = Clone(tmp_path / f"there{number}/perfgate", links), True
                of_reader(clone)
            if block.mode is Mode.CONFIG:
                clone.write(block.text)
            for line, code in typed(block):
                check(clone, line, 6 if cards and "gate" in line.split() else code, cards=cards)
    check(here, ".venv/bin/python -m pytest perf_tests --collect-only -q", 0, cards=False)


def typed(block: Block) -> Iterator[tuple[str, int]]:
    """Each line that is typed, and the exit code that the page says (0 if it says none)."""
    if block.mode is Mode.NOT_RUN:
        return
    if block.mode is Mode.CRON:
        yield block.text.splitlines()[-1].split(maxsplit=5)[5].replace("/srv/", "../srv/"), 0
    elif block.language == TRANSCRIPT:
        for part in re.split(r"^\$ ", block.text.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            yield line, 1 if "GATE FAILED" in output else 0
    elif block.language == COMMANDS:
        for line in filter(None, block.text.replace("\\\n", "").splitlines()):
            said = _CODE.search(line)
            yield line, int(said[1]) if said else 0


def check(clone: Clone, line: str, code: int, *, cards: bool) -> None:
    ended, printed = clone.type(INSTEAD.get(line.partition("  ")[0], line))
    assert ended == code, f"{line}\n{printed}"
    last = printed.rstrip().rpartition("\n")[2]
    if "perfgate gate" in line and "../srv" not in line:
        verdict = "PASSED" if not code else "RECORDED" if "--update-baselines" in line and not cards else "FAILED"
        assert last.startswith(f"GATE {verdict}:"), f"{line}\n{printed}"
        assert ("not run: looked for a V100" in printed) == cards, printed
    if "perfgate bisect" in line:
        (night,) = clone.folder.parent.glob(f"nights/*0{FIRST_SLOW}-*.whl")
        slow = "paddlepaddle==2.6.2" if "releases.txt" in line else str(night)
        assert _FOUND.findall(printed) == [slow], printed
