"""What judging finds: a code with its figures. The sentences are made of them in helpers/report/reasons.py."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Figure = str | bool | int | float | tuple[str | float, ...] | None


class Code(enum.StrEnum):
    """One for each sentence. The first part of them are the codes of verdicts and answers (docs/reference.md)."""

    # ---- answers to the recorded question
    BELOW_REFERENCE = "below-reference-build"
    BELOW_TOLERANCE = "below-tolerance"
    DROP_NOT_EXPLAINED = "drop-not-explained"
    DROP_NOT_REPEATED = "drop-not-repeated"
    FASTER_UNCONFIRMED = "faster-unconfirmed"
    HISTORY_UNREACHABLE = "history-unreachable"
    IMPROVEMENT = "confirmed-improvement"
    LEVEL_MEASURED = "level-measured"
    LEVEL_UNCERTAIN = "level-uncertain"
    LEVEL_UNKNOWN = "level-unknown"
    MACHINE_SLOW = "machine-slow"
    NO_BASELINE = "no-baseline"
    NO_DROP = "no-drop"
    NO_DROP_BESIDE = "no-drop-beside-reference"
    NOT_COMPUTABLE = "rule-not-computable"
    OTHER_RULE = "other-rule"
    OTHER_SEGMENT = "other-segment"
    OVERRIDDEN = "overridden"
    PAIRS_USED_UP = "pairs-used-up"
    REFERENCE_SLOWER = "reference-build-slower"
    REGRESSION = "confirmed-regression"
    SAME = "same-as-reference"
    SLOWER = "slower-unconfirmed"
    STALLS = "stalls"
    TOO_NOISY = "too-noisy"
    UNCONFIRMED_DROP = "unconfirmed-drop"
    WORK_CHANGED = "work-changed"
    WORK_UNCHECKED = "work-unchecked"
    # ---- answers about a published figure
    BELOW_PUBLISHED = "below-published"
    OTHER_PROGRAM = "other-program"
    WITHIN_PUBLISHED = "within-published"
    # ---- verdicts on cases that were not judged, or that are compared with nothing
    BISECTED = "bisect"
    CALIBRATED = "calibrated"
    COMPARED = "compared"
    NO_FIGURE = "no-figure"
    OUT_OF_MINUTES = "out-of-minutes"
    REFERENCE_REFUSED = "reference-refused"
    REFUSED = "refused"
    REFUSED_LATER = "refused-later"
    RUN_FAILED = "run-failed"
    RUN_INVALID = "run-invalid"
    # ---- answers of a comparison of two builds, dates or sessions
    COMPARED_FASTER = "faster"
    COMPARED_NO_DROP = "no-drop-between"
    COMPARED_OPEN = "open"
    COMPARED_SAME = "same"
    COMPARED_SLOWER = "slower"
    ONE_SIDED = "one-sided"
    OTHER_STACK = "other-stack"
    TOO_FEW_RUNS = "too-few-runs"
    WITHIN_TOLERANCE = "within-tolerance"
    # ---- verdicts on a night
    BUILDS_FASTER = "builds-faster"
    GROUP_NOT_CONFIRMED = "group-not-confirmed"
    GROUP_REGRESSION = "group-regression"
    MACHINE_SUSPECT = "machine-suspect"
    QUIET = "quiet"
    UNCONFIRMED_GROUP_DROP = "unconfirmed-group-drop"
    # ---- what tonight's runs, the pairs and the references show
    ALL_BELOW = "all-below"
    BEFORE_PAIRS = "before-pairs"
    BESIDE_PUBLISHED = "beside-published"
    BESIDE_RECORDED = "beside-recorded"
    BY_ENTRY_ALONE = "by-entry-alone"
    COMPARED_PAIRS = "compared-pairs"
    DISCARDED = "discarded"
    ENTRY = "entry"
    GAIN_EVIDENCE = "gain-evidence"
    GOOD_FELL = "good-fell"
    NEUTRAL_SETTINGS = "neutral-settings"
    NEW_SEGMENT = "new-segment"
    NIGHTS_APART = "nights-apart"
    NONE_RECORDED = "none-recorded"
    NOTHING_RECORDED = "nothing-recorded"
    NOT_A_REGRESSION = "not-a-regression"
    NOT_COMPARED = "not-compared"
    NOT_JUDGED = "not-judged"
    OTHER_OPERATORS = "other-operators"
    PAIRED = "paired"
    PAIRS_SHOWN = "pairs-shown"
    PROGRAM = "program"
    PROGRAMS_APART = "programs-apart"
    RECORDED_ONLY_SHOWN = "recorded-only-shown"
    SCREENED = "screened"
    SIDES_DIFFER = "sides-differ"
    SMALLEST_DROP = "smallest-drop"
    STALLS_ALIKE = "stalls-alike"
    STILL_OPEN = "still-open"
    SUSPECTED = "suspected"
    WITH_WAITS = "with-waits"
    ATTEMPT_ENDED = "attempt-ended"
    # ---- what to do
    ACCEPT = "accept"
    BUILD_OR_MACHINE = "build-or-machine"
    JUDGE_AGAIN = "judge-again"
    LEARN_LEVEL = "learn-level"
    MAKE_REFERENCE = "make-reference"
    NAME_REFERENCE = "name-reference"
    NOT_CONFIRMED = "not-confirmed"
    ONLY_SHOWN = "only-shown"
    RECORD = "record"
    RECORD_AGAIN = "record-again"
    RECORD_WITHOUT_SET = "record-without-set"
    SESSION_RECORDS = "session-records"
    # ---- why another run is made
    CALIBRATION_RUN = "calibration-run"
    DROP_OPEN = "drop-open"
    DROP_SUSPECTED = "drop-suspected"
    FEW_NIGHTS = "few-nights"
    GAIN_OPEN = "gain-open"
    GAIN_SUSPECTED = "gain-suspected"
    HALF_PAIR = "half-pair"
    HOUR_DOUBTED = "hour-doubted"
    HOUR_SHIFT = "hour-shift"
    HOUR_UNKNOWN = "hour-unknown"
    LEVEL_SO_FAR = "level-so-far"
    NEXT_PAIR = "next-pair"
    ONLY_PAIRS_TELL = "only-pairs-tell"
    PAIRS_SO_FAR = "pairs-so-far"
    PLANNED = "planned"
    RECORDED_WITH_LEVEL = "recorded-with-level"
    RUN_FOR_SLOWER = "run-for-slower"
    SEARCH = "search"
    TURN = "turn"
    TURN_WITHOUT_HISTORY = "turn-without-history"
    # ---- all cases of a night together
    ALIKE_IN = "alike-in"
    BUILD_SLOWER_IN = "build-slower-in"
    COMMON_MOVE = "common-move"
    CONFIRMATIONS_USED_UP = "confirmations-used-up"
    GROUP_FELL = "group-fell"
    LOOK_AT = "look-at"
    NOT_SETTLED_IN = "not-settled-in"
    NO_REFERENCE = "no-reference"
    QUIETEST = "quietest"
    REFERENCE_SLOW_IN = "reference-slow-in"
    # ---- the search for the first bad build
    SEARCH_BAD = "search-bad"
    SEARCH_BUDGET = "search-budget"
    SEARCH_END_UNTESTABLE = "search-end-untestable"
    SEARCH_FASTER = "search-faster"
    SEARCH_FOUND = "search-found"
    SEARCH_GOOD = "search-good"
    SEARCH_GOOD_DIFFERS = "search-good-differs"
    SEARCH_HIDDEN = "search-hidden"
    SEARCH_NEXT = "search-next"
    SEARCH_NO_DROP = "search-no-drop"
    SEARCH_SECOND_PAIR = "search-second-pair"
    SEARCH_UNCONFIRMED = "search-unconfirmed"
    # ---- warnings of a calibration
    NOISE_UNCERTAIN = "noise-uncertain"
    RUNS_DRIFT = "runs-drift"
    RUNS_EQUAL = "runs-equal"
    TOLERANCE_TOO_FINE = "tolerance-too-fine"


@dataclass(frozen=True)
class Finding:
    """One thing that was found, and what it was found by."""

    code: Code
    figures: Mapping[str, Figure] = field(default_factory=dict)
    details: tuple[Finding, ...] = ()

    def by(self, *details: Finding | None) -> Finding:
        """The same finding with further details."""
        return replace(self, details=(*self.details, *(each for each in details if each is not None)))


def found(code: Code, /, *details: Finding | None, **figures: Figure) -> Finding:
    return Finding(code, figures).by(*details)
