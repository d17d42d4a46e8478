"""Tells why a step is slower: one sentence, then a table, as text, Markdown and JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Any

from helpers.judging.beyond_chance import ERROR_RATE, USUAL_PAIRS
from helpers.judging.call_counts import CallCount
from helpers.judging.explanation import Explanation
from helpers.judging.kinds import Kind
from helpers.judging.profile_differences import Difference
from helpers.judging.profile_parts import Exchange, Level, Part
from helpers.judging.run_facts import MOST_COST, THREADS, Clock, ReducedBeside
from helpers.judging.shared_speed import SURE_ERROR_RATE, SURE_PARTS_ERROR_RATE
from helpers.judging.statistics import Interval
from helpers.judging.wording import counted
from helpers.machine.files import write_whole
from helpers.report.explanation_record import explanation_record
from helpers.report.table import Align, Column, Table, markdown_text
from helpers.report.text import hanging
from helpers.session.explain import CaseExplanation
from helpers.trainers.contract.errors import printable
from helpers.trainers.contract.step_profile import HOST, Phase

# 1: first format.
EXPLAIN_SCHEMA_VERSION = 1

# Of a card's kernels, whose names are often C++ declarations.
_SAYS_NOTHING = re.compile(
    r"^void |\(anonymous namespace\)::|at::native::|cudnn::engines_precompiled::|_kernel__5x_cudnn$"
    r"|(?<=>)\(.*\)$|\([^()]*\)$|\{lambda\(\)#\d+\}::operator\(\)\(\) const::"
)
# Of a longer name the beginning and the end are shown: the tiles of a matrix product are at its end.
_MOST_OF_A_KERNEL, _END_OF_A_KERNEL = 110, 64
# A part of one of these kinds has calls that were not there.
_CAME = (Kind.NEW, Kind.MOVED, Kind.MORE_CALLS)
# So many operators with other calls are shown; JSON has all.
_MOST_CALLS = 5

MARKDOWN_FILE, RECORD_FILE, PICTURE_FILE = "explain.md", "explain.json", "explain.svg"

PHASES = {
    Phase.DATA_WAIT: "waiting for data",
    Phase.TRANSFER: "copies to the device",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.ALL_REDUCE: "all-reduce",
    Phase.RANK_WAIT: "waiting for the slowest rank",
    Phase.OPTIMIZER: "optimizer",
    Phase.HOST_GAP: "the host between the parts",
    Phase.OTHER: "the rest of the step",
}


def headline(found: CaseExplanation) -> str:
    """The answer in one sentence, which is printed first."""
    explanation = found.explanation
    if explanation is None:
        return f"NOT EXPLAINED: {found.why_not}"
    return "; ".join([*_differing(explanation), _longer(explanation)])


def _differing(explanation: Explanation) -> list[str]:
    """What differs and affects all parts of a step. It comes before them."""
    threads = [f"threads differ: {old} and {new}" for name, old, new in explanation.facts if name == THREADS]
    return [*threads, *(f"clocks differ: {_clock(each)}" for each in explanation.clocks)]


def _clock(clock: Clock) -> str:
    change = clock.candidate_mhz / clock.reference_mhz - 1
    return f"{clock.name} {clock.reference_mhz:.0f} and {clock.candidate_mhz:.0f} MHz ({change:+.1%})"


def _longer(explanation: Explanation) -> str:
    first = next((each for each in explanation.named if _takes_longer(each)), None)
    if first is None:
        whole = interval_text(explanation.drop, explanation.step_seconds)
        more = "".join(f"; {each}" for each in _called_more(explanation.calls))
        why = f"a step takes {whole}, and no part of it is longer beyond chance{more}"
        return f"{'NOT EXPLAINED' if explanation.is_slower else 'NOT SLOWER'}: {why}"
    also = _others_text([each for each in explanation.named if _takes_longer(each) and each is not first])
    share = first.seconds.mean / explanation.step_seconds
    named = f"{'' if first.is_sure else 'probably '}{part_text(first.part)}"
    if first.part.level.is_of_a_rank:
        what = (
            f"{named} is slower by {_ms(first.seconds.mean)} ms a step beside the other ranks, which "
            "wait for it in the all-reduce"
        )
        return _with_share(what, share, explanation, also)
    change = f", {first.change:+.0%}" if first.change is not None else ""
    what = f"{named}{change} ({_kind_text(first)}{_largest_inside(explanation, first)})"
    if first.part.phase is Phase.ALL_REDUCE and not any(each.part.level.is_of_a_rank for each in explanation.named):
        what += ", and no rank is slower beside the others"
    if first.part.level is Level.REDUCTION:
        alone = (each.seconds for each in explanation.phases if each.part.phase is Phase.ALL_REDUCE)
        differs = next((f"{_difference_text(each)} ms" for each in alone), "nothing that was tested")
        whole = interval_text(explanation.drop, explanation.step_seconds)
        return f"{what}; the part not beside computation differs by {differs}; the whole step: {whole}{also}"
    if first.part.may_be_beside:
        return f"{what}; how much of it is beside computation is not known{also}"
    return _with_share(what, share, explanation, also)


def _kind_text(each: Difference) -> str:
    """In what way a part differs. A phase has no count of its own."""
    whole = {Kind.SLOWER: "slower as a whole", Kind.FASTER: "faster as a whole"}
    return whole.get(each.kind, each.kind.value) if each.part.level is Level.PHASE else each.kind.value


def _largest_inside(explanation: Explanation, phase: Difference) -> str:
    """What is longest in a phase, and what is new in it: ``; longest in it: cast of all layers (forward), +8.2 ms, new:
    it only moves or converts values``. Empty for any other part."""
    if phase.part.level is not Level.PHASE:
        return ""
    inside = [each for each in explanation.largest_inside if phase.part.holds(each.part)]
    told = [
        f"longest in it: {part_text(each.part)}, +{_ms(each.seconds.mean)} ms, {each.kind.value}" for each in inside
    ]
    if not any(each.kind in _CAME for each in inside):
        told += _called_more([each for each in explanation.calls if each.part.phase is phase.part.phase])
    return "".join(f"; {each}" for each in told)


def _called_more(calls: Sequence[CallCount]) -> list[str]:
    """The operator that is called more often and whose time is longer by most, if there is one."""
    more = (each for each in calls if each.candidate.calls > each.reference.calls)
    first = next((each for each in more if each.longer_seconds > 0), None)
    if first is None:
        return []
    old, new = first.reference.calls, first.candidate.calls
    times = f"is new, called {new:g} times a step" if not old else f"is called {new:g} times a step instead of {old:g}"
    return [f"{part_text(first.part)} {times}"]


def _others_text(others: Sequence[Difference]) -> str:
    sure = sum(each.is_sure for each in others)
    told = {"longer": sure, "probably longer": len(others) - sure}
    texts = [f"{counted(count, 'more part is', 'more parts are')} {how}" for how, count in told.items() if count]
    return "".join(f"; {each}" for each in texts)


def _with_share(what: str, share: float, explanation: Explanation, also: str) -> str:
    drop = explanation.drop.mean / explanation.step_seconds
    if not explanation.is_slower or share > drop:
        # If the whole step may be as fast, or is longer by less than this part, the part is no share of it.
        whole = interval_text(explanation.drop, explanation.step_seconds)
        return f"{what}, {share:+.1%} of a step; the whole step: {whole}{also}"
    return f"{what}, explains {100 * share:.1f} of the {drop:+.1%}{also}"


def part_text(part: Part) -> str:
    """The part in words, such as ``conv2d_grad of blocks.3.spatial (backward)``."""
    where = PHASES[part.phase]
    if part.level is Level.RANK:
        return f"rank {part.rank}"
    if part.level is Level.RANK_SPEED:
        return f"what rank {part.rank} computes"
    if part.level is Level.RANK_PHASE:
        return f"{where} of rank {part.rank}"
    if part.level is Level.REDUCTION:
        return f"{where}, beside computation or not"
    if part.level is Level.PHASE:
        return where
    if part.level is Level.CHANGE:
        layers = part.layers[0] if len(part.layers) == 1 else f"{len(part.layers)} layers"
        of = f" of {layers}" if layers else ""
        return f"{_change_text(part)}{of} ({where})"
    of = f" of {part.layer}" if part.layer else (" of all layers" if part.level is Level.OPERATOR else "")
    kernel = f" [{_kernel_text(part.kernel)}]" if part.kernel else ""
    dtypes = f" {part.dtypes}" if part.dtypes else ""
    return f"{part.operator}{kernel}{dtypes}{of} ({where})"


def _kernel_text(kernel: str) -> str:
    """A kernel's name without what all kernels of a library have in common; JSON has the whole name."""
    name = _SAYS_NOTHING.sub("", kernel)
    if len(name) <= _MOST_OF_A_KERNEL:
        return name
    return f"{name[: _MOST_OF_A_KERNEL - _END_OF_A_KERNEL - 1]}…{name[-_END_OF_A_KERNEL:]}"


def _exchanges_text(exchanges: Sequence[Exchange]) -> str:
    """``old → new and 2 more``; empty if there are none."""
    if not exchanges:
        return ""
    old, new = exchanges[0]
    more = f" and {len(exchanges) - 1} more" if len(exchanges) > 1 else ""
    return f"{old or 'not told'} → {new or 'not told'}{more}"


def _shortened(kernels: Exchange) -> Exchange:
    """Both names shortened, unless they would be the same then."""
    old, new = map(_kernel_text, kernels)
    return kernels if old == new else (old, new)


def _change_text(part: Part) -> str:
    """``conv2d → cast + conv2d [float16 → float32]``."""
    gone, came = " + ".join(part.gone), " + ".join(part.came)
    kernels = [_shortened(each) for each in part.kernels]
    differ = "; ".join(filter(None, map(_exchanges_text, (kernels, part.data_types, part.devices))))
    same = gone == came and differ
    return (gone if same else f"{gone} → {came}") + (f" [{differ}]" if differ else "")


def interval_text(interval: Interval, whole: float) -> str:
    """The interval as a share of ``whole``, such as ``+2.1% (95% +1.8% to +2.4%)``."""
    low, high = interval.low / whole, interval.high / whole
    return f"{interval.mean / whole:+.1%} (95% {low:+.1%} to {high:+.1%})"


def render_explanation(found: CaseExplanation, width: int) -> str:
    """The answer for a terminal."""
    lines = [headline(found), ""]
    for text in about(found):
        lines += hanging(text, width, "", "  ")
    for title, table in tables_of(found):
        grid = table.grid()
        lines += ["", title, grid.heading, *grid.lines]
    return "\n".join(map(printable, lines))


def render_markdown(found: CaseExplanation, command: str, picture: str = PICTURE_FILE) -> str:
    """The answer as Markdown; ``picture`` is where the drawing of ``write_explanation`` is."""
    lines = [f"# Why {found.case_id} is slower", "", f"    {printable(command)}", ""]
    lines += [f"**{markdown_text(headline(found))}**", ""]
    if found.explanation is not None:
        lines += [f"![The phases of a step with both builds]({picture})", ""]
    lines += [f"- {markdown_text(text)}" for text in about(found)]
    for title, table in tables_of(found):
        lines += ["", f"{markdown_text(title)}:", "", *table.markdown(markdown_text)]
    return "\n".join(lines) + "\n"


def to_record(found: CaseExplanation, session: str) -> dict[str, Any]:
    """The answer for programs. Seconds are per step; above 0 the build under test takes longer."""
    explanation = found.explanation
    record: dict[str, Any] = {
        "schema_version": EXPLAIN_SCHEMA_VERSION,
        "session": session,
        "line": headline(found),
        **explanation_record(found),
        "error_rate": ERROR_RATE,
        "sure_error_rate": SURE_ERROR_RATE,
        "sure_p_value": SURE_PARTS_ERROR_RATE,
    }
    if explanation is not None:
        explained, rest = explanation.explained_seconds, explanation.not_explained_seconds
        record["explanation"] |= {"explained_seconds": explained, "not_explained_seconds": rest}
    return record


def command_of(case_id: str, build: str | None, reference_build: str | None) -> str:
    """The command that compares these builds again; None is the one that it takes if none is named."""
    named = (("--build", build), ("--reference-build", reference_build))
    options = [word for option, name in named if name is not None for word in (option, name)]
    return shlex.join(["perfgate", "explain", case_id, *options])


def write_explanation(folder: Path, found: CaseExplanation, command: str, session: str) -> None:
    """Keep the answer in ``folder``, for people and for programs. Raises OSError."""
    # Not at the top: a session without a regression draws nothing.
    from helpers.report.explanation_drawing import picture_of

    folder.mkdir(parents=True, exist_ok=True)
    if found.explanation is not None:
        write_whole(folder / PICTURE_FILE, picture_of(found.explanation, found.case_id).encode())
    write_whole(folder / MARKDOWN_FILE, render_markdown(found, command).encode())
    text = json.dumps(to_record(found, session), indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_whole(folder / RECORD_FILE, text.encode())


def about(found: CaseExplanation) -> list[str]:
    """What was measured, line by line."""
    lines = [f"{found.case_id} [{found.target}]"]
    if found.reference or found.candidate:
        lines += [f"reference: {found.reference}", f"under test: {found.candidate}"]
    explanation = found.explanation
    if explanation is not None:
        lines += _about_measured(found, explanation)
    else:
        lines.append(f"{counted(found.runs, 'run was', 'runs were')} made")
    lines += [f"note: {each}" for each in found.notes]
    if found.traces:
        lines.append(f"traces of the first pair, for a trace viewer: {', '.join(map(str, found.traces))}")
    return lines


def _about_measured(found: CaseExplanation, explanation: Explanation) -> list[str]:
    step = f"{_ms(explanation.step_seconds)} ms a step with the reference, unprofiled"
    lines = [
        f"{step}; the build under test: {interval_text(explanation.drop, explanation.step_seconds)}",
        f"{explanation.pairs} pairs of runs in turn, {found.runs} runs; {found.steps} profiled steps a run, after its "
        f"window ({found.profiler})",
        f"{explanation.tested} parts were tested; the probability that any named one differs by chance alone is at "
        f"most {ERROR_RATE:.0%}; {_sure_text(explanation.pairs)}",
        _not_explained_text(explanation),
    ]
    if explanation.shared_speeds:
        least, most = min(explanation.shared_speeds), max(explanation.shared_speeds)
        lines.append(
            f"as a whole the runs of a pair differ by {least:.2f} to {most:.2f} times, not beyond chance: the parts "
            "are compared beside this shared speed"
        )
    lines += [f"clocks differ in {_clock(each)}" for each in explanation.clocks]
    if explanation.calls:
        lines.append(_calls_text(explanation.calls))
    if explanation.reduced_beside is not None:
        lines.append(_beside_text(explanation.reduced_beside))
    known = [each for each in explanation.cost if each is not None]
    if known:
        both = " and ".join(f"{each:+.0%}" for each in known)
        much = ": so much may change what is measured" if max(known) > MOST_COST else ""
        lines.append(f"the profiler made a step {both} longer (reference and build under test){much}")
    lines += [f"the builds differ in {name}: {old or 'nothing'} and {new or 'nothing'}"
              for name, old, new in explanation.facts]  # fmt: skip
    return lines


def _not_explained_text(explanation: Explanation) -> str:
    """The three shares of a step that add up: they may have different signs."""
    rest, named, whole = (
        f"{seconds / explanation.step_seconds:+.1%}"
        for seconds in (explanation.not_explained_seconds, explanation.explained_seconds, explanation.drop.mean)
    )
    return (
        f"not explained: {rest} of a step, in all parts that are not named (the named parts {named}, the whole step "
        f"{whole})"
    )


def _calls_text(calls: Sequence[CallCount]) -> str:
    """What the tables do not tell."""
    shown = [_call_text(each) for each in calls[:_MOST_CALLS]]
    more = [f"{len(calls) - len(shown)} more"] if len(calls) > len(shown) else []
    return (
        "in all its runs the build under test calls these operators more or less often in a step: "
        f"{', '.join([*shown, *more])}"
    )


def _call_text(count: CallCount) -> str:
    calls = f"{count.reference.calls:g} → {count.candidate.calls:g}"
    return f"{part_text(count.part)} {calls} ({1000 * count.longer_seconds:+.3g} ms)"


def _sure_text(pairs: int) -> str:
    if pairs < USUAL_PAIRS:
        return f"none is surely named, which takes {USUAL_PAIRS} pairs"
    return f"that any surely named one does so, at most {SURE_ERROR_RATE:.0%}"


def _beside_text(beside: ReducedBeside) -> str:
    old, new = _ms(beside.reference_seconds), _ms(beside.candidate_seconds)
    return (
        f"gradients are reduced beside computation for {old} and {new} ms a step (reference and build under test), "
        f"{_difference_text(beside.difference)} ms; the phases around it have that time"
    )


def tables_of(found: CaseExplanation) -> list[tuple[str, Table]]:
    """The tables with their titles; none without an explanation."""
    explanation = found.explanation
    if explanation is None:
        return []
    columns = _columns(explanation.step_seconds)
    tables = [("the phases of a step", Table.of(columns, explanation.phases))]
    if explanation.ranks:
        tables.append(("each rank beside the median of the others", Table.of(columns, explanation.ranks)))
    if explanation.unnamed:
        tables.insert(0, ("also different, but not beyond chance", Table.of(columns, explanation.unnamed)))
    if explanation.named:
        named = Column[Difference]("named", lambda each: "surely" if each.is_sure else "probably")
        tables.insert(0, ("beyond chance", Table.of((*columns, named), explanation.named)))
    return tables


def _columns(step_seconds: float) -> Sequence[Column[Difference]]:
    return (
        Column("part", lambda each: part_text(each.part)),
        Column("what", _what),
        Column("calls", _calls, Align.RIGHT),
        Column("reference ms", lambda each: _ms(each.reference.seconds), Align.RIGHT),
        Column("difference ms", lambda each: _difference_text(each.seconds), Align.RIGHT),
        Column("explains", lambda each: _share(each, step_seconds), Align.RIGHT),
        Column("p", lambda each: _p_text(each.p_value), Align.RIGHT),
    )


def _p_text(p_value: float) -> str:
    """With two decimals; below 0.1 with three, rounded up: one above a threshold is not shown as the threshold."""
    if p_value >= 0.1:
        return f"{p_value:.2f}"
    return str(Decimal(repr(p_value)).quantize(Decimal("0.001"), ROUND_UP))


def _share(each: Difference, step_seconds: float) -> str:
    return "" if each.part.may_be_beside else f"{each.seconds.mean / step_seconds:+.1%}"


def _what(each: Difference) -> str:
    """In what way the part differs. A phase is listed in any case, so it says this only if it differs beyond chance."""
    return _kind_text(each) if each.is_named or each.part.level is not Level.PHASE else ""


def _calls(each: Difference) -> str:
    old, new = each.reference.calls, each.candidate.calls
    if not (old or new) or each.part.operator == HOST:
        return ""
    # Of an operator with several kernels they are counted.
    unit = " kernels" if each.part.level is Level.CALL else ""
    return (f"{old:g}" if old == new else f"{old:g} → {new:g}") + unit


def _difference_text(seconds: Interval) -> str:
    return f"{1000 * seconds.mean:+.3g} ({1000 * seconds.low:+.3g} to {1000 * seconds.high:+.3g})"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.4g}"


def _takes_longer(each: Difference) -> bool:
    return each.seconds.mean > 0
