"""Writes the figures of a page of evidence anew: ``.venv/bin/python -m docs.evidence.make faults``.

It runs each command of the page's measured blocks (```` ```console not-run takes-… ````), puts its output below it, and
below the block when and where that was. A command that fails stops it, and the page stays as it was.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

from helpers.machine.host import probe_host
from helpers.trainers.contract import ROOT

HERE = Path(__file__).parent
# The block, and the line below it that says when and where.
_MEASURED = re.compile(
    r"^(```console not-run takes-\w+\n)((?:(?!```).*\n)*)(```\n)\nMeasured .*\n",
    re.MULTILINE,
)
_COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)


def pages(folder: Path) -> list[Path]:
    """Those with a measured block."""
    return [page for page in sorted(folder.glob("*.md")) if _MEASURED.search(page.read_text(encoding="utf-8"))]


def write(page: Path) -> None:
    page.write_text(_MEASURED.sub(measured, page.read_text(encoding="utf-8")), encoding="utf-8")


def measured(block: re.Match[str]) -> str:
    """The block with what its commands print now."""
    parts = []
    for command in _COMMAND.findall(block[2]):
        print(f"$ {command}", file=sys.stderr)
        lines = []
        with subprocess.Popen(shlex.split(command), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            # As it comes: minutes of it are not lost if the command fails.
            for line in process.stdout or ():
                print(line, end="", file=sys.stderr, flush=True)
                lines.append(line)
        if process.returncode:
            sys.exit(f"exit code {process.returncode} of {command}: the page stays as it was")
        parts.append(f"$ {command}\n{''.join(lines).rstrip()}\n")
    return f"{block[1]}{''.join(parts)}{block[3]}\nMeasured {datetime.date.today()} {here()}\n"


def here() -> str:
    host = probe_host()
    return f"on {host.logical_cores} cores: {host.cpu_model}, Python {platform.python_version()}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", choices=[page.stem for page in pages(HERE)])
    write(HERE / f"{parser.parse_args().page}.md")


if __name__ == "__main__":
    main()
