"""A workshop whose machine has one V100, behind the stand-in for NVML; its trainer is the usual double."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.stand_in_nvml import SHIM, STATE_VARIABLE, Card
from tests.faults.workshop import ROOT, Finished, Workshop

STAND_IN = "against a stand-in behind the NVML interface"
# Long enough for a look at the card every half second, and for two at its settings.
WINDOW_STEPS = 40


def state_file(workshop: Workshop) -> Path:
    return workshop.folder / "card.json"


def furnish(workshop: Workshop, card: Card, **more: Any) -> None:
    """Put card and stand-in in place, and one case for it; ``more`` are keys of perf.yaml."""
    card.write(state_file(workshop))
    (workshop.folder / "nvml").mkdir()
    (workshop.folder / "nvml" / "pynvml.py").write_text(SHIM, encoding="utf-8")
    # The interpreter's Paddle is a GPU build by its metadata; nothing of it is imported.
    about = workshop.folder / "inject" / "paddlepaddle_gpu-2.6.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: paddlepaddle-gpu\nVersion: 2.6.2\n", encoding="utf-8")

    def change(config: dict[str, Any]) -> None:
        (block,) = config["matrix"].pop("cpu")
        config["matrix"]["v100"] = [{**block, "cards": 1}]
        config["short"] = []
        config["protocols"]["cpu"] |= {"window_steps": WINDOW_STEPS}
        config["budgets"] = {"repeats": 1, "first_runs": 2}
        config.update(more)

    workshop.configure(change)


def run(workshop: Workshop, *options: str, **more: Any) -> Finished:
    environment = {
        STATE_VARIABLE: str(state_file(workshop)),
        "PYTHONPATH": f"{workshop.folder / 'nvml'}:{ROOT}",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    return workshop.run("-m", "v100", *options, environment=environment, **more)
