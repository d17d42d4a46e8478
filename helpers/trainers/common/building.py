"""The common part of the programs that build a GPU job's program without a GPU: ``python -m helpers.trainers.NAME.build
SPEC.json``.

The last line on standard output is one JSON object: ``built``; ``reason`` (empty if built); ``facts`` as in the header
of a step log, including the options and flags that this build does not know; ``operators`` of the program (their
number, null if there is no program); ``parameters`` (how many the optimizer trains). Exit status: 0 built, 1 failed, 3
refused.
"""

from __future__ import annotations

import json
import os
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, MutableMapping, Optional

from helpers.trainers.common.process import EXIT_COMPLETE, EXIT_FAILED, EXIT_REFUSED, Refused, one_line
from helpers.trainers.contract.errors import ConfigError, SuiteError
from helpers.trainers.contract.job import JobSpec


@dataclass
class BuildAnswer:
    """The result of a build check; filled in step by step."""

    built: bool = False
    reason: str = ""
    facts: Dict[str, str] = field(default_factory=dict)
    operators: Optional[int] = None
    parameters: Optional[int] = None


# Fills in the answer; raises Refused where this build of the framework cannot build the job.
Build = Callable[[JobSpec, BuildAnswer, MutableMapping[str, str]], None]


def run_build(argv: List[str], build: Build) -> int:
    """Build the job that ``argv`` names, in this process's environment, and print the answer; returns the status."""
    answer = BuildAnswer()
    try:
        build(_read(argv), answer, os.environ)
        status, answer.built = EXIT_COMPLETE, True
    except Refused as refusal:
        status, answer.reason = EXIT_REFUSED, str(refusal)
    except (SuiteError, OSError, UnicodeDecodeError) as error:
        status, answer.reason = EXIT_FAILED, str(error)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the answer says so and the status is not 0
        traceback.print_exc()
        status, answer.reason = EXIT_FAILED, f"{type(error).__name__}: {error}"
    answer.reason = one_line(answer.reason)
    print(json.dumps(asdict(answer), sort_keys=True), flush=True)
    return status


def _read(argv: List[str]) -> JobSpec:
    if len(argv) != 1:
        given = " ".join(argv) or "no argument"
        raise ConfigError("build check", got=given, expected="one argument: a job's spec.json")
    spec = JobSpec.from_json(Path(argv[0]).read_text(encoding="utf-8"), about=argv[0])
    if spec.device != "gpu":
        raise ConfigError(
            "build check",
            field="device",
            got=spec.device,
            expected="gpu",
            remedy=f"A job on a CPU is not built but run, by helpers.trainers.{spec.case.framework.value}.trainer",
        )
    return spec
