"""History: every run, every night and what people said of them, on SQLite or PostgreSQL.

Opening one imports the database libraries; whoever only needs the types does not pay for that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helpers.history.history import History as History

FILE_NAME = "history.sqlite"


def default_url(runs_folder: Path) -> str:
    """The history beside the runs themselves: a file that the first use makes."""
    return f"sqlite:///{runs_folder.absolute() / FILE_NAME}"


def open_history(url: str, on_wait: Callable[[str], None] | None = None) -> History:
    """Open, and where need be make or migrate, the history at ``url``. Raises HistoryError.

    ``on_wait`` is told what is waited for, and until when, where another process holds it for longer than a second.
    """
    from helpers.history.history import History

    return History.open(url, on_wait=on_wait)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "History":
            raise AttributeError(name)
        from helpers.history.history import History

        return History
