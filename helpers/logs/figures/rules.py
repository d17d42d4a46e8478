"""The publishers' measuring rules (helpers/judging/rules/publishers.py) over the records of a log.

Some rules take a parameter, written after a colon: ``ngc-tf-mean:skip=5``. A rule that cannot be computed says why; no
other rule is used in its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from helpers.judging.rules.publishers import (
    PUBLISHERS_RULES,
    TIPC_SUMMARY,
    Records,
    Rule,
    RuleError,
    RuleValue,
    leading,
)
from helpers.logs.figures.series import cards_of, images_per_step, rates_of, timed, usual_distance
from helpers.logs.record import HONEST, LogRun, RateOf, RecordField, RuleFigure
from helpers.logs.settings import AUTO
from helpers.trainers.contract.errors import LogError

RULES: Mapping[str, Rule] = MappingProxyType({rule.name: rule for rule in (*PUBLISHERS_RULES, TIPC_SUMMARY)})
# The name of a summary line's figure among those that a script prints itself.
_TIPC = "tipc"


def records_of(run: LogRun) -> Records:
    """The records of a log, as the publishers' rules take them."""
    has_steps = RecordField.STEP in run.columns
    try:
        found = timed(run) if run.records and not run.format.is_summary else None
    except RuleError:
        # Nobody knows of what steps its records are the means.
        found = None
    rates = rates_of(run) if run.records else []
    of_own = {name: [(each.samples_per_s, f"line {each.line}") for each in run.printed[name]] for name in run.printed}
    if run.format.is_summary:
        of_own[_TIPC] = [(rate, "its line") for rate in rates]
    steps = run.columns.get(RecordField.STEP if has_steps else RecordField.SPAN_END, ())
    epochs = run.columns.get(RecordField.EPOCH, ())
    return Records(
        cards_of(run),
        rates,
        steps,
        run.columns.get(RecordField.SPAN_START, ()),
        found.steps if found else (),
        found.cost if found else (),
        # Steps that the log leaves out before its first record.
        before=max(steps[0] - usual_distance(run), 0.0) if has_steps and run.records else 0.0,
        stamps=run.stamps,
        samples_per_step=images_per_step(run),
        printed=of_own,
        epochs=epoch_rates(run),
        first_epoch_records=leading(epochs, epochs[0] + 1) if epochs else 0,
        rounds=True,
    )


def epoch_rates(run: LogRun) -> list[float]:
    """The figures that the script printed after each epoch, of all cards, in the order of the epochs.

    Several ranks may print the same epoch, and a log may hold each line twice: the first counts.
    """
    times = cards_of(run) if run.rate_of is RateOf.CARD else 1
    first: dict[int, float] = {}
    for each in run.printed.get("epoch", ()):
        first.setdefault(each.epoch or 0, each.samples_per_s * times)
    return [first[epoch] for epoch in sorted(first)]


def figure(run: LogRun, rule: str) -> RuleFigure:
    """The run's figure by ``rule`` (``NAME`` or ``NAME:skip=N``), or why there is none. Raises LogError if there is no
    such rule."""
    return _figure(records_of(run), rule)


def _figure(records: Records, rule: str) -> RuleFigure:
    known, asked = parse_rule(rule)
    usual = known.warm_up(records)
    skip = usual if asked is None else asked
    name = f"{known.name}:skip={skip}" if known.names_skip or skip != usual else known.name
    assert known.of_records is not None
    return figure_of(name, known.source, partial(known.of_records, records, known.name, skip))


def figure_of(name: str, how: str, compute: Callable[[], RuleValue]) -> RuleFigure:
    """The figure that ``compute`` gives, or why there is none."""
    try:
        used = compute()
        if not (math.isfinite(used.samples_per_s) and used.samples_per_s > 0):
            raise RuleError(f"rule {name}", got=used.samples_per_s, expected="a finite rate above 0")
    except RuleError as error:
        return RuleFigure(name, None, how=how, reason=str(error))
    return RuleFigure(name, used.samples_per_s, used.used, used.left_out, how)


def figures(run: LogRun, records: Records | None = None) -> tuple[RuleFigure, ...]:
    """The figures by all rules of the run's format, the usual rule first."""
    records = records or records_of(run)
    return tuple(_figure(records, rule) for rule in run.format.rules)


def usual_rule(by_rule: Sequence[RuleFigure]) -> str:
    """The rule that the publisher of such logs used; empty for a format without rules.

    It is the first rule that can be computed; a figure that the script printed itself goes before the mean of its
    records. If no rule can be computed, it is the first of all.
    """
    computed = [each.rule for each in by_rule if each.samples_per_s is not None]
    own = [each for each in computed if parse_rule(each)[0].goes_first]
    return next(iter([*own, *computed, *(each.rule for each in by_rule)]), "")


def warm_up_records(run: LogRun, records: Records | None = None) -> int:
    """How many records the publisher of such logs leaves out at the start, whichever rule is asked for."""
    if not run.format.rules or not run.records:
        return 0
    return min(RULES[run.format.rules[0]].warm_up(records or records_of(run)), run.records)


def parse_rule(text: str) -> tuple[Rule, int | None]:
    """The rule and its parameter (None if the text has none). Raises LogError."""
    name, colon, parameter = text.partition(":")
    if name not in RULES:
        raise LogError("rule", got=text, expected="one of " + ", ".join((AUTO, HONEST, *RULES)))
    if not colon:
        return RULES[name], None
    match = re.fullmatch(r"skip=([0-9]{1,9})", parameter)
    if match is None or not RULES[name].takes_skip:
        taking = "skip=N, the number of records left out at the start" if RULES[name].takes_skip else "no parameter"
        raise LogError(f"rule {name}", got=parameter, expected=taking)
    return RULES[name], int(match[1])
