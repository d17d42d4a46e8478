"""``perfgate doctor``: the environment tables of this machine, and what will spoil a measurement on it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TextIO

from helpers.case import DataSource
from helpers.cli.loading import add_format, load_suite, width_of
from helpers.devices import Machine
from helpers.doctor.diagnosis import diagnose
from helpers.doctor.examination import Edges, examine
from helpers.doctor.reach import history_problem
from helpers.environment import CPU
from helpers.launch.launcher import ROOT
from helpers.report.system_text import doctor_markdown, doctor_record, doctor_text
from helpers.suite import Suite

NAME = "doctor"
HELP = "Print this machine's environment tables and name what will spoil a measurement here, and what to do about it"

EXIT_FIT = 0
EXIT_BLOCKED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="Look at this ImageNet-layout FOLDER")
    parser.add_argument("--history", metavar="URL", help="Look whether this history database answers")
    parser.add_argument(
        "--runs-dir", type=Path, default=ROOT / "runs", metavar="FOLDER", help="Look at the disk of this run folder"
    )


# A run's spec, result with its tables, and outputs; a step's line in a rank's log.
_RUN_BYTES = 256 * 1024
_STEP_BYTES = 256


def run(arguments: argparse.Namespace, out: TextIO, edges: Edges | None = None) -> int:
    """Write tables, findings and verdict; 0 when nothing blocks a measurement, 1 when something makes it worthless."""
    suite = load_suite(arguments)
    named = arguments.data or (Path(suite.config.data.root) if suite.config.data.root else None)
    context = examine(
        suite.config,
        data_root=named.expanduser().absolute() if named else None,
        runs_folder=arguments.runs_dir.expanduser().absolute(),
        largest_batch_on=lambda machine: largest_batch(suite, machine),
        runs_bytes_on=lambda machine: night_bytes(suite, machine),
        history_problem=lambda: history_problem(arguments.history or suite.config.history.url),
        edges=edges,
    )
    diagnosis = diagnose(context)
    if arguments.json:
        out.write(json.dumps(doctor_record(diagnosis), indent=1, allow_nan=False) + "\n")
    else:
        out.write(
            doctor_markdown(diagnosis) if arguments.format == "markdown" else doctor_text(diagnosis, width_of(out))
        )
    return EXIT_FIT if diagnosis.fit else EXIT_BLOCKED


def largest_batch(suite: Suite, machine: Machine) -> int:
    """Images a step of all cards, over the cases that read any and that this machine has the cards for; 0 without."""
    return max(
        (
            each.case.batch_size_per_card * each.case.cards
            for each in suite.cases
            if each.target != CPU and each.case.nodes == 1 and each.case.data is not DataSource.SYNTHETIC
            and each.case.cards_per_node <= len(machine.cards_of(each.target))
        ),
        default=0,
    )  # fmt: skip


def night_bytes(suite: Suite, machine: Machine) -> int:
    """What one night of every case that this machine has the cards for writes into the runs folder, about."""
    total = 0
    for each in suite.cases:
        if each.case.cards_per_node <= len(machine.cards_of(each.target)):
            protocol = each.protocol
            steps = protocol.window_steps + max(protocol.warmup_steps, protocol.most_warmup_steps or 0)
            total += protocol.runs * (_RUN_BYTES + each.case.cards * steps * _STEP_BYTES)
    return total
