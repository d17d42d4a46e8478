"""``--set KEY=VALUE``: settings that the user changes, and the facts that must be equal for two results to be compared.

A result with changed settings says nothing about a published figure, unless every changed key is in NEUTRAL. Then each
step does the same arithmetic on the same data, and only the numbers differ.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from helpers.machine.environment import Environment, segment
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.records import finite

# The values of this group are texts: 4000 and 0.80 stay as they are written.
_TEXT_GROUP = "environment."
# The trainers compute in float32 or less, where anything below its smallest normal number is zero.
_FLOAT32_SMALLEST = 2.0**-126
# Such a number is text in YAML 1.1, which wants a point in it.
_EXPONENT = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+", re.ASCII)


@dataclass(frozen=True)
class Neutral:
    """Why a key does not change the throughput, and for which values: ``holds`` is called with the new value."""

    reason: str
    holds: Callable[[Any], bool]


def _above_zero(value: Any) -> bool:
    return finite(value) and value >= _FLOAT32_SMALLEST


def _rising_epochs(value: Any) -> bool:
    whole = isinstance(value, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in value)
    return whole and all(each > 0 for each in value) and value == sorted(set(value))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# A factor of 0 is not neutral, because a product with it may be left out. Neither is anything that decides whether a
# step is skipped (loss_scaling), what is decoded (augmentation) or how far the loader runs ahead.
NEUTRAL: Mapping[str, Neutral] = {
    "learning_rate": Neutral(
        "a factor of the update, whose size no step's work depends on; a rate too large ends the run as failed",
        _above_zero,
    ),
    "learning_rate_decay": Neutral("a factor of the learning rate after whole epochs", _above_zero),
    "learning_rate_boundaries": Neutral(
        "epochs at whose start the learning rate is set to another number", _rising_epochs
    ),
    "learning_rate_warmup_steps": Neutral("the steps over which the learning rate rises to its own number", _whole),
    "momentum": Neutral("a factor in the optimizer's update", _above_zero),
    "weight_decay": Neutral("a factor in the optimizer's update", _above_zero),
    "dali.seed": Neutral("draws other crops and another order of the same images", _whole),
}


def parse_overrides(given: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` words as a mapping; values are YAML as in perf.yaml: ``0.1`` is a number, ``[30, 60]`` a list.

    A value under ``environment.`` is text as it is written. Raises ConfigError for a word without ``=``, for a key that
    is given twice, and for invalid YAML.
    """
    overrides: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError("--set", got=text, expected="KEY=VALUE")
        if key in overrides:
            raise ConfigError("--set", field=key, expected="one value; it is given twice")
        try:
            overrides[key] = yaml.safe_load(value)
        # Besides its own errors the loader lets through those of int(), of dates and of deep nesting.
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            raise ConfigError("--set", field=key, got=value, expected="a YAML value", remedy=str(error)) from error
        if key.startswith(_TEXT_GROUP) and not isinstance(overrides[key], str):
            overrides[key] = value
        elif _EXPONENT.fullmatch(value):
            overrides[key] = float(value)
    return overrides


def with_overrides(settings: Mapping[str, Any], overrides: Mapping[str, Any], about: str) -> dict[str, Any]:
    """``settings`` with the user's changes; ``dali.threads`` reaches into a group.

    A value equal to the present one changes nothing, not even its type. Raises ConfigError for a key that the settings
    do not have, and for a value of another kind or that is no plain finite JSON value.
    """
    changed = copy.deepcopy(dict(settings))
    for key, value in overrides.items():
        place, name = _place(changed, key, value, about)
        if not _same_kind(place[name], value):
            got = "null" if value is None else value
            raise ConfigError(f"--set for {about}", field=key, got=got, expected=f"a value like {place[name]!r}")
        if not _is_plain(value):
            raise ConfigError(f"--set for {about}", field=key, got=value, expected="finite numbers, texts, lists")
        if place[name] != value:
            place[name] = copy.deepcopy(value)
    return changed


def effective(settings: Mapping[str, Any], overrides: Mapping[str, Any], about: str) -> dict[str, Any]:
    """The overrides that change a setting, without those that repeat its value. Raises ConfigError as with_overrides()
    does."""
    with_overrides(settings, overrides, about)
    return {key: value for key, value in overrides.items() if setting(settings, key) != value}


def setting(settings: Mapping[str, Any], key: str) -> Any:
    """The value of ``key``, whose dots reach into groups. Raises ConfigError if there is none."""
    place, name = _place(settings, key, None, "settings")
    return place[name]


def neutral_reason(key: str, value: Any) -> str | None:
    """Why setting ``key`` to ``value`` does not change the throughput; None if that is not known."""
    known = NEUTRAL.get(key)
    return known.reason if known is not None and known.holds(value) else None


def neutral_reasons(overrides: Mapping[str, Any]) -> dict[str, str]:
    """The overrides that do not change the throughput, each with the reason."""
    found = {key: neutral_reason(key, value) for key, value in overrides.items()}
    return {key: reason for key, reason in found.items() if reason is not None}


def leaves(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each setting with its dotted key, in the settings' order; an empty group is one setting, ``{}``."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            for below, inner in leaves(value):
                yield f"{name}.{below}", inner
        else:
            yield name, value


def settings_segment(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings on which a throughput may depend, as facts that must be equal for results to be compared.

    Each leaf is one fact, ``setting layout: "NCHW"``, so that a changed recipe shows where it changed.
    """
    return {
        f"setting {key}": json.dumps(value, sort_keys=True)
        for key, value in leaves(settings)
        if neutral_reason(key, value) is None
    }


def segment_of(environment: Mapping[str, str], settings: Mapping[str, Any], about: str) -> dict[str, str]:
    """The facts that must be equal for two results of a case to be compared: the segment of the environment, and the
    settings.

    Raises ConfigError for an environment of another version of the suite.
    """
    return {**segment(Environment.from_mapping(environment, f"environment of {about}")), **settings_segment(settings)}


def _place(settings: Mapping[str, Any], key: str, value: object, about: str) -> tuple[Any, str]:
    """The group that holds ``key``, and the key's name in it."""
    *groups, name = key.split(".")
    place: Any = settings
    for group in groups:
        place = place.get(group) if isinstance(place, Mapping) else None
    if isinstance(place, Mapping) and name in place:
        return place, name
    known = sorted(place) if isinstance(place, Mapping) else sorted(settings)
    raise ConfigError(
        f"--set for {about}",
        field=key,
        got=value,
        expected="one of " + ", ".join(known) if known else f"a key that there is: {'.'.join(groups)} has none here",
    )


def _same_kind(old: object, new: object) -> bool:
    numbers = (int, float)
    if isinstance(old, bool) or isinstance(new, bool):
        return isinstance(old, bool) and isinstance(new, bool)
    return old is None or (isinstance(old, numbers) and isinstance(new, numbers)) or isinstance(new, type(old))


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
