"""The publishers' measuring rules over a log's records (docs/measuring-rules.md).

Each rule is a pure function of a run. Some take a parameter, written after a colon: ``ngc-tf-mean:skip=5``. A rule that
cannot be computed says why; no other rule is used in its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from helpers.judging.rules_publishers import (
    MXNET_WARM_UP_EPOCHS,
    NGC_TF_SKIPPED_RECORDS,
    PADDLECLAS_SKIPPED_RECORDS,
    PADDLECLAS_TRIMMED_RECORDS,
    RuleError,
    mxnet_mean,
    ngc_pytorch_skipped,
    paddleclas_ends,
)
from helpers.logs.column import trimmed_mean
from helpers.logs.figures.rules_dlperf import (
    dlperf_log,
    dlperf_tf2,
    dlperf_time,
    fleetx,
    warm_up_spans,
    warm_up_steps,
)
from helpers.logs.figures.series import Rates, RuleValue, cards_of, if_any, leading
from helpers.logs.record import LogRun, Printed, RateOf, RecordField, RuleFigure
from helpers.trainers.contract.errors import LogError

_MXNET_SIGNIFICANT = 5


@dataclass(frozen=True)
class ImportRule:
    """A publisher's measuring rule over the records of a log."""

    name: str
    # The rule in words.
    how: str
    # Takes the run, the rule's name (for errors) and how many records to leave out at the start; returns samples/s of
    # all cards. Raises RuleError.
    compute: Callable[[LogRun, str, int], RuleValue]
    # How many records the publisher leaves out at the start of this run.
    warm_up: Callable[[LogRun], int]
    # Whether ``NAME:skip=N`` may state another number of records to leave out.
    takes_skip: bool = False
    # Whether the figure's name always contains that number, because the publisher does not state it ("fitted" in
    # docs/measuring-rules.md).
    names_skip: bool = False
    # Whether it is the usual rule of every log in which its figure is printed.
    goes_first: bool = False


def figure(run: LogRun, rule: str) -> RuleFigure:
    """The run's figure by ``rule`` (``NAME`` or ``NAME:skip=N``), or why there is none. Raises LogError if there is no
    such rule."""
    known, asked = parse_rule(rule)
    name = rule
    try:
        usual = known.warm_up(run)
        skip = usual if asked is None else asked
        name = f"{known.name}:skip={skip}" if known.names_skip or skip != usual else known.name
        used = known.compute(run, known.name, skip)
        if not (math.isfinite(used.samples_per_s) and used.samples_per_s > 0):
            raise RuleError(f"rule {name}", got=used.samples_per_s, expected="a finite rate above 0")
    except RuleError as error:
        return RuleFigure(name, None, how=known.how, reason=str(error))
    return RuleFigure(name, used.samples_per_s, used.records, used.left_out, known.how)


def figures(run: LogRun) -> tuple[RuleFigure, ...]:
    """The figures by all rules of the run's format, the usual rule first, and by TIPC's rule if a summary line follows
    the records."""
    rules = run.format.rules
    return tuple(figure(run, rule) for rule in (*rules, *((_TIPC,) if _TIPC_LINE in run.printed else ())))


def usual_rule(by_rule: Sequence[RuleFigure]) -> str:
    """The rule that the publisher of such logs used; empty for a format without rules.

    It is the first rule that can be computed; a figure that the script printed itself goes before the mean of its
    records. If no rule can be computed, it is the first of all.
    """
    computed = [each.rule for each in by_rule if each.samples_per_s is not None]
    own = [each for each in computed if parse_rule(each)[0].goes_first]
    return next(iter([*own, *computed, *(each.rule for each in by_rule)]), "")


def warm_up_records(run: LogRun) -> int:
    """How many records the publisher of such logs leaves out at the start, whichever rule is asked for."""
    if not run.format.rules or not run.records:
        return 0
    return min(parse_rule(run.format.rules[0])[0].warm_up(run), run.records)


def parse_rule(text: str) -> tuple[ImportRule, int | None]:
    """The rule and its parameter (None if the text has none). Raises LogError."""
    name, colon, parameter = text.partition(":")
    if name not in RULES:
        raise LogError("rule", got=text, expected="one of " + ", ".join(RULES))
    if not colon:
        return RULES[name], None
    match = re.fullmatch(r"skip=([0-9]{1,9})", parameter)
    if match is None or not RULES[name].takes_skip:
        taking = "skip=N, the number of records left out at the start" if RULES[name].takes_skip else "no parameter"
        raise LogError(f"rule {name}", got=parameter, expected=taking)
    return RULES[name], int(match[1])


def _paddleclas_trimmed(run: LogRun, rule: str, skip: int) -> RuleValue:
    left = _left_after(run, rule, skip, PADDLECLAS_TRIMMED_RECORDS)
    ends = paddleclas_ends(left)
    mean = trimmed_mean(Rates(run), ends, skip)
    return RuleValue(mean, left - 2 * ends, (*if_any(skip, "of warm-up"), f"the {ends} lowest and the {ends} highest"))


def _record_mean(run: LogRun, rule: str, skip: int) -> RuleValue:
    left = _left_after(run, rule, skip, 1)
    return RuleValue(Rates(run).mean(skip), left, if_any(skip, "of warm-up"))


def _printed(run: LogRun, rule: str, skip: int, *, key: str, line: str) -> RuleValue:
    """The figure in the line that the script itself printed (the last one, if there are several); ``line`` describes it
    in errors."""
    lines = run.printed.get(key, ())
    if not lines:
        raise RuleError(f"rule {rule}", got="no such line in the log", expected=line)
    return RuleValue(lines[-1].samples_per_s, 1, if_any(len(lines) - 1, "printed before it"))


def _tipc_summary(run: LogRun, rule: str, skip: int) -> RuleValue:
    if not (run.format.is_summary and run.records):
        return _printed(run, rule, skip, key=_TIPC_LINE, line="TIPC's summary line")
    return RuleValue(Rates(run).values(run.records - 1)[0], 1, if_any(run.records - 1, "printed before it"))


def _mxnet_epochs(run: LogRun, rule: str, skip: int) -> RuleValue:
    epochs = mxnet_epochs(run)
    after = epochs[MXNET_WARM_UP_EPOCHS:]
    if not after:
        expected = f"{MXNET_WARM_UP_EPOCHS + 1} or more, the first of them warm-up"
        raise RuleError(f"rule {rule}", got=f"{len(epochs)} epochs with a figure", expected=expected)
    if any(each.samples_per_s <= 0 for each in after):
        raise RuleError(f"rule {rule}", got="an epoch without a rate", expected="one above 0 for each")
    mean = mxnet_mean([each.samples_per_s for each in epochs])
    rounded = float(f"{mean:.{_MXNET_SIGNIFICANT}g}")
    left_out = ("1 epoch of warm-up", "the first 50 iterations of each epoch, by the script itself")
    return RuleValue(rounded, len(after), left_out)


def mxnet_epochs(run: LogRun) -> tuple[Printed, ...]:
    """The figures that the script printed after each epoch, of all cards, in the order of the epochs."""
    printed = run.printed.get("epoch", ())
    if printed and run.format.rate_of is RateOf.CARD:
        cards = cards_of(run)
        printed = tuple(replace(each, samples_per_s=each.samples_per_s * cards) for each in printed)
    return tuple(sorted(printed, key=lambda each: (each.epoch or 0, each.line)))


def _left_after(run: LogRun, rule: str, skip: int, needed: int) -> int:
    left = max(run.records - skip, 0)
    if left < needed:
        raise RuleError(f"rule {rule}", got=f"{left} records after the first {skip}", expected=f"{needed} or more")
    return left


def _ngc_pytorch_warm_up(run: LogRun) -> int:
    return ngc_pytorch_skipped(cards_of(run))


def _mxnet_warm_up(run: LogRun) -> int:
    """How many records the first epoch has: it is MXNet's warm-up."""
    if RecordField.EPOCH not in run.columns or not run.records:
        return 0
    return leading(run, RecordField.EPOCH, run.columns[RecordField.EPOCH][0] + MXNET_WARM_UP_EPOCHS)


# The format whose summary line may follow the records of other formats, and its rule.
_TIPC_LINE, _TIPC = "tipc", "tipc-summary"

RULES: Mapping[str, ImportRule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            ImportRule(
                "paddleclas-trimmed",
                "mean of the records after the first 10, without max(5, 5%) at each end, times cards",
                _paddleclas_trimmed,
                lambda run: PADDLECLAS_SKIPPED_RECORDS,
                takes_skip=True,
            ),
            ImportRule(
                "paddleclas-mean",
                "mean of the records after the first 10, times cards",
                _record_mean,
                lambda run: PADDLECLAS_SKIPPED_RECORDS,
                takes_skip=True,
            ),
            ImportRule(
                "fleetx-20-100-median7",
                "images / seconds of steps 21 to 120; of seven such runs the median",
                fleetx,
                warm_up_steps,
            ),
            ImportRule("dlperf-log", "mean of the rates of iterations 20 to 119", dlperf_log, warm_up_steps),
            ImportRule(
                "dlperf-time",
                "images / seconds between two time stamps after warm-up",
                dlperf_time,
                lambda run: warm_up_spans(run) if RecordField.SPAN_START in run.columns else warm_up_steps(run),
            ),
            ImportRule("dlperf-tf2", "mean of TimeHistory's rates of iterations 100 to 600", dlperf_tf2, warm_up_spans),
            ImportRule(
                "ngc-tf-mean",
                "mean of total_ips after the first records",
                _record_mean,
                lambda run: NGC_TF_SKIPPED_RECORDS,
                takes_skip=True,
                names_skip=True,
            ),
            ImportRule(
                "ngc-tf-average",
                "the script's own line 'Average total_ips'",
                partial(_printed, key="average", line="a line 'Average total_ips'"),
                lambda run: NGC_TF_SKIPPED_RECORDS,
                goes_first=True,
            ),
            ImportRule(
                "ngc-tf-summary",
                "the script's own line 'train_throughput'",
                partial(_printed, key="train_throughput", line="a line 'train_throughput'"),
                lambda run: NGC_TF_SKIPPED_RECORDS,
                goes_first=True,
            ),
            ImportRule(
                "ngc-pytorch-mean",
                "mean of train.total_ips after the first records",
                _record_mean,
                _ngc_pytorch_warm_up,
                takes_skip=True,
                names_skip=True,
            ),
            ImportRule(
                "ngc-pytorch-summary",
                "the script's own line 'Summary: train.total_ips'",
                partial(_printed, key="summary_total", line="a line 'Summary: ... train.total_ips'"),
                _ngc_pytorch_warm_up,
            ),
            ImportRule(
                "ngc-pytorch-summary-compute",
                "the script's own line 'Summary: train.compute_ips', without waiting for data",
                partial(_printed, key="summary_compute", line="a line 'Summary: ... train.compute_ips'"),
                _ngc_pytorch_warm_up,
            ),
            ImportRule(
                _TIPC,
                "the line's own ips, which its script computed from a log's records",
                _tipc_summary,
                lambda run: 0,
            ),
            ImportRule(
                "ngc-mxnet-epochs",
                "harmonic mean of the epochs' train.ips after the first one, 5 significant digits",
                _mxnet_epochs,
                _mxnet_warm_up,
            ),
        )
    }
)
