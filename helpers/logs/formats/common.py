"""Shared by the formats: pieces of patterns, and a run's configuration from the lines beside its records.

Sources: NVIDIA/DeepLearningExamples with its DLLogger, and PaddlePaddle's launchers.

- DLLogger's parameter line holds ``key : value`` pairs, with two spaces between pairs. A value may contain spaces or
  commas or be empty, so a pair ends only where the next key begins.
- paddle.distributed.launch and fleetrun print their arguments (``gpus: 0,1,2,3``, ``nnodes: 4``) and what they start
  (``PADDLE_TRAINERS_NUM  32``, ``Run Pod: ..., replicas 8``). ``ips: None`` and ``ips: 127.0.0.1`` among them are
  addresses of hosts, not rates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from helpers.logs.formats.naming import settings_of_name
from helpers.logs.record import Line
from helpers.logs.settings import LogSetting, Stated, has_tf32

# A number, for patterns that go on with fixed text behind it; nan, None and an address do not match. Separators do, and
# values.number_of says what they mean.
BARE_NUMBER = r"[-+]?\d{1,32}(?:,\d{1,32}){0,9}(?:\.\d{0,32})?(?:[eE][-+]?\d{1,4})?"
# A number as Python or C prints it; the first digits of an address or a version do not match.
NUMBER = rf"(?:{BARE_NUMBER}|[-+]?\.\d{{1,32}}(?:[eE][-+]?\d{{1,4}})?)(?![\w.:]|,\d)"
# Every repeat in a pattern has a limit. Without one, a line made of the pattern's own beginnings would take time that
# grows with the square of its length. The following are a count, alignment, the text between two parts of a record, and
# the parameters before a certain one.
COUNT = r"\d{1,12}"
SPACES = r" {0,40}"
BETWEEN = r"[^\n]{0,500}"
PARAMETERS_BETWEEN = r"[^\n]{0,4000}"

# The largest number of cards or images that is taken from a log; a larger one means a damaged line.
_LARGEST = 1_000_000
_LONGEST_QUOTE = 80
# A longer line is not searched for parameters: no script prints thousands of them.
_LONGEST_LINE = 65536

_BETWEEN_PAIRS = " : "
_EMPTY = ("", "None", "null")

_GPU = re.compile(r"(?:\bname: |\bTesla |\bNVIDIA )(?:Tesla |NVIDIA )?((?:GB|[ABHLPVTK])\d{1,3}[A-Z]?\b(?:-\w+)*)")

# The number of cards of all nodes.
_CARDS = re.compile(r"\bPADDLE_TRAINERS_NUM['\"]?(?: *[:=] *| +)['\"]?(\d+)\b")
# Lines with the number of processes of one node, each of which trains on one card.
_PROCESSES = (
    re.compile(r"\bRun Pod: \w+, replicas (\d+), status"),
    re.compile(r"(?:^|\s)(?:nproc_per_node|nprocs): (\d+)\s*$"),
    re.compile(r"--nproc_per_node[= ]+['\"]?(\d+)(?![\w.])"),
)
_DEVICES = re.compile(
    r"(?:^|\s)(?:devices|gpus|selected_gpus|selected_devices): (\d+(?:,\d+)*)\s*$"
    r"|--(?:gpus|devices|selected_gpus|selected_devices)[= ]+['\"]?(\d+(?:,\d+)*)(?![\w.:])"
)
_NODES = (
    re.compile(r"(?:^|\s)nnodes: (\d+)(?::\d+)?\s*$"),
    re.compile(r"--nnodes[= ]+['\"]?(\d+)(?::\d+)?(?![\w.])"),
    re.compile(r"\bmode collective, replicas (\d+)\["),
)
_HOSTS = re.compile(
    r"(?:(?:^|\s)(?:ips|cluster_node_ips): |--(?:ips|cluster_node_ips)[= ]+['\"]?)"
    r"((?:[\w-]+\.)+[\w-]+(?:,(?:[\w-]+\.)+[\w-]+)*)(?![\w.])"
)
_PADDLECLAS_OPTION = re.compile(r"-o['\",\s]+['\"]?([A-Za-z_][\w.]*)=([^\s'\",\]]+)")
_COMMAND_ARGUMENT = re.compile(r"(?:^|\s|')--(\w+)(?:=['\"]?|['\",\s]+)([^\s'\",\]-][^\s'\",\]]*)")
_PADDLE_VERSION = re.compile(r"\btrain with paddle (\d[\w.+]*) and device")


def compiled(pattern: str) -> re.Pattern[bytes]:
    """A format's pattern. Logs are searched as bytes; patterns are put together as text."""
    return re.compile(pattern.encode())


def group(name: str, pattern: str = NUMBER) -> str:
    """A named group of a record's pattern. The name is the value of a RecordField, or TIME_GROUP."""
    return f"(?P<{name}>{pattern})"


@dataclass(frozen=True)
class Facts:
    """Everything from which a run's configuration is read."""

    # The path of the file as it was given, with ``/`` between folders.
    name: str
    # Lines of the run that are not records, a few thousand at most.
    lines: Sequence[Line]
    # The ranks that mpirun's prefixes name in the run.
    ranks: frozenset[int] = frozenset()
    # How many runs share the name.
    runs_in_file: int = 1
    # The run's first record; a summary line has nothing else.
    first_record: Line | None = None

    @cached_property
    def parameters(self) -> Mapping[str, Stated]:
        """The parameters that DLLogger's lines state, without those that are empty."""
        found: dict[str, Stated] = {}
        for line in self.lines:
            for key, value in _parameters_of(line.text[:_LONGEST_LINE]):
                if value not in _EMPTY:
                    found.setdefault(key, Stated(value, f"line {line.number}: {quoted(f'{key} : {value}')}"))
        return found

    @cached_property
    def named(self) -> Mapping[LogSetting, Stated]:
        """The settings that the log's name states."""
        return settings_of_name(self.name)

    def parameter(self, *keys: str) -> Stated | None:
        """The first of the parameters that has a value; None if none has."""
        return next((self.parameters[key] for key in keys if key in self.parameters), None)

    def switched_on(self, *keys: str) -> Stated | None:
        """The first of the parameters that is True; None if none is."""
        return next((found for key in keys if (found := self.parameters.get(key)) and found.value == "True"), None)

    def line(self, *patterns: re.Pattern[str]) -> Stated | None:
        """Searches all lines for the first pattern, then for the next one. Returns the last group of the first match
        (the whole match if the pattern has no group); None if no line matches."""
        for pattern in patterns:
            for line in self.lines:
                if match := pattern.search(line.text):
                    return Stated(match[match.lastindex or 0], f"line {line.number}: {quoted(match[0])}")
        return None

    def command_arguments(self) -> dict[str, Stated]:
        """``--KEY=VALUE`` and ``--KEY VALUE`` of command lines; if a key is given twice, the last one counts."""
        return dict(self._in_commands(_COMMAND_ARGUMENT))

    def paddleclas_options(self) -> dict[str, Stated]:
        """PaddleClas' ``-o KEY=VALUE``; if a key is given twice, the last one counts, as in its script."""
        return dict(self._in_commands(_PADDLECLAS_OPTION))

    def _in_commands(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, Stated]]:
        for line in self.lines:
            if "-" in line.text and ("python" in line.text or "args" in line.text or " -o" in line.text):
                for match in pattern.finditer(line.text):
                    yield match[1], Stated(match[2], f"line {line.number}: {quoted(match[0])}")


def finished(facts: Facts, stated: Mapping[LogSetting, Stated | None]) -> dict[LogSetting, Stated]:
    """The settings that the content states, completed from the log's name and by what follows from both."""
    content = {setting: value for setting, value in stated.items() if value is not None}
    if LogSetting.GPU not in content and (found := facts.line(_GPU)):
        content[LogSetting.GPU] = found
    return with_tf32({**facts.named, **content})


def with_tf32(settings: Mapping[LogSetting, Stated]) -> dict[LogSetting, Stated]:
    """The settings with TF32 in place of FP32 if the card has TF32: NVIDIA's containers leave it on
    (docs/published.md, "Traps in the published tables")."""
    precision, gpu = settings.get(LogSetting.PRECISION), settings.get(LogSetting.GPU)
    if precision is None or gpu is None or precision.value != "fp32" or not has_tf32(gpu.value):
        return dict(settings)
    where = f"{precision.where}; TF32 is the frameworks' default on {gpu.value} ({gpu.where})"
    return {**settings, LogSetting.PRECISION: Stated("tf32", where)}


def valued(value: str, stated: Stated | None) -> Stated | None:
    """``value`` with the place of ``stated``; None if ``stated`` is None."""
    return None if stated is None else Stated(value, stated.where)


def mapped(known: Mapping[str, str], stated: Stated | None) -> Stated | None:
    """Translates a script's own word for a value; None for an unknown word."""
    return None if stated is None or stated.value not in known else Stated(known[stated.value], stated.where)


def count(stated: Stated | None) -> Stated | None:
    """``stated`` itself if it is a whole number of 1 or more; else None."""
    if stated is None or not re.fullmatch(r"\d{1,7}", stated.value, re.ASCII) or not 1 <= int(stated.value) <= _LARGEST:
        return None
    return Stated(str(int(stated.value)), stated.where)


def cards_of_ranks(facts: Facts) -> Stated | None:
    """The number of cards of a script with one process for each card, by the ranks in the lines' prefixes.

    They give no number if they name rank 0 alone (the log may be one rank's part of a larger job), if a rank is missing
    among them, if the log holds several runs (they need not have the same ranks), or if the log's name states more
    cards.
    """
    ranks = sorted(facts.ranks)
    if facts.runs_in_file > 1 or len(ranks) < 2 or ranks != list(range(len(ranks))):
        return None
    named = facts.named.get(LogSetting.CARDS)
    if named is not None and int(named.value) > len(ranks):
        return None
    return Stated(str(len(ranks)), f"ranks 0 to {ranks[-1]} in the lines' prefixes")


def paddle_version(facts: Facts) -> Stated | None:
    return facts.line(_PADDLE_VERSION)


def launch_of(facts: Facts) -> dict[LogSetting, Stated | None]:
    """The cards and nodes of the whole job, by the lines of Paddle's launchers. None if the lines do not state them,
    contradict each other or give no whole number."""
    processes, devices = count(facts.line(*_PROCESSES)), facts.line(_DEVICES)
    per_node = processes or (Stated(str(len(set(devices.value.split(",")))), devices.where) if devices else None)
    nodes = count(facts.line(*_NODES)) or _hosts(facts)
    cards = count(facts.line(_CARDS))
    if cards is None and per_node is not None:
        of_all = int(per_node.value) * (int(nodes.value) if nodes else 1)
        cards = Stated(str(of_all), per_node.where + (f"; {nodes.where}" if nodes else ""))
    if nodes is None and cards is not None and per_node is not None and int(cards.value) % int(per_node.value) == 0:
        nodes = Stated(str(int(cards.value) // int(per_node.value)), f"{cards.where}; {per_node.where}")
    if nodes is None and cards is not None and cards.value == "1":
        nodes = Stated("1", cards.where)
    return {LogSetting.CARDS: cards, LogSetting.NODES: nodes}


def _hosts(facts: Facts) -> Stated | None:
    """The number of hosts if there are several. Some versions of the launcher print a single host on every node, so one
    host says nothing."""
    stated = facts.line(_HOSTS)
    hosts = set(stated.value.split(",")) if stated else set()
    return Stated(str(len(hosts)), stated.where) if stated and len(hosts) > 1 else None


def quoted(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "..."


def json_of(line: Line, prefix: str) -> Mapping[str, object]:
    """The JSON object behind ``prefix``; empty if the line has none."""
    at = line.text.find(prefix)
    if at < 0 or len(line.text) > _LONGEST_LINE:
        return {}
    try:
        found = json.loads(line.text[at + len(prefix) :])
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parameters_of(text: str) -> Iterator[tuple[str, str]]:
    """The parameters in a line of DLLogger: a key is the word before its colon, and a value ends before the next key.

    A colon with no word before it belongs to a value.
    """
    if "DLL " not in text or (at := text.find("- PARAMETER ")) < 0:
        return
    first, *rest = text[at + len("- PARAMETER ") :].split(_BETWEEN_PAIRS)
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
