"""Turns cleaned lines into runs: ``detect`` finds the format, ``reader.read_log`` the runs and their records."""
