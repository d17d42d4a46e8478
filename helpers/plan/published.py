"""Published figures: the numbers the documents print (``baselines/published/<target>.json``); no run rewrites them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers.plan.baseline_files import PUBLISHED, FigureStatus, read_document
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import BaselineError, ConfigError

# The format, described by the schema.json beside the files:
#   1  environments by key, figures with case id, source, table, rule, printed and actual precision, status, note
PUBLISHED_VERSION = 1

# The titles of the documents (docs/measuring-rules.md) by the names of their files, which are the keys in the data.
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "001_c5ab03129253aecb.txt": "Paddle ResNet50 v1.5 performance test",
        "002_5acda3b3da7d74ee.txt": "NVIDIA TensorFlow ResNet50 v1.5 evaluation",
        "003_35bd56ed9f798634.txt": "Paddle ResNet50 v1.5 performance test, early draft",
        "004_2bebc35fa2127610.txt": "VGG16 training performance baseline",
    }
)


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


@dataclass(frozen=True)
class PublishedSet:
    """All figures for one ``target`` (v100, a100), sorted by case id, card model, source and table."""

    target: str
    figures: tuple[PublishedFigure, ...]
    # The machine and software behind figures, as a ``document`` states them (schema.json beside the files).
    environments: Mapping[str, Mapping[str, Any]]

    def cases(self) -> tuple[Case, ...]:
        """Each case once, in id order."""
        by_id = {figure.case.id: figure.case for figure in self.figures}
        return tuple(by_id[case_id] for case_id in sorted(by_id))


def load_all_published(folder: Path, checked: Path | None, targets: Sequence[str]) -> dict[str, PublishedSet]:
    """The published figures of ``folder`` by target. Raises BaselineError if one of ``targets`` has none."""
    files = sorted(path for path in folder.glob("*.json") if path.name != "schema.json")
    if not files:
        raise BaselineError(
            str(folder), got="no files", expected="published figures (v100.json, …)", remedy="Restore them"
        )
    found = {each.target: each for each in (load_published(path, checked) for path in files)}
    if missing := sorted(set(targets) - set(found)):
        raise BaselineError(
            str(folder), got=f"no figures for {missing[0]}", expected=f"{missing[0]}.json", remedy="Restore it"
        )
    return found


def load_published(path: Path, checked: Path | None = None) -> PublishedSet:
    """The published figures in ``path``. Raises BaselineError, which names what is wrong. ``checked`` is as in
    read_document()."""
    data = read_document(
        path,
        schema=PUBLISHED / "schema.json",
        version=PUBLISHED_VERSION,
        remedy="Restore it from version control: published figures are never written by a run",
        checked=checked,
    )
    if data is None:
        raise BaselineError(
            str(path),
            field="file",
            got="no such file",
            expected="published figures",
            remedy="Restore it from version control",
        )
    environments: dict[str, dict[str, Any]] = data["environments"]
    figures: dict[tuple[str, ...], PublishedFigure] = {}
    for index, item in enumerate(data["figures"]):
        figure = _figure(path, index, item, data["target"], environments)
        key = (figure.case.id, figure.gpu, figure.source, figure.table)
        if key in figures:
            raise _wrong(path, f"figures[{index}]", " | ".join(key), "each case, card, source and table once")
        figures[key] = figure
    return PublishedSet(data["target"], tuple(figures[key] for key in sorted(figures)), environments)


def _figure(
    path: Path, index: int, item: Mapping[str, Any], target: str, environments: Mapping[str, Mapping[str, Any]]
) -> PublishedFigure:
    """One row. Facts that stand both in the case id and beside it must agree."""
    where = f"figures[{index}]"
    try:
        case = Case.parse(item["case"])
    except ConfigError as error:
        raise _wrong(path, f"{where}.case", item["case"], str(error)) from error
    environment = environments.get(item["environment"])
    if environment is None:
        raise _wrong(path, f"{where}.environment", item["environment"], "a key of environments")
    agreements = (
        ("framework", item["framework"], case.framework.value),
        ("precision", item["precision"], case.precision.value),
        ("strategy", item["strategy"], "auto" if case.auto else None),
        ("gpu", item["gpu"].split("-")[0].lower(), target),
        ("source", item["source"], environment["document"]),
    )
    for field, got, expected in agreements:
        if got != expected:
            raise _wrong(path, f"{where}.{field}", item[field], f"{expected!r}, as the rest of the row says")
    own = {key: item[key] for key in item if key not in ("case", "framework", "precision", "status", "images_per_s")}
    return PublishedFigure(
        case=case, target=target, samples_per_s=float(item["images_per_s"]), status=FigureStatus(item["status"]), **own
    )


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
