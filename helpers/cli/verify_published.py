"""``perfgate verify-published DIR``: do the logs of published figures give these figures?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TextIO

from helpers.cli.loading import width_of
from helpers.policy import EXIT_OK

NAME = "verify-published"
HELP = "Recompute published figures from their logs; fail where one differs by more than its last printed digit"

# 1: first format.
VERIFY_SCHEMA_VERSION = 1

EXIT_DIFFERS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="The logs; an index names each by its path in DIR")
    parser.add_argument("--index", type=Path, metavar="FILE", help="Read this index. Default: DIR/INDEX.csv")
    parser.add_argument("--json", action="store_true", help="Print JSON")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print published, computed, difference and rule of each row; 1 where a row does not agree.

    Raises LogError on an index that cannot be read.
    """
    from helpers.importing.published import INDEX, read_index, verify
    from helpers.report.published_text import render_verified, verified_record

    folder = arguments.folder.expanduser()
    found = verify(folder, read_index(arguments.index or folder / INDEX))
    if arguments.json:
        record = {"schema_version": VERIFY_SCHEMA_VERSION, "rows": [verified_record(each) for each in found]}
        print(json.dumps(record, indent=1, sort_keys=True, allow_nan=False), file=out)
    else:
        print(render_verified(found, width_of(out)), file=out)
    return EXIT_DIFFERS if any(each.problem for each in found) else EXIT_OK
