"""A trainer that serves blocks of steps."""

from __future__ import annotations

from helpers.trainers.common import block_worker


def test_a_steps_end_is_waited_for_on_a_card() -> None:
    waited: list[str] = []

    class Stepper:
        def step(self, batch: str) -> str:
            return batch

        def loss(self, handle: str) -> float:
            waited.append(handle)
            return 0.0

    class Reader:
        def epoch(self, number: int) -> list[str]:
            return ["first", "second"]

    for waits in (False, True):
        worker = block_worker._Worker(None, Reader(), Stepper(), None, None, waits)  # type: ignore[arg-type]
        worker.bare(2)
    assert waited == ["second"]
