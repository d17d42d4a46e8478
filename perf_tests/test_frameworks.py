"""Compares all installed frameworks on one configuration, in turn on the same cards (``-m frameworks``;
docs/frameworks.md)."""

import pytest

from fixtures.side_by_side import ComparedFrameworks


@pytest.mark.frameworks
def test_frameworks(compared: ComparedFrameworks) -> None:
    """Each framework that is installed here has a figure, and there are at least two; the summary has the table."""
    assert compared.complete, compared.reason
