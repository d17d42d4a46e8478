"""A site over its life: the first time, one night more, remarks on old nights, and damaged or foreign files."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sqlalchemy as sa

from helpers.history import open_history
from helpers.history.codec import plain
from helpers.history.history import History
from helpers.history.listing import build_of
from helpers.history.stored import Acknowledgement, Calibration, SegmentStart
from helpers.history.tables import night_runs, nights
from helpers.machine.files import open_lock
from helpers.report.site import names, processes, publish
from helpers.report.site.case_pages import GROUP
from helpers.report.site.folder import STATE
from helpers.report.site.rendering import Look
from helpers.trainers.contract.errors import ConfigError, HistoryError
from tests.helpers.history.made import moment, segment
from tests.helpers.history.postgres import running_server
from tests.helpers.report.site.made import (
    QUIET,
    SLOW,
    add_night,
    build,
    files_in,
    fill,
    published,
)
from tests.hostile_strings import TEXTS, check_json, check_xml

MOST_BYTES = 500_000


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


def assert_as_made_anew(url: str, site: Path) -> None:
    """The site is what publishing the whole history into an empty folder gives."""
    fresh = site.parent / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    published(url, fresh)
    mine, anew = files_in(site), files_in(fresh)
    assert sorted(mine) == sorted(anew)
    assert [name for name in mine if mine[name] != anew[name]] == []


def page_of(site: Path, case_id: str = SLOW, host: str = "h0") -> Path:
    from helpers.history.listing import CaseKey

    return site / f"{names.case_page(CaseKey(case_id, 'cpu', host))}.html"


def test_every_machine_case_build_and_night_has_a_page_and_every_link_leads_to_one(world: tuple[str, Path]) -> None:
    _, site = world
    counts = {folder: len(list((site / folder).glob("*.html"))) for folder in ("machines", "cases", "builds", "nights")}
    # With the lists of builds and nights. h1 measured on every second day.
    assert counts == {"machines": 2, "cases": 3, "builds": 5 + 1, "nights": 12 + 6 + 1}
    assert broken_links(site) == []
    assert list(site.glob("all-*.html")) == []
    assert {path.with_suffix(".json").exists() for path in site.rglob("*.html")} == {True}


def test_the_first_page_says_who_is_needed_and_what_changed_lately(world: tuple[str, Path]) -> None:
    text = (world[1] / "index.html").read_text("utf-8")
    assert "1 of 3 cases needs someone" in text and "since 2024-01-10, before that PASS" in text
    record = json.loads((world[1] / "index.json").read_text("utf-8"))
    assert [each["case_id"] for each in record["cases"]] == [SLOW, QUIET, QUIET]
    assert record["cases"][0]["smallest_drop"] == 0.012 and len(record["lately"]) == 1


def test_a_case_that_needed_someone_and_is_no_longer_measured_keeps_the_site_from_being_good(
    world: tuple[str, Path],
) -> None:
    url, site = world
    with open_history(url) as history:
        add_night(history, 30, QUIET)
    published(url, site)
    words = "None of 1 case needs anyone; 1 that needed someone is no longer measured"
    assert words in (site / "index.html").read_text("utf-8")
    for badge in ("all", "h0-*"):
        [path] = (site / "badges").glob(f"{badge}.svg")
        assert "passing; 1 no longer measured" in path.read_text("utf-8")


def test_the_feed_has_one_entry_for_each_beginning_of_a_regression_and_keeps_its_ids(world: tuple[str, Path]) -> None:
    url, site = world
    atom = "{http://www.w3.org/2005/Atom}"

    def entries() -> list[tuple[str | None, str | None]]:
        root = ElementTree.fromstring((site / "feed.xml").read_bytes())
        return [(each.findtext(f"{atom}id"), each.findtext(f"{atom}updated")) for each in root.iter(f"{atom}entry")]

    before = entries()
    assert [when and when[:10] for _, when in before] == ["2024-01-10", "2024-01-06"]
    fill(url, [13])
    published(url, site)
    assert entries() == before


def test_links_of_the_feed_begin_with_the_address_where_one_is_given(world: tuple[str, Path]) -> None:
    url, site = world
    _, said = published(url, site, Look("perfgate", "https://example.org/perf"))
    assert said == ["note: everything is made anew: the pages have another form, title or address"]
    assert 'href="https://example.org/perf/cases/' in (site / "feed.xml").read_text("utf-8")


def test_publishing_again_writes_nothing(world: tuple[str, Path]) -> None:
    done, said = published(*world)
    assert (done.everything, done.written, done.removed, said) == ("", 0, 0, [])


def test_a_night_touches_what_it_changes_and_nothing_else(world: tuple[str, Path]) -> None:
    url, site = world
    before = files_in(site)
    with open_history(url) as history:
        add_night(history, 14, QUIET)
    published(url, site)
    after = files_in(site)
    changed = {name.rpartition("-")[0] or name for name in after if after[name] != before.get(name)}
    assert changed == {
        "badges/paddle-resnet50v1.5-fp32-bs8-1x2-dali-static-cpu",
        "builds/index.html", "builds/index.json", "builds/paddle-3.3.1-000000000000",
        "cases/paddle-resnet50v1.5-fp32-bs8-1x2-dali-static-cpu",
        "index.html", "index.json", "machines/h0", "nights/index.html", "nights/index.json", "nights/s14", "feed.xml",
    } - {"feed.xml"}  # fmt: skip
    assert_as_made_anew(url, site)


def _excluded(history: History) -> None:
    history.exclude(history.series(SLOW)[4].uuid, "ada", moment(20), "a broken fan")


def _restored(history: History) -> None:
    _excluded(history)
    history.restore(history.series(SLOW)[4].uuid, "ada", moment(21), "the fan was fine")


def _run_excluded(history: History) -> None:
    history.exclude(history.series(SLOW)[2].record.run_uuids[0], "ada", moment(20), "a broken fan")


def _acknowledged(history: History) -> None:
    history.acknowledge(
        Acknowledgement("*vgg16*", "2024-01-06", "2024-01-06", "0123", "new kernels", "ada", moment(20))
    )


def _segment_began(history: History) -> None:
    history.start_segment(SegmentStart(SLOW, "cpu", segment(host="h0"), moment(7, 60), "recorded anew", "0123"))


def _calibrated(history: History) -> None:
    history.add_calibration(
        Calibration(SLOW, "cpu", segment(host="h0"), moment(20), "c", 9, 0.003, 8.0, 0.002, 0.004, 0.0123)
    )


def _judged_again(history: History) -> None:
    add_night(history, 12, status="PASS", created=moment(12, 600), reason="no worse after all")


def _judged_again_before_other_nights(history: History) -> None:
    _judged_again(history)
    # After these, the night that was judged again is no longer among the recent ones.
    for day in range(16, 20):
        add_night(history, day, QUIET)


def _judged_again_in_another_build(history: History) -> None:
    add_night(history, 12, build=build(3), reason="slower; confirmed by 6 pairs", created=moment(12, 600))


def _all_of_a_build_judged_again_in_another(history: History) -> None:
    # Day 12 alone measured this build.
    for case_id in (SLOW, QUIET):
        add_night(history, 12, case_id, build=build(3), created=moment(12, 600))


def _old_night_taken_in(history: History) -> None:
    add_night(history, 3, session="reindexed", created=moment(3, 600))


def _nothing_ran(history: History) -> None:
    add_night(history, 14, status="INFRA_ERROR", segment={}, host="h0", log_rates=(), standing=None, run_uuids=())


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        _excluded,
        _restored,
        _run_excluded,
        _acknowledged,
        _segment_began,
        _calibrated,
        _judged_again,
        _judged_again_before_other_nights,
        _judged_again_in_another_build,
        _all_of_a_build_judged_again_in_another,
        _old_night_taken_in,
        _nothing_ran,
    ],
)
def test_what_changes_later_is_made_again_and_the_site_is_as_if_made_anew(
    world: tuple[str, Path], change: Callable[[History], None]
) -> None:
    url, site = world
    before = page_of(site).read_bytes()
    with open_history(url) as history:
        change(history)
    done, said = published(url, site)
    assert done.everything == "" and said == []
    assert (page_of(site).read_bytes() == before) == (change is _restored)
    assert_as_made_anew(url, site)
    assert broken_links(site) == []


def test_a_case_that_did_not_run_is_shown_on_its_machine_as_what_it_is(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        _nothing_ran(history)
    published(url, site)
    record = json.loads(page_of(site).with_suffix(".json").read_text("utf-8"))
    assert record["summary"]["status"] == "INFRA_ERROR" and record["summary"]["nights"] == 13


@pytest.mark.parametrize(("rate", "known"), [(4.45, True), (4.449, True), (4.3, False)])
def test_an_acknowledged_drop_does_not_hide_a_second_one(world: tuple[str, Path], rate: float, known: bool) -> None:
    url, site = world
    with open_history(url) as history:
        history.acknowledge(Acknowledgement("*vgg16*", "2024-01-10", "2024-01-10", "01", "kernels", "ada", moment(20)))
        add_night(history, 14, status="REGRESSION", rate=rate, reason="slower")
    published(url, site)
    assert json.loads(page_of(site).with_suffix(".json").read_text("utf-8"))["summary"]["acknowledged"] is known
    assert_as_made_anew(url, site)


def test_a_night_without_a_run_can_be_acknowledged_later(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        _nothing_ran(history)
    published(url, site)
    with open_history(url) as history:
        history.acknowledge(
            Acknowledgement("*vgg16*", moment(14), moment(14), "0123", "a full disk", "ada", moment(20))
        )
    published(url, site)
    assert json.loads(page_of(site).with_suffix(".json").read_text("utf-8"))["summary"]["acknowledged"] is True
    assert_as_made_anew(url, site)


@pytest.mark.parametrize("day", [13, 14])
def test_a_night_without_a_run_moves_to_the_machine_that_a_later_run_names(world: tuple[str, Path], day: int) -> None:
    """Day 13 is judged again, as by a resumed session; day 14 is a night of its own."""
    url, site = world
    case_id = QUIET.replace("bs8", "bs16")
    with open_history(url) as history:
        nothing = {"segment": {}, "log_rates": (), "standing": None, "run_uuids": ()}
        add_night(history, 13, case_id, host="node7", status="INFRA_ERROR", **nothing)
    published(url, site)
    assert page_of(site, case_id, "node7").exists()
    with open_history(url) as history:
        add_night(history, day, case_id, host="node7", segment=segment(host="pool-a"))
    done, _ = published(url, site)
    assert done.everything == "nights without a run now belong to another machine"
    assert not page_of(site, case_id, "node7").exists()
    assert_as_made_anew(url, site)


def test_a_case_that_another_machine_measures_too_gets_a_link_to_it(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        add_night(history, 13, SLOW, host="h2")
    published(url, site)
    assert page_of(site, SLOW, "h2").name in page_of(site).read_text("utf-8")
    assert_as_made_anew(url, site)


def test_an_entry_of_a_case_is_of_its_newest_night_that_counts(world: tuple[str, Path]) -> None:
    url, site = world
    before = json.loads(page_of(site).with_suffix(".json").read_text("utf-8"))["summary"]
    with open_history(url) as history:
        add_night(history, 18, SLOW, status="PASS", smallest_drop=0.5)
        history.exclude(history.series(SLOW)[-1].uuid, "ada", moment(20), "a broken fan")
    published(url, site)
    after = json.loads(page_of(site).with_suffix(".json").read_text("utf-8"))["summary"]
    assert after == {**before, "nights": before["nights"] + 1}


def test_the_page_of_a_build_says_which_night_is_excluded_and_does_not_count_it(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        newest = history.series(SLOW)[-1]
        history.exclude(newest.uuid, "ada", moment(20), "a broken fan")
    published(url, site)
    page = (site / f"{names.build_page(build_of(newest.record))}.html").read_text("utf-8")
    assert page.count("(excluded)") == 1 and 'class="verdict pass"' in page


@pytest.mark.slow
def test_a_regression_does_not_begin_again_on_the_next_page_behind_an_excluded_night(tmp_path: Path) -> None:
    url, site = f"sqlite:///{tmp_path / 'h.sqlite'}", tmp_path / "site"
    with open_history(url) as history:
        for day in range(2 * GROUP):
            add_night(history, day, status="REGRESSION" if day >= GROUP - 5 else "PASS")
        for each in history.series(SLOW)[GROUP - 2 : GROUP]:
            history.exclude(each.uuid, "ada", moment(200), "a broken fan")
    published(url, site)
    entries = (site / "feed.xml").read_text("utf-8").count("<entry>")
    assert entries == 1 and len(list((site / "cases").glob("*.1.html"))) == 1


@pytest.mark.slow
def test_older_nights_move_to_pages_that_stay_as_they_are(tmp_path: Path) -> None:
    url, site = f"sqlite:///{tmp_path / 'h.sqlite'}", tmp_path / "site"
    with open_history(url) as history:
        for day in range(2 * GROUP - 1):
            add_night(history, day)
        published(url, site)
        assert list((site / "cases").glob("*.1.html")) == []
        for day in range(2 * GROUP - 1, 3 * GROUP):
            add_night(history, day)
    done, _ = published(url, site)
    assert not done.everything
    [oldest] = (site / "cases").glob("*.1.html")
    assert oldest.read_text("utf-8").count("<tr><td>") == GROUP and len(list((site / "cases").glob("*.2.html"))) == 1
    assert_as_made_anew(url, site)
    assert broken_links(site) == []
    # An old night that comes late moves all that are newer.
    with open_history(url) as history:
        add_night(history, 3, session="late", created=moment(3, 600))
    published(url, site)
    assert_as_made_anew(url, site)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda site: (site / STATE).write_text("{"), "is damaged or not of this version"),
        (lambda site: (site / STATE).write_text('{"schema_version": 99}'), "schema_version 99, known is 2"),
        (lambda site: (site / STATE).unlink(), f"has no {STATE}"),
        (lambda site: page_of(site).unlink(), ".html is gone or changed"),
        (lambda site: page_of(site).write_text("x"), ".html is gone or changed"),
        (lambda site: (site / "badges" / "all.svg").write_text(""), "badges/all.svg is gone or changed"),
    ],
)
def test_a_damaged_site_is_said_and_made_anew(
    world: tuple[str, Path], damage: Callable[[Path], object], words: str
) -> None:
    url, site = world
    before = files_in(site)
    damage(site)
    done, said = published(url, site)
    assert words in done.everything and said == [f"note: everything is made anew: {done.everything}"]
    assert files_in(site) == before


def test_a_changed_character_of_the_state_is_found_by_its_checksum(world: tuple[str, Path]) -> None:
    url, site = world
    text = (site / STATE).read_text("utf-8")
    (site / STATE).write_text(text.replace(SLOW, SLOW.replace("vgg16", "vgg61"), 1))
    done, _ = published(url, site)
    assert "its checksum does not fit" in done.everything
    assert_as_made_anew(url, site)


def test_another_history_and_lost_nights_make_everything_anew_and_remove_what_is_nothings(
    world: tuple[str, Path], tmp_path: Path
) -> None:
    url, site = world
    with open_history(url) as history, history._database.writing() as connection:
        gone = sa.select(nights.c.id).where(nights.c.session == "s3")
        connection.execute(sa.delete(night_runs).where(night_runs.c.night_id.in_(gone)))
        connection.execute(sa.delete(nights).where(nights.c.session == "s3"))
    done, _ = published(url, site)
    # Pages and records of both machines' session.
    assert done.everything == "nights that were there are gone" and done.removed == 4
    assert_as_made_anew(url, site)
    other = f"sqlite:///{tmp_path / 'other.sqlite'}"
    with open_history(other) as history:
        add_night(history, 40)
    done, _ = published(other, site)
    assert done.everything == "it is another history"
    assert_as_made_anew(other, site)


def test_a_file_of_somebody_else_is_neither_overwritten_nor_removed(world: tuple[str, Path], tmp_path: Path) -> None:
    url, site = world
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("my own page")
    with pytest.raises(ConfigError, match=r"index\.html, which the suite did not write.*Name an empty or a new folder"):
        published(url, tmp_path / "mine")
    assert (tmp_path / "mine" / "index.html").read_text() == "my own page"
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"index.html", names.LOCK}
    # A state that names other files removes none of them.
    victims = [tmp_path / "victim.html", site / "nights" / "notes.html", site / "README.md"]
    for each in victims:
        each.write_text("not the suite's")
    from helpers.report.site.folder import read_state, write_state

    state = read_state(site)
    assert state is not None
    state.files.update({f"../{victims[0].name}": "15 0", "../../victim.html": "15 0", "nights/notes.html": "15 0"})
    state.files["README.md"] = "15 0"
    state.revision = replace(state.revision, first="another")
    write_state(site, state)
    published(url, site)
    assert [each.read_text() for each in victims] == ["not the suite's"] * 3


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    site.mkdir()
    elsewhere.write_text("another file")
    (site / ".publish.tmp").symlink_to(elsewhere)
    published(f"sqlite:///{tmp_path / 'h.sqlite'}", site)
    assert elsewhere.read_text() == "another file" and not (site / "index.html").is_symlink()


def test_two_processes_do_not_publish_into_one_folder(world: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    url, site = world
    monkeypatch.setattr(publish, "_LOCK_SECONDS", 0)
    held = open_lock(site / names.LOCK, 0o666)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(ConfigError, match="into which another process publishes"):
        published(url, site)
    os.close(held)
    assert published(url, site)[0].written == 0


def test_a_history_without_nights_has_a_site_that_says_so(tmp_path: Path) -> None:
    done, _ = published(f"sqlite:///{tmp_path / 'h.sqlite'}", tmp_path / "site")
    assert done.nights == 0 and "The history has no nights yet" in (tmp_path / "site" / "index.html").read_text("utf-8")
    assert broken_links(tmp_path / "site") == []
    assert published(f"sqlite:///{tmp_path / 'h.sqlite'}", tmp_path / "site")[0].written == 0


def test_a_night_that_cannot_be_read_is_named_and_left_out_once_it_is_excluded(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        bad = history.series(SLOW)[3].uuid
        with history._database.writing() as connection:
            connection.execute(sa.update(nights).where(nights.c.uuid == bad).values(body='{"log_rates": ["<b>"]}'))
    shutil.rmtree(site)
    with pytest.raises(HistoryError, match=f"night {bad}.*exclude"):
        published(url, site)
    with open_history(url) as history:
        history.exclude(bad, "ada", moment(20), "damaged")
    done, _ = published(url, site)
    assert done.nights == 30 and broken_links(site) == []


@pytest.mark.slow
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
            assert path.stat().st_size < MOST_BYTES
            assert "<script>alert" not in page and "<img src=x" not in page and "</style" not in page, path
            assert "\u202e" not in page and "\x1b" not in page and "<x>" not in page, path
        elif path.suffix == ".json" and path.name != STATE:
            check_json(path.read_text("utf-8").rstrip("\n"), path.name)
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
            segment_reason=text,
            new_segment=True,
        )
    uuid = history.series(f"case{written}")[0].uuid
    history.exclude(uuid, f"who{text}", moment(3), f"why{text}")
    pattern = f"case{number}*"
    history.acknowledge(Acknowledgement(pattern, "2024-01-03", "", f"c{text}", f"why{text}", f"who{text}", moment(3)))


@pytest.mark.slow
def test_a_page_of_many_long_texts_is_cut_into_parts_before_it_grows_too_large(tmp_path: Path) -> None:
    url, site = f"sqlite:///{tmp_path / 'h.sqlite'}", tmp_path / "site"
    with open_history(url) as history:
        for _ in range(12):
            history.acknowledge(Acknowledgement("*-1", "", "", "1", '"' * 30_000, '"' * 30_000, moment(1)))
        for number in range(60):
            add_night(
                history,
                1,
                status="SLOWER",
                host='"' * 300 + str(number) if number > 5 else "h0",
                case_id=f"{QUIET}-{number}",
                reason='"' * 20_000,
                run_uuids=(),
                build={"version": '"' * 900},
            )
    published(url, site)
    pages = sorted(path.name for path in (site / "nights").glob("s1-*.html"))
    assert len(pages) > 5 and any(".part2." in name for name in pages)
    assert max(path.stat().st_size for path in site.rglob("*.html")) < MOST_BYTES
    # Rows of a later part are reached by its address, and every part leads to all others.
    assert [link for link in broken_links(site) if "no such part" not in link] == []
    with open_history(url) as history:
        for number in range(59):
            history.add_night(
                replace(history.series(f"{QUIET}-{number}")[0].record, reason="short", created=moment(1, 60))
            )
    done, _ = published(url, site)
    assert done.removed
    assert_as_made_anew(url, site)


@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b", "a-b"), ("a", "A"), ("a\u202eb", "a-b"), ("x" * 200, "x" * 201), ("", "-"), ("..", "."), ("ü", "ö")],
)
def test_names_that_differ_only_by_odd_characters_have_files_of_their_own(one: str, other: str) -> None:
    pages = [names.machine_page(each) for each in (one, other)]
    assert len({each.lower() for each in pages}) == 2
    for each in pages:
        assert names.is_ours(f"{each}.html") and len(each) < 120


@pytest.mark.slow
def test_several_processes_make_what_one_makes(world: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    url, site = world
    with open_history(url) as history:
        _excluded(history)
        _old_night_taken_in(history)
    monkeypatch.setattr(processes, "_LEAST_CASES", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    done, _ = published(url, site)
    assert done.everything == "" and done.cases == 1 and done.sessions == 2
    several = files_in(site)
    # Each process makes the sessions of some days, too. Builds of three days are measured in two processes.
    monkeypatch.setattr(processes, "_LEAST_SESSIONS", 1)
    for cores in (2, 5):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        shutil.rmtree(site)
        published(url, site)
        assert files_in(site) == several
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert_as_made_anew(url, site)


@pytest.mark.slow
def test_what_a_process_of_several_raises_is_raised_and_one_that_is_lost_is_said(
    world: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, site = world
    monkeypatch.setattr(processes, "_LEAST_CASES", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    before = (site / STATE).read_bytes()
    with open_history(url) as history:
        _excluded(history)

    def refused(*_: object) -> None:
        raise HistoryError("a night", got="damage")

    monkeypatch.setattr(processes, "make_case", refused)
    with pytest.raises(HistoryError, match="a night: got 'damage'"):
        published(url, site)
    monkeypatch.setattr(processes, "make_case", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(processes.ProcessLost, match="ended without an answer"):
        published(url, site)
    # Nothing says that it was done; the next call makes everything anew.
    assert (site / STATE).read_bytes() == before
    monkeypatch.undo()
    assert "was ended while it wrote pages" in published(url, site)[0].everything
    assert_as_made_anew(url, site)
    assert published(url, site)[0].everything == ""


@pytest.mark.slow
def test_a_call_that_was_killed_is_gone_on_with_whatever_it_had_written(world: tuple[str, Path]) -> None:
    url, site = world
    with open_history(url) as history:
        _acknowledged(history)
        mark = history.acknowledgements()[0]
    # A process of its own is killed after the pages of builds were written, and before the state is.
    child = os.fork()
    if child == 0:
        publish.make_lists = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        published(url, site)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert b"acknowledged by ada" in page_of(site).read_bytes()
    # What it wrote is no longer so, and the state already says what is to be written.
    with open_history(url) as history:
        history.take_back(mark, "bob", moment(21), "it was the fan")
    done, said = published(url, site)
    assert "was ended while it wrote pages" in done.everything and len(said) == 1
    assert_as_made_anew(url, site)
    assert not (site / names.UNFINISHED).exists()


def test_a_record_of_a_build_that_was_changed_without_changing_its_size_is_made_anew(world: tuple[str, Path]) -> None:
    url, site = world
    before = files_in(site)
    record = next(path for path in (site / "builds").glob("paddle*.json") if "s12" in path.read_text("utf-8"))
    record.write_text(record.read_text("utf-8").replace("s12", "s21"))
    with open_history(url) as history:
        _excluded(history)
        _judged_again(history)
    done, _ = published(url, site)
    assert done.everything == f"builds/{record.name} was changed"
    assert_as_made_anew(url, site)
    assert files_in(site) != before


def test_a_folder_of_the_site_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    site.mkdir()
    elsewhere.mkdir()
    (site / "nights").symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=r"nights, a link.*Name an empty or a new folder"):
        published(f"sqlite:///{tmp_path / 'h.sqlite'}", site)
    assert list(elsewhere.iterdir()) == [] and not (site / "index.html").exists()


def test_an_acknowledgement_that_is_taken_back_leaves_the_page_as_it_was(world: tuple[str, Path]) -> None:
    url, site = world
    before = page_of(site).read_bytes()
    with open_history(url) as history:
        _acknowledged(history)
    published(url, site)
    assert b"acknowledged by ada" in page_of(site).read_bytes()
    with open_history(url) as history:
        history.take_back(history.acknowledgements()[0], "bob", moment(21), "it was the fan")
    published(url, site)
    assert page_of(site).read_bytes() == before
    assert_as_made_anew(url, site)


@pytest.mark.slow
def test_a_history_in_postgresql_has_the_same_site(world: tuple[str, Path], tmp_path: Path) -> None:
    _, of_sqlite = world
    with running_server() as server:
        url, site = server.new_database(), tmp_path / "site"
        fill(url, range(1, 12))
        published(url, site)
        fill(url, [12])
        done, _ = published(url, site)
        assert (done.everything, done.cases, done.sessions) == ("", 2, 1)
        assert files_in(site) == files_in(of_sqlite)
        for change in (_excluded, _run_excluded, _acknowledged, _segment_began, _nothing_ran):
            with open_history(url, runs_folder=tmp_path) as history:
                change(history)
            assert published(url, site)[0].everything == ""
        assert_as_made_anew(url, site)
