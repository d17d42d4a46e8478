"""On which cards a build of PyTorch runs; no framework needed."""

from __future__ import annotations

import pytest

from helpers.trainers.pytorch.settings import has_kernels


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ((8, 6), ["sm_80", "sm_90"], True),
        ((7, 0), ["sm_75", "sm_80"], False),
        ((9, 0), ["sm_80"], False),
        ((9, 0), ["sm_80", "compute_80"], True),
        ((12, 0), ["sm_90", "sm_90a", "compute_90a"], False),
        ((9, 0), ["sm_90a"], True),
        ((10, 0), ["sm_103"], False),
        ((9, 0), [], False),
    ],
)
def test_a_build_runs_where_it_has_code_for_the_card_or_code_to_compile(
    capability: tuple[int, int], archs: list[str], runs: bool
) -> None:
    assert has_kernels(capability, archs) is runs
