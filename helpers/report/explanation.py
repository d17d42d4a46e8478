"""Tells why a step is slower: one sentence, then a table, as text, Markdown and JSON."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import Any

import msgspec

from helpers.common.files import make_folder, write_whole
from helpers.common.masking import shown_words
from helpers.common.words import counted
from helpers.judging.parts.beyond_chance import ERROR_RATE, SURE_ERROR_RATE, SURE_PARTS_ERROR_RATE, USUAL_PAIRS
from helpers.judging.parts.differences import Difference, Kind
from helpers.judging.parts.explanation import Explanation
from helpers.judging.parts.run_facts import CLOCKS, MOST_COST, THREADS
from helpers.judging.parts.step_parts import Exchange, Grain
from helpers.judging.statistics import Interval
from helpers.report.table import Align, Column, Table, markdown_text
from helpers.report.text import hanging
from helpers.session.explain.case import CaseExplanation
from helpers.trainers.contract.errors import printable
from helpers.trainers.contract.step_profile import HOST, Phase

EXPLAIN_SCHEMA_VERSION = 1

# Of a longer name the beginning and the end are shown: the tiles of a matrix product are at its end.
_MOST_OF_A_KERNEL, _END_OF_A_KERNEL = 110, 64

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


# In what way a part differs, in words.
_KINDS = {
    Kind.SLOWER: "slower at the same count",
    Kind.FASTER: "faster at the same count",
    Kind.MORE_CALLS: "called more often",
    Kind.FEWER_CALLS: "called less often",
    Kind.NEW: "new",
    Kind.GONE: "gone",
    Kind.MOVED: "new: it only moves or converts values",
    Kind.REPLACED: "replaced",
    Kind.OTHER_TYPES: "other data types",
    Kind.OTHER_DEVICE: "on another device",
    Kind.LOADER: "the loader",
    Kind.HOST: "the host",
    Kind.ALL_REDUCE: "the all-reduce itself, on all ranks",
    Kind.RANK_WAIT: "the ranks wait for the slowest one",
    Kind.RANK: "one rank is slow",
}
_PHASE_KINDS = {Kind.SLOWER: "slower as a whole", Kind.FASTER: "faster as a whole"}


def headline(found: CaseExplanation) -> str:
    """The answer in one sentence, which is printed first. What differs and affects all parts of a step comes first."""
    explanation = found.explanation
    if explanation is None:
        return f"NOT EXPLAINED: {found.why_not}"
    threads = [f"threads differ: {old} and {new}" for name, old, new in explanation.facts if name == THREADS]
    clocks = [f"clocks differ: {name} {old} and {new}" for name, old, new in explanation.facts if name in CLOCKS]
    return "; ".join([*threads, *clocks, _longer(explanation)])


def _longer(explanation: Explanation) -> str:
    whole = interval_text(explanation.drop, explanation.step_seconds)
    longer = [each for each in explanation.named if each.seconds.mean > 0]
    if not longer:
        verdict = "NOT EXPLAINED" if explanation.is_slower else "NOT SLOWER"
        return f"{verdict}: a step takes {whole}, and no part of it is longer beyond chance"
    first = longer[0]
    named = f"{'' if first.is_sure else 'probably '}{difference_text(first)}"
    if first.part.level is Grain.RANK:
        by = f"{_ms(first.seconds.mean)} ms a step beside the other ranks, which wait for it in the all-reduce"
        return f"{named} is slower by {by}{_share_text(first, explanation)}"
    change = f", {first.change:+.0%}" if first.change is not None else ""
    what = f"{named}{change} ({_kind_text(first)}{_largest_inside(explanation, first)})"
    if first.part.may_be_beside:
        return f"{what}; how much of it is beside computation is not known"
    if first.part.phase is Phase.ALL_REDUCE and not any(each.part.level is Grain.RANK for each in explanation.named):
        what += ", and no rank is slower beside the others"
    return f"{what}{_share_text(first, explanation)}"


def _share_text(first: Difference, explanation: Explanation) -> str:
    share, drop = (each.mean / explanation.step_seconds for each in (first.seconds, explanation.drop))
    if not explanation.is_slower or share > drop:
        # If the whole step may be as fast, or is longer by less than this part, the part is no share of it.
        whole = interval_text(explanation.drop, explanation.step_seconds)
        return f", {share:+.1%} of a step; the whole step: {whole}"
    return f", explains {100 * share:.1f} of the {drop:+.1%}"


def _kind_text(each: Difference) -> str:
    """In what way a part differs. A phase has no count of its own."""
    is_phase = each.part.level is Grain.PHASE and each.kind in _PHASE_KINDS
    return _PHASE_KINDS[each.kind] if is_phase else _KINDS[each.kind]


def _largest_inside(explanation: Explanation, phase: Difference) -> str:
    """What is longest in a phase: ``; longest in it: cast of all layers (forward), +8.2 ms, new``. Empty for any other
    part."""
    inside = [each for each in explanation.largest_inside if phase.part.holds(each.part)]
    texts = [f"{difference_text(each)}, +{_ms(each.seconds.mean)} ms, {_KINDS[each.kind]}" for each in inside]
    return f"; longest in it: {texts[0]}" if texts and phase.part.level is Grain.PHASE else ""


def difference_text(each: Difference) -> str:
    """The part in words, such as ``conv2d_grad [gemm → naive] of blocks.3.spatial (backward)``."""
    part, where = each.part, PHASES[each.part.phase]
    if part.level is Grain.RANK:
        return f"rank {part.rank}"
    if part.level is Grain.PHASE:
        return where
    of = f" of {part.layer}" if part.layer else (" of all layers" if part.level is Grain.OPERATOR else "")
    return f"{part.operator}{_exchange_text(each.exchange)}{of} ({where})"


def _exchange_text(exchange: Exchange) -> str:
    """`` [gemm → naive; float16 → float32]``; empty if an operator is computed as it was, or is not there with one of
    the builds."""
    if exchange.gone is None or exchange.came is None:
        return ""
    found = {name: exchange.of(name) for name in ("kernel", "data_types", "device")}
    if (kernels := found["kernel"]) is not None:
        # Both names are shortened, unless they would be the same then.
        old, new = map(_kernel_text, kernels)
        found["kernel"] = kernels if old == new else (old, new)
    texts = [f"{old or 'not told'} → {new or 'not told'}" for old, new in filter(None, found.values())]
    return f" [{'; '.join(texts)}]"


def _kernel_text(kernel: str) -> str:
    """The beginning and the end of a kernel's name, which is often a C++ declaration; JSON has the whole name."""
    if len(kernel) <= _MOST_OF_A_KERNEL:
        return kernel
    return f"{kernel[: _MOST_OF_A_KERNEL - _END_OF_A_KERNEL - 1]}…{kernel[-_END_OF_A_KERNEL:]}"


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


def render_markdown(found: CaseExplanation, command: str) -> str:
    """The answer as Markdown."""
    lines = [f"# Why {found.case_id} is slower", "", f"    {printable(command)}", ""]
    lines += [f"**{markdown_text(headline(found))}**", ""]
    if found.explanation is not None:
        lines += [f"![The phases of a step with both builds]({PICTURE_FILE})", ""]
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
        **msgspec.to_builtins(found, enc_hook=str),
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
    return shlex.join(shown_words(["perfgate", "explain", case_id, *options]))


def write_explanation(folder: Path, found: CaseExplanation, command: str, session: str) -> None:
    """Keep the answer in ``folder``, for people and for programs; the picture comes last. Raises OSError."""
    make_folder(folder)
    write_whole(folder / MARKDOWN_FILE, render_markdown(found, command).encode())
    text = json.dumps(to_record(found, session), indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_whole(folder / RECORD_FILE, text.encode())
    if found.explanation is not None:
        try:
            # Not at the top: a session without a regression draws nothing.
            from helpers.report.explanation_drawing import picture_of

            picture = picture_of(found.explanation, found.case_id)
        except Exception as error:
            raise OSError(f"its picture could not be drawn ({type(error).__name__}: {error})") from error
        write_whole(folder / PICTURE_FILE, picture.encode())


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


def _sure_text(pairs: int) -> str:
    if pairs < USUAL_PAIRS:
        return f"none is surely named, which takes {USUAL_PAIRS} pairs"
    return f"that any surely named one does so, at most {SURE_ERROR_RATE:.0%}"


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
        Column("part", difference_text),
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
    return _kind_text(each) if each.is_named or each.part.level is not Grain.PHASE else ""


def _calls(each: Difference) -> str:
    old, new = each.reference.calls, each.candidate.calls
    if not (old or new) or each.part.operator == HOST:
        return ""
    return f"{old:g}" if old == new else f"{old:g} → {new:g}"


def _difference_text(seconds: Interval) -> str:
    return f"{1000 * seconds.mean:+.3g} ({1000 * seconds.low:+.3g} to {1000 * seconds.high:+.3g})"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.4g}"
