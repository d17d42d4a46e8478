"""What a stored result's values have to be: a verdict rests on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helpers.errors import ResultError
from helpers.evidence import Build, Stage
from helpers.job import finite

# Where a result comes from: a run of this suite's session; logs that were judged again; a log that history took in.
MEASURED, REPLAYED, IMPORTED = "measured", "replayed", "imported"
ORIGINS = (MEASURED, REPLAYED, IMPORTED)


def check_record(record: Mapping[str, Any], known: Sequence[str], about: str) -> None:
    """ResultError on a key that is not ``known``, one that is missing and a value of the wrong kind."""
    if wrong := sorted(set(record) ^ set(known)):
        problem = "a key this suite knows" if wrong[0] in record else "a value"
        raise ResultError(about, field=wrong[0], expected=problem)
    for name, value in record.items():
        if (expected := _problem(name, value)) is not None:
            raise ResultError(about, field=name, got=value, expected=expected)


_TEXTS = ("uuid", "session", "case_id", "target", "created", "contention", "log_tail")
_TEXT_MAPS = ("build", "environment", "facts")
_COUNTS = ("replicate", "peak_host_bytes", "peak_device_bytes")
_SECONDS = ("wall_seconds", "start_up_seconds", "training_seconds", "window_seconds")
_SHARES = ("reader_share", "foreign_share")


def _problem(name: str, value: Any) -> str | None:
    """What a field of a result should have been, None where it is."""
    checks: list[tuple[tuple[str, ...], Callable[[Any], bool], str]] = [
        (_TEXTS, _is_text, "text"),
        (("failure", "invalid", "refusal"), lambda got: got is None or _is_text(got), "text or null"),
        (("origin",), lambda got: got in ORIGINS, "one of " + ", ".join(ORIGINS)),
        (_TEXT_MAPS, _maps_to(_is_text), "an object of texts"),
        (("system",), _maps_to(_maps_to(_is_text)), "an object of objects of texts"),
        (("verdict",), lambda got: got is None or _maps_to(_is_text)(got), "an object of texts or null"),
        (("settings", "overrides"), lambda got: isinstance(got, dict), "an object"),
        (("protocol",), _maps_to(_is_count), "an object of whole numbers"),
        (("figures",), _maps_to(lambda got: _is_text(got) or _is_rate(got)), "images/s above 0 or a reason, by rule"),
        (_COUNTS, _is_count, "a whole number, not negative"),
        (_SECONDS, _is_amount, "seconds, finite and not negative"),
        (_SHARES, lambda got: got is None or _is_amount(got), "a share, not negative, or null"),
        (("step_seconds",), _lists(_is_rate), "a list of seconds above 0"),
        (("samples_per_step",), _lists(_is_count), "a list of whole numbers"),
        (("losses",), _lists(finite), "a list of finite numbers"),
        (("role",), lambda got: got in [each.value for each in Build], "candidate or reference"),
        (("stage",), lambda got: got in [each.value for each in Stage], "screen or confirm"),
        (("marks",), _lists(_is_text), "a list of texts"),
    ]
    return next((expected for names, right, expected in checks if name in names and not right(value)), None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and _is_amount(value)


def _is_amount(value: Any) -> bool:
    return finite(value) and value >= 0


def _is_rate(value: Any) -> bool:
    return finite(value) and value > 0


def _lists(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(right, value))


def _maps_to(right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(right, value.values()))
