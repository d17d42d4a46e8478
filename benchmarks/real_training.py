"""The verdicts on real training: ``python -m benchmarks.real_training``; half an hour on idle cores.

Records a baseline of one short CPU case, then judges nights of the same build (A/A: none may raise an alarm) and nights
of a build that the trainer slows down by 5% (each must be a REGRESSION), all through ``pytest perf_tests`` with a
reference build at hand. The history grows from night to night, as a nightly job's does. INCONCLUSIVE is no alarm and
no detection. Exits 1 where a night was judged wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks import same_build
from helpers.judging.verdict import Status
from helpers.plan.proposals import OPTION as ACCEPT_OPTION
from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError

CASE = "paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic"
SLOWDOWN = "PERFGATE_TEST_SLOWDOWN"
PAIRS = 48
_ACCEPTED = "the noise of a machine with neighbours is part of this benchmark"


@dataclass(frozen=True)
class Night:
    """One session's answer. ``effect``, ``low`` and ``high`` are fractions, None where nothing was compared."""

    kind: str
    status: str
    runs: int
    pairs: int
    seconds: float
    reason: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def line(self) -> str:
        effect = "" if self.effect is None else f"{self.effect:+.2%}"
        interval = "" if self.low is None or self.high is None else f"({self.low:+.2%} to {self.high:+.2%})"
        return (
            f"{self.kind:<10} {self.status:<12} {effect:>7} {interval:<22} {self.runs:>3} runs {self.pairs:>3} pairs"
            f" {self.seconds:>5.0f} s"
        )


@dataclass(frozen=True)
class Nights:
    """Sessions of one case in ``folder``, with baselines, runs and a history of their own.

    ``pairs`` as in Budget.
    """

    folder: Path
    pairs: int = PAIRS

    def prepare(self) -> None:
        """The project's own perf.yaml with a case small enough for many nights, and the reference interpreter."""
        config = yaml.safe_load((ROOT / "perf.yaml").read_text(encoding="utf-8"))
        # The case that CASE names.
        config["matrix"] = {
            "cpu": [
                {
                    "framework": "paddle", "model": "resnet50v1.5", "precision": "fp32", "batch_size_per_card": 1,
                    "cards": 1, "data": "synthetic", "execution": "dynamic", "protocol": "cpu",
                }
            ]
        }  # fmt: skip
        config["short"] = [CASE]
        config["machines"] = {}
        # Who else is on the cores is part of the noise that the verdicts have to stand.
        config["contention"] = {"max_foreign_share": 0.99}
        # Pairs enough for 5% where runs vary by 3%, as two virtual cores with neighbours do: `perfgate calibrate` says
        # 16 pairs find 7% there.
        config["budgets"] = {**config["budgets"], "pairs": self.pairs}
        (self.folder / "perf.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        recorded = self.folder / "baselines" / "recorded"
        recorded.mkdir(parents=True)
        shutil.copy(ROOT / "baselines" / "recorded" / "schema.json", recorded)
        shutil.copytree(ROOT / "baselines" / "published", self.folder / "baselines" / "published")
        self.reference.write_text(f'#!/bin/sh\nunset {SLOWDOWN}\nexec {shlex.quote(sys.executable)} "$@"\n')
        self.reference.chmod(0o755)

    @property
    def reference(self) -> Path:
        """The good build: this very interpreter, without the slowdown."""
        return self.folder / "good-python"

    def record(self) -> None:
        """The first entry. LaunchError where the session left none."""
        night = self._session("record", {}, "--update-baselines", ACCEPT_OPTION, f"{CASE}={_ACCEPTED}")
        if not any(path.name != "schema.json" for path in (self.folder / "baselines" / "recorded").glob("*.json")):
            raise LaunchError("pytest perf_tests --update-baselines", got=night.reason, expected="a recorded entry")

    def judge(self, kind: str, slowdown: float = 0.0) -> Night:
        """One more night; with ``slowdown`` every step of the build under test takes that share longer."""
        variables = {SLOWDOWN: str(slowdown)} if slowdown else {}
        return self._session(kind, variables, "--reference-env", str(self.reference), "-p", same_build.__name__)

    def _session(self, kind: str, variables: Mapping[str, str], *options: str) -> Night:
        results = self.folder / "results.json"
        results.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "pytest", "perf_tests", "-k", CASE, "-q", "--allow-contention"]
        argv += ["--perf-config", str(self.folder / "perf.yaml"), "--baselines-dir", str(self.folder / "baselines")]
        argv += ["--runs-dir", str(self.folder / "runs"), "--results", str(results), *options]
        # The suite's own pytest, whatever this one was started with.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            argv, cwd=ROOT, env={**environment, **variables}, capture_output=True, text=True, check=False
        )
        if not results.exists():
            raise LaunchError("pytest perf_tests", got=(done.stdout + done.stderr)[-1500:], expected="a results file")
        return _night(kind, json.loads(results.read_text(encoding="utf-8")))


def nights(series: Nights, quiet: int, slowed: int, slowdown: float) -> Iterator[Night]:
    """The baseline, ``quiet`` nights of the same build, ``slowed`` nights of a slower one, in one history."""
    series.prepare()
    series.record()
    for _ in range(quiet):
        yield series.judge("same")
    for _ in range(slowed):
        yield series.judge(f"{slowdown:.0%} slower", slowdown)


def judged_right(night: Night) -> bool:
    """A night of the same build passes or is open; one of a slower build is a confirmed regression."""
    wanted = (Status.PASS, Status.INCONCLUSIVE) if night.kind == "same" else (Status.REGRESSION,)
    return Status(night.status) in wanted


def _night(kind: str, document: Mapping[str, Any]) -> Night:
    (case,) = document["cases"]
    standing = case["standing"] or {}
    change = (standing.get(name) for name in ("effect", "low", "high"))
    pairs = standing.get("pairs", 0)
    return Night(kind, case["status"], case["runs"], pairs, case["wall_seconds"], case["reason"], *change)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Judge real training: the same build, and one slowed down.")
    parser.add_argument("--quiet-nights", type=int, default=10, help="nights of the same build (default 10)")
    parser.add_argument("--slow-nights", type=int, default=3, help="nights of the slowed build (default 3)")
    parser.add_argument("--slowdown", type=float, default=0.05, help="share by which a step is longer (default 0.05)")
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help=f"the most interleaved pairs of a comparison (default {PAIRS})"
    )
    given = parser.parse_args(arguments)
    wrong = 0
    print(f"{CASE}, by median-step", flush=True)
    with tempfile.TemporaryDirectory(prefix="real-training-") as folder:
        series = Nights(Path(folder), given.pairs)
        for night in nights(series, given.quiet_nights, given.slow_nights, given.slowdown):
            right = judged_right(night)
            wrong += not right
            print(night.line + ("" if right else f"  WRONG: {night.reason}"), flush=True)
    print(f"{given.quiet_nights + given.slow_nights} nights, {wrong} judged wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(ended(main, "real_training"))
