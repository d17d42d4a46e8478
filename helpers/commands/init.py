"""``perfgate init``: writes the perf.yaml of this machine, with what the user is likely to change."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from typing import TextIO

from helpers.commands.loading import load_suite, user_name
from helpers.common.files import write_whole
from helpers.common.own_folder import is_installed, program_path
from helpers.common.wall_clock import utc_now
from helpers.machine.devices import Machine, why_not_run
from helpers.machine.environment import CPU, GPU
from helpers.plan.case_plan import SuiteCase
from helpers.plan.recipes.common import read_processor
from helpers.session.gate import EXIT_OK
from helpers.session.measuring.case_loop import Clock
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

NAME = "init"
HELP = "Write perf.yaml for this machine: the cards found, the gate of its cases, owner and history"
EXITS = {
    0: "perf.yaml is written",
}

_TEXT = """\
# What perfgate does on {host}, written by "perfgate init" on {date}. What is not here has its shipped default
# (helpers/plan/defaults.yaml). docs/reference.md has every key.

# Found here: {found}.
# "perfgate gate" judges these cases. "needs" is what a case is compared with: published, recorded (by this machine,
# with: perfgate gate -- --update-baselines), or both.
machines:
  {name}:
    host: {host}
{cards}    gate:
{gate}
# Whom the reports of a case name; of several entries that match, the last counts.
owners:
  - {{pattern: "*", owner: {owner}}}

# The database of all runs and verdicts. null: history.sqlite in the runs folder. For many machines:
# postgresql://USER@HOST/NAME, with the password in PGPASSWORD or ~/.pgpass.
history:
  url: null

# The reference build, with which suspects are confirmed: perfgate builds pin BUILD --reason TEXT.
builds:
  reference: null
  reason: null
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace, out: TextIO, machine: Machine | None = None, now: Clock = utc_now) -> int:
    """Write the file that ``--config`` names. Raises ConfigError where there is one already."""
    path = arguments.config
    if path.exists() or path.is_symlink():
        raise ConfigError(
            "perfgate init", got=f"{path}, which is there", expected="no such file",
            remedy="Edit it, or move it away and call again",
        )  # fmt: skip
    suite = load_suite(arguments)
    machine = machine or suite.machine
    rules = gate_rules(suite.cases, machine, "avx512f" in read_processor().instructions)
    host = json.dumps(re.sub(r"[^A-Za-z0-9_.-]", "?", machine.host))
    ids = [gpu.uuid for gpu in machine.gpus if gpu.uuid]
    text = _TEXT.format(
        host=host,
        date=now().date().isoformat(),
        found=machine.describe(),
        name=json.dumps(re.sub(r"[^A-Za-z0-9_]+", "-", machine.host).strip("-") or "here"),
        cards=f"    cards: [{', '.join(ids)}]\n" if ids else "",
        gate="".join(
            f'      - {{target: {target}, cases: "{cases}", needs: {needs}}}\n' for target, cases, needs in rules
        ),
        owner=json.dumps(user_name()),
    )
    write_whole(path, text.encode())
    print(f"{path} is written: {len(rules)} gate rules for {machine.describe()}", file=out)
    # Only a checkout has an environment with Paddle in it.
    gate = f"{program_path()} gate{' --build BUILD' if is_installed() else ''}"
    print(f"next: {program_path()} doctor, then {gate} -- --update-baselines, then {gate}", file=out)
    return EXIT_OK


def gate_rules(cases: Sequence[SuiteCase], machine: Machine, bfloat16: bool) -> list[tuple[str, str, str]]:
    """Target, pattern of case ids and needs of each rule: Paddle's published rows that this machine's cards can run,
    else Paddle's cases on any GPU, else the short cases of its CPU."""
    here = [
        each
        for each in cases
        if each.case.framework is Framework.PADDLE and why_not_run(each.case, each.target, machine) is None
    ]
    # Paddle's AMP on a CPU is bfloat16, which it computes with AVX-512 alone.
    if not bfloat16:
        here = [each for each in here if each.target != CPU or each.case.precision is Precision.FP32]
    published = [each for each in here if each.figures and each.target not in (CPU, GPU)]
    if published:
        return list(dict.fromkeys((each.target, _pattern(each), "published") for each in published))
    on_any = [each for each in here if each.target == GPU]
    if on_any:
        return list(dict.fromkeys((each.target, _pattern(each), "recorded") for each in on_any))
    return [(each.target, each.case.id, "recorded") for each in here if each.target == CPU and each.short]


def _pattern(each: SuiteCase) -> str:
    """The ids of the cases of this model on as many cards."""
    case = each.case
    return f"{case.framework.value}-{case.model.value}-*-{case.nodes}x{case.cards_per_node}-*"
