"""What reaches uv of the caller's settings, and what its errors mean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.builds.naming import BuildUnavailable, Why
from helpers.builds.uv import Uv
from helpers.trainers.contract.errors import ConfigError


@pytest.mark.slow
def test_pip_s_settings_of_where_packages_are_reach_uv() -> None:
    found = Uv.of({"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": "https://pip.example", "UV_PYTHON": "3.8"})
    assert found.indexes == "UV_DEFAULT_INDEX=https://pip.example UV_INDEX_STRATEGY=unsafe-best-match"
    assert "UV_PYTHON" not in found.variables
    assert found.variables["UV_PYTHON_DOWNLOADS"] == "never"


def test_without_uv_it_says_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="make env"):
        Uv.of()


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("error: failed to copy: No space left on device (os error 28)", Why.NO_SPACE),
        ("error: Hash mismatch for `paddlepaddle==3`", Why.WRONG_DIGEST),
        ("hint: there are no wheels with a matching Python ABI tag (e.g., `cp311`)", Why.WRONG_PYTHON),
        ("error: Failed to fetch: `https://me:key@x.example/simple/`", Why.NOT_FETCHED),
        ("x No solution found: there is no version of paddlepaddle==99", Why.NOT_INSTALLED),
        ("", Why.NOT_INSTALLED),
    ],
)
def test_an_error_of_uv_says_in_what_way_the_build_is_not_available(tmp_path: Path, says: str, why: Why) -> None:
    program = tmp_path / "uv"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(BuildUnavailable) as caught:
        Uv(str(program), {"PATH": "/bin:/usr/bin"}).resolve("paddlepaddle==3", ["paddlepaddle==3"], "python")
    assert caught.value.kind is why
    assert "key" not in str(caught.value)
