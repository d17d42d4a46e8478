"""``python -m helpers.cli`` is ``perfgate``."""

import sys

from helpers.cli.main import main

sys.exit(main(sys.argv[1:]))
