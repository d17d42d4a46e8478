from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.machine.devices import CpuCard
from helpers.machine.environment import clocks_of
from helpers.machine.nvml import Gpu
from helpers.machine.watch import Norm, norm_of
from helpers.trainers.contract.errors import ConfigError

CARD = Gpu(0, "GPU-a", "Tesla V100-SXM2-32GB", 32 * 2**30, (7, 0), 300)
OTHER = replace(CARD, index=1, uuid="GPU-b")
ENTRY = {"card_ids": "GPU-a GPU-b", "power_limit_watts": "250 300", "sm_clock_mhz": "1290 1305", "driver": "535"}


def test_the_entry_of_the_very_cards_is_the_norm() -> None:
    norm = norm_of(ENTRY, [CARD, OTHER], to_record=False)
    assert norm == Norm(True, frozenset({250, 300}), {"sm_clock_mhz": (1290.0, 1305.0)})
    assert (norm.clock("sm_clock_mhz", 1), norm.clock("sm_clock_mhz", 2), norm.clock("cpu_mhz")) == (1305.0, None, None)


@pytest.mark.parametrize("entry", [None, ENTRY, {}])
def test_without_an_entry_of_these_cards_their_defaults_are_the_norm(entry: dict[str, str] | None) -> None:
    assert norm_of(entry, [replace(CARD, uuid="GPU-c")], to_record=False) == Norm()


def test_while_an_entry_is_recorded_there_is_no_norm() -> None:
    assert norm_of(ENTRY, [CARD, OTHER], to_record=True) is None


def test_an_entry_of_a_processor_has_no_cards() -> None:
    norm = norm_of({"card_ids": "", "cpu_mhz": "3000"}, [CpuCard(0, (0,))], to_record=False)
    assert norm == Norm(True, frozenset(), {"cpu_mhz": (3000.0,)})


@pytest.mark.parametrize("text", ["fast", "0", "-1290", "nan", "1290 inf"])
def test_a_clock_that_no_card_has_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="sm_clock_mhz"):
        norm_of({**ENTRY, "sm_clock_mhz": text}, [CARD, OTHER], to_record=False)


def test_only_clocks_go_from_a_result_into_an_entry() -> None:
    facts = {"sm_clock_mhz": "1290", "cpu_mhz": "", "gpu_power_watts": "290"}
    assert clocks_of(facts) == {"sm_clock_mhz": "1290"}


def test_another_nodes_cards_have_their_own_clocks_in_the_entry() -> None:
    norm = norm_of(ENTRY, [OTHER], to_record=False, first=1)
    assert norm == Norm(True, frozenset({250, 300}), {"sm_clock_mhz": (1305.0,)})
    assert norm_of(ENTRY, [CARD], to_record=False, first=1) == Norm()
    # An entry from before the other nodes' clocks were kept: there is nothing to compare them with.
    old = norm_of({**ENTRY, "sm_clock_mhz": "1290"}, [OTHER], to_record=False, first=1)
    assert old is not None and old.recorded and old.clock("sm_clock_mhz") is None
