"""The shares of one job that run on the other nodes, as the supervisor on the first node sees them."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.judging.failure_class import FailureClass
from helpers.launch.launchers.launcher import Place
from helpers.launch.nodes.link import NodeLink
from helpers.launch.nodes.wire import Frame
from helpers.machine.watch import Norm
from helpers.machine.watch.contention import ContentionSample, ForeignProcess
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec, finite

# An agent that is so much later than the grace may hang, so its job is ended without it.
_LATE_SECONDS = 2.0
# After a second interrupt: how long to wait for a node that does not answer. It ends its job by itself.
_AT_ONCE_SECONDS = 3.0
_MOST_NAMED = 3

# Ends what a lost agent left of a job: the link, the job's id, the grace in seconds.
EndLost = Callable[[NodeLink, str, float], None]
# What more is known of a lost agent's end: the class, if it is known, and a text.
ExplainLost = Callable[[NodeLink], tuple[FailureClass | None, str]]


@dataclass(frozen=True)
class Lost:
    """A node that no longer answers, or that could not go on with its share of the job."""

    reason: str
    # The node's first rank.
    rank: int


@dataclass
class Share:
    """One node's share of a job."""

    link: NodeLink
    spec: JobSpec
    place: Place
    # The files that the node may write on this node, by the names that it sends.
    files: Mapping[str, Path]
    grace_seconds: float
    # At which clocks and power limits the node's cards should run; with None nothing is compared.
    norm: Norm | None = None
    started: bool = False
    # Why the share cannot go on, according to its agent or this node's disk.
    refused: str = ""
    # The frame with which the share ended.
    over: Frame | None = None
    contention: ContentionSample | None = None
    # Ranks whose process ended before its log had a footer.
    gone: set[int] = field(default_factory=set)

    @property
    def ranks(self) -> range:
        return self.spec.ranks_of_node(self.place.node)

    @property
    def settled(self) -> bool:
        return not self.started or bool(self.refused) or self.over is not None or self.link.lost is not None

    @property
    def loss(self) -> str:
        """Why this node cannot go on with the job; empty while it can."""
        if self.refused:
            return f"node {self.link.name}: {self.refused}"
        if self.over is None and self.link.lost is not None:
            return f"node {self.link.name} was lost: {self.link.lost}"
        if self.over is not None and self.over["code"] is None:
            # Nobody here has asked for an end yet: a signal ended the agent, and it has ended its share.
            return f"node {self.link.name} was lost: its agent was ended by a signal"
        return ""

    def start(self) -> None:
        if self.link.lost is not None:
            raise self.link.refusal()
        for path in self.files.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        self.started = True
        self.link.expect_frames()
        norm = None if self.norm is None else self.norm.to_mapping()
        self.link.send(
            "job", spec=self.spec.to_json(), place=asdict(self.place), grace_seconds=self.grace_seconds, norm=norm
        )

    def receive(self, timeout_seconds: float) -> None:
        for frame in self.link.receive(timeout_seconds):
            try:
                self._take(frame)
            except (LaunchError, OSError, ValueError) as error:
                self.refused = self.refused or str(error)

    def _take(self, frame: Frame) -> None:
        kind = frame["kind"]
        if kind == "file" and frame["name"] in self.files:
            data = b64decode(frame["data"], validate=True)
            with self.files[frame["name"]].open("ab") as file:
                file.write(data)
        elif kind == "gone" and frame["rank"] in self.ranks:
            self.gone.add(frame["rank"])
        elif kind == "over" and self.over is None:
            self.contention = contention_from(frame["contention"])
            self.over = frame
        elif kind == "error":
            raise LaunchError(frame["text"])
        elif kind != "waiting":
            shown = {name: str(value)[:60] for name, value in frame.items()}
            raise LaunchError("its agent", got=shown, expected="a file of this job and node, or its end")


class OtherNodes:
    """All nodes of a job except the first; none for a job of one node. ``look`` copies their files into the run folder;
    the properties are as of the last ``look``.

    A node that sends anything invalid counts as lost.
    """

    def __init__(
        self,
        shares: Sequence[Share] = (),
        end_lost: EndLost | None = None,
        explain_lost: ExplainLost = lambda link: (None, ""),
    ) -> None:
        self._shares = shares
        self._end_lost = end_lost
        self._explain_lost = explain_lost

    def start(self) -> None:
        """Start every node's share of the job."""
        for share in self._shares:
            share.start()

    def look(self) -> None:
        for share in self._shares:
            share.receive(0.0)
            if share.over is None:
                share.link.keep_in_touch()

    @property
    def exit_code(self) -> int | None:
        """The first exit code of a node's launcher that is not 0; 0 if all have ended with 0; None while any still
        runs."""
        codes = [share.over["code"] for share in self._shares if share.over is not None]
        bad = [code for code in codes if code]
        return bad[0] if bad else 0 if codes.count(0) == len(self._shares) else None

    @property
    def over(self) -> bool:
        """Whether no process of the job runs on any of them."""
        return all(share.over is not None and not share.refused for share in self._shares)

    @property
    def lost(self) -> Lost | None:
        return next((Lost(share.loss, share.ranks[0]) for share in self._shares if share.loss), None)

    @property
    def gone(self) -> Collection[int]:
        """Ranks whose process ended before it wrote its log's footer."""
        return {rank for share in self._shares for rank in share.gone}

    def ask_to_end(self) -> None:
        for share in self._shares:
            if share.started and share.over is None:
                share.link.send("end")

    def wait_for_end(self, grace_seconds: float, at_once: Callable[[], bool] = lambda: False) -> str:
        """Wait for the nodes to end their shares. Returns in words what may still run and where; empty if nothing does.

        ``at_once`` is called repeatedly; when it returns True, the nodes have no more grace.
        """
        deadline, hurried = time.monotonic() + grace_seconds + _LATE_SECONDS, False
        while not all(share.settled for share in self._shares) and time.monotonic() < deadline:
            if not hurried and at_once():
                # A second request makes an agent end the job without grace.
                hurried, deadline = True, time.monotonic() + _AT_ONCE_SECONDS
                self.ask_to_end()
            for share in self._shares:
                share.receive(0.05)
        return "; ".join(filter(None, (self._left(share, grace_seconds, hurried) for share in self._shares)))

    def contention(self, own: ContentionSample) -> ContentionSample:
        """The worst contention of this node (``own``) and the others, each by its own host's clock."""
        return merged(own, {share.link.host.name: share.contention for share in self._shares if share.contention})

    def unhealthy(self) -> tuple[str, ...]:
        overs = [(share.link.host.name, share.over) for share in self._shares if share.over is not None]
        return tuple(f"{name}: {reason}" for name, over in overs for reason in over["unhealthy"])

    def facts(self) -> tuple[Mapping[str, str], ...]:
        """The facts of each node's own window, in node order; empty for a node whose share has not ended."""
        return tuple(share.over["facts"] if share.over is not None else {} for share in self._shares)

    def explained(self, rank: int | None) -> tuple[FailureClass | None, str]:
        """The class, if it is known, and a text on the loss of the node of ``rank``, after its share has ended."""
        lost = (share.link for share in self._shares if rank in share.ranks and share.link.lost is not None)
        return next(map(self._explain_lost, lost), (None, ""))

    def oom_evidence(self, rank: int) -> tuple[bool, str] | None:
        """Whether the kernel ended processes for want of memory on the node of ``rank``, and a text about it; None if
        that is not one of these nodes, or its share has not ended."""
        overs = (share.over for share in self._shares if rank in share.ranks)
        return next(((over["oom"], over["oom_text"]) for over in overs if over is not None), None)

    def _left(self, share: Share, grace_seconds: float, hurried: bool) -> str:
        """In words, what may still run of this share; empty if nothing. If the node's agent is lost, its job
        is ended without it."""
        about = f"node {share.link.name}"
        if not share.started or self._end_lost is None:
            return ""
        if share.over is not None:
            return f"{about}: {share.over['left']}" if share.over["left"] else ""
        if hurried:
            return f"{about} may still run the job for a moment: its agent and its guard end it"
        try:
            self._end_lost(share.link, share.spec.job_id, grace_seconds)
        except LaunchError as error:
            return f"{about} may still run the job: {error.got or error}"
        return ""


def contention_from(record: dict[str, Any]) -> ContentionSample:
    """The contention in an ``over`` frame. Raises LaunchError if the record is invalid."""
    try:
        sample = ContentionSample(**{**record, "top": tuple(ForeignProcess(*each) for each in record["top"])})
    except (TypeError, KeyError) as error:
        raise LaunchError("contention of a node", got=record, expected="a sample of a meter") from error
    amounts = [sample.window_seconds, sample.steal_seconds, sample.unnamed_seconds, sample.waited_seconds]
    amounts += [sample.runnable, *(each.seconds for each in sample.top)]
    share = sample.foreign_share
    if not all(finite(each) and each >= 0 for each in [*amounts, *([] if share is None else [share])]):
        raise LaunchError("contention of a node", got=record, expected="amounts that are finite and not negative")
    return sample


def merged(own: ContentionSample, theirs: Mapping[str, ContentionSample]) -> ContentionSample:
    """The contention of all nodes together: the largest foreign share. If one node did not measure its share, the whole
    is not measured."""
    for name, each in theirs.items():
        if each.foreign_share is None and own.foreign_share is not None:
            own = replace(own, foreign_share=None, note=f"on {name}: {each.note}")
    if own.foreign_share is None or not theirs:
        return own
    named = [(each, name) for name, sample in theirs.items() for each in sample.top]
    top = [*own.top, *(each._replace(name=f"{each.name} on {name}") for each, name in named)]
    on_worst = max(theirs, key=lambda name: theirs[name].foreign_share or 0.0)
    elsewhere = (theirs[on_worst].foreign_share or 0.0) > own.foreign_share
    return ContentionSample(
        of=theirs[on_worst].of if elsewhere else own.of,
        foreign_share=max(own.foreign_share, *(each.foreign_share or 0.0 for each in theirs.values())),
        top=tuple(sorted(top, key=lambda each: -each.seconds)[:_MOST_NAMED]),
        window_seconds=max(own.window_seconds, *(each.window_seconds for each in theirs.values())),
        steal_seconds=own.steal_seconds + sum(each.steal_seconds for each in theirs.values()),
        more=own.more,
        unnamed_seconds=own.unnamed_seconds + sum(each.unnamed_seconds for each in theirs.values()),
        unnamed=next((each.unnamed for each in (own, *theirs.values()) if each.unnamed), ""),
        waited_seconds=own.waited_seconds + sum(each.waited_seconds for each in theirs.values()),
    )
