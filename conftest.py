"""Loads the suite's pytest layer for every folder below, and pytest's own for testing plugins."""

pytest_plugins = ["fixtures.plugin", "pytester"]
