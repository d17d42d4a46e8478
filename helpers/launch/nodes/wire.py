"""The frames that the first node and the agents of the other nodes exchange: JSON objects, one on each line.

The first node writes to an agent's standard input and reads its standard output. A line with the mark is a frame. Any
other line is output of a log-in shell, which is kept only for an error's text.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import helpers
from helpers.machine.devices import Card, Machine
from helpers.machine.environment import CPU, flag_variables, flags_of
from helpers.machine.nvml import Gpu
from helpers.trainers.contract.errors import LaunchError

# The module that is started as the agent.
AGENT_MODULE = "helpers.launch.nodes.agent"

_NONE = type(None)
# The keys of each kind of frame and their types, in the order in which a session sends them.
_KINDS: dict[str, dict[str, tuple[type, ...]]] = {
    "hello": {"suite": (str,), "boot_id": (str,)},
    "prepare": {
        "case_id": (str,), "framework": (str,), "target": (str,), "address": (str,), "cards": (int,),
        "lease_seconds": (int, float), "data_root": (str, _NONE), "small_data": (bool,), "assigned": (list,),
        "exclusive_machine": (bool,), "environment": (dict,), "cpu_cards": (int, _NONE),
    },
    "waiting": {"obstacle": (str,)},
    "ready": {"facts": (dict,), "host_id": (str,), "card_ids": (list,), "flags": (list,)},
    "job": {"spec": (str,), "place": (dict,), "grace_seconds": (int, float), "norm": (dict, _NONE)},
    "alive": {},
    "file": {"name": (str,), "data": (str,)},
    "gone": {"rank": (int,)},
    "end": {},
    "over": {
        "code": (int, _NONE), "left": (str,), "contention": (dict,), "unhealthy": (list,), "oom": (bool,),
        "oom_text": (str,), "facts": (dict,),
    },
    "sweep": {"job_id": (str,), "node": (int,), "grace_seconds": (int, float)},
    "swept": {},
    "error": {"text": (str,)},
}  # fmt: skip
# Keys whose values or items must be texts.
_OF_TEXTS = ("facts", "card_ids", "flags", "unhealthy", "assigned", "environment")

_MARK = b"perfgate-node "
_LONGEST_LINE = 8 * 1024 * 1024
_CHATTER_LINES = 10

Frame = dict[str, Any]


def encode(kind: str, **values: Any) -> bytes:
    """One frame as a line; the values must be plain JSON, and finite."""
    return _MARK + json.dumps({"kind": kind, **values}, allow_nan=False).encode() + b"\n"


class FrameReader:
    """Takes bytes as they arrive and returns whole frames. ``chatter`` holds the last lines that are not frames."""

    def __init__(self, about: str) -> None:
        self._about = about
        self._rest = b""
        self.chatter: deque[str] = deque(maxlen=_CHATTER_LINES)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes. Raises LaunchError on a line that has the mark but is not a frame."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            raise LaunchError(self._about, got=f"a line of over {_LONGEST_LINE} bytes", expected="a frame")
        return [frame for frame in map(self._frame, lines) if frame is not None]

    def _frame(self, line: bytes) -> Frame | None:
        # Output of the shell without a line break may precede the first frame on its line.
        chatter, mark, body = line.partition(_MARK)
        if chatter.strip():
            self.chatter.append(chatter.decode(errors="replace").strip())
        if not mark:
            return None
        try:
            frame = json.loads(body, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise LaunchError(self._about, got=body[:100], expected="a frame as JSON") from error
        if not isinstance(frame, dict) or not isinstance(kind := frame.get("kind"), str) or kind not in _KINDS:
            raise LaunchError(self._about, got=body[:100], expected="a frame of a kind that is known")
        self._check(frame)
        return frame

    def _check(self, frame: Frame) -> None:
        kind = frame["kind"]
        wrong = {"kind", *_KINDS[kind]} ^ set(frame)
        # Another checkout may greet with more keys; it is refused later, by its digest.
        for name in sorted(wrong - set(frame) if kind == "hello" else wrong):
            raise LaunchError(
                self._about, field=name, got=f"{kind} {sorted(frame)}", expected=f"the keys {sorted(_KINDS[kind])}"
            )
        for name, types in _KINDS[kind].items():
            value = frame[name]
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                raise LaunchError(self._about, field=name, got=value, expected=" or ".join(t.__name__ for t in types))
            if name in _OF_TEXTS and not _holds_texts(value):
                raise LaunchError(self._about, field=name, got=value, expected="texts")


def _holds_texts(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return all(isinstance(item, str) for item in items)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def suite_digest(package: Path | None = None) -> str:
    """A digest of all source files of ``helpers``, which shows whether all nodes run the same suite."""
    root = Path(helpers.__file__).resolve().parent if package is None else package
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def boot_id(proc: Path = Path("/proc")) -> str:
    """The kernel's boot id: the same in all containers of a running machine, different on any other machine."""
    return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


# Passed to all nodes like the caller's flags: the ports on which a firewall allows the launcher and its ranks to
# listen.
_PORTS = ("PORT_RANGE",)


@dataclass(frozen=True)
class NodeOrder:
    """The order to a node to prepare for a case."""

    case_id: str
    framework: str
    target: str
    # The node must have this address.
    address: str
    # How many cards of ``target`` the node leases.
    cards: int
    # How long the node may wait for its cards.
    lease_seconds: float
    # The data folder on the node; None if the case reads no images, or with ``small_data``.
    data_root: str | None = None
    # Whether the node makes and reads the small dataset of its own checkout.
    small_data: bool = False
    # Ids of cards that the first node has leased for this node, if both are on one machine.
    assigned: tuple[str, ...] = ()
    exclusive_machine: bool = True
    # Variables for every process that the node's agent starts.
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_cards: int | None = None

    def to_mapping(self) -> dict[str, Any]:
        """The order as a JSON object; ``NodeOrder(**mapping)`` reads it back, since both sides have one checkout."""
        return {**vars(self), "assigned": list(self.assigned), "environment": dict(self.environment)}


def node_facts(
    build: Mapping[str, str], machine: Machine, cards: Sequence[Card], target: str, data: str
) -> dict[str, str]:
    """The facts (as text) that must be equal on all nodes of a job; a difference would make the measurement
    meaningless."""
    if target == CPU:
        of_device = {"processor": machine.facts.cpu_model}
    else:
        caps = sorted({card.power_limit_watts for card in cards if isinstance(card, Gpu)})
        of_device = {"driver": machine.driver, "power cap (W)": " ".join(map(str, caps))}
    return {
        "framework": " ".join(filter(None, (build.get(name, "") for name in ("distribution", "version", "commit")))),
        "card": " + ".join(sorted({card.name for card in cards})),
        **of_device,
        "data": data,
    }


def node_record(
    machine: Machine, cards: Sequence[Card], variables: Mapping[str, str], framework: str
) -> dict[str, Any]:
    """A node's record: its host's id, its GPUs, and the variables that change results, each as text."""
    return {
        "host_id": machine.host_id,
        "card_ids": [card.uuid for card in cards if isinstance(card, Gpu)],
        "flags": flag_texts(variables, framework),
    }


def flag_texts(variables: Mapping[str, str], framework: str) -> list[str]:
    """``NAME=value`` for each variable that changes results, sorted."""
    chosen = sorted(flag_variables(variables, framework).items())
    return [flags_of({name: value}, framework) for name, value in chosen]


def variables_along(variables: Mapping[str, str], framework: str) -> dict[str, str]:
    """The caller's variables that must have the same value on every node."""
    return {**flag_variables(variables, framework), **{name: variables[name] for name in _PORTS if name in variables}}
