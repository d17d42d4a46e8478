"""Watches the leased GPUs during a run: their state, and who else is on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from helpers.machine.nvml import Gpu, GpuSettings, Nvml
from helpers.machine.watch.contention import ContentionSample
from helpers.machine.watch.foreign import ForeignProcess, owner_of
from helpers.machine.watch.gpu_health import HealthSample, unhealthy_reasons, window_facts
from helpers.machine.watch.norm import Norm
from helpers.machine.watch.processes import Process


class GpuMeter:
    """Implements Meter for GPUs. It looks at most every ``every_seconds``, since NVML's answers take milliseconds.

    With every survey of all processes, and so at the first and the last look, it also reads the cards' settings and who
    draws on them. The first look must come before the job starts: a process that is on a card then is foreign.
    ``norm`` is what the case was recorded at; with None nothing is compared.
    """

    def __init__(
        self,
        nvml: Nvml,
        gpus: Sequence[Gpu],
        *,
        norm: Norm | None = None,
        every_seconds: float = 0.5,
        proc: Path = Path("/proc"),
        owner: Callable[[int], str] = owner_of,
    ) -> None:
        self._nvml = nvml
        self._gpus = tuple(gpus)
        self._norm = norm
        self._every = every_seconds
        self._proc = proc
        self._owner = owner
        self._before: dict[str, frozenset[int]] = {}
        self._foreign: list[tuple[float, frozenset[int]]] = []
        self._names: dict[int, tuple[str, str]] = {}
        self._drawing: dict[str, frozenset[int]] = {}
        self.samples: list[HealthSample] = []

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        due = everyone is not None or not self._foreign
        if not due and at - self._foreign[-1][0] < self._every:
            return
        foreign: set[int] = set()
        for gpu in self._gpus:
            settings = self._look_closer(gpu) if due else None
            self.samples.append(HealthSample(at, gpu.uuid, self._nvml.state(gpu), settings))
            users = frozenset(self._nvml.compute_processes(gpu)) | self._drawing[gpu.uuid]
            before = self._before.setdefault(gpu.uuid, users)
            foreign |= self._strangers(users, before, own)
        for pid in foreign - set(self._names):
            # The name is read now, because a process that is gone has none.
            self._names[pid] = (self._name(pid), self._owner(pid))
        self._foreign.append((at, frozenset(foreign)))

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        if window is None or window[1] <= window[0]:
            return ContentionSample(None, note="the run has no measured window")
        looks = [pids for at, pids in self._foreign if window[0] <= at <= window[1]]
        if not looks:
            return ContentionSample(None, note="no look at the cards during the measured window")
        seconds = window[1] - window[0]
        pids = sorted(set().union(*looks))
        shares = {pid: sum(pid in look for look in looks) / len(looks) for pid in pids}
        top = tuple(
            ForeignProcess(self._names[pid][0], pid, shares[pid] * seconds, self._names[pid][1]) for pid in pids
        )
        return ContentionSample(sum(bool(look) for look in looks) / len(looks), top, seconds)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return unhealthy_reasons(self.samples, self._gpus, window, self._norm)

    def facts(self, window: tuple[float, float] | None) -> dict[str, str]:
        """The medians of the window that a result keeps."""
        return window_facts(self.samples, self._gpus, window)

    def _look_closer(self, gpu: Gpu) -> GpuSettings:
        self._drawing[gpu.uuid] = frozenset(self._nvml.drawing_processes(gpu))
        return self._nvml.settings(gpu)

    def _strangers(self, users: frozenset[int], before: frozenset[int], own: Collection[int]) -> set[int]:
        """The processes on a card that are not the job's.

        In a container NVML may give the host's process ids, which say nothing about whether a process is a rank of the
        job. So as many such processes as there are ranks count as the job's, unless they were there before it.
        """
        new = users - before
        unseen = sorted(pid for pid in new if not (self._proc / str(pid)).exists())
        allowed = set(unseen[: len(self._gpus)]) if not new & set(own) else set()
        return set(users & before) | {pid for pid in new if pid not in own and pid not in allowed}

    def _name(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()
        except OSError:
            return "a process of another container"
