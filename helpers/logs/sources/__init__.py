"""From files, archives and encodings to cleaned lines: ``source.open_logs``."""
