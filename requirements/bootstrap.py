#!/usr/bin/env python3
"""Makes a virtual environment of pinned packages: installer.py says how.

It must parse on Python 3.6, so that an old interpreter prints a sentence and not a SyntaxError.
"""

import os
import sys

# Done here, since PYTHONSAFEPATH keeps the interpreter from doing it.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def main():
    # type: () -> int
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        sys.stderr.write("bootstrap: this is Python %d.%d, expected 3.11 to 3.13: " % sys.version_info[:2])
        sys.stderr.write("install one, or name it: make PYTHON=/path/to/python3.12 perf\n")
        return 2
    import installer

    return installer.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
