"""What NVIDIA's scripts write beside their throughput lines: the parameters of a run, and single facts in its lines.

Source: NVIDIA/DeepLearningExamples and its DLLogger. A parameter line holds ``key : value`` pairs; a value may have
spaces or commas or be empty, so a pair ends where the next key begins, two spaces on. Its JSON backend writes the same
as one object, its MXNet script before 2021 as ``Namespace(key=value, ...)``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from helpers.logs.formats.naming import settings_of_name, with_name
from helpers.logs.record import Context, Line, Said, Setting

# A number as Python or C prints it, and not the first digits of an address, a version or a number with separators.
NUMBER = rb"[-+]?(?:\d{1,32}(?:\.\d{0,32})?|\.\d{1,32})(?:[eE][-+]?\d{1,4})?(?![\w.:]|,\d)"
# Every repeat in a pattern has its limit, or a line of the pattern's own beginnings costs its square. These are of a
# count, of alignment, of what stands between two things of a record, and of the parameters before a certain one.
COUNT = rb"\d{1,12}"
SPACES = rb" {0,40}"
BETWEEN = rb"[^\n]{0,500}"
PARAMETERS_BETWEEN = rb"[^\n]{0,4000}"
# The largest number of cards or images that a log is believed; more is a damaged line.
_LARGEST = 1_000_000
_LONGEST_QUOTE = 80
# A parameter line of a few thousand keys is nobody's.
_LONGEST_LINE = 65536

_BETWEEN_PAIRS = " : "
_NAMESPACE = "arguments Namespace("
_ARGUMENT = re.compile(r"\b(\w{1,200})=('[^']{0,4000}'|\"[^\"]{0,4000}\"|\[[^\]]{0,4000}\]|[^,()]*)")
_EMPTY = ("", "None", "null")

# Cards whose convolutions and products of FP32 numbers run as TF32 unless they are told otherwise: Ampere and later.
_TF32_CARD = re.compile(r"(?:RTX-)?(?:A\d|H\d|L\d|B\d|GB\d)")
_GPU = re.compile(r"(?:\bname: |\bTesla |\bNVIDIA )(?:Tesla |NVIDIA )?((?:GB|[ABHLPVTK])\d{1,3}[A-Z]?\b(?:-\w+)*)")
_NCCL_RANKS = re.compile(r"NCCL INFO comm .{0,300}\bnranks (\d{1,9})\b")
_BANNER = re.compile(r"^(?:TensorFlow|PyTorch|MXNet|Apache MXNet) [Vv]ersion:? (\d[\w.+]*)")


def group(name: str, pattern: bytes = NUMBER) -> bytes:
    """A named group; the names are Field values and TIME_GROUP."""
    return rb"(?P<" + name.encode() + rb">" + pattern + rb")"


@dataclass(frozen=True)
class Facts:
    """A run's lines, what its parameter lines say, and what its name says."""

    context: Context
    parameters: Mapping[str, Said]
    named: Mapping[Setting, Said]

    def parameter(self, *keys: str) -> Said | None:
        """The first of the parameters that has a value."""
        return next((self.parameters[key] for key in keys if key in self.parameters), None)

    def switched_on(self, *keys: str) -> Said | None:
        """The first of the parameters that is True."""
        return next((said for key in keys if (said := self.parameters.get(key)) and said.value == "True"), None)

    def line(self, pattern: re.Pattern[str]) -> Said | None:
        """The pattern's first group (the match, where it has none) of the first line it is found in."""
        for line in self.context.lines:
            if match := pattern.search(line.text):
                return Said(match[match.lastindex or 0], f"line {line.number}: {quoted(match[0])}")
        return None


def facts_of(context: Context) -> Facts:
    parameters: dict[str, Said] = {}
    for line in context.lines:
        for key, value in _pairs(line.text[:_LONGEST_LINE]):
            if value not in _EMPTY:
                parameters.setdefault(key, Said(value, f"line {line.number}: {quoted(f'{key} : {value}')}"))
    return Facts(context, parameters, settings_of_name(context.name))


def finished(facts: Facts, said: Mapping[Setting, Said | None]) -> dict[Setting, Said]:
    """What the content said, completed by the log's name and by what follows from both."""
    content = {setting: value for setting, value in said.items() if value is not None}
    for setting, pattern in ((Setting.GPU, _GPU), (Setting.FRAMEWORK_VERSION, _BANNER)):
        if setting not in content and (found := facts.line(pattern)):
            content[setting] = found
    settings = with_name(content, facts.context.name)
    if precision := with_tf32(settings):
        settings[Setting.PRECISION] = precision
    return settings


def count(said: Said | None) -> Said | None:
    """The same where it is a whole number from 1; None where it is not."""
    if said is None or not re.fullmatch(r"\d{1,7}", said.value, re.ASCII) or not 1 <= int(said.value) <= _LARGEST:
        return None
    return Said(str(int(said.value)), said.where)


def cards_of_nccl(facts: Facts) -> Said | None:
    """How many cards NCCL's lines tell."""
    return count(facts.line(_NCCL_RANKS))


def cards_of_lines(facts: Facts) -> Said | None:
    """How many cards NCCL's lines tell, or the ranks in the lines' prefixes, of a script that has a process a card.

    A log that shows rank 0 alone may be one rank's part of a larger job; a gap in the ranks tells no number, ranks
    of a log with several runs need not be all of each, and a name that tells more cards knows of lines left out.
    """
    if told := cards_of_nccl(facts):
        return told
    ranks = sorted(facts.context.ranks)
    if facts.context.runs_in_file > 1 or len(ranks) < 2 or ranks != list(range(len(ranks))):
        return None
    named = facts.named.get(Setting.CARDS)
    if named is not None and int(named.value) > len(ranks):
        return None
    return Said(str(len(ranks)), f"ranks 0 to {ranks[-1]} in the lines' prefixes")


def quoted(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "..."


def json_of(line: Line, prefix: str) -> Mapping[str, object]:
    """The object behind ``prefix``; empty where the line has none."""
    at = line.text.find(prefix)
    if at < 0 or len(line.text) > _LONGEST_LINE:
        return {}
    try:
        found = json.loads(line.text[at + len(prefix) :])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    if "DLLL {" in text:
        if '"PARAMETER"' in text:
            data = json_of(Line(0, text), "DLLL ").get("data")
            if isinstance(data, dict):
                yield from ((str(key), str(value)) for key, value in data.items())
    elif "DLL " in text and (at := text.find("- PARAMETER ")) >= 0:
        yield from _spaced_pairs(text[at + len("- PARAMETER ") :])
    elif (at := text.find(_NAMESPACE)) >= 0 and (end := text.rfind(")")) > at:
        inside = text[at + len(_NAMESPACE) : end]
        yield from ((pair[1], pair[2].strip("'\" ")) for pair in _ARGUMENT.finditer(inside))


def _spaced_pairs(text: str) -> Iterator[tuple[str, str]]:
    """``key : value  key : value``: a key is the word before its colon, and a value ends before the next key.

    A word that nothing stands before is no key but a part of a value that has a colon.
    """
    first, *rest = text.split(_BETWEEN_PAIRS)
    key, value = first.rpartition(" ")[2], ""
    for number, segment in enumerate(rest, 1):
        before, space, word = segment.rpartition(" ")
        is_last = number == len(rest)
        if not is_last and not (space and word):
            value += segment + _BETWEEN_PAIRS
            continue
        if key:
            yield key, (value + (segment if is_last else before)).strip()
        key, value = word, ""


def with_tf32(settings: Mapping[Setting, Said]) -> Said | None:
    """The precision where it is TF32 by default, else None. NVIDIA's containers leave TF32 on, so FP32 on a card that
    has it is TF32 (docs/measuring-rules.md, "Traps in the published tables")."""
    precision, gpu = settings.get(Setting.PRECISION), settings.get(Setting.GPU)
    if precision is None or gpu is None or precision.value != "fp32" or not _TF32_CARD.match(gpu.value):
        return None
    return Said("tf32", f"{precision.where}; TF32 is the frameworks' default on {gpu.value} ({gpu.where})")
