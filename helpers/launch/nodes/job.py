"""Runs one node's share of a job on that node: starts its launcher, sends its ranks' files, watches its cards."""

from __future__ import annotations

import errno
import os
import shutil
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.steplog_reader import read_step_log
from helpers.launch.supervisor import StartedProcess, SupervisorIO, clear_for
from helpers.launch.tail import RankWatch
from helpers.machine.files import open_regular
from helpers.machine.host import oom_evidence, read_oom_kills
from helpers.machine.watch.contention import CpuMeter
from helpers.machine.watch.meters import CardWatch, GpuMeter, window_of
from helpers.machine.watch.processes import JobProcesses, end_processes
from helpers.trainers.contract.errors import LaunchError, StepLogError
from helpers.trainers.contract.job import JobSpec

OUTPUT = "output.log"
_SURVEY_SECONDS = 2.0
# A disk with less free space takes no further block of most file systems.
_FULL_BYTES = 64 * 1024
_CHUNK_BYTES = 256 * 1024
# How much of a file is sent at most in each ``look``, so that an order to end is read in time however much a rank
# prints.
_MOST_BYTES = 2 * 1024 * 1024

Send = Callable[..., None]


def node_mark(job_id: str, node: int) -> str:
    """The mark of a node's processes. It includes the node, so that two nodes on one machine do not end each other's
    processes."""
    return f"{job_id}.node{node}"


def node_files(spec: JobSpec, node: int, rank_logs: tuple[str, ...]) -> dict[str, Path]:
    """The files that a node sends to the first node, by the names under which they are sent."""
    files = {OUTPUT: Path(spec.run_folder) / OUTPUT}
    for rank in spec.ranks_of_node(node):
        files[spec.step_log_path(rank).name] = spec.step_log_path(rank)
        files[spec.heartbeat_path(rank).name] = spec.heartbeat_path(rank)
    return {**files, **{Path(log).name: Path(log) for log in rank_logs}}


class NodeJob:
    """One node's share of a job. It is started by the constructor and runs until ``look`` returns False, or until
    ``end``. It sends the frames

    - ``file``: new bytes of a file;
    - ``gone``: a rank whose process ended before its log had a footer;
    - ``over``: the launcher's exit code (None if ``end`` ended the job), contention, health and facts during this
      node's own window, and whether the kernel ended processes here because memory ran out.
    """

    def __init__(
        self,
        spec: JobSpec,
        command: LaunchCommand,
        node: int,
        meter: CpuMeter | GpuMeter,
        send: Send,
        io: SupervisorIO,
        grace: float,
    ) -> None:
        self._spec = spec
        self._command = command
        self._meter = meter
        self._send = send
        self._io = io
        self._grace_seconds = grace
        self._mark = node_mark(spec.job_id, node)
        self._job = JobProcesses(io.processes, self._mark)
        self._ranks = [RankWatch(spec, rank) for rank in spec.ranks_of_node(node)]
        self._offsets = {name: (path, 0) for name, path in node_files(spec, node, command.rank_logs).items()}
        self._cards = CardWatch(meter, self._job, io.clock, _SURVEY_SECONDS)
        self._over = False
        self._oom_kills = read_oom_kills()
        self._process = self._start()

    def look(self) -> bool:
        """Send what is new; returns whether the job still runs here."""
        # The exit code is read before the files: after it, the process writes nothing more.
        code = self._process.poll()
        self._cards.look(survey=code is not None)
        self._send_files()
        self._send_gone()
        if code is not None:
            self._finish(code)
        return not self._over

    def end(self, at_once: Callable[[], bool] = lambda: False) -> None:
        """End all processes of the job on this node; does nothing if it is over. ``at_once``: see end_processes."""
        if not self._over:
            self._finish(None, at_once)

    def _start(self) -> StartedProcess:
        folder = Path(self._spec.run_folder)
        folder.mkdir(parents=True)
        self._spec.spec_path.write_text(self._spec.to_json(), encoding="utf-8")
        environment = clear_for(self._spec, self._command, self._mark, self._io, self._grace_seconds)
        self._cards.look(survey=True)
        with (folder / OUTPUT).open("xb") as output:
            return self._io.start(self._command.argv, environment, output, folder, self._grace_seconds)

    def _finish(self, code: int | None, at_once: Callable[[], bool] = lambda: False) -> None:
        left, about = "", f"job {self._spec.job_id}"
        try:
            end_processes(self._job.find, self._grace_seconds, about=about, at_once=at_once)
        except LaunchError as error:
            left = str(error)
        self._process.close()
        self._over = True
        while self._send_files():
            continue
        window = self._window()
        contention, unhealthy = self._meter.contention(window), self._meter.unhealthy(window)
        oom, oom_text = oom_evidence(self._oom_kills, read_oom_kills())
        self._send(
            "over", code=code, left=left, contention=asdict(contention), unhealthy=list(unhealthy), oom=oom,
            oom_text=oom_text, facts=self._meter.facts(window),
        )  # fmt: skip

    def _send_if_full(self) -> None:
        """If this node's disk is full, say so at the end of each output: what the ranks printed of it is lost."""
        folder = self._spec.run_folder
        if shutil.disk_usage(folder).free < _FULL_BYTES:
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
            for name in (OUTPUT, *(Path(log).name for log in self._command.rank_logs)):
                self._send("file", name=name, data=b64encode(f"{error}\n".encode()).decode())

    def _send_files(self) -> bool:
        """Send the files' new bytes; returns whether there may be more of them."""
        more = False
        for name, (path, start) in self._offsets.items():
            offset = start
            try:
                with open_regular(path) as file:
                    file.seek(offset)
                    while offset - start < _MOST_BYTES and (data := file.read(_CHUNK_BYTES)):
                        offset += len(data)
                        self._send("file", name=name, data=b64encode(data).decode())
            except FileNotFoundError:
                continue
            self._offsets[name] = (path, offset)
            more = more or offset - start >= _MOST_BYTES
        return more

    def _send_gone(self) -> None:
        at = self._io.clock()
        for rank in self._ranks:
            rank.poll(at)
            if rank.pid is not None and rank.footer is None and rank.gone_at is None:
                process = self._io.processes.look(rank.pid)
                if process is None or not process.alive:
                    rank.gone_at = at
                    self._send_if_full()
                    self._send("gone", rank=rank.rank)

    def _window(self) -> tuple[float, float] | None:
        """Start and end of the measured window of this node's ranks, in seconds of this host's clock.

        None if a log is not whole; the first node finds that too.
        """
        try:
            logs = [
                read_step_log(self._spec.step_log_path(rank.rank), self._spec.job_id, rank.rank) for rank in self._ranks
            ]
        except StepLogError:
            return None
        return window_of(logs)
