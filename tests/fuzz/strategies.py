"""What Hypothesis draws for each target: documents that nearly are, or are, what its reader takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from random import Random

from hypothesis import strategies as st

from helpers.trainers.contract.case import FEATURES, DataSource, Execution, Precision
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model
from helpers.trainers.contract.steplog import WARMUP, WINDOW, Step
from tests.fuzz.mutations import HOSTILE, NOT_A_DOCUMENT, json_lines
from tests.fuzz.seeds import LOG_RECORDS, log_bytes
from tests.fuzz.targets import Target

_MOST_SECONDS = 1e12


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Bytes for ``target.check``: any, a seed, a changed document, or one made to be accepted."""
    ways: list[st.SearchStrategy[bytes]] = [st.binary(max_size=200), st.sampled_from(target.seeds)]
    words = st.lists(st.sampled_from(target.words), max_size=30).map(lambda drawn: "".join(drawn).encode())
    ways.append(words)
    if target.mutate is not None:
        once = st.builds(partial(_changed, target.mutate), st.sampled_from(target.seeds), st.randoms())
        ways += [once, once, st.builds(partial(_changed, target.mutate), once, st.randoms())]
    if target.name == "step-log":
        ways += [logs(), st.builds(partial(_changed, json_lines), logs(), st.randoms())]
    if target.name == "case-id":
        ways += [case_ids(), case_ids()]
    return st.one_of(ways)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A step log with steps of any length that a clock can tell, epochs of any length, and enough steps for rules."""
    length = draw(st.one_of(st.integers(1, 6), st.sampled_from((119, 120, 121, 310, 331))))
    seconds = st.floats(0, _MOST_SECONDS, allow_subnormal=True)
    step_seconds = draw(st.lists(seconds.filter(bool), min_size=1, max_size=4))
    gaps = draw(st.lists(st.one_of(st.just(0.0), seconds), min_size=1, max_size=3))
    epoch_steps, warmup = draw(st.integers(1, 400)), draw(st.integers(0, length))
    samples = draw(st.lists(st.one_of(st.integers(1, 2**53), st.just(8)), min_size=1, max_size=3))
    waits = draw(st.lists(seconds, min_size=1, max_size=3))
    at, steps = draw(seconds), []
    for number in range(length):
        start = at + gaps[number % len(gaps)]
        at = start + step_seconds[number % len(step_seconds)]
        epoch, step = divmod(number, epoch_steps)
        phase = WARMUP if number < warmup else WINDOW
        wait = waits[number % len(waits)]
        steps.append(Step(epoch, step + 1, phase, start, at, samples[number % len(samples)], wait))
    return log_bytes([LOG_RECORDS[0], *({**asdict(step), "kind": "step"} for step in steps), LOG_RECORDS[-1]])


@st.composite
def case_ids(draw: st.DrawFn) -> bytes:
    """An id of known words and any numbers, with features in their order or not; sometimes with one part changed."""
    number = st.one_of(
        st.integers(0, 2_000_000).map(str), st.sampled_from(("01", "+1", "1_0", "٣", "²", "", "9" * 5000))
    )
    parts = [draw(st.sampled_from([each.value for each in kind])) for kind in (Framework, Model, Precision)]
    parts.append(f"bs{draw(number)}")
    parts.append(f"{draw(number)}x{draw(number)}")
    parts.append(draw(st.sampled_from([each.value for each in DataSource])))
    parts += draw(st.lists(st.sampled_from([*(each.value for each in Execution), *FEATURES]), max_size=4))
    if draw(st.booleans()):
        place = draw(st.integers(0, len(parts) - 1))
        parts[place] = draw(st.one_of(st.text(max_size=5), st.sampled_from([str(each) for each in HOSTILE])))
    return "-".join(parts).encode("utf-8", "surrogatepass")


def _changed(mutate: Callable[[bytes, Random], bytes], data: bytes, random: Random) -> bytes:
    """The changed document, or the input itself if it cannot be read as a document."""
    try:
        return mutate(data, random)
    except NOT_A_DOCUMENT:
        return data


def linear_families() -> Sequence[tuple[str, str, str, str, str]]:
    """(target, what, before, repeated part, after): inputs that grow by repetition and must cost in proportion."""
    return (
        ("config", "an unclosed nest", "", "[", ""),
        ("config", "a list in a list", "", "- ", "x"),
        ("config", "a long line", "x: ", "y", ""),
        ("config", "a number of base 60", "x: 1", ":1", ""),
        ("config", "a long number", "tolerances: {published: 0x", "f", "}"),
        ("config", "many keys", "", "k%d: 1\n", ""),
        ("config", "one key many times", "", "k: 1\n", ""),
        ("config", "many aliases", "a: &a [1]\nb: [", "*a,", "]"),
        ("config", "many merges", "a: &a {k: v}\nb: {<<: [", "*a,", "]}"),
        ("config", "anchors", "x: [", "&a%d 1,", "]"),
        ("config", "quotes", "x: ", "''", ""),
        ("config", "tabs", "x:", "\t", "1"),
        ("step-log", "a nest", "", "[", ""),
        ("step-log", "a long number", '{"kind": ', "9", "}\n"),
        ("step-log", "many keys", "{", '"k%d": 1, ', '"kind": 1}\n'),
        ("step-log", "one key many times", "{", '"k": 1, ', '"kind": 1}\n'),
        ("step-log", "empty lines", "", "\n", ""),
        ("recorded-baseline", "a nest", "", "[", ""),
        ("recorded-baseline", "many keys, the last twice", "{", '"k%d": 1, ', '"z": 1, "z": 1}'),
        ("recorded-baseline", "unknown keys", '{"schema_version": 1, ', '"k%d": 1, ', '"z": 1}'),
        ("recorded-baseline", "a long text", '{"schema_version": 1, "unit": "', "x", '"}'),
        ("published-baseline", "conflict-like lines", "", "<<<<<< \n", ""),
        ("case-id", "parts", "paddle", "-static", ""),
        ("case-id", "a long number", "paddle-vgg16-fp32-bs", "9", "-1x1-dali-static"),
    )
