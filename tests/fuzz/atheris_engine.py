"""One target under atheris, in the environment that has it: ``python -m tests.fuzz.atheris_engine TARGET …``.

libFuzzer's own report goes to stderr, where tests.fuzz.__main__ reads it. The program ends by libFuzzer's exit, which
cleans nothing up: the folders are the caller's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import atheris

# What is imported in here is compiled with coverage: the readers, and what YAML makes of its scalars and tags. The rest
# of the YAML loader would take four fifths of the time.
with atheris.instrument_imports(include=["helpers", "yaml.constructor", "yaml.resolver"]):
    import yaml  # noqa: F401

    from tests.fuzz.mutations import NOT_A_DOCUMENT
    from tests.fuzz.targets import Broken, Target, findings, targets

# A reader that needs longer than this for so few bytes, or more memory, is a finding.
MOST_BYTES = 1 << 16
MOST_SECONDS = 5
MOST_MIB = 1024
# Of readers that go line by line: beside what any input costs, so much for each line, with the coverage counted.
LINE_READERS = ("step-log", "training-log")
MOST_SPARE_SECONDS, MOST_LINE_SECONDS = 1.0, 0.25
# A seed is changed over and over: PyYAML alone would need 50 ms for one of 10 KiB.
MOST_SEED_BYTES = 1 << 10
# Of the inputs, how many stay documents when they are changed.
DOCUMENTS = 0.5


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="fuzz_atheris", description="Fuzz one reader with atheris."
    )
    parser.add_argument("target", help="fuzz this reader")
    parser.add_argument("--seconds", type=int, required=True, help="stop after so long")
    parser.add_argument("--corpus", type=Path, required=True, help="keep inputs that reached something new here")
    parser.add_argument("--artifacts", type=Path, required=True, help="write a finding's input here")
    parser.add_argument("--scratch", type=Path, required=True, help="write every input in this empty folder")
    parser.add_argument("--seed", type=int, default=1, help="start libFuzzer's random numbers here")
    options = parser.parse_args(arguments)
    inputs, seeds, words = (options.scratch / name for name in ("inputs", "seeds", "words"))
    inputs.mkdir()
    seeds.mkdir()
    target = targets(inputs)[options.target]
    found = (path.read_bytes() for path in findings(target.name))
    for number, seed in enumerate((*target.seeds, *(each for each in found if len(each) <= MOST_SEED_BYTES))):
        (seeds / str(number)).write_bytes(seed)
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words), encoding="ascii")
    told = [
        sys.argv[0], str(options.corpus), str(seeds), f"-max_total_time={options.seconds}", f"-dict={words}",
        f"-artifact_prefix={options.artifacts}/", f"-max_len={MOST_BYTES}", f"-timeout={MOST_SECONDS}",
        f"-rss_limit_mb={MOST_MIB}", f"-seed={options.seed}", "-print_final_stats=1",
    ]  # fmt: skip
    check = by_lines(target.check) if target.name in LINE_READERS else target.check
    atheris.Setup(told, check, custom_mutator=lambda data, most, seed: _mutated(target, data, most, Random(seed)))
    atheris.Fuzz()


def by_lines(check: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The check with a time limit a line."""

    def limited(data: bytes) -> None:
        began = time.process_time()
        check(data)
        seconds, lines = time.process_time() - began, data.count(b"\n") + 1
        if seconds > MOST_SPARE_SECONDS + MOST_LINE_SECONDS * lines:
            raise Broken(f"{seconds:.1f} s of processor time for {lines} lines, {len(data)} bytes")

    return limited


def _mutated(target: Target, data: bytes, most: int, random: Random) -> bytes:
    """Half the inputs that are documents stay some; all others are changed by libFuzzer, byte by byte."""
    if target.mutate is not None and random.random() < DOCUMENTS:
        try:
            changed = target.mutate(data, random)
        except NOT_A_DOCUMENT:
            changed = b""
        if 0 < len(changed) <= most:
            return changed
    return bytes(atheris.Mutate(data, most))


def _escaped(word: str) -> str:
    """A word as libFuzzer's dictionary writes it: every byte in hexadecimal."""
    return "".join(f"\\x{byte:02x}" for byte in word.encode())


if __name__ == "__main__":
    main(sys.argv[1:])
