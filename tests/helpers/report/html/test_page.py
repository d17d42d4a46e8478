"""The page's content: what is on the first screen, what each case shows, and that text from outside stays text."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import re
from dataclasses import replace

import pytest

from benchmarks.made_sessions import session_of
from benchmarks.page import MOST_BYTES
from helpers.history.stored import CaseNights
from helpers.judging.case.verdict import Reason, Status
from helpers.report.html.page import FOLDED_AFTER, night_page, page_of
from helpers.report.markdown import results_markdown
from helpers.report.results import SessionReport
from helpers.report.row import row_of
from helpers.report.sentences import headline, sentence_of
from helpers.report.utilisation import Utilisation
from helpers.session.case_details import CaseDetails
from helpers.session.gate import effect
from helpers.session.gate_verdict import NOT_REACHED, GateCase, GateState, GateVerdict
from helpers.session.side_by_side.comparison import Cell, ConfigurationOutcome, Ratio
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.standings import with_values
from tests.hostile_strings import TEXTS

pytestmark = pytest.mark.slow


class Reader(html.parser.HTMLParser):
    """The elements of a page, its texts, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def session() -> SessionReport:
    return session_of(12, 30)


@pytest.fixture(scope="module")
def page(session: SessionReport) -> str:
    return night_page(session)


def test_the_first_words_are_the_verdict_and_the_worst_case_comes_first(session: SessionReport, page: str) -> None:
    content = page_of(session)
    assert content["headline"] == "The gate failed: 8 of 12 cases did not pass; the largest drop is 7.9%"
    assert content["tone"] == "fail"
    assert [each["row"].status for each in content["urgent"][:2]] == ["REGRESSION", "SLOWER"]
    assert {each["row"].effect for each in content["urgent"]} == {"fail", "error"}
    assert len(content["urgent"]) == 8
    assert page.index("<h1>The gate failed") < page.index("8 cases need someone") < page.index("All cases")
    first = content["urgent"][0]
    assert (
        first["sentence"]
        == "3.1% slower than the reference build (95%: -3.7% to -2.5%), confirmed by 6 pairs of runs in turn."
    )
    assert first["small"] is not None and first["row"].owner == "@data-loading"


def test_a_card_says_the_case_s_own_reason_and_the_gate_s_rule_after_it(session: SessionReport, page: str) -> None:
    cases = {each["row"].status: each for each in page_of(session)["urgent"]}
    open_pairs = cases["INCONCLUSIVE"]
    slower = sum(each.difference < 0 for each in open_pairs["row"].pairs)
    assert open_pairs["sentence"] == (
        f"1.1% slower than the reference build (95%: -1.7% to -0.5%): slower in {slower} of 6 pairs. "
        "Not decided: open after all 6 pairs (budgets: pairs)."
    )
    assert open_pairs["gate_rule"] == "The gate does not let INCONCLUSIVE pass (needs: recorded)."
    assert cases["not run"]["sentence"] == "no such device: 16 cards asked, 8 found"
    assert cases["not run"]["gate_rule"] == "The gate does not let a case pass that was not run (needs: recorded)."
    assert cases["REGRESSION"]["gate_rule"] == ""
    cards = page[page.index('<ul class="urgent">') : page.index('id="cases"')]
    for case in (open_pairs, cases["not run"], cases["NO_BASELINE"]):
        assert cards.index(case["sentence"]) < cards.index(case["gate_rule"])
        assert case["row"].reason.endswith(f"; t{case['gate_rule'][1:-1]}")


def test_pairs_of_a_gain_that_is_lost_are_counted_against_the_level_of_the_nights(session: SessionReport) -> None:
    row = next(each for each in session.rows if each.status == "INCONCLUSIVE")
    assert row.standing is not None
    pairs = tuple(replace(each, candidate_samples_per_s=1.01 * each.reference_samples_per_s) for each in row.pairs)
    lost = replace(row, pairs=pairs, standing=with_values(row.standing, pairs=6, level=0.03))
    assert sentence_of(lost).startswith("1.1% slower than the nights before, beside the reference build (95%")
    assert "slower in 6 of 6 pairs" in sentence_of(lost)


def test_the_headline_has_the_largest_drop_and_says_if_it_is_not_confirmed(session: SessionReport) -> None:
    row = next(each for each in session.rows if each.status == "INCONCLUSIVE")
    passed = next(each for each in session.rows if each.status == "PASS")
    gate = GateVerdict(GateState.FAILED, 1, 0, (GateCase(row.case_id, "v100", row.status, "", ""),), ())
    words = "The gate failed: 1 of 2 cases did not pass; the largest drop is 1.1%, not confirmed"
    assert headline([row, passed], gate, 6) == (words, "fail")
    assert headline([passed], replace(gate, state=GateState.PASSED, failed=()), 0)[0] == "The gate passed: 1 case"


def test_a_case_shows_all_that_is_known_of_it(session: SessionReport, page: str) -> None:
    case = page_of(session)["cases"][0]
    section = page[page.index('id="case-1"') : page.index('id="case-2"')]
    assert len(case["lines"]) == 30 and [each.kind for each in case["levels"]] == ["recorded", "good", "published"]
    for part in (case["nights"], case["pairs"], case["steps"]):
        assert part is not None and str(part) in section
    for text in (
        "30 nights as a table", "6 pairs as a table", "data wait", "15 runs, contention and health", "sm clock mhz",
        "By every measuring rule", "settings and where each comes from", "DLPerf", "run: driver", "535.104.05",
        "Again:", case["command"].split()[0], "smallest drop", "owner: @data-loading", "3062",
    ):  # fmt: skip
        assert text in section, text


def test_what_differs_from_the_night_before_stands_above_the_environment(session: SessionReport, page: str) -> None:
    (change,) = page_of(session)["cases"][0]["changes"]
    assert (change.name, change.before, change.now) == ("driver", "535.104.05", "550.54.15")
    assert page_of(session)["changes"] == (change,)
    assert "since the night before: run: driver: 535.104.05 → 550.54.15</div>" in page
    section = page[page.index('id="case-1"') : page.index('id="case-2"')]
    assert section.index("New since") < section.index("<summary>Environment</summary>")


def test_the_machine_s_tables_stand_once(page: str) -> None:
    assert page.count("Intel Xeon Gold 6148") == 1


def test_a_session_without_a_gate_says_how_many_did_not_pass(session: SessionReport) -> None:
    rows = [replace(row, effect=effect(Status(row.status)).value) for row in session.rows]
    assert headline(rows, None, 1) == ("5 of 11 cases did not pass; the largest drop is 7.9%", "fail")
    passed = [each for each in rows if each.effect == "pass"]
    assert headline(passed, None, 0) == ("All 4 cases passed", "pass")
    doubtful = [*passed, *(each for each in rows if each.effect == "warn")]
    words = "2 of 6 cases could not be judged; the largest drop is 1.1%, not confirmed"
    assert headline(doubtful, None, 0) == (words, "warn")
    assert headline(passed, None, 6) == ("The session ended with exit code 6", "fail")
    assert headline([], None, 0) == ("Nothing was measured", "warn")


def test_a_session_that_skipped_selected_cases_is_not_green_by_silence(session: SessionReport) -> None:
    passed = [replace(row, effect="pass") for row in session.rows if row.status == Status.PASS.value][:2]
    refused = replace(passed[0], status=Status.NOT_RUN.value, effect="skip")
    assert headline([*passed, refused], None, 0) == ("2 cases passed, but 1 of 3 selected did not run", "warn")
    assert headline(passed, None, 0, not_reached=4) == ("2 cases passed, but 4 of 6 selected did not run", "warn")
    short = replace(session, rows=tuple(passed), outcomes=(), gate=None, night=None, exit_code=0, not_reached=4)
    assert "did not run" in results_markdown(short).splitlines()[0]
    text = night_page(short)
    assert "but 4 of 6 selected did not run" in text and "Nobody is needed" not in text


def test_a_case_of_the_gate_without_a_result_needs_someone(session: SessionReport) -> None:
    lost = GateCase("paddle-vgg16-fp32-bs8-1x2-dali-static", "v100", NOT_REACHED, "", "ada")
    gate = GateVerdict(GateState.FAILED, 0, 0, (lost,), (), ("interrupted",))
    text = night_page(replace(session, gate=gate))
    assert "The session has no result of this case." in text and "<b>ada</b>" in text


def test_a_night_on_a_busy_machine_names_who_kept_it_busy_and_calls_for_no_owner() -> None:
    lost = GateCase("a-case", "cpu", NOT_REACHED, "", "vision team")
    gate = GateVerdict(GateState.FAILED, 0, 0, (lost,), (), ("the machine is busy",))
    machine, busy = {"host": "h", "found": "2 cores"}, "The machine is busy, nothing was measured: python (pid 7)"
    report = SessionReport((), "s", 6, machine, ("pytest",), 1, gate=gate, busy=busy)
    for text in (night_page(report), results_markdown(report)):
        assert "The gate failed: nothing was measured, the machine was busy" in text
        assert "python (pid 7)" in text.replace("\\", "") and "vision team" not in text


def test_a_session_of_rows_alone_has_a_page_too(session: SessionReport) -> None:
    """A case whose outcome was lost, and a history that does not answer."""
    text = night_page(replace(session, outcomes=()))
    assert "The history holds no night of this case with a figure." in text
    away = CaseDetails(CaseNights(unknown="the history is away"))
    assert "the history is away" in night_page(replace(session, details=lambda outcome: away))


def test_speed_ups_and_frameworks_have_their_tables_and_pictures(session: SessionReport, page: str) -> None:
    assert "Speed-up and efficiency" in page and "efficiency</th>" in page
    drawn = [each for each in session.scaling if any(row.speed_up for row in each.rows if row.cards > 1)]
    assert page.count('aria-label="speed-up and efficiency: 8 cards ') == len(drawn) > 0
    ours = Cell(Framework.PADDLE, "paddle-vgg16-fp32-bs8-1x1-dali-static", (100.0,), 100.0, 99.0, 101.0, runs_here=True)
    theirs = Cell(Framework.PYTORCH, "pytorch-vgg16-fp32-bs8-1x1-dali", (90.0,), 90.0, 89.0, 91.0, runs_here=True)
    cells = ours, replace(theirs, ratio=Ratio(0.9, 0.8, 1.0))
    compared = ConfigurationOutcome("v100-vgg16-fp32-bs8-1x1-dali", cells)
    text = night_page(replace(session, frameworks=(compared,)))
    assert "Frameworks side by side" in text and "0.900 [0.800, 1.000]" in text
    assert "aria-label=\"speed over Paddle's: PyTorch" in text or "speed over Paddle&#x27;s: PyTorch" in text
    assert "Frameworks side by side" not in page


def test_the_share_of_peak_has_a_column_where_the_chip_is_known(session: SessionReport, page: str) -> None:
    row = replace(session.rows[0], utilisation=Utilisation(0.381, "Tesla T4", "fp16", 1, 65.0, 24_300_000_000))
    text = night_page(replace(session, rows=[row, *session.rows[1:]]))
    assert ">of peak</th>" in text and ">38.1%</td>" in text and "<dt>share of peak</dt>" in text
    assert ">of peak</th>" not in page


def test_the_page_names_its_style_and_script_by_digest_and_allows_nothing_else(page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    digests = [
        "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", page, re.DOTALL)
    ]
    policy = policy.replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; ")
    assert re.findall(r"(?:style|script)-src '([^']*)'", policy) == digests and len(digests) == 2


def check_self_contained(text: str) -> Reader:
    """Nothing of the page is fetched, runs or is styled besides its own style and script."""
    reader = Reader(text)
    assert reader.names.count("script") == reader.names.count("style") == 1
    assert not {"img", "image", "iframe", "object", "embed", "link", "base", "foreignobject"} & set(reader.names)
    for tag, name, value in reader.attributes:
        assert not name.startswith("on") and name not in ("src", "style", "srcset", "action"), (tag, name)
        if name.endswith("href"):
            assert value.startswith("#"), value
    return reader


def test_the_page_fetches_nothing(page: str) -> None:
    check_self_contained(page)


@pytest.fixture(scope="module")
def usual_names() -> list[str]:
    """The elements of a page that has a harmless word wherever text comes from outside."""
    return elements(Reader(night_page(session_of(3, 3, steps=5, hostile="word"))))


def elements(reader: Reader) -> list[str]:
    """Every element in order, without those that fold a long text."""
    return [name for name in reader.names if name not in ("details", "summary", "span")]


def test_text_from_outside_stays_text(usual_names: list[str]) -> None:
    """In reasons, owners, hosts, builds, commits, log lines, settings' sources, notes and commands. Several at a time,
    as long as a text that is not folded."""
    together = [""]
    for text in TEXTS.values():
        if len(together[-1]) + len(text) < 150:
            together[-1] += f" {text}"
        elif len(text) < 150:
            together.append(text)
    for hostile in together:
        reader = check_self_contained(night_page(session_of(3, 3, steps=5, hostile=hostile)))
        assert elements(reader) == usual_names
        assert not [each for each in "".join(reader.texts) if not each.isprintable() and each not in "\n\t"]


def test_ten_thousand_characters_are_folded_and_stay_whole(session: SessionReport) -> None:
    long = "x" * 10_000
    outcome = session.outcomes[1]
    outcome = replace(outcome, verdict=replace(outcome.verdict, reason=Reason("made", long)))
    text = night_page(replace(session, rows=[row_of(outcome)], outcomes=[outcome], gate=None))
    assert f"<summary>{'x' * FOLDED_AFTER}…</summary><span>{long}</span>" in text
    assert len(night_page(session_of(3, 3, steps=5, hostile=long))) < MOST_BYTES


def test_sixty_cases_of_ninety_nights_fit_into_three_megabytes() -> None:
    assert len(night_page(session_of(60, 90)).encode()) < MOST_BYTES
