"""A job: everything that one run of a trainer needs, as a file for the trainer's processes.

Every rank reads it: ``python -m helpers.trainers.<framework>.trainer SPEC.json``. A job is one run: one set of fresh
processes, each of which writes a step log beside the spec.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.records import parsed, read_record
from helpers.trainers.contract.records import text as as_text

# 1: first format.
JOB_SCHEMA_VERSION = 1

# Warm-up ends when its last windows of steps agree; this is their number (docs/verdicts.md, "Measure").
STEADY_WINDOWS = 3

# The variable by which tests slow down every step by a fraction of its time (a regression of known size), and the fact
# of it in the step log. Only tests and benchmarks set it; such a result is marked and never recorded.
SLOWDOWN_VARIABLE = "PERFGATE_TEST_SLOWDOWN"
SLOWDOWN_FACT = "test_slowdown"
# The variable with which Paddle's ranks write a sum over their weights (``weights_path``) after the last step, so that
# ranks can be compared. Only tests and perfgate prove-gpu set it.
WEIGHTS_VARIABLE = "PERFGATE_TEST_WEIGHTS"

# The setting that names the launcher; present only if perf.yaml or the recipe chooses another than the framework's own.
LAUNCHER_SETTING = "launcher"
# The setting that says how many cards one process drives; present for frameworks whose processes can drive several. It
# is 1 or the number of all cards of a node, so it is the same for every process of a job.
CARDS_PER_PROCESS_SETTING = "cards_per_process"
# The settings of how the processes of a job are started; they do not change the training.
START_SETTINGS = (LAUNCHER_SETTING, CARDS_PER_PROCESS_SETTING)
# The launcher that starts one process on each node, which drives all cards of the node.
ONE_PROCESS = "process"


@dataclass(frozen=True)
class JobSpec:
    """One run of one case."""

    # Repeated in every step log, so that a log of another job is refused.
    job_id: str
    case: Case
    replicate: int
    # The folder for ``spec.json``, ``rank<k>.jsonl`` and ``rank<k>.heartbeat``.
    run_folder: str
    # ``cpu`` or ``gpu``.
    device: str
    # The steps of each rank. A rank is a process of the job, however many cards it drives.
    warmup_steps: int
    window_steps: int
    # The loss is fetched after every so many steps: the publisher's print interval.
    record_every_steps: int = 10
    # Warm-up goes on until its last windows of so many steps agree (``steplog.steadiness``), up to
    # ``most_warmup_steps`` steps. If both are 0, warm-up has ``warmup_steps``.
    steady_window_steps: int = 0
    most_warmup_steps: int = 0
    # So many more steps are trained after the window, under the framework's profiler with every operator recorded, so
    # that two builds can be compared part by part (``contract/step_profile.py``).
    explained_steps: int = 0
    # What that profiler does not record, so that it costs less (``explained_without`` of contract/frameworks.py).
    explained_without: tuple[str, ...] = ()
    seed: int = 1234
    # The ImageNet-layout folder; None for synthetic data.
    data_root: str | None = None
    # The complete training configuration: optimizer, layout, flags (``helpers/plan/recipes/recipe.py``).
    settings: Mapping[str, Any] = field(default_factory=dict)
    # The keys of ``settings`` that the user changed.
    overrides: Mapping[str, Any] = field(default_factory=dict)
    # Variables that are set for the trainer before its framework is imported.
    environment: Mapping[str, str] = field(default_factory=dict)
    # For each card of this node: the CPU cores to which its process is pinned; empty if it is not pinned.
    cores: tuple[tuple[int, ...], ...] = ()
    # The UUIDs of this node's GPUs: CUDA and NVML may count cards otherwise where one of them is lost.
    cards: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("window_steps", "record_every_steps"):
            self._at_least(name, 1)
        for name in (
            "warmup_steps",
            "replicate",
            "steady_window_steps",
            "most_warmup_steps",
            "explained_steps",
        ):
            self._at_least(name, 0)
        steady = self.steady_window_steps
        if steady:
            # A window of one step has no deviation. The first test needs all its windows within the shortest warm-up.
            self._at_least("steady_window_steps", 2)
            self._at_least("warmup_steps", STEADY_WINDOWS * steady)
            self._at_least("most_warmup_steps", self.warmup_steps)
        if not steady and self.most_warmup_steps:
            raise ConfigError(
                "job", field="most_warmup_steps", got=self.most_warmup_steps, expected="0 without steady_window_steps"
            )
        if self.device not in ("cpu", "gpu"):
            raise ConfigError("job", field="device", got=self.device, expected="'cpu' or 'gpu'")
        check_cards_per_process(self.case, self.settings.get(CARDS_PER_PROCESS_SETTING, 1))

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError("job", field=name, got=value, expected=f"a whole number of at least {least}")

    @property
    def steps(self) -> int:
        """The steps of each rank, warm-up and window, if warm-up is not extended."""
        return self.warmup_steps + self.window_steps

    @property
    def launcher(self) -> str:
        """The launcher that perf.yaml or the recipe chooses; empty for the framework's own."""
        return str(self.settings.get(LAUNCHER_SETTING, ""))

    @property
    def cards_per_process(self) -> int:
        return int(self.settings.get(CARDS_PER_PROCESS_SETTING, 1))

    @property
    def ranks_per_node(self) -> int:
        """How many processes are started on each node."""
        return self.case.cards_per_node // self.cards_per_process

    @property
    def ranks(self) -> int:
        """How many processes all nodes have; each writes a step log."""
        return self.case.nodes * self.ranks_per_node

    def ranks_of_node(self, node: int) -> range:
        return range(node * self.ranks_per_node, (node + 1) * self.ranks_per_node)

    @property
    def longest_warmup_steps(self) -> int:
        return max(self.warmup_steps, self.most_warmup_steps)

    @property
    def spec_path(self) -> Path:
        return Path(self.run_folder) / "spec.json"

    def step_log_path(self, rank: int) -> Path:
        return Path(self.run_folder) / f"rank{rank}.jsonl"

    def heartbeat_path(self, rank: int) -> Path:
        return Path(self.run_folder) / f"rank{rank}.heartbeat"

    def step_profile_path(self, rank: int) -> Path:
        return Path(self.run_folder) / f"profile-rank{rank}.json"

    def weights_path(self, rank: int) -> Path:
        return Path(self.run_folder) / f"rank{rank}.weights.json"

    def trace_path(self, rank: int) -> Path:
        """The profiler's own record, for a trace viewer."""
        return Path(self.run_folder) / f"trace-rank{rank}.json"

    def to_json(self) -> str:
        record: dict[str, Any] = {"schema": JOB_SCHEMA_VERSION, "case": self.case.id}
        for item in fields(self):
            if item.name != "case":
                record[item.name] = getattr(self, item.name)
        try:
            return json.dumps(record, indent=1, sort_keys=True, allow_nan=False, default=_plain) + "\n"
        except (ValueError, TypeError) as error:
            raise ConfigError(f"job {self.job_id}", got=str(error), expected="plain JSON values") from error

    @staticmethod
    def from_json(text: str, about: str = "job") -> JobSpec:
        """The job from a file's text. Raises ConfigError on another schema, and on an unknown or missing key."""

        def fail(name: str | None, got: Any, expected: str, remedy: str | None = None) -> ConfigError:
            return ConfigError(about, field=name, got=got, expected=expected, remedy=remedy)

        record = parsed(text, fail, _no_constant)
        schema = record.pop("schema", None)
        if schema != JOB_SCHEMA_VERSION or isinstance(schema, bool):
            raise fail("schema", schema, str(JOB_SCHEMA_VERSION), "Suite and trainer must be of one checkout")
        return read_record(JobSpec, record, fail, {"Case": lambda value: Case.parse(as_text(value))})


def check_cards_per_process(case: Case, cards: object) -> None:
    """Raise ConfigError unless a process of ``case`` can drive so many cards: 1, or all cards of its node."""
    several = case.framework.spec.several_cards
    allowed = sorted({1, case.cards_per_node}) if several else [1]
    if not isinstance(cards, int) or isinstance(cards, bool) or cards not in allowed:
        title = case.framework.spec.title
        raise ConfigError(
            f"job of {case.id}",
            field=CARDS_PER_PROCESS_SETTING,
            got=cards,
            expected=" or ".join(map(str, allowed)),
            remedy="One process a card, or one that drives all cards of its node: every process drives as many"
            if several
            else f"One process of {title} drives one card (several_cards in contract/frameworks.py)",
        )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise ConfigError("job", got=type(value).__name__, expected="plain JSON values")
