from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is trained, is trained on images of 64 x 64 pixels: a twelfth of the work, by all the same layers."""
    paths = [str(Path(__file__).parent / "small_images"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
