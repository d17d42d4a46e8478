"""Opens files and archives, and reads them as cleaned lines: ``source.open_logs``."""
