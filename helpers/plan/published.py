"""Published figures: the numbers the documents print (``baselines/published/<target>.json``); no run rewrites them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

from helpers.common.records import member_of, one_of
from helpers.judging.rules.own import RULES
from helpers.plan.baseline_files import UNIT, FigureStatus, Named, SamplesPerS, read_document
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import BaselineError, ConfigError
from helpers.trainers.contract.frameworks import Framework

# 1: environments by key, figures with case id, source, table, rule, printed and actual precision, status, note
PUBLISHED_VERSION = 1

# The titles of the documents (docs/published.md) by the names of their files, which are the keys in the data.
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "001_c5ab03129253aecb.txt": "Paddle ResNet50 v1.5 performance test",
        "002_5acda3b3da7d74ee.txt": "NVIDIA TensorFlow ResNet50 v1.5 evaluation",
        "003_35bd56ed9f798634.txt": "Paddle ResNet50 v1.5 performance test, early draft",
        "004_2bebc35fa2127610.txt": "VGG16 training performance baseline",
    }
)


# Keys of environments, and what of a row stands in its case id or has another name.
_Key = Annotated[str, Meta(pattern=r"^[a-z0-9.]+(-[a-z0-9.]+)*$(?!\n)")]
_NOT_OF_FIGURES = ("framework", "precision", "images_per_s")


def title_of(document: str) -> str:
    """The title of a document; its file's name if it is not in TITLES."""
    return TITLES.get(document, document)


@dataclass(frozen=True)
class PublishedFigure:
    """One printed number: ``samples_per_s`` of all cards of ``case`` on cards of model ``gpu``.

    ``source`` is the document, ``table`` the table in it, ``rule`` how the number was measured,
    ``precision_printed`` the document's word for ``case.precision``, ``environment`` a key of
    PublishedSet.environments.
    """

    case: Case
    target: str
    gpu: str
    source: str
    table: str
    rule: str
    framework_version: str
    precision_printed: str
    strategy: str | None
    samples_per_s: float
    status: FigureStatus
    note: str
    environment: str

    def applies_to(self, device_name: str) -> bool:
        """Whether the NVML name ``device_name`` is the card of this row.

        Family and form factor must agree, and the memory size if the row states it. A name with any further part (a MIG
        slice, a special edition) is another card.
        """
        here, row = _card_model(device_name), _card_model(self.gpu)
        if here is None or row is None:
            return False
        family, form, memory = row
        return here[:2] == (family, form) and memory in (None, here[2])


_MACHINE = one_of("cpu", "cuda", "cudnn", "disk", "driver", "gpu", "instance", "interconnect", "memory", "system")
_SOFTWARE = one_of(
    "code", "code_commit", "cuda", "cudnn", "dali", "dataset", "docker_image", "docker_options", "framework",
    "framework_commit", "horovod", "nccl", "openmpi", "python", "system",
)  # fmt: skip
# What a figure was computed in, which is not always the printed word.
_PRECISIONS = ("fp32", "tf32", "bf16", "amp_o1", "amp_o2", "amp", "unstated")


@dataclass(frozen=True)
class PublishedEnvironment:
    """What a document states about a machine, in its own words. What it leaves open is absent."""

    document: Named
    describes: Named
    machine: Mapping[Annotated[str, _MACHINE], Named]
    # The container or installation in which the figures ran.
    software: Mapping[Annotated[str, _SOFTWARE], Named]
    topology: tuple[Named, ...]
    remarks: tuple[Named, ...]


@dataclass(frozen=True)
class _Row:
    """A figure as the file has it."""

    case: Named
    source: Named
    table: Named
    rule: Annotated[str, one_of(*RULES, "unknown")]
    framework: Annotated[str, member_of(Framework)]
    framework_version: Named
    precision: Annotated[str, one_of(*_PRECISIONS)]
    precision_printed: Named
    # Of parallelism.
    strategy: Annotated[str, one_of("auto")] | None
    gpu: Annotated[str, Meta(pattern=r"^(V100|A100)-(SXM2|SXM3|SXM4|PCIE)(-[0-9]+GB)?$(?!\n)")]
    images_per_s: SamplesPerS
    status: FigureStatus
    note: str
    environment: Named


@dataclass(frozen=True)
class PublishedDocument:
    """A file of published figures."""

    schema_version: int
    target: Annotated[str, one_of("v100", "a100")]
    unit: Annotated[str, one_of(UNIT)]
    environments: Annotated[Mapping[_Key, PublishedEnvironment], Meta(min_length=1)]
    figures: Annotated[tuple[_Row, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class PublishedSet:
    """All figures for one ``target`` (v100, a100), sorted by case id, card model, source and table."""

    target: str
    figures: tuple[PublishedFigure, ...]
    # The machine and software behind figures.
    environments: Mapping[str, PublishedEnvironment]

    def cases(self) -> tuple[Case, ...]:
        """Each case once, in id order."""
        by_id = {figure.case.id: figure.case for figure in self.figures}
        return tuple(by_id[case_id] for case_id in sorted(by_id))


def load_all_published(folder: Path, targets: Sequence[str]) -> dict[str, PublishedSet]:
    """The published figures of ``folder`` by target. Raises BaselineError if one of ``targets`` has none."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise BaselineError(
            str(folder), got="no files", expected="published figures (v100.json, …)", remedy="Restore them"
        )
    found = {each.target: each for each in map(load_published, files)}
    if missing := sorted(set(targets) - set(found)):
        raise BaselineError(
            str(folder), got=f"no figures for {missing[0]}", expected=f"{missing[0]}.json", remedy="Restore it"
        )
    return found


def load_published(path: Path) -> PublishedSet:
    """The published figures in ``path``. Raises BaselineError, which names what is wrong."""
    data = read_document(
        path,
        PublishedDocument,
        version=PUBLISHED_VERSION,
        remedy="Restore it from version control: published figures are never written by a run",
    )
    if data is None:
        raise BaselineError(
            str(path),
            field="file",
            got="no such file",
            expected="published figures",
            remedy="Restore it from version control",
        )
    figures: dict[tuple[str, ...], PublishedFigure] = {}
    for index, row in enumerate(data.figures):
        figure = _figure(path, index, row, data)
        key = (figure.case.id, figure.gpu, figure.source, figure.table)
        if key in figures:
            raise _wrong(path, f"figures[{index}]", " | ".join(key), "each case, card, source and table once")
        figures[key] = figure
    return PublishedSet(data.target, tuple(figures[key] for key in sorted(figures)), data.environments)


def _figure(path: Path, index: int, row: _Row, document: PublishedDocument) -> PublishedFigure:
    """One row. Facts that stand both in the case id and beside it must agree."""
    where = f"figures[{index}]"
    try:
        case = Case.parse(row.case)
    except ConfigError as error:
        raise _wrong(path, f"{where}.case", row.case, str(error)) from error
    environment = document.environments.get(row.environment)
    if environment is None:
        raise _wrong(path, f"{where}.environment", row.environment, "a key of environments")
    agreements = (
        ("framework", row.framework, case.framework.value),
        ("precision", row.precision, case.precision.value),
        ("strategy", row.strategy, "auto" if case.auto else None),
        ("gpu", row.gpu.split("-")[0].lower(), document.target),
        ("source", row.source, environment.document),
    )
    for field, got, expected in agreements:
        if got != expected:
            raise _wrong(path, f"{where}.{field}", getattr(row, field), f"{expected!r}, as the rest of the row says")
    own = {name: value for name, value in vars(row).items() if name not in _NOT_OF_FIGURES}
    return PublishedFigure(**{**own, "case": case}, target=document.target, samples_per_s=row.images_per_s)


def _wrong(path: Path, field: str, got: object, expected: str) -> BaselineError:
    remedy = "Restore it from version control, or correct the row by its document"
    return BaselineError(str(path), field=field, got="null" if got is None else got, expected=expected, remedy=remedy)


def _card_model(name: str) -> tuple[str, str, str | None] | None:
    """(family, form factor, memory) of "Tesla V100-SXM2-32GB" or "NVIDIA A100 80GB PCIe"; None for any other card.

    NVML writes the parts in two orders, with or without the vendor.
    """
    words = [word for word in re.split(r"[\s-]+", name.strip().upper()) if word not in ("NVIDIA", "TESLA")]
    family, rest = (words[0], words[1:]) if words else ("", [])
    memory = [word for word in rest if re.fullmatch(r"\d+GB", word)]
    form = [word for word in rest if re.fullmatch(r"SXM\d|PCIE", word)]
    if not re.fullmatch(r"[A-Z]\d+", family) or len(form) != 1 or len(memory) > 1 or len(rest) != len(form + memory):
        return None
    return family, form[0], memory[0] if memory else None
