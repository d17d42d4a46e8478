"""The code that the suite and the trainers share. The suite imports no other part of the trainers.

Trainers import it in the frameworks' own interpreters, so it uses only the standard library and the syntax of Python
3.8.
"""

from pathlib import Path

# The folder of this checkout.
ROOT = Path(__file__).resolve().parents[3]
