"""The parts of ``perfgate compare``."""
