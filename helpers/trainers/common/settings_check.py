"""Whether the trainers take the settings of jobs: ``python -m helpers.trainers.common.settings_check < JOBS.json``.

The input is a JSON list of job files' texts. The answer on standard output is a JSON list as long: null
where the settings are complete and right, else what is wrong in words. Exit status 0, 1 for an input that
is no such list.
"""

from __future__ import annotations

import json
import sys
from typing import Optional, TextIO

from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec


def problem(text: str) -> Optional[str]:
    try:
        Settings.of(JobSpec.from_json(text))
    except ConfigError as error:
        return str(error)
    return None


def main(given: TextIO, out: TextIO, errors: TextIO) -> int:
    try:
        texts = json.load(given)
    except ValueError as error:
        print(f"the jobs are no JSON: {error}", file=errors)
        return 1
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        print("expected a JSON list of job files' texts", file=errors)
        return 1
    json.dump([problem(text) for text in texts], out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin, sys.stdout, sys.stderr))
