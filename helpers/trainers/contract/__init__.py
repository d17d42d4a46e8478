"""What the suite and the trainers share: the only part of the trainers that the suite imports.

Trainers import it in the frameworks' own interpreters: standard library, Python 3.8 syntax.
"""

from pathlib import Path

# Where this checkout is.
ROOT = Path(__file__).resolve().parents[3]
