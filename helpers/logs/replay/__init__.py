"""``--replay``: logs judged in the place of runs, from a folder (``logs``) to verdicts (``suite.ReplaySuite``)."""
