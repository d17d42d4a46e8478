"""Trains one rank of a PyTorch job: ``python -m helpers.trainers.pytorch.trainer SPEC.json``.

For one card it is started directly, for several by ``python -m torch.distributed.run``. Exit status: 0 complete, 1
failed, 3 refused (``process.EXIT_REFUSED``); the step log's footer says why.
"""

from __future__ import annotations

import sys
import time

from helpers.trainers.common.cuda import EVENTS
from helpers.trainers.common.loop import HostTimer, StepTimer, train
from helpers.trainers.common.process import (
    RANK_VARIABLES,
    Trainer,
    import_framework,
    io_of,
    plan_of,
    run,
    seed_everything,
)
from helpers.trainers.common.step_profiler import StepProfiler, explain_at_the_end
from helpers.trainers.pytorch.settings import PytorchSettings


def program(trainer: Trainer) -> None:
    """One rank from the import of PyTorch to its last step."""
    spec, facts = trainer.spec, trainer.device.facts
    settings = PytorchSettings.of(spec)
    trainer.beat("import torch")
    torch = import_framework(trainer, settings, "PyTorch", "torch")
    trainer.device.framework_commit = str(torch.version.git_version)
    from helpers.trainers.pytorch import data as pytorch_data
    from helpers.trainers.pytorch import device as pytorch_device
    from helpers.trainers.pytorch import steps as pytorch_steps

    pytorch_device.refuse_what_cannot_run(spec)
    device = pytorch_device.use_device(spec, trainer.ranks)
    trainer.device.name = pytorch_device.device_name(device)
    facts.update(pytorch_device.apply_switches(spec, settings, int(facts["threads"])))
    facts.update(pytorch_device.force_float32(spec, device))
    seed_everything(torch.manual_seed, spec.seed)
    on_gpu, several = spec.device == "gpu", trainer.ranks.world_size > 1
    if several:
        trainer.beat("connect ranks")
        facts["backend"] = "nccl" if on_gpu else "gloo"
        # With ``device_id`` NCCL connects now, not within the first step, and a barrier knows the card.
        torch.distributed.init_process_group(facts["backend"], device_id=device if on_gpu else None)
    trainer.beat("data")
    reader = pytorch_data.open_reader(trainer, settings, device)
    trainer.beat("build model")
    stepper = pytorch_steps.TrainingStep(trainer, settings, device)
    timer: StepTimer = HostTimer(time.monotonic)
    if on_gpu:
        timer, facts["step_timer"] = pytorch_device.event_timer(device), EVENTS
        trainer.peak_device_bytes = lambda: int(torch.cuda.max_memory_allocated(device))
    barrier = torch.distributed.barrier if several else lambda: None
    agree = pytorch_device.all_agree(device) if several else bool
    trainer.beat("first step")
    more = train(plan_of(trainer), reader, stepper, timer, io_of(trainer, barrier, agree))

    def profiler() -> StepProfiler:
        from helpers.trainers.pytorch.profile import PytorchStepProfiler

        return PytorchStepProfiler(stepper.layers, device, spec.explained_without)

    explain_at_the_end(trainer, profiler, stepper, more)
    if several and spec.explained_steps:
        # Its steps are trained by all ranks too.
        trainer.afterwards.append(torch.distributed.destroy_process_group)
    elif several:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], RANK_VARIABLES, program))
