"""A site over its life: what it shows, what it may write over, and text from outside."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import sqlalchemy as sa

from helpers.history import open_history
from helpers.history.codec import plain
from helpers.history.history import History
from helpers.history.nights import NightRecord
from helpers.history.tables import nights
from helpers.report.site.content import site_of
from helpers.report.site.pages import Look, Published, publish
from helpers.trainers.contract.errors import ConfigError, HistoryError
from tests.helpers.history.made import BUILD, moment, night, run, segment
from tests.hostile_strings import TEXTS, check_xml

pytestmark = pytest.mark.slow

SLOW = "paddle-vgg16-fp32-bs8-1x2-dali-static"
QUIET = "paddle-resnet50v1.5-fp32-bs8-1x2-dali-static"
LOOK = Look("perfgate", "")


def build(day: int) -> dict[str, str]:
    """Another commit every third day."""
    return {**BUILD, "commit": f"{day // 3:040x}"}


def add_night(history: History, day: int, case_id: str = SLOW, host: str = "h0", **values: Any) -> NightRecord:
    """A night with one run."""
    rate = values.pop("rate", 4.5 + 0.001 * (day % 5))
    uuid = f"{case_id[:12]}-{host[:8]}-{day}"
    record = night(
        day,
        rate,
        **{
            "case_id": case_id,
            "segment": segment(host=host),
            "host": host,
            "build": build(day),
            "run_uuids": (uuid,),
            "smallest_drop": 0.012,
            "effect": rate - 4.5,
            **values,
        },
    )
    if record.run_uuids:
        history.add_result(
            run(uuid, rate, session=record.session, case_id=case_id, created=moment(day), build=record.build)
        )
    history.add_night(record)
    return record


def fill(url: str, days: Iterable[int]) -> None:
    """Two cases on one machine, one of them on a second one too. On day 5 and from day 9 on SLOW is a regression."""
    with open_history(url) as history:
        for day in days:
            slow = day == 5 or day >= 9
            story = {"status": "REGRESSION", "rate": 4.45, "reason": "slower; confirmed by 6 pairs"} if slow else {}
            add_night(history, day, **story)
            add_night(history, day, QUIET)
            if day % 2:
                add_night(history, day, QUIET, host="h1")


def published(url: str, folder: Path, look: Look = LOOK) -> Published:
    """What publishing did."""
    with open_history(url) as history:
        return publish(history, folder, look, print)


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file of the site."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of 12 days and its site, to be copied."""
    folder: Path = tmp_path_factory.mktemp("made")
    url = f"sqlite:///{folder / 'history.sqlite'}"
    fill(url, range(1, 13))
    published(url, folder / "site")
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> tuple[str, Path]:
    """The history's URL and the site."""
    shutil.copytree(made, tmp_path / "world")
    return f"sqlite:///{tmp_path / 'world' / 'history.sqlite'}", tmp_path / "world" / "site"


class Links(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value and tag != "use":
                self.addresses.append(value)
            if name == "id" and value:
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """Each link of a page that leads to no file or to no part of it, or out of the site."""
    pages = {path.resolve(): Links(path.read_text("utf-8")) for path in site.rglob("*.html")}
    broken = []
    for path, links in pages.items():
        for address in links.addresses:
            file, _, anchor = address.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.is_relative_to(site.resolve()) or not target.is_file():
                broken.append(f"{path.name}: {address}")
            elif anchor and anchor not in pages[target].anchors:
                broken.append(f"{path.name}: {address} (no such part)")
    return broken


def page_of(url: str, site: Path, case_id: str = SLOW, host: str = "h0") -> Path:
    with open_history(url) as history:
        cases = site_of(history).cases
    return (
        site / f"{next(each.page for each in cases if (each.newest.case_id, each.newest.host) == (case_id, host))}.html"
    )


def entries(site: Path) -> list[tuple[str | None, str | None]]:
    root = ElementTree.fromstring((site / "feed.xml").read_bytes())
    return [(each.findtext(f"{ATOM}id"), each.findtext(f"{ATOM}updated")) for each in root.iter(f"{ATOM}entry")]


def test_every_case_and_night_has_a_page_and_every_link_leads_to_one(world: tuple[str, Path]) -> None:
    _, site = world
    counts = {folder: len(list((site / folder).glob("*.html"))) for folder in ("cases", "nights")}
    # h1 measured on every second day.
    assert counts == {"cases": 3, "nights": 12 + 6}
    assert broken_links(site) == []


def test_the_first_page_says_who_is_needed_the_worst_first(world: tuple[str, Path]) -> None:
    text = (world[1] / "index.html").read_text("utf-8")
    assert "1 of 3 cases needs someone" in text
    assert text.index(f">{SLOW}<") < text.index(f">{QUIET}<")
    assert "1.20%" in text


def test_a_case_that_needed_someone_and_is_no_longer_measured_keeps_the_site_from_being_good(
    world: tuple[str, Path],
) -> None:
    url, site = world
    with open_history(url) as history:
        add_night(history, 30, QUIET)
    published(url, site)
    words = "None of 1 case needs anyone; 1 that needed someone is no longer measured"
    assert words in (site / "index.html").read_text("utf-8")
    assert words in (site / "badges" / "all.svg").read_text("utf-8")


def test_the_feed_has_one_entry_for_each_beginning_of_a_regression_and_keeps_its_ids(world: tuple[str, Path]) -> None:
    url, site = world
    before = entries(site)
    assert [when and when[:10] for _, when in before] == ["2024-01-10", "2024-01-06"]
    fill(url, [13])
    published(url, site)
    assert entries(site) == before


def test_a_regression_does_not_begin_again_behind_an_excluded_night(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        add_night(history, 13, status="PASS")
        history.exclude(history.series(SLOW)[-1].uuid, "ada", moment(20), "a broken fan")
        add_night(history, 14, status="REGRESSION")
    published(url, site)
    assert len(entries(site)) == 2


def test_publishing_again_changes_nothing(world: tuple[str, Path]) -> None:
    before = files_in(world[1])
    assert published(*world).removed == 0
    assert files_in(world[1]) == before


def test_what_is_decided_later_is_shown_and_taken_back_without_a_trace(world: tuple[str, Path]) -> None:
    url, site = world
    page = page_of(url, site)
    before = page.read_text("utf-8")
    with open_history(url) as history:
        uuid = history.series(SLOW)[-1].uuid
        history.exclude(uuid, "ada", moment(13), "a broken fan")
    published(url, site)
    assert "excluded by ada" in page.read_text("utf-8")
    with open_history(url) as history:
        history.restore(uuid, "ada", moment(14), "the fan was fine")
    published(url, site)
    assert page.read_text("utf-8") == before


def test_a_case_that_did_not_run_is_shown_on_its_machine_as_what_it_is(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        nothing = {"segment": {}, "log_rates": (), "standing": None, "run_uuids": ()}
        add_night(history, 14, status="INFRA_ERROR", host="h0", **nothing)
    published(url, site)
    text = page_of(url, site).read_text("utf-8")
    assert "INFRA_ERROR" in text and "13 nights" in text


def test_a_night_without_a_run_moves_to_the_machine_that_a_later_run_names(world: tuple[str, Path]) -> None:
    url, site = world
    case_id = QUIET.replace("bs8", "bs16")
    with open_history(url) as history:
        nothing = {"segment": {}, "log_rates": (), "standing": None, "run_uuids": ()}
        add_night(history, 13, case_id, host="node7", status="INFRA_ERROR", **nothing)
    published(url, site)
    before = page_of(url, site, case_id, "node7")
    assert before.exists()
    with open_history(url) as history:
        add_night(history, 14, case_id, host="node7", segment=segment(host="pool-a"))
    assert published(url, site).removed == 3
    assert not before.exists() and page_of(url, site, case_id, "pool-a").exists()


def test_a_slow_slide_is_a_line_on_the_page_of_its_case(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        for day in range(1, 21):
            add_night(history, day, SLOW.replace("bs8", "bs9"), rate=4.5 - 0.001 * day)
    published(url, site)
    slides = page_of(url, site, SLOW.replace("bs8", "bs9")).read_text("utf-8")
    assert "<dt>slope</dt>" in slides and "-1.88%" in slides and "-0.100% a night" in slides
    assert "<dt>slope</dt>" not in page_of(url, site, QUIET).read_text("utf-8")


def test_another_history_removes_what_is_no_longer_anythings(world: tuple[str, Path], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'other.sqlite'}"
    with open_history(url) as history:
        add_night(history, 40)
    assert published(url, world[1]).removed > 20
    published(url, tmp_path / "fresh")
    assert files_in(world[1]) == files_in(tmp_path / "fresh")


def test_a_folder_with_files_of_somebody_else_is_left_as_it_is(world: tuple[str, Path], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("my own page")
    with pytest.raises(ConfigError, match=r"files of others.*Name an empty or a new folder"):
        published(world[0], tmp_path / "mine")
    assert (tmp_path / "mine" / "index.html").read_text() == "my own page"
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"index.html"}


def test_a_folder_of_the_site_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    site.mkdir()
    elsewhere.mkdir()
    (site / "nights").symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=r"the link nights.*Name an empty or a new folder"):
        published(f"sqlite:///{tmp_path / 'h.sqlite'}", site)
    assert list(elsewhere.iterdir()) == [] and not (site / "index.html").exists()


def test_a_history_without_nights_has_a_site_that_says_so(tmp_path: Path) -> None:
    done = published(f"sqlite:///{tmp_path / 'h.sqlite'}", tmp_path / "site")
    assert done.nights == 0 and "The history has no nights yet" in (tmp_path / "site" / "index.html").read_text("utf-8")
    assert broken_links(tmp_path / "site") == []


def test_a_night_that_cannot_be_read_is_named_and_left_out_once_it_is_excluded(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        bad = history.series(SLOW)[3].uuid
        with history._database.writing() as connection:
            connection.execute(sa.update(nights).where(nights.c.uuid == bad).values(body='{"log_rates": ["<b>"]}'))
    with pytest.raises(HistoryError, match=f"night {bad}.*mark"):
        published(url, site)
    with open_history(url) as history:
        history.exclude(bad, "ada", moment(20), "damaged")
    assert published(url, site).nights == 18


def test_text_from_outside_stays_text(tmp_path: Path) -> None:
    url, site = f"sqlite:///{tmp_path / 'h.sqlite'}", tmp_path / "site"
    with open_history(url) as history:
        for number, name in enumerate(sorted(TEXTS)):
            add_nights_of(history, number, TEXTS[name])
    # The longest texts alone would fill the page's title.
    title = " ".join(text for text in TEXTS.values() if len(text) < 200)
    published(url, site, Look(title, ""))
    assert broken_links(site) == []
    for path in site.rglob("*"):
        if path.suffix == ".html":
            page = path.read_text("utf-8")
            assert "<script>alert" not in page and "<img src=x" not in page and "</style" not in page, path
            assert "\u202e" not in page and "\x1b" not in page and "<x>" not in page, path
        elif path.suffix == ".svg":
            check_xml(path.read_text("utf-8"), path.name)
        elif path.suffix == ".xml":
            words = "".join(ElementTree.fromstring(path.read_bytes()).itertext()).replace("\n", "")
            assert words.isprintable()


def add_nights_of(history: History, number: int, text: str) -> None:
    """Two nights of a case in which everything that comes from outside has ``text``."""
    # A series is named by a text that every database takes.
    written = f"{number}{plain(text)}"
    build = {"framework": f"f{text}", "version": f"v{text}", "commit": f"c{text}"}
    for day in (1, 2):
        add_night(
            history,
            day,
            status="REGRESSION",
            case_id=f"case{written}",
            host=f"h{text}",
            session=f"s{day}{number}{text}",
            target=f"t{written}",
            reason=f"r{text}",
            build=build,
            run_uuids=(),
            new_segment=True,
        )
    uuid = history.series(f"case{written}")[0].uuid
    history.exclude(uuid, f"who{text}", moment(3), f"why{text}")
