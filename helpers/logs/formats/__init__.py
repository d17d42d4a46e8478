"""One table a format (``record.FormatSpec``) and how its scripts state their configuration: ``table.FORMATS``."""
