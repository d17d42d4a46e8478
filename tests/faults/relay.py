"""Stands in for ssh: a process of its own between the suite and what it starts (``relay.py COMMAND ...``)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading


def carry(source: int, sink: int) -> None:
    """Pass bytes on until one side hangs up."""
    try:
        while data := os.read(source, 65536):
            while data:
                data = data[os.write(sink, data) :]
    except OSError:
        pass
    os.close(sink)


if __name__ == "__main__":
    far = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert far.stdin is not None and far.stdout is not None
    threading.Thread(target=carry, args=(0, far.stdin.fileno()), daemon=True).start()
    carry(far.stdout.fileno(), 1)
    sys.exit(far.wait())
