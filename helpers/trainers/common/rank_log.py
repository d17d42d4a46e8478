"""Redirects one rank's output to a file of its own: ``python -m helpers.trainers.common.rank_log FOLDER COMMAND...``.

``torch.distributed.run`` starts it in place of the trainer, and it then becomes the trainer. The launcher's own logs
are not used, since the names of their folders are not known beforehand.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import List, Mapping

from helpers.trainers.contract.errors import ConfigError


def log_path(folder: Path, local_rank: int) -> Path:
    return folder / f"rank{local_rank}.log"


def main(argv: List[str], environment: Mapping[str, str]) -> None:
    """Does not return. Raises ConfigError without a launcher, and OSError if the file or the command cannot be
    opened."""
    rank = environment.get("LOCAL_RANK", "")
    if not rank.isdigit() or len(argv) < 2:
        raise ConfigError("rank log", field="LOCAL_RANK", got=rank, expected="a rank's number, a folder and a command")
    folder, *command = argv
    Path(folder).mkdir(parents=True, exist_ok=True)
    output = os.open(
        str(log_path(Path(folder), int(rank))), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644
    )
    for standard in (1, 2):
        os.dup2(output, standard)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
