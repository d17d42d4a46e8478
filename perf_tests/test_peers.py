"""Every installed framework on one configuration, in turn on the same cards (``-m peers``; docs/peers.md)."""

import pytest

from fixtures.peers import Compared


@pytest.mark.peers
def test_peers(compared: Compared) -> None:
    """Each framework that is installed here gives a figure, two of them at least; the table is in the summary."""
    assert compared.complete, compared.reason
