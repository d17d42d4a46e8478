"""Checks whether a trainer would accept the settings of jobs, with the trainers' own strict reader in a process of its
own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.paths import ROOT

MODULE = "helpers.trainers.common.settings_check"
_SECONDS = 60


def check_settings(specs: Sequence[JobSpec], interpreter: str = sys.executable) -> tuple[str | None, ...]:
    """For each job, what is wrong with its settings in one line; None where they are complete and right.

    No framework is imported. Raises LaunchError when the check itself gives no answer.
    """
    if not specs:
        return ()
    argv = [interpreter, "-m", MODULE]
    try:
        done = subprocess.run(
            argv,
            input=json.dumps([spec.to_json() for spec in specs]),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        answers = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        reason = lines[-1] if lines else repr(error)
        raise LaunchError(MODULE, got=reason, expected="an answer for each job") from error
    right = isinstance(answers, list) and all(answer is None or isinstance(answer, str) for answer in answers)
    if not right or len(answers) != len(specs):
        raise LaunchError(MODULE, got=done.stdout[:100], expected=f"{len(specs)} answers")
    return tuple(answers)
