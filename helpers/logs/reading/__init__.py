"""From cleaned lines to runs: which format (``detect``), which runs, which records (``reader.read_log``)."""
