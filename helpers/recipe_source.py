"""What a source of a setting is, and how one is looked up: the words of ``helpers/recipe_sources.py``'s tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from helpers.case import Case, DataSource, Model, Precision

OWN = "suite's choice"
NOT_STATED = "without a source"


@dataclass(frozen=True)
class Source:
    """``where`` is a section of METHODS.md, a publisher's code, OWN or NOT_STATED.

    ``reason`` says why or what of it, for OWN always.
    """

    where: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.reason else self.where


@dataclass(frozen=True)
class Fixed:
    """Something that no setting changes, in words, with its source."""

    name: str
    value: str
    source: Source


Condition = Callable[[Case, str], bool]
Row = tuple[str, Condition, Source]


def any_case(case: Case, device: str) -> bool:
    return True


def resnet50(case: Case, device: str) -> bool:
    return case.model is Model.RESNET50


def vgg16(case: Case, device: str) -> bool:
    return case.model is Model.VGG16


def on_cpu(case: Case, device: str) -> bool:
    return device == "cpu"


def single_precision(case: Case, device: str) -> bool:
    return case.precision in (Precision.FP32, Precision.TF32)


def pure(case: Case, device: str) -> bool:
    """ResNet50 in pure half precision, whatever the type."""
    return resnet50(case, device) and case.precision is Precision.AMP_O2


def pure_fp16(case: Case, device: str) -> bool:
    return pure(case, device) and device == "gpu"


def native(case: Case, device: str) -> bool:
    return case.data is DataSource.NATIVE
