"""The images that real training learns from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.trainers.colours import two_colours


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_colours(tmp_path_factory.mktemp("colours"))
