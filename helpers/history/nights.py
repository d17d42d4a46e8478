"""A case's night: what was judged, and the JSON in which it is kept.

A verdict is computed from these numbers, and later nights are compared with them.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from helpers.common.files import MOST_NIGHT_BYTES
from helpers.common.records import MOST, WrongRecord, one_of, parse, read_as
from helpers.history.codec import to_text
from helpers.history.results import LEAST_SAMPLES_PER_S, MOST_SAMPLES_PER_S
from helpers.judging.case.evidence import Compared
from helpers.judging.case.verdict import Standing, Status
from helpers.judging.finding import Finding
from helpers.machine.environment import POOL
from helpers.trainers.contract.errors import HistoryError, SuiteError

# 1: first format.
NIGHT_SCHEMA_VERSION = 1

_NIGHTS = uuid.UUID("5b6f6a0e-3a55-4c1e-9d0b-6a1a6f0f4b1e")
# The least and the largest value of a number: log rates of hardware; the clip of the evidence that later nights carry
# on (helpers.judging.case.screen); an effect is a fraction, and -1 is a standstill.
LOG_RATES = (math.log(LEAST_SAMPLES_PER_S), math.log(MOST_SAMPLES_PER_S))
EVIDENCE = (0.2, 1e6)
_EFFECTS = (-1.0, 1e300)
_SCATTER = (0.0, 1e3)
# An e-value is a likelihood ratio: above 0, and without an upper bound.
_RANGES: Mapping[str, tuple[float, float]] = {
    "log_rate": LOG_RATES,
    "evidence": EVIDENCE,
    "e_drop": (0.0, MOST),
    **dict.fromkeys(("sigma", "tau", "smallest_drop"), _SCATTER),
    **dict.fromkeys(("nights", "runs"), (0.0, 2.0**31)),
}
_PAIR_RANGES: Mapping[str, tuple[float, float]] = {
    "evidence": (0.0, MOST),
    "level_error": _SCATTER,
    "count": (1.0, 2.0**31),
}
_Text = Annotated[str, Meta(max_length=20_000)]
_Texts = Annotated[Mapping[str, _Text], Meta(max_length=10_000)]
LogRates = Annotated[tuple[Annotated[float, Meta(ge=LOG_RATES[0], le=LOG_RATES[1])], ...], Meta(max_length=10_000)]
StallShare = Annotated[float, Meta(ge=-1, le=1e9)]


@dataclass(frozen=True)
class NightRecord:
    """One judged case of one session."""

    session: _Text
    case_id: _Text
    target: _Text
    # When it was judged: UTC, ISO 8601.
    created: _Text
    # The local date on which its session began (session_file.SessionRecord), as 2026-11-21.
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    # The facts within which results are compared (plan.overrides.segment_of).
    segment: _Texts
    # The verdict's status, and its reason: the code, a sentence from elsewhere and what was found.
    status: Annotated[str, one_of(*(each.value for each in Status))]
    code: _Text
    reason: _Text
    cards: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    # The log rates of the usable screening runs of the build under test, first run first.
    log_rates: LogRates = ()
    stall_share: StallShare | None = None
    # The runs behind the verdict, in the order in which they were made.
    run_uuids: Annotated[tuple[_Text, ...], Meta(max_length=10_000)] = ()
    # The verdict's numbers; None if it has none.
    standing: Standing | None = None
    # The build under test.
    build: _Texts = field(default_factory=dict)
    # By these facts cases are grouped: framework, model, precision, cards.
    properties: _Texts = field(default_factory=dict)
    # The machine on which it was judged, also if nothing ran.
    host: _Text = ""
    # The interleaved runs of the build under test and the reference build; None if there were none.
    compared: Compared | None = None
    findings: Annotated[tuple[Finding, ...], Meta(max_length=10_000)] = ()


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
    """The night in a JSON text. Raises HistoryError, with the field, for anything that the suite does not write."""
    try:
        if len(text) > MOST_NIGHT_BYTES:
            raise WrongRecord("", f"{len(text)} characters", f"at most {MOST_NIGHT_BYTES}")
        record = parse(text)
        if not isinstance(record, dict):
            raise WrongRecord("", type(record).__name__, "a JSON object")
        if (version := record.pop("schema_version", None)) != NIGHT_SCHEMA_VERSION or isinstance(version, bool):
            raise WrongRecord("schema_version", version, str(NIGHT_SCHEMA_VERSION))
        night = read_as(record, NightRecord)
        check_night(night)
    except WrongRecord as wrong:
        remedy = "Another version of the suite may have written it" if wrong.field == "schema_version" else None
        raise HistoryError(
            about, field=wrong.field or None, got=wrong.got, expected=wrong.expected, remedy=remedy
        ) from wrong
    except SuiteError as error:
        raise HistoryError(about, field="compared", got=error.got, expected=error.expected) from error
    except (ValueError, RecursionError) as error:
        raise HistoryError(about, got=str(error), expected="a night as JSON") from error
    return night


def check_night(night: NightRecord) -> None:
    """Raises WrongRecord for a number that no real night has."""
    check_numbers(night.standing, "standing")
    for name in ("new", "reference"):
        for at, rate in enumerate(getattr(night.compared, name, ())):
            _check_range(rate, LOG_RATES, f"compared.{name}[{at}]")


def check_numbers(standing: Standing | None, path: str) -> None:
    """Raises WrongRecord for a number of a standing that no real night has."""
    parts: list[tuple[object, Mapping[str, tuple[float, float]], str]] = [(standing, _RANGES, path)]
    if standing is not None:
        parts += [(standing.effect, {}, f"{path}.effect"), (standing.pairs, _PAIR_RANGES, f"{path}.pairs")]
    for part, ranges, place in parts:
        for name, value in vars(part).items() if part is not None else ():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                _check_range(value, ranges.get(name, _EFFECTS), f"{place}.{name}")


def check_learned(rates: object, evidence: object, stall_share: object) -> tuple[float, ...]:
    """What later nights learn from a night, which the history keeps beside it. Raises WrongRecord."""
    learned = {"log_rates": rates, "evidence": evidence, "stall_share": stall_share}
    return read_as(learned, _Learned).log_rates


def check_log_rate(rate: object) -> float:
    """Raises WrongRecord."""
    return check_learned([rate], 1.0, None)[0]


def _check_range(value: float, limits: tuple[float, float], field: str) -> None:
    if not limits[0] <= value <= limits[1]:
        raise WrongRecord(field, value, f"a number from {limits[0]:.6g} to {limits[1]:.6g}")


def compared_of(record: Mapping[str, Any]) -> Compared:
    """The inverse of ``asdict``. Raises TypeError, KeyError or SuiteError for anything else."""
    return Compared(**{**record, "new": tuple(record["new"]), "reference": tuple(record["reference"])})


def stored_name(uuid: str) -> str:
    """The name of a stored night in errors. It says how to leave the night out."""
    return f"history: night {uuid} (perfgate mark {uuid[:12]} --reason ... leaves it out)"


@dataclass(frozen=True)
class _Learned:
    log_rates: LogRates
    evidence: Annotated[float, Meta(ge=EVIDENCE[0], le=EVIDENCE[1])]
    stall_share: StallShare | None
