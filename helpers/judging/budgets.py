"""How many runs a case may take in one night."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Runs of one case in one night (docs/verdicts.md, "Judge" and "No history").

    - ``screen_runs``: the most runs of the build under test before its answer is settled or to be confirmed.
    - ``first_runs``: its restarts while fewer than 15 nights are known and no reference build is at hand.
    - ``pairs``: the most interleaved pairs of a confirmation.
    - ``rotation``: while fewer than 15 nights are known and a reference build is at hand, every how many nights a
      case is confirmed without being suspected; twice as often while its level against that build is unknown or
      nothing explains where its nights stand.
    - ``repeats``: how many times a run that is invalid (throttled, contended, never steady) is made again.
    - ``retries``: how often in one night, over both builds, a run that an infrastructure failure ended is made again.
    """

    screen_runs: int = 6
    first_runs: int = 5
    pairs: int = 40
    rotation: int = 16
    repeats: int = 2
    retries: int = 1
