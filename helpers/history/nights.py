"""A case's night: what was judged, the JSON in which it is kept, and the schema of that JSON.

A verdict is computed from these numbers, and later nights are compared with them.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from helpers.history.codec import to_text
from helpers.history.results import LEAST_SAMPLES_PER_S, MOST_SAMPLES_PER_S
from helpers.judging.evidence import Compared
from helpers.judging.verdict import Standing, Status
from helpers.machine.environment import POOL
from helpers.machine.files import MOST_NIGHT_BYTES
from helpers.machine.records_check import Checker, Schema
from helpers.trainers.contract.errors import HistoryError, SuiteError

# 1: first format, without its number.
# 2: "compared", the interleaved runs of both builds; of "standing" level, level_error, good_shift, teaches_level and
#    teaches_good.
# 3: "date", which before was the date of "created".
NIGHT_SCHEMA_VERSION = 3

_NIGHTS = uuid.UUID("5b6f6a0e-3a55-4c1e-9d0b-6a1a6f0f4b1e")
_UPDATE = "A newer suite may have written it: update this one"


@dataclass(frozen=True)
class NightRecord:
    """One judged case of one session."""

    session: str
    case_id: str
    target: str
    # When it was judged: UTC, ISO 8601.
    created: str
    # The local date on which its session began (session_file.SessionRecord), as 2026-11-21.
    date: str
    # The facts within which results are compared (plan.overrides.segment_of).
    segment: Mapping[str, str]
    # The verdict's status, the code of its reason and the reason.
    status: str
    code: str
    reason: str
    cards: int
    # The log rates of the usable screening runs of the build under test, first run first.
    log_rates: tuple[float, ...] = ()
    stall_share: float | None = None
    # The runs behind the verdict, in the order in which they were made.
    run_uuids: tuple[str, ...] = ()
    # The verdict's numbers; None if it has none.
    standing: Standing | None = None
    # The build under test.
    build: Mapping[str, str] = field(default_factory=dict)
    # By these facts cases are grouped: framework, model, precision, cards.
    properties: Mapping[str, str] = field(default_factory=dict)
    # The machine on which it was judged, also if nothing ran.
    host: str = ""
    # The interleaved runs of the build under test and the good build; None if there were none.
    compared: Compared | None = None


def night_uuid(night: NightRecord) -> str:
    """The uuid is the same for the same session, case, target and host. Two hosts may give their sessions the same
    name."""
    host = night.segment.get("host", night.host)
    # Two nodes of a pool may give their sessions the same name too.
    host = night.host if host.startswith(POOL) else host
    return uuid.uuid5(_NIGHTS, json.dumps([night.session, night.case_id, night.target, host])).hex


def night_text(night: NightRecord) -> str:
    """A night as the JSON that ``night_of`` reads. Raises ValueError on NaN."""
    return to_text({**asdict(night), "schema_version": NIGHT_SCHEMA_VERSION})


def night_of(text: str, about: str) -> NightRecord:
    """The night in a JSON text. Raises HistoryError, with the field, for anything that no suite up to this version
    writes."""
    try:
        record = json.loads(text, parse_constant=_no_constant) if len(text) <= MOST_NIGHT_BYTES else None
    except (ValueError, RecursionError) as error:
        raise _no_night(about, None, str(error), "a night as JSON") from error
    if not isinstance(record, dict):
        got = f"{len(text)} characters" if record is None else type(record).__name__
        raise _no_night(about, None, got, f"a JSON object of at most {MOST_NIGHT_BYTES} characters")
    version = record.pop("schema_version", 1)
    if isinstance(version, bool) or version not in range(1, NIGHT_SCHEMA_VERSION + 1):
        raise _no_night(about, "schema_version", version, f"1 to {NIGHT_SCHEMA_VERSION}", _UPDATE)
    if version < 3:
        record.setdefault("date", str(record.get("created", ""))[:10])
    for name, checker, part in (
        ("", _NIGHT, record),
        ("standing.", _STANDING, record.get("standing")),
        ("compared.", _COMPARED, record.get("compared")),
    ):
        if part is not None and (wrong := checker.violation(part)) is not None:
            remedy = _UPDATE if wrong.got == "an unknown key" else None
            raise _no_night(about, name + wrong.field, wrong.got, wrong.expected, remedy)
    try:
        return _night_of_record(record)
    except SuiteError as error:
        raise _no_night(about, "compared", error.got, error.expected or "") from error


def listed_night_of(text: str, about: str) -> NightRecord:
    """As ``night_of``, 20 times as fast, for the nights of a whole history that are only shown: the schema is asked
    only about a night in which something looks odd."""
    try:
        record, end = _DECODER.raw_decode(text)
        if end == len(text) and record.pop("schema_version", 1) in range(1, NIGHT_SCHEMA_VERSION + 1):
            night = _night_of_record(record)
            if _looks_right(night):
                return night
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, SuiteError):
        pass
    return night_of(text, about)


def _night_of_record(record: dict[str, Any]) -> NightRecord:
    """Raises SuiteError for wrong pairs, and anything else for a record that was not checked."""
    standing, compared = record.pop("standing"), record.pop("compared", None)
    for name in ("log_rates", "run_uuids"):
        record[name] = tuple(record[name])
    return NightRecord(
        **record,
        standing=None if standing is None else Standing(**standing),
        compared=None if compared is None else compared_of(compared),
    )


def _looks_right(night: NightRecord) -> bool:
    """Whether the values that are shown are texts and numbers as ``night_of`` expects them."""
    standing, compared = night.standing, night.compared
    texts = (
        night.session,
        night.case_id,
        night.target,
        night.created,
        night.date,
        night.status,
        night.code,
        night.reason,
    )
    rates = night.log_rates if compared is None else (*night.log_rates, *compared.reference)
    numbers = () if standing is None else (standing.effect, standing.low, standing.high, standing.smallest_drop)
    sigma = 0.0 if standing is None else standing.sigma
    return (
        {*map(type, texts), type(night.host)} == {str}
        and {*map(type, night.build.values()), *map(type, night.segment.values())} <= {str}
        and all(type(each) is float and _LEAST_LOG_RATE <= each <= _MOST_LOG_RATE for each in rates)
        and all(each is None or (type(each) is float and -1 <= each < 1e300) for each in numbers)
        and type(sigma) is float
        and 0 <= sigma < 1e3
        and (standing is None or (type(standing.evidence) is float and type(standing.segment_reason) is str))
    )


def compared_of(record: Mapping[str, Any]) -> Compared:
    """The inverse of ``asdict``. Raises TypeError, KeyError or SuiteError for anything else."""
    return Compared(**{**record, "new": tuple(record["new"]), "reference": tuple(record["reference"])})


def stored_name(uuid: str) -> str:
    """The name of a stored night in errors. It says how to leave the night out."""
    return f"history: night {uuid} (perfgate exclude {uuid[:12]} --reason ... leaves it out)"


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _no_night(about: str, field: str | None, got: object, expected: str, remedy: str | None = None) -> HistoryError:
    return HistoryError(about, field=field, got=got, expected=expected, remedy=remedy)


# Kept, because making one takes as long as reading a night.
_DECODER = json.JSONDecoder(parse_constant=_no_constant)

# ---- what a night's JSON has to be

_LEAST_LOG_RATE, _MOST_LOG_RATE = math.log(LEAST_SAMPLES_PER_S), math.log(MOST_SAMPLES_PER_S)
_MOST_CHARACTERS = 20_000
_MOST_ITEMS = 10_000


def _number(least: float, most: float, *, or_null: bool = False) -> Schema:
    words = f"a number from {least:.6g} to {most:.6g}" + (", or null" if or_null else "")
    kinds = ["number", "null"] if or_null else ["number"]
    return {"type": kinds, "minimum": least, "maximum": most, "description": words}


def _record(properties: Mapping[str, Schema], required: tuple[str, ...]) -> Checker:
    return Checker(
        {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "required": list(required),
            "description": "a JSON object",
        }
    )


_TEXT: Schema = {"type": "string", "maxLength": _MOST_CHARACTERS, "description": f"text of at most {_MOST_CHARACTERS}"}
_TEXTS: Schema = {
    "type": "object",
    "maxProperties": _MOST_ITEMS,
    "additionalProperties": _TEXT,
    "description": "an object of texts",
}
_TEXT_LIST: Schema = {"type": "array", "maxItems": _MOST_ITEMS, "items": _TEXT, "description": "a list of texts"}
_COUNT: Schema = {
    "type": "integer",
    "minimum": 0,
    "maximum": 2**31 - 1,
    "description": "a whole number, not negative",
}
_FLAG: Schema = {"type": "boolean", "description": "true or false"}
_OBJECT_OR_NULL: Schema = {"anyOf": [{"type": "null"}, {"type": "object"}], "description": "an object or null"}
_LOG_RATE: Schema = {
    "type": "number",
    "minimum": _LEAST_LOG_RATE,
    "maximum": _MOST_LOG_RATE,
    "description": f"the logarithm of {LEAST_SAMPLES_PER_S:g} to {MOST_SAMPLES_PER_S:g} images/s",
}
_LOG_RATES: Schema = {
    "type": "array",
    "maxItems": _MOST_ITEMS,
    "numbers": {"least": _LEAST_LOG_RATE, "most": _MOST_LOG_RATE},
    "description": f"logarithms of {LEAST_SAMPLES_PER_S:g} to {MOST_SAMPLES_PER_S:g} images/s",
}
# docs/verdicts.md, "Judge": the clip of the evidence that later nights carry on (helpers.judging.screen).
_EVIDENCE = _number(0.2, 1e6)
# An e-value is a likelihood ratio: above 0, and without an upper bound.
_E_VALUE: Schema = {"type": ["number", "null"], "minimum": 0, "description": "a number, not negative"}
# An effect is a fraction: -1 is a standstill.
_EFFECT = _number(-1.0, 1e300, or_null=True)
_SCATTER: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1e3, "description": "a standard deviation"}
_STALL_SHARE = _number(-1.0, 1e9, or_null=True)

STANDING_FIELDS: Mapping[str, Schema] = {
    "log_rate": _LOG_RATE,
    "e_drop": {**_E_VALUE, "type": "number"},
    "evidence": _EVIDENCE,
    "accepted": _FLAG,
    "sigma": {**_SCATTER, "type": "number"},
    "tau": {**_SCATTER, "type": "number"},
    "nights": _COUNT,
    "runs": _COUNT,
    "effect": _EFFECT,
    "low": _EFFECT,
    "high": _EFFECT,
    "pairs": _COUNT,
    "e_confirm": _E_VALUE,
    "smallest_drop": _number(0.0, 1e3, or_null=True),
    "machine_slow": _FLAG,
    "new_segment": _FLAG,
    "segment_reason": _TEXT,
    "shift": _EFFECT,
    "level": _EFFECT,
    "level_error": _SCATTER,
    "good_shift": _EFFECT,
    "teaches_level": _FLAG,
    "teaches_good": _FLAG,
}

COMPARED_FIELDS: Mapping[str, Schema] = {
    "good": _TEXT,
    "new": _LOG_RATES,
    "reference": _LOG_RATES,
    "teaches_level": _FLAG,
    "teaches_good": _FLAG,
}
NIGHT_FIELDS: Mapping[str, Schema] = {
    **dict.fromkeys(("session", "case_id", "target", "created"), _TEXT),
    "date": {"type": "string", "pattern": r"\A\d{4}-\d{2}-\d{2}\Z", "description": "a date, as 2026-11-21"},
    "segment": _TEXTS,
    "status": {"enum": [each.value for each in Status]},
    **dict.fromkeys(("code", "reason"), _TEXT),
    "cards": _COUNT,
    "log_rates": _LOG_RATES,
    "stall_share": _STALL_SHARE,
    "run_uuids": _TEXT_LIST,
    "standing": _OBJECT_OR_NULL,
    **dict.fromkeys(("build", "properties"), _TEXTS),
    "host": _TEXT,
    "compared": _OBJECT_OR_NULL,
}

# The fields of the first version are required; later ones have defaults.
_STANDING = _record(STANDING_FIELDS, ("log_rate", "e_drop", "evidence", "accepted", "sigma", "tau", "nights", "runs"))
_COMPARED = _record(COMPARED_FIELDS, ("good", "new", "reference"))
_NIGHT = _record(
    NIGHT_FIELDS,
    tuple(name for name in NIGHT_FIELDS if name not in ("stall_share", "build", "properties", "host", "compared")),
)
# What later nights learn from a night. The history keeps it beside the record.
LEARNED = _record(
    {"log_rates": _LOG_RATES, "evidence": _EVIDENCE, "stall_share": _STALL_SHARE},
    ("log_rates", "evidence", "stall_share"),
)
LOG_RATE = Checker(_LOG_RATE)
