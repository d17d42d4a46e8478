"""Rates: samples/s inside; the name that files and readers know them by outside.

The file formats were named when every sample was an image, and old results, baselines and histories must still be
read: a field that ends in ``samples_per_s`` is a key that ends in ``images_per_s`` there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

_FIELD_TO_KEY = {"samples_per_s": "images_per_s", "flops_per_sample": "flops_per_image"}
_KEY_TO_FIELD = {key: field for field, key in _FIELD_TO_KEY.items()}


def key_of(field: str) -> str:
    """The key of a field in records: ``run_images_per_s`` for ``run_samples_per_s``."""
    return _renamed(field, _FIELD_TO_KEY)


def to_record(value: Any) -> Any:
    """A dataclass as a dictionary, its values likewise, under the keys of the file formats."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key_of(each.name): to_record(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_record(each) for key, each in value.items()}
    return type(value)(map(to_record, value)) if isinstance(value, (list, tuple)) else value


def fields_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The values of one record by the names of the fields that they belong to. TypeError: it is no mapping."""
    if not isinstance(record, Mapping):
        raise TypeError(f"{type(record).__name__} where a record belongs")
    return {_renamed(key, _KEY_TO_FIELD): value for key, value in record.items()}


def _renamed(name: str, endings: Mapping[str, str]) -> str:
    return next((name.removesuffix(old) + new for old, new in endings.items() if name.endswith(old)), name)
