"""``--replay``: judges logs in place of runs, from a folder (``logs``) to verdicts (``suite.ReplaySuite``)."""
