"""What a test with a second user needs."""

from __future__ import annotations

import tempfile
from pathlib import Path


def reachable(folder: Path) -> None:
    """Let other users go down to ``folder``: pytest's own temporary folders, and a worker's among them, are private."""
    top = Path(tempfile.gettempdir())
    for each in (folder, *folder.parents):
        if each == top or top not in each.parents:
            return
        each.chmod(0o755)
