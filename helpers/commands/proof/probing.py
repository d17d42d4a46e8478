"""Runs the probes of ``perfgate prove-gpu`` that are no sessions: a probe of Paddle in a process of its own, the
programs of the published rows, and PaddleClas's own program."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from helpers.launch.launchers.launcher import LaunchCommand, card_variables, job_environment
from helpers.launch.programs import BuildState, Finished, run_process
from helpers.machine.devices import Machine
from helpers.machine.files import open_regular
from helpers.machine.leases import Leases, default_folder
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.recipes.recipe import settings_for
from helpers.session.programs import BuiltProgram, built_ahead
from helpers.trainers.contract.case import DataSource, Precision
from helpers.trainers.contract.errors import ConfigError, LaunchError, SuiteError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import PROGRAM_FACT, counts_of, kind_of

TRAIN_PROGRAM = Path("ppcls/static/train.py")
_CONFIGS = Path("ppcls/configs/ImageNet/ResNet")
# epoch:0   train step:20   lr: 0.1, loss: 6.9, … ips: 123.45000 samples/sec.
_RATE = re.compile(r"\bips: ([0-9.]+) samples/sec")


@dataclass(frozen=True)
class ProbeAnswer:
    """What a probe found."""

    message: str
    faults: tuple[str, ...] = ()
    # Why there was nothing to probe; empty if there was.
    not_run: str = ""


@contextmanager
def seated(suite_case: SuiteCase, machine: Machine, folder: Path, data_root: str) -> Iterator[JobSpec]:
    """A job of the case on a card that is leased meanwhile; its folder is new. Raises DeviceError without a card."""
    cards = machine.cards_of(suite_case.target)
    job_id = uuid.uuid4().hex
    run_folder = folder / job_id[:8]
    run_folder.mkdir(parents=True)
    with Leases(default_folder(machine.host_id)).lease(cards, 1, f"probe of {suite_case.case.id}") as lease:
        (card,) = lease.cards
        spec = draft_job(
            suite_case,
            settings_for(suite_case.case, suite_case.device),
            device=suite_case.device,
            run_folder=str(run_folder),
            data_root=data_root,
            job_id=job_id,
        )
        if isinstance(card, Gpu):
            yield replace(spec, cards=(card.uuid,))
        else:
            yield replace(spec, cards=(), cores=(card.cores,))


def ask_probe(name: str, spec: JobSpec, interpreter: str, most_seconds: float) -> ProbeAnswer:
    """The answer of Paddle's probe of this name. Raises LaunchError if it gives none in time."""
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    argv = (interpreter, "-u", "-m", f"helpers.trainers.{spec.case.framework.value}.probes", name, str(spec.spec_path))
    finished = _run(argv, spec, most_seconds)
    try:
        answer = json.loads(finished.stdout.strip().splitlines()[-1])
        faults, facts, not_run = tuple(map(str, answer["faults"])), answer["facts"], answer["not_run"]
        message = "; ".join(f"{key} {value}" for key, value in facts.items())
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise LaunchError(f"probe {name}", got=_last_words(finished), expected="its answer as JSON") from error
    return ProbeAnswer(message, faults, str(not_run or ""))


def _run(argv: Sequence[str], spec: JobSpec, most_seconds: float) -> Finished:
    environment = job_environment(os.environ, spec, LaunchCommand(tuple(argv), card_variables(spec)), {})
    try:
        finished = run_process(tuple(argv), environment, spec.job_id, most_seconds)
    except OSError as error:
        raise LaunchError(argv[0], got=str(error), expected="a Python with Paddle") from error
    if finished.returncode is None:
        raise LaunchError(" ".join(argv[3:5]), got=f"no end within {most_seconds:g} s", expected="an answer")
    return finished


def _last_words(finished: Finished) -> str:
    lines = [*finished.stdout.strip().splitlines()[-1:], *finished.stderr.strip().splitlines()[-1:]]
    return f"exit status {finished.returncode}: {(lines or ['no output'])[-1][:300]}"


# ---- the programs of the published rows


def look_at_programs(
    rows: Sequence[SuiteCase],
    interpreter: str,
    most_seconds: float,
    build: Callable[..., tuple[BuiltProgram, ...]] = built_ahead,
) -> ProbeAnswer:
    """Build the rows' programs without a card, equal ones once. Right if each is built, is the published kind of
    program, and has the published operators. Raises LaunchError when the time is over."""
    ends = time.monotonic() + most_seconds

    def in_time(_: str) -> None:
        if time.monotonic() > ends:
            raise LaunchError("programs", got=f"no end within {most_seconds:g} s", expected=f"{len(rows)} rows")

    programs = build(rows, interpreter, in_time)
    if not programs:
        raise LaunchError("programs", got="no row with a program", expected="a published row of Paddle")
    kinds = Counter(each.report.facts.get(PROGRAM_FACT, each.report.state.value) for each in programs)
    faults = [
        f"{each.suite_case.case.id} and {len(each.cases) - 1} more rows: {fault}"
        for each in programs
        for fault in program_faults(each)
    ]
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    message = f"{len(programs)} programs of {len(rows)} published rows: {counted}"
    return ProbeAnswer(message, tuple(faults))


def program_faults(program: BuiltProgram) -> list[str]:
    """What is wrong with a published row's program. Raises ConfigError if its facts cannot be read."""
    if program.report.state is not BuildState.BUILT:
        return [f"{program.report.state.value}: {program.report.reason}"]
    kind = kind_of(program.report.facts)
    if kind is None or counts_of(program.report.facts) is None:
        return ["the build check states no kind of program, or no operators"]
    return [*program.differences, *([] if kind.is_published else [f"{kind.value} is not the published program"])]


# ---- PaddleClas's own program


def paddleclas_argv(spec: JobSpec, checkout: Path, interpreter: str) -> tuple[str, ...]:
    """The command that trains the job's case with PaddleClas's own program, for one epoch of ``spec.steps`` steps.
    Writes the list of that epoch's images into the run folder. Raises ConfigError if the folder is no checkout."""
    if not (checkout / TRAIN_PROGRAM).is_file():
        raise ConfigError("--paddleclas", got=str(checkout), expected=f"a checkout of PaddleClas, with {TRAIN_PROGRAM}")
    batch, rate, root = spec.case.batch_size_per_card, spec.settings["learning_rate"], Path(spec.data_root or "")
    named = Path(spec.run_folder) / "paddleclas_list.txt"
    wanted = batch * spec.steps
    with open_regular(root / "train_list.txt") as listed:
        lines = [line.rstrip(b"\n") + b"\n" for line in islice(listed, wanted)]
    named.write_bytes(b"".join(islice(cycle(lines), wanted)))
    overrides: dict[str, object] = {
        "Global.device": spec.device,
        "Global.output_dir": f"{spec.run_folder}/output",
        "Global.eval_during_train": False,
        "Global.epochs": 1,
        "Global.use_dali": spec.case.data is DataSource.DALI,
        "Optimizer.lr.learning_rate": rate,
        "Optimizer.lr.values": [rate * 0.1**passed for passed in range(4)],
        "DataLoader.Train.dataset.image_root": root,
        "DataLoader.Train.dataset.cls_label_path": named,
        "DataLoader.Train.sampler.batch_size": batch,
        "DataLoader.Train.sampler.drop_last": True,
    }
    if spec.device == "cpu":
        # It reads in a thread, as it does on a CPU.
        overrides |= {"DataLoader.Train.loader.num_workers": 0, "DataLoader.Train.loader.use_shared_memory": False}
    pure = spec.case.precision is Precision.AMP_O2
    config = checkout / _CONFIGS / ("ResNet50_amp_O2_ultra.yaml" if pure else "ResNet50.yaml")
    words = [word for name, value in overrides.items() for word in ("-o", f"{name}={value}")]
    return (interpreter, "-u", str(checkout / TRAIN_PROGRAM), "-c", str(config), *words)


def paddleclas_rate(spec: JobSpec, checkout: Path, interpreter: str, most_seconds: float) -> float | str:
    """The images/s that PaddleClas's program prints last, its mean since the fifth step; or why it did not train.
    Raises SuiteError."""
    finished = _run(paddleclas_argv(spec, checkout, interpreter), spec, most_seconds)
    output = finished.stdout + finished.stderr
    (Path(spec.run_folder) / "train.log").write_text(output, encoding="utf-8")
    if finished.returncode != 0:
        return f"PaddleClas's program did not train: {_last_words(finished)}"
    rates = _RATE.findall(output)
    if not rates or not float(rates[-1]) > 0:
        raise SuiteError(spec.run_folder, field="train.log", got="no images/s", expected="lines of PaddleClas")
    return float(rates[-1])
