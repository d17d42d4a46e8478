"""A night's file is not believed: what no suite wrote is named, in a file and in the history, and can be left out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from helpers.commands.main import EXIT_USAGE, main
from helpers.history.history import History
from helpers.history.nights import night_of, night_text, night_uuid
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import HistoryError
from tests.helpers.commands.conftest import machine  # noqa: F401 - the fixture
from tests.helpers.history.made import CASE, SEGMENT, moment, night

TEACHES = {"teaches_level": True, "teaches_good": True}
DEEP = json.loads("[" * 300 + "]" * 300)
# Where in a record, what stands there, and the field that the error names.
WRONG: dict[str, tuple[str, Any, str]] = {
    "a text for rates": ("log_rates", "abc", "log_rates"),
    "a text among rates": ("log_rates", [1.0, "2"], "log_rates[1]"),
    "a rate of no hardware": ("log_rates", [800.0], "log_rates[0]"),
    "a rate below any": ("log_rates", [-800.0], "log_rates[0]"),
    "an integer of no float": ("log_rates", [10**400], "log_rates[0]"),
    "truth for a rate": ("log_rates", [True], "log_rates[0]"),
    "a nest": ("reason", DEEP, "reason"),
    "a nest for a segment": ("segment", {"a": DEEP}, "segment.a"),
    "a number for a status": ("status", 3, "status"),
    "an unknown status": ("status", "FINE", "status"),
    "evidence beyond its clip": ("standing.evidence", 1e308, "standing.evidence"),
    "evidence of nothing": ("standing.evidence", 0.0, "standing.evidence"),
    "no evidence": ("standing.evidence", None, "standing.evidence"),
    "a text for a flag": ("standing.accepted", "yes", "standing.accepted"),
    "a standing that is a list": ("standing", [], "standing"),
    "a wrong pair": ("compared", {"good": "x", "new": [1.0], "reference": ["y"], **TEACHES}, "compared.reference[0]"),
    "pairs of one": ("compared", {"good": "x", "new": [1.0], "reference": [], **TEACHES}, "compared"),
    "an endless text": ("reason", "x" * 100_000, "reason"),
    "an unknown key": ("surprise", 1, "surprise"),
    "a version of tomorrow": ("schema_version", 99, "schema_version"),
    "a share of waiting": ("stall_share", 1e300, "stall_share"),
    "cards below none": ("cards", -1, "cards"),
}


def record(place: str, value: Any) -> str:
    found = json.loads(night_text(night(1)))
    inside = found["standing"] if place.startswith("standing.") else found
    inside[place.removeprefix("standing.")] = value
    return json.dumps(found)


@pytest.mark.parametrize("what", WRONG)
def test_a_record_that_no_suite_wrote_is_named_by_its_field(what: str) -> None:
    place, value, field = WRONG[what]
    with pytest.raises(HistoryError) as caught:
        night_of(record(place, value), "night here")
    assert caught.value.field == field
    assert str(caught.value).startswith("night here") and len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", ["", "[]", "3", "[" * 900 + "]" * 900, '{"a":' * 100_000, "NaN", " " * 2**21, "{"])
def test_what_is_no_record_at_all_is_refused(text: str) -> None:
    with pytest.raises(HistoryError, match="night here"):
        night_of(text, "night here")


def test_a_night_that_could_not_be_read_again_does_not_go_in(history: History) -> None:
    with pytest.raises(HistoryError, match=r"standing\.evidence"):
        history.add_night(night(1, evidence=1e308))
    assert history.series(CASE) == ()


# --- a history that already holds such a row


def spoilt(runs: Path, place: str, value: Any, **columns: Any) -> str:
    """A history of three nights in ``runs`` whose second an earlier suite stored unchecked: its uuid."""
    bad = night(2, 4.5)
    with History.open(f"sqlite:///{runs}/history.sqlite") as history:
        for each in (night(1, 4.4), bad, night(3, 4.6)):
            history.add_night(each)
    engine = sa.create_engine(f"sqlite:///{runs}/history.sqlite")
    with engine.begin() as connection:
        values = {"body": record(place, value), **columns}
        told = ", ".join(f"{name} = :{name}" for name in values)
        connection.execute(sa.text(f"UPDATE nights SET {told} WHERE uuid = :uuid"), {**values, "uuid": night_uuid(bad)})
    engine.dispose()
    return night_uuid(bad)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("what", ["a text for rates", "a rate of no hardware", "a nest", "a number for a status"])
def test_a_bad_row_is_named_and_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    place, value, field = WRONG[what]
    uuid = spoilt(tmp_path, place, value)
    out = io.StringIO()
    assert main(["history", CASE, "--runs-dir", str(tmp_path)], out) == EXIT_USAGE
    told = capsys.readouterr().err
    assert uuid in told and field in told and f"perfgate mark {uuid[:12]}" in told
    assert main(["mark", uuid[:12], "--reason", "x", "--runs-dir", str(tmp_path)], out) == EXIT_OK
    shown = io.StringIO()
    assert main(["history", CASE, "--json", "--runs-dir", str(tmp_path)], shown) == EXIT_OK
    (case,) = json.loads(shown.getvalue())["cases"]
    assert [each["session"] for each in case["nights"]] == ["s1", "s3"]
    with History.open(f"sqlite:///{tmp_path}/history.sqlite") as history:
        assert [each.session for each in history.past(CASE, "cpu", SEGMENT, 2, "x").nights] == ["s1", "s3"]


@pytest.mark.parametrize(
    ("column", "value"),
    [("learned", '["x"]'), ("learned", "[800.0]"), ("learned", "{"), ("evidence", 1e308), ("stall_share", "much")],
)
def test_a_past_of_no_real_night_is_named_and_can_be_left_out(tmp_path: Path, column: str, value: Any) -> None:
    uuid = spoilt(tmp_path, "status", 3, **{column: value})
    with History.open(f"sqlite:///{tmp_path}/history.sqlite") as history:
        with pytest.raises(HistoryError, match=f"history: night {uuid}"):
            history.past(CASE, "cpu", SEGMENT, 2, "x")
        history.exclude(uuid, "me", moment(4), "damaged")
        assert [each.session for each in history.past(CASE, "cpu", SEGMENT, 2, "x").nights] == ["s1", "s3"]


@pytest.mark.parametrize("body", ["{", '{"schema_version": 2}', b"\xff"])
def test_what_people_said_is_checked_when_it_is_read(tmp_path: Path, body: str | bytes) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    with History.open(url) as history:
        history.add_night(night(1))
        history.exclude(night_uuid(night(1)), "me", moment(2), "a fan")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE decisions SET body = :value"), {"value": body})
    engine.dispose()
    with History.open(url) as history, pytest.raises(HistoryError):
        history.series(CASE)
