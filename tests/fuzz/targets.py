"""What is fuzzed: the suite's readers as functions of bytes, for atheris and for Hypothesis alike.

A check lets the reader's documented error through, whose message must be one printable line of a bounded
length. Anything else that it raises is a finding: another exception, or Broken where the reader took an
input and what it made of it does not hold.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import yaml

from helpers.judging.rules.own import RULES, figures, reader_share
from helpers.judging.rules.publishers import RuleError
from helpers.launch.steplog_reader import read_step_log
from helpers.plan.baseline_files import write_document
from helpers.plan.perf_yaml import Config, load_config
from helpers.plan.published import PublishedDocument, PublishedSet, load_published
from helpers.plan.recorded import RecordedDocument, document_of, load_recorded
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import BaselineError, ConfigError, LogError, StepLogError, SuiteError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.steplog import StepLog, StepLogWriter, steadiness
from tests.fuzz.logs import WORDS, changed_lines, log_seeds, wrong_log
from tests.fuzz.mutations import closed_mappings, json_document, json_lines, yaml_document
from tests.fuzz.seeds import (
    CASE_WORDS,
    CONFIG_WORDS,
    LOG_RECORDS,
    MACHINE,
    PUBLISHED_DOCUMENT,
    case_seeds,
    config_seeds,
    published_seeds,
    recorded_document,
    recorded_seeds,
    step_log_seeds,
    words,
)

ROOT = Path(__file__).resolve().parents[2]
# Inputs that were findings once, a folder a target; tests/fuzz/test_fuzz.py reads each again.
FINDINGS = ROOT / "tests" / "fuzz" / "findings"
UNKNOWN_KEY = "no_such_key"
LONGEST_MESSAGE = 2500
# A log of no known format is told what each format looks like, and its closest lines.
LONGEST_LOG_MESSAGE = 4000


class Broken(AssertionError):
    """A reader took an input, and what it made of it does not hold."""


@dataclass(frozen=True)
class Target:
    """A reader under test: ``check`` takes any bytes.

    ``mutate`` changes an input and leaves it a document, or raises where it is none; ``words`` are what a mutation of
    bytes may put in.
    """

    name: str
    check: Callable[[bytes], None]
    mutate: Callable[[bytes, Random], bytes] | None
    seeds: tuple[bytes, ...]
    words: tuple[str, ...]


def findings(name: str) -> tuple[Path, ...]:
    """The inputs of a target that were findings once, in order."""
    return tuple(sorted((FINDINGS / name).glob("*")))


def targets(folder: Path) -> dict[str, Target]:
    """All targets by name; their inputs are files in ``folder``, which is the caller's and empty."""
    readers = _Readers(folder)
    json_words = ('"', "{", "}", "[", "]", ",", ":", "null", "true", "-1", "0", "1e400", "NaN", "1e308", "5e-324")
    listed = (
        Target("step-log", readers.step_log, json_lines, tuple(step_log_seeds()), (*json_words, *words(*LOG_RECORDS))),
        Target(
            "recorded-baseline",
            readers.recorded,
            json_document,
            recorded_seeds(),
            (*json_words, *words(recorded_document())),
        ),
        Target(
            "published-baseline",
            readers.published,
            json_document,
            published_seeds(),
            (*json_words, *words(PUBLISHED_DOCUMENT)),
        ),
        Target("config", readers.config, yaml_document, config_seeds(), CONFIG_WORDS),
        Target("case-id", readers.case_id, None, case_seeds(), CASE_WORDS),
        Target("training-log", readers.training_log, changed_lines, log_seeds(), WORDS),
    )
    return {each.name: each for each in listed}


class _Readers:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._input = folder / "input"

    def step_log(self, data: bytes) -> None:
        """Every figure of an accepted log is finite and above 0, or a reason; written again it reads the same."""
        self._input.write_bytes(data)
        try:
            log = read_step_log(self._input)
        except StepLogError as error:
            _check_message(error)
            return
        _check_steps(log)
        copy = self._folder / "copy"
        copy.unlink(missing_ok=True)
        writer = StepLogWriter(copy, log.header)
        writer.steps(log.steps)
        writer.footer(log.footer)
        if replace(read_step_log(copy), path=log.path) != log:
            raise Broken("the log reads otherwise after it was written again")
        alone = replace(log, header=replace(log.header, rank=0, world_size=1))
        _check_figures([alone])
        _check_figures([replace(log, header=replace(log.header, rank=rank, world_size=2)) for rank in (0, 1)])
        _check_rest(alone)

    def recorded(self, data: bytes) -> None:
        """Every number of an accepted entry can have been measured; written again the file reads the same."""
        self._input.write_bytes(data)
        try:
            found = load_recorded(self._input, MACHINE)
        except BaselineError as error:
            _check_message(error)
            return
        for entry in found.entries.values():
            _check_positive("entry", [entry.samples_per_s, *entry.replicates])
        document = document_of(found.machine_key, found.entries)
        copy = self._folder / "copy.json"
        write_document(copy, document, RecordedDocument)
        if load_recorded(copy, MACHINE) != found:
            raise Broken("the entries read otherwise after they were written again")

    def published(self, data: bytes) -> None:
        """Every accepted figure is a positive number of a case with one spelling; written again it reads the same."""
        self._input.write_bytes(data)
        try:
            found = load_published(self._input)
        except BaselineError as error:
            _check_message(error)
            return
        self._check_published(found)
        copy = self._folder / "copy.json"
        write_document(copy, json.loads(data), PublishedDocument)
        if load_published(copy) != found:
            raise Broken("the figures read otherwise after they were written again")

    def config(self, data: bytes) -> None:
        """An accepted perf.yaml reads the same when written again, and nowhere takes an unknown key."""
        self._input.write_bytes(data)
        try:
            config = load_config(self._input)
        except ConfigError as error:
            _check_message(error)
            return
        _check_config(config)
        document = yaml.safe_load(data.decode("utf-8"))
        if self._load(document) != config:
            raise Broken("the configuration reads otherwise after it was written again")
        # One place an input, chosen by the input: all of them would cost a load each.
        places = list(closed_mappings(document))
        if not places:
            return
        place = places[zlib.crc32(data) % len(places)]
        place[UNKNOWN_KEY] = 1
        try:
            self._load(document)
        except ConfigError:
            return
        raise Broken(f"an unknown key was taken beside {sorted(place)}")

    def case_id(self, data: bytes) -> None:
        """What is accepted is spelled exactly as the case spells itself."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return
        try:
            case = Case.parse(text)
        except ConfigError as error:
            _check_message(error)
            return
        if case.id != text or Case.parse(case.id) != case:
            raise Broken(f"{text!r} is the case {case.id!r}")

    def training_log(self, data: bytes) -> None:
        """Every figure is finite and above 0, or has a reason; every line is clean and numbered."""
        self._input.write_bytes(data)
        try:
            wrong = wrong_log(self._input)
        except LogError as error:
            _check_message(error)
            return
        if wrong:
            raise Broken("; ".join(wrong))

    def _load(self, document: object) -> Config:
        self._input.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
        return load_config(self._input)

    @staticmethod
    def _check_published(found: PublishedSet) -> None:
        for figure in found.figures:
            _check_positive("figure", [figure.samples_per_s])
            if figure.environment not in found.environments or Case.parse(figure.case.id) != figure.case:
                raise Broken(f"figure {figure}")


def _check_message(error: SuiteError) -> None:
    """What a report prints must not forge its lines, and a hostile file must not fill it."""
    text = str(error)
    longest = LONGEST_LOG_MESSAGE if isinstance(error, LogError) else LONGEST_MESSAGE
    if not text.isprintable() or len(text) > longest:
        raise Broken(f"a message of {len(text)} characters: {text[:300]!r}")


def _check_steps(log: StepLog) -> None:
    """The reader's promises, by another way than its own."""
    end = 0.0
    for step in log.steps:
        numbers = (step.start, step.end, step.reader_seconds, 0.0 if step.loss is None else step.loss)
        if not all(math.isfinite(number) for number in numbers) or step.samples < 1 or step.reader_seconds < 0:
            raise Broken(f"{step}")
        if not end <= step.start < step.end:
            raise Broken(f"{step} after {end}")
        end = step.end


def _check_figures(logs: Sequence[StepLog]) -> None:
    found = figures(logs)
    if set(found) != set(RULES):
        raise Broken(f"figures of {sorted(found)}")
    for rule, figure in found.items():
        if not (isinstance(figure, str) and figure):
            _check_positive(rule, [figure])


def _check_rest(log: StepLog) -> None:
    """What else is computed from a log: the share of waiting, and whether warm-up was steady."""
    if log.window:
        try:
            share = reader_share([log])
        except RuleError:
            return
        if not 0 <= share < math.inf:
            raise Broken(f"a reader's share of {share}")
    found = steadiness([step.step_seconds for step in log.warmup], 2)
    if not all(math.isfinite(value) for value in (*found.means, found.spread, found.limit)):
        raise Broken(f"{found}")


def _check_positive(what: str, values: Sequence[object]) -> None:
    for value in values:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value < math.inf:  # type: ignore[operator]
            raise Broken(f"{what}: {value!r} is no figure")


def _check_config(config: Config) -> None:
    if set(config.frameworks) != set(Framework):
        raise Broken(f"frameworks {sorted(each.value for each in config.frameworks)}")
    _check_positive("limits", [*vars(config.limits).values(), *vars(config.tolerances.general).values()])
    for each in config.matrix:
        if each.protocol not in config.protocols or Case.parse(each.case.id) != each.case:
            raise Broken(f"matrix case {each}")
