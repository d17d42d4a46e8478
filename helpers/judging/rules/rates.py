"""The names of rates in files and reports. Inside the suite all rates are samples/s.

Files say images, since every model's sample is one today: a field that ends in ``samples_per_s`` has a key that ends in
``images_per_s``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.models import Model

_UNIT_OF_FILES = "images/s"
_FIELD_TO_KEY = {"samples_per_s": "images_per_s", "flops_per_sample": "flops_per_image"}


def key_of(field: str) -> str:
    """The key of a field in records: ``run_images_per_s`` for ``run_samples_per_s``."""
    return next((field.removesuffix(old) + new for old, new in _FIELD_TO_KEY.items() if field.endswith(old)), field)


def to_record(value: Any) -> Any:
    """A dataclass as a dictionary under the keys of the file formats; so are the dataclasses in it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key_of(each.name): to_record(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_record(each) for key, each in value.items()}
    return type(value)(map(to_record, value)) if isinstance(value, (list, tuple)) else value


def rate_unit(*case_ids: str) -> str:
    """The unit of these cases' rates in reports: images/s where every model's sample is an image.

    It is images/s, as in the file formats, if no case is known and for an id of another version of the suite.
    """
    units = {_unit_of(case_id) for case_id in case_ids}
    return "samples/s" if len(units) > 1 else next(iter(units), _UNIT_OF_FILES)


def rate_unit_of_model(name: str) -> str:
    """The unit of the rates of a model, by its name in case ids; images/s for an unknown name."""
    known = {each.value: each for each in Model}
    return known[name].spec.rate_unit if name in known else _UNIT_OF_FILES


def _unit_of(case_id: str) -> str:
    try:
        return Case.parse(case_id).model.spec.rate_unit
    except ConfigError:
        return _UNIT_OF_FILES
