"""Whether a trainer would take the settings of jobs: asked of the trainers' own strict reader, in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from helpers.errors import LaunchError
from helpers.job import JobSpec
from helpers.launch.launcher import ROOT

MODULE = "helpers.trainers.settings_check"
_SECONDS = 60


def check_settings(specs: Sequence[JobSpec], interpreter: str = sys.executable) -> tuple[str | None, ...]:
    """For each job None where its settings are complete and right, else what is wrong in one line.

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
        told = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise LaunchError(MODULE, got=told[-1] if told else repr(error), expected="an answer for each job") from error
    right = isinstance(answers, list) and all(answer is None or isinstance(answer, str) for answer in answers)
    if not right or len(answers) != len(specs):
        raise LaunchError(MODULE, got=done.stdout[:100], expected=f"{len(specs)} answers")
    return tuple(answers)
