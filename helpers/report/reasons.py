"""The sentences of findings: one for each code. A finding's details follow its sentence after a colon."""

from __future__ import annotations

import math
import shlex
import string
from collections.abc import Callable, Mapping
from typing import Any

from helpers.common.own_folder import pytest_words
from helpers.common.words import counted, first_few
from helpers.judging.case.noise import KNOWN_NIGHTS
from helpers.judging.case.verdict import LARGEST_REPORTED, Reason
from helpers.judging.finding import Code, Finding
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.judging.statistics import number
from helpers.session.outcome import CaseOutcome

Figures = Mapping[str, Any]


def outcome_text(outcome: CaseOutcome) -> str:
    """The verdict's reason, and after it the gate's rule."""
    return outcome.told(reason_text)


def reason_text(reason: Reason) -> str:
    return "; ".join(filter(None, (reason.text, *map(finding_text, reason.findings))))


def finding_text(finding: Finding) -> str:
    """The whole sentence, with its details."""
    return ": ".join(filter(None, (claim_text(finding), "; ".join(map(finding_text, finding.details)))))


def claim_text(finding: Finding) -> str:
    """The sentence without its details."""
    text = _TEXTS[finding.code]
    if isinstance(text, str):
        return _WORDS.vformat(text, (), finding.figures)
    return text(finding.figures)


class _Words(string.Formatter):
    """Formats with _SPECS too, and with ``n WORD``, which counts."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("n "):
            return counted(value, format_spec.removeprefix("n "))
        if format_spec in _SPECS:
            return _SPECS[format_spec](value)
        return str(super().format_field(value, format_spec))


_WORDS = _Words()


def _suite_command(options: str) -> str:
    return f"{shlex.join(pytest_words('perf_tests'))} {options}"


def effect_text(effect: tuple[float, float, float]) -> str:
    point, low, high = effect
    return f"{point:+.2%} (95% {low:+.2%} to {high:+.2%})"


def strength(evalue: float) -> str:
    """An e-value with two digits, as a power of ten if it is large."""
    return f"{evalue:.2g}" if evalue < 100 or evalue >= 1e5 else f"{evalue:.0f}"


def evidence_text(value: float | None) -> str:
    """An e-value in few characters: 0.03, 2.1, 340, 1e+06 and above as >1e6."""
    if value is None:
        return "-"
    if value > 1e6:
        return ">1e6"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _nights(of: Figures) -> str:
    """The nights with which tonight was compared, and the recorded entry if it counts."""
    dates = f" ({' to '.join(of['dates'])})" if of["dates"] else ""
    nodes = counted(of["nodes"], "node")
    pool = f" on {nodes} of a pool, whose nodes are {of['node_spread']:.1%} apart (standard deviation)"
    count = f"{counted(of['nights'], 'night')}{dates}{pool if of['nodes'] else ''}"
    if not of["comparable"]:
        return f"{count} on this stack"
    if of["mature"]:
        return count
    if of["entry"] is None:
        return f"{count} since the new segment began; {KNOWN_NIGHTS} make a history"
    return f"{of['entry']} and {count}; {KNOWN_NIGHTS} make a history" if of["nights"] else f"{of['entry']} alone"


def _screened(of: Figures) -> str:
    how = f"evidence {strength(of['evidence'])} of a drop (suspect from {of['suspect_from']:g}"
    if of["carry"] > 1:
        how += f"; {strength(of['e_drop'])} tonight x {strength(of['carry'])} carried"
    return f"{effect_text(of['effect'])}, n={of['n']} by {MEDIAN_STEP}, {how}), against {_nights(of)}"


def _suspected(of: Figures) -> str:
    return f"suspected at evidence {strength(of['evidence'])}{' of a gain' if of['gain'] else ''} against {_nights(of)}"


def _before_pairs(of: Figures) -> str:
    if of["change"] is None:
        return "no night before"
    return f"{of['change']:+.2%} before the pairs against {_nights(of)}"


def _paired(of: Figures) -> str:
    level = f" at the level of the nights before ({of['level'] or 0:+.2%} against it, from {of['level_pairs']} pairs)"
    if of["level"] is None:
        level = f" itself (how far the nights before stand from it is not known; tonight {of['itself']:+.2%})"
    elif not of["level_error"]:
        level = ""
    return (
        f"{effect_text(of['effect'])} against {of['build']}{level}, n={of['pairs']} interleaved pairs by "
        f"{MEDIAN_STEP}, evidence {strength(of['evidence'])} (threshold {of['threshold']:.0f}, tolerance "
        f"{of['tolerance']:.1%})"
    )


def _compared_pairs(of: Figures) -> str:
    level = ""
    if of["level"] is not None:
        level = (
            f" at the level of the nights before ({of['level']:+.2%} ± {of['level_error']:.2%} against A; "
            f"B is {of['itself']:+.2%} against A itself)"
        )
    sides = ", ".join(f"{name.upper()} n={of[name][0]} in {counted(of[name][1], 'night')}" for name in ("a", "b"))
    gain = "" if of["e_gain"] is None else f", {evidence_text(of['e_gain'])} for a gain"
    point, low, high = of["effect"]
    return (
        f"{point:+.2%} [{low:+.2%}, {high:+.2%}] by {of['pairs']} interleaved pairs{level} ({sides}; "
        f"rule {of['rule']}; evidence {evidence_text(of['e_drop'])} for a drop{gain} of the "
        f"{evidence_text(of['threshold'])} needed; tolerance {of['tolerance']:.1%})"
    )


def _beside_recorded(of: Figures) -> str:
    apart = f"; recorded in another segment ({first_few(of['differences'])})" if of["differences"] else ""
    change = of["measured"] / of["recorded"] - 1
    return (
        f"{number(of['measured'])} {of['unit']} is {change:+.1%} against the recorded {number(of['recorded'])} "
        f"({of['label']}; by {of['rule']}; n={of['n']}){apart}"
    )


def _beside_published(of: Figures) -> str:
    change = of["measured"] / of["published"] - 1
    return (
        f"{number(of['measured'])} {of['unit']} is {change:+.1%} against the published {number(of['published'])} "
        f"({of['label']}; by {of['rule']}; n={of['n']}; band -{of['band']:.1%})"
    )


def _smallest_drop(of: Figures) -> str:
    how = "found" if of["confirmed"] else "seen"
    if of["drop"] >= LARGEST_REPORTED:
        return f"not even a drop of {LARGEST_REPORTED:.0%} would have been {how} (80% power)"
    return f"a drop of {of['drop']:.1%} would have been {how} (80% power)"


def _whose(of: Figures) -> str:
    """The failure; where two builds run, with the build that failed."""
    build = {"candidate": "build under test: ", "reference": f"{_reference(of)}: "}.get(of["role"], "")
    return f"{build}{of['why']}"


def _run_failed(of: Figures) -> str:
    return _whose(of) + (f"; attempt {of['attempt']} of {of['most']}" if of["attempt"] > 1 else "")


def _reference(of: Figures) -> str:
    return f"reference build {of['build'] or ''}".rstrip()


def _run_invalid(of: Figures) -> str:
    if of["row"] < 2:
        return str(of["why"])
    allowed = f"all that budgets.repeats = {of['repeats']} allows"
    return f"{of['why']} ({of['row']} invalid runs in a row, {allowed})"


def _programs_apart(of: Figures) -> str:
    new, good = (" and ".join(each or "not stated" for each in of[side]) for side in ("new", "good"))
    return f"different programs: {new} with the build under test, {good} with {_reference(of)}"


def _with_waits(of: Figures) -> str:
    figure = of["figure"]
    text = figure if isinstance(figure, str) else f"{number(figure)} by {of['rule']}"
    return f"the rule leaves out the waits for data, with them it is {text}"


def _below_tolerance(of: Figures) -> str:
    what = {"drop": "a drop", "fell": "no slower than the reference build; below the nights before"}
    return f"{what.get(of['what'], of['what'])}, but by less than the tolerance of {of['tolerance']:.1%}"


def _work_unchecked(of: Figures) -> str:
    if of["losses"]:
        return (
            f"faster beyond {of['gain']:.0%}; the losses of both builds are needed to show that the work is unchanged"
        )
    return f"faster beyond {of['gain']:.0%}, and nothing shows that the work is unchanged"


def _level_unknown(of: Figures) -> str:
    if of["as_low"]:
        return "slower than the reference build, but what was recorded is as low"
    return (
        "below the nights before and not below the reference build: an accepted gain may be lost or the machine be slow"
    )


def _refused_later(of: Figures) -> str:
    made = counted(of["usable"], "usable run") if of["usable"] else "a failed run"
    return f"refused after {made}: {of['why']}"


def _overridden(of: Figures) -> str:
    recorded = "; a recorded figure is only for the case as it stands" if of["recorded"] else ""
    return f"settings changed ({of['settings']}){recorded}"


def _stalls(of: Figures) -> str:
    usual = f"at most {of['most']:.1%} on {of['nights']} nights before"
    if of["nights"] is None:
        usual = f"{of['most']:.1%} with the reference build"
    return f"stalls take {of['share']:.1%} beyond the median step, {usual}"


def _turn(of: Figures) -> str:
    known = "nobody knows" if of["error"] is None else f"it is known to ±{of['error']:.2%} only"
    return f"{known} where the nights before stand against {of['build']}, and it is this case's turn"


def _pairs_so_far(of: Figures) -> str:
    which = "a gain" if of["gain"] else "a drop"
    return f"so far {of['change']:+.2%}, evidence {strength(of['evidence'])} of {which}, {of['threshold']:.0f} decides"


def _no_reference(of: Figures) -> str:
    return of["why"] or "no reference build was given"


def _than(of: Figures) -> str:
    return "the nights before" if of["level"] else "A"


_GROUPS = {"": "all cases", "most": "most cases", "amp": "all amp cases (O1 and O2)"}


def _group_fell(of: Figures) -> str:
    group = _GROUPS.get(of["group"], f"all {of['group']} cases")
    text = f"{group} fell together: median {of['shift']:+.1%} over {of['cases']} cases"
    if of["needed"]:
        text += f", e-value {of['evidence']:.2g} without the strongest, {of['needed']:.2g} needed"
    return text


def _alike_in(of: Figures) -> str:
    then = {
        "chance": ", and the others say too little",
        "machine": ": the machine or the environment",
        "unconfirmed": ", and the reference build no slower than on its own nights before",
    }
    return f"interleaved runs found both builds alike in {_first_cases(of['cases'])}{then[of['then']]}"


def _common_move(of: Figures) -> str:
    how = "slower" if of["shift"] < 0 else "faster"
    cause = "suspect the machine or the environment" if of["machine"] else "interleaved runs say that it is the build"
    moved = f"{of['moved']} of {of['cases']} cases are {how} than on the nights before, median {of['shift']:+.1%}"
    return f"{moved}: {cause}"


def _look_at(of: Figures) -> str:
    what = "; ".join(of["changed"]) or "nothing recorded about the environment differs from the last night"
    return f"look at: {what}; perfgate doctor says what is wrong with it now"


def _quiet(of: Figures) -> str:
    median = "" if of["shift"] is None else f", their median is {of['shift']:+.1%} against the nights before"
    return f"no group of the {of['cases']} cases fell together{median}"


def _first_cases(cases: tuple[str, ...]) -> str:
    return ", ".join(cases[:2]) + (f" and {len(cases) - 2} more" if len(cases) > 2 else "")


def _searched(of: Figures) -> str:
    names = of["first"] if of["first"] == of["last"] else f"{of['first']} to {of['last']}"
    share = "more than 99.9%" if of["probability"] > 0.999 else f"{math.floor(1000 * of['probability']) / 10:.1f}%"
    change = "" if of["change"] is None else f": {effect_text(of['change'])}"
    return f"the first bad build is {names}, with {share}{change}"


def _not_shown_slower(of: Figures) -> str:
    shown = "no pair was made" if of["effect"] is None else f"{effect_text(of['effect'])} after {of['pairs']} pairs"
    return f"{of['bad']} could not be shown to be slower than {of['good']}: {shown}; a larger budget may show it"


_Text = str | Callable[[Figures], str]
_SPECS: Mapping[str, Callable[[Any], str]] = {
    "rate": number,
    "e": strength,
    "effect": effect_text,
    "list": first_few,
    "cases": _first_cases,
    "suite": _suite_command,
}
_TEXTS: Mapping[Code, _Text] = {
    Code.BELOW_REFERENCE: (
        "slower than the reference build; what was recorded may have been so too, and counts as the level from now on, "
        "unless it is recorded anew"
    ),
    Code.BELOW_TOLERANCE: _below_tolerance,
    Code.DROP_NOT_EXPLAINED: (
        "below the nights before, and neither the new build nor the good one shows why; run it again"
    ),
    Code.DROP_NOT_REPEATED: "the pairs do not repeat the drop",
    Code.FASTER_UNCONFIRMED: "faster",
    Code.HISTORY_UNREACHABLE: "{why}, so tonight cannot be compared with the nights before",
    Code.IMPROVEMENT: "faster",
    Code.LEVEL_MEASURED: "no drop; measured where the nights stand",
    Code.LEVEL_UNCERTAIN: (
        "open after {pairs} pairs, and more could hardly tell: the level of the nights before is known to "
        "±{error:.2%} from {level_pairs} pairs, and tonight's make it better known"
    ),
    Code.LEVEL_UNKNOWN: _level_unknown,
    Code.MACHINE_SLOW: "the machine is slow tonight, both builds alike",
    Code.NO_BASELINE: "no recorded figure decides",
    Code.NO_DROP: "no drop",
    Code.NO_DROP_BESIDE: "no drop, one of {band:.1%} or more ruled out ({odds:.0f} to 1)",
    Code.NOT_COMPUTABLE: lambda of: f"{of['of']}: {of['why'] or f'a run has no figure by {MEDIAN_STEP}'}",
    Code.OTHER_RULE: "recorded by {rule}, judged by {own}",
    Code.OTHER_SEGMENT: "changed since it was recorded: {differences:list}",
    Code.OVERRIDDEN: _overridden,
    Code.PAIRS_USED_UP: "open after all {pairs} pairs (budgets: pairs)",
    Code.REFERENCE_SLOWER: "the machine is slow for {nights} nights in a row, both builds alike; find the cause",
    Code.REGRESSION: "slower",
    Code.SAME: "no change",
    Code.SLOWER: "slower",
    Code.STALLS: _stalls,
    Code.TOO_NOISY: "too noisy",
    Code.UNCONFIRMED_DROP: "unconfirmed drop",
    Code.WORK_CHANGED: (
        "faster, but the work changed: loss {new:.3g}, {good:.3g} with the reference build on the same images"
    ),
    Code.WORK_UNCHECKED: _work_unchecked,
    Code.BELOW_PUBLISHED: "below the published figure",
    Code.OTHER_PROGRAM: "published: not judged, because a program of {kind} is not the published program",
    Code.WITHIN_PUBLISHED: "within the published figure's band",
    Code.BISECTED: "{pairs} interleaved pairs with the reference build, for a search",
    Code.CALIBRATED: "{runs} A/A runs measure the noise",
    Code.COMPARED: "compared",
    Code.NO_FIGURE: lambda of: of["why"] or f"a run has no {of['unit']} by the median step",
    Code.OUT_OF_MINUTES: (
        "stopped after {used:.1f} of budgets.case_minutes = {minutes:g}, because {needed:.1f} min more do not fit"
    ),
    Code.REFERENCE_REFUSED: lambda of: f"{_reference(of)} cannot run this: {of['why']}",
    Code.REFUSED: "{why}",
    Code.REFUSED_LATER: _refused_later,
    Code.RUN_FAILED: _run_failed,
    Code.RUN_INVALID: _run_invalid,
    Code.COMPARED_FASTER: lambda of: f"faster than {_than(of)}, beyond the tolerance",
    Code.COMPARED_NO_DROP: "no drop, and one beyond the band is ruled out ({odds:.0f} to 1)",
    Code.COMPARED_OPEN: "neither shown nor excluded: more pairs are needed",
    Code.COMPARED_SAME: lambda of: f"as fast as {_than(of)}",
    Code.COMPARED_SLOWER: lambda of: f"slower than {_than(of)}, beyond the tolerance",
    Code.ONE_SIDED: "{side} has no usable run of this case",
    Code.OTHER_STACK: (
        "not of one stack and protocol ({differences:list}): run them in turn on the same cards, and pairs decide "
        "whatever else differs: --build B --reference-build A"
    ),
    Code.TOO_FEW_RUNS: "fewer than {needed} runs on a side",
    Code.WITHIN_TOLERANCE: "a change, within the tolerance",
    Code.BUILDS_FASTER: "most cases are faster",
    Code.GROUP_NOT_CONFIRMED: "cases fell together by chance",
    Code.GROUP_REGRESSION: "cases fell together, by the build",
    Code.MACHINE_SUSPECT: "the machine or the environment is suspected",
    Code.QUIET: _quiet,
    Code.UNCONFIRMED_GROUP_DROP: "cases fell together, unconfirmed",
    Code.ALL_BELOW: (
        "each of {n} runs lies {drop:.1%} or more below the recorded {recorded:rate} {unit} ({label}; band {band:.1%}, "
        "evidence {evidence:e}, threshold {threshold:.0f})"
    ),
    Code.BEFORE_PAIRS: _before_pairs,
    Code.BESIDE_PUBLISHED: _beside_published,
    Code.BESIDE_RECORDED: _beside_recorded,
    Code.BY_ENTRY_ALONE: "by the recorded entry alone",
    Code.COMPARED_PAIRS: _compared_pairs,
    Code.DISCARDED: "discarded and made again: {runs} ({last})",
    Code.ENTRY: "recorded {recorded:rate} {unit} ({label})",
    Code.GAIN_EVIDENCE: "evidence {evidence:e} of a gain",
    Code.GOOD_FELL: (
        "the reference build is itself {drop:.1%} below its own {nights:n night} (driver, libraries, trainer code or "
        "machine)"
    ),
    Code.NEUTRAL_SETTINGS: "changed, but not what a step does ({settings:list})",
    Code.NEW_SEGMENT: "a new segment begins: a confirmed improvement",
    Code.NIGHTS_APART: "A and B may differ in more than the build",
    Code.NONE_RECORDED: "recorded: none",
    Code.NOTHING_RECORDED: "nothing recorded for this case on this machine",
    Code.NOT_A_REGRESSION: "no regression confirmed",
    Code.NOT_COMPARED: "not compared with the recorded {recorded:rate} {unit} ({label})",
    Code.NOT_JUDGED: "not judged, only shown",
    Code.OTHER_OPERATORS: "not the published program's operators ({differences:list})",
    Code.PAIRED: _paired,
    Code.PAIRS_SHOWN: lambda of: (
        f"{counted(of['pairs'], 'pair')} beside {_reference(of)}: {of['change']:+.2%}, {of['slower']} of {of['pairs']} "
        "slower"
    ),
    Code.PROGRAM: "program: {kind}",
    Code.PROGRAMS_APART: _programs_apart,
    Code.RECORDED_ONLY_SHOWN: "the recorded figure is only shown",
    Code.SCREENED: _screened,
    Code.SIDES_DIFFER: "A and B differ in more than the build: {differences:list}",
    Code.SMALLEST_DROP: _smallest_drop,
    Code.STALLS_ALIKE: "the reference build stalls alike",
    Code.STILL_OPEN: "still open",
    Code.SUSPECTED: _suspected,
    Code.WITH_WAITS: _with_waits,
    Code.ATTEMPT_ENDED: lambda of: f"attempt {of['attempt']} of {of['most']} ended: {_whose(of)}",
    Code.ACCEPT: 'to record this level: {options:suite} --accept-regression "{case}=REASON"',
    Code.BUILD_OR_MACHINE: lambda of: (
        f"{of['why'] or 'no reference build was given'}, so build and machine cannot be told apart: run it again "
        "beside a build that is known to be good (--reference-build BUILD)"
    ),
    Code.JUDGE_AGAIN: "the runs are kept: judge again with --resume once the history answers",
    Code.LEARN_LEVEL: (
        "nobody knows where those nights stand against {build}: compare a build of those nights with it "
        "(--reference-build)"
    ),
    Code.MAKE_REFERENCE: "make it the reference: {options:suite}",
    Code.NAME_REFERENCE: lambda of: (
        f"{_no_reference(of)}: name one (--reference-build BUILD), and pairs decide; or record again: "
        f"{_suite_command(of['options'])}"
    ),
    Code.NOT_CONFIRMED: lambda of: (
        f"not confirmed ({_no_reference(of)}): run it again beside a build that is known to be good (--reference-build "
        "BUILD)"
    ),
    Code.ONLY_SHOWN: "not confirmed: the recorded figure is only shown",
    Code.RECORD: "record it: {options:suite}",
    Code.RECORD_AGAIN: "record it again: {options:suite}",
    Code.RECORD_WITHOUT_SET: (
        "settings changed ({settings}), so this is not recorded; without --set, record it: {options:suite}"
    ),
    Code.SESSION_RECORDS: "this session records it, or says under Baselines why not",
    Code.CALIBRATION_RUN: "A/A run {run} of {most}",
    Code.DROP_OPEN: "open after {made} of at most {most} runs: evidence {evidence:.2g}",
    Code.DROP_SUSPECTED: "a drop is suspected (evidence {evidence:e}, from {suspect_from:g})",
    Code.FEW_NIGHTS: "{known} of {needed} nights known: {runs} runs",
    Code.GAIN_OPEN: "a gain is open after {made} of at most {most} runs",
    Code.GAIN_SUSPECTED: "a gain is suspected (evidence {evidence:e}, from {suspect_from:g})",
    Code.HALF_PAIR: "pair {pair} of at most {most}, its other half",
    Code.HOUR_DOUBTED: "the machine may have run otherwise when this was recorded",
    Code.HOUR_SHIFT: "{build} itself runs {change:+.1%} against its figure of then",
    Code.HOUR_UNKNOWN: "no night since the recording ran {build}: how it runs now",
    Code.LEVEL_SO_FAR: "so far the level against it is known to ±{error:.2%}",
    Code.NEXT_PAIR: "pair {pair} of at most {most}",
    Code.ONLY_PAIRS_TELL: "only pairs can tell: {nights:n night} known of this stack",
    Code.PAIRS_SO_FAR: _pairs_so_far,
    Code.PLANNED: "{runs} planned",
    Code.RECORDED_WITH_LEVEL: "it is recorded with its level",
    Code.RUN_FOR_SLOWER: "{band:.1%} below what is recorded, and no reference build at hand: run {run} of {most}",
    Code.SEARCH: "bisect",
    Code.TURN: _turn,
    Code.TURN_WITHOUT_HISTORY: "the history cannot be asked, and it is this case's turn",
    Code.ALIKE_IN: _alike_in,
    Code.BUILD_SLOWER_IN: "interleaved runs found the new build slower in {cases:cases}",
    Code.COMMON_MOVE: _common_move,
    Code.CONFIRMATIONS_USED_UP: "the night's confirmations are used up",
    Code.GROUP_FELL: _group_fell,
    Code.LOOK_AT: _look_at,
    Code.NOT_SETTLED_IN: "interleaved runs of {cases:cases} did not settle it",
    Code.NO_REFERENCE: lambda of: (
        f"no reference build could confirm it ({of['why'] or 'give --reference-build BUILD'})"
    ),
    Code.QUIETEST: "this is their quietest",
    Code.REFERENCE_SLOW_IN: "the reference build is as slow tonight in {cases:cases}: the machine or the environment",
    Code.SEARCH_BAD: "{bad} beside {good}: bad must be bad",
    Code.SEARCH_BUDGET: _searched,
    Code.SEARCH_END_UNTESTABLE: "{build} cannot be tested: {why}",
    Code.SEARCH_FASTER: "{bad} is faster than {good}: {effect:effect}; were they exchanged?",
    Code.SEARCH_FOUND: _searched,
    Code.SEARCH_GOOD: "{good} beside itself: good must be good",
    Code.SEARCH_GOOD_DIFFERS: "{good} differs from itself by {effect:effect}: the pairs compare something else",
    Code.SEARCH_HIDDEN: _searched,
    Code.SEARCH_NEXT: "{build}: a pair is expected to give {bits:.2g} of {left:.2g} bits",
    Code.SEARCH_NO_DROP: "{bad} is not slower than {good}: {effect:effect}; there is nothing to find between them",
    Code.SEARCH_SECOND_PAIR: "{build}: a second pair before the first bad build is named",
    Code.SEARCH_UNCONFIRMED: _not_shown_slower,
    Code.NOISE_UNCERTAIN: ("{runs} runs limit the noise only to between {low:.2%} and {high:.2%}; --runs 10 is usual"),
    Code.RUNS_DRIFT: (
        "the runs drift: neighbours are more alike than distant ones, so the machine changed while they were made"
    ),
    Code.RUNS_EQUAL: "the runs are equal to 0.01%, which no training is: look at what was measured",
    Code.TOLERANCE_TOO_FINE: (
        "the tolerance in use, {tolerance:.1%}, is finer than the noise allows: two builds that are the same are "
        "{noise:.1%} apart by accident after {pairs} pairs"
    ),
}
