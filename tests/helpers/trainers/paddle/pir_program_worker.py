"""Builds GPU jobs as the build check does: ``python pir_program_worker.py LIBRARY SPEC.json ...``. Old programs of the
first job are made to fail, so that it falls to PIR.

LIBRARY is half_kernels.cc, compiled against this build of Paddle. The output is that of helpers.trainers.paddle.build.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

from helpers.trainers.common.process import set_environment
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle import build
from helpers.trainers.paddle.settings import PaddleSettings


def main(library: str, paths: list[str]) -> int:
    first = JobSpec.from_json(Path(paths[0]).read_text(encoding="utf-8"))
    set_environment(first, PaddleSettings.of(first), os.environ)
    import paddle

    from helpers.trainers.paddle import program

    assert ctypes.CDLL(library).pretend_float16() > 0, paddle.__version__
    made = program._fleet_program

    def fails(spec: JobSpec, *arguments: Any) -> Any:
        if spec.job_id == first.job_id:
            raise TypeError("an old program is made to fail")
        return made(spec, *arguments)

    program._fleet_program = fails
    return build.main(paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
