"""One table a format (``record.FormatSpec``), and how its scripts tell their configuration: ``table.FORMATS``."""
