"""Builds a GPU job as the build check does, with old programs made to fail, so that it falls to PIR:
``python pir_program_worker.py LIBRARY SPEC.json``.

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


def main(library: str, path: str) -> int:
    job = JobSpec.from_json(Path(path).read_text(encoding="utf-8"))
    set_environment(job, PaddleSettings.of(job), os.environ)
    import paddle

    from helpers.trainers.paddle import program

    assert ctypes.CDLL(library).pretend_float16() > 0, paddle.__version__

    def fails(*arguments: Any) -> Any:
        raise TypeError("an old program is made to fail")

    program._fleet_program = fails
    return build.main([path])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
