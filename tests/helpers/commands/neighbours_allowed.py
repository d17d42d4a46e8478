"""A plugin of pytest for sessions whose trainer is a double: others on the cores cannot disturb what sleeps."""

import pytest

from helpers.machine.watch.contention import ContentionSample
from helpers.session.measuring.disturbance import QuickLook


def pytest_configure(config: pytest.Config) -> None:
    ContentionSample.is_quiet = lambda self, limit: True
    QuickLook.disturbance = lambda self, needs: ""
