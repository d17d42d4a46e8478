"""``python -m helpers.commands`` is ``perfgate``."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Runs ``perfgate``. The exit status is 3 if its modules cannot be loaded, since Python's own status 1 stands for a
    regression."""
    try:
        from helpers.commands.main import main as perfgate
    except Exception as error:  # noqa: BLE001 - half an update, a package that is gone
        traceback.print_exc()
        print(f"perfgate: unforeseen error: it cannot be loaded ({type(error).__name__})", file=sys.stderr)
        return 3
    return perfgate(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
