"""What the first node takes from another, and what it refuses."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from helpers.launch.launchers.launcher import Place
from helpers.launch.nodes.link import NodeLink
from helpers.launch.nodes.others import EndLost, OtherNodes, Share
from helpers.launch.nodes.wire import Frame, FrameReader, encode
from helpers.machine.watch.contention import ContentionSample, ForeignProcess
from helpers.plan.perf_yaml import HostConfig
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch.link_stand_in import LinkStandIn

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs8-2x2-synthetic-dynamic")
HOST = HostConfig("n1", "10.0.0.2")
PLACE = Place(1, 2, "10.0.0.2", "10.0.0.1:1")
OOM = {"oom": True, "oom_text": "the kernel's OOM killer was at work (oom_kill +1)"}
FACTS = {"sm_clock_mhz": "1290 1305"}
QUIET = asdict(ContentionSample(0.01, (ForeignProcess("sshd", 7, 0.1),), 2.0))


def end_none(link: NodeLink, job_id: str, grace_seconds: float) -> None:
    return


def others(
    folder: Path, *said: Frame, name: str = "rank2.jsonl", end_lost: EndLost = end_none
) -> tuple[OtherNodes, LinkStandIn]:
    link = LinkStandIn(HOST, 1, said)
    spec = JobSpec("j", CASE, 0, str(folder), "cpu", 1, 2)
    files = {name: folder / "node1" / name}
    found = OtherNodes([Share(link, spec, PLACE, files, 0.5)], end_lost)
    found.start()
    return found, link


def frame(kind: str, **values: Any) -> Frame:
    """As it comes off the wire."""
    return FrameReader("node n1").feed(encode(kind, **values))[0]


def over(code: int | None = 0, **contention: Any) -> Frame:
    return frame(
        "over", code=code, left="", contention={**QUIET, **contention}, unhealthy=["GPU-1: hot"], facts=FACTS, **OOM
    )


def test_a_nodes_files_its_missing_ranks_and_its_end_are_taken(tmp_path: Path) -> None:
    found, _ = others(
        tmp_path,
        frame("file", name="rank2.jsonl", data="YQ=="),
        frame("file", name="rank2.jsonl", data="Yv8="),
        frame("gone", rank=3),
        over(),
    )
    found.look()
    assert (tmp_path / "node1" / "rank2.jsonl").read_bytes() == b"ab\xff"
    assert (set(found.gone), found.over, found.exit_code, found.lost) == ({3}, True, 0, None)
    assert found.unhealthy() == ("n1: GPU-1: hot",)
    assert (found.oom_evidence(3), found.oom_evidence(0)) == (tuple(OOM.values()), None)
    assert found.facts() == (FACTS,)
    assert found.contention(ContentionSample(0.0, window_seconds=1.0)).foreign_share == 0.01


@pytest.mark.parametrize(
    "rubbish",
    [
        frame("file", name="../../../.bashrc", data="eA=="),
        frame("file", name="rank0.jsonl", data="eA=="),
        frame("file", name="rank2.jsonl", data="€"),
        frame("gone", rank=0),
        frame("swept"),
        over(foreign_share=-1),
        over(foreign_share="none"),
        over(top=[["sshd"]]),
        over(surprise=1),
        frame("over", code=0, left="", contention={}, unhealthy=[], facts={}, **OOM),
    ],
    ids=lambda rubbish: str(rubbish)[:60],
)
def test_what_no_node_of_this_job_says_is_its_loss_and_nothing_is_written(tmp_path: Path, rubbish: Frame) -> None:
    found, _ = others(tmp_path, rubbish)
    found.look()
    assert found.lost is not None
    assert found.lost.reason.startswith("node n1 (10.0.0.2): ")
    assert found.lost.rank == 2
    assert not found.over
    assert [path.name for path in tmp_path.rglob("*")] == ["node1"]


def test_a_second_end_does_not_change_the_first(tmp_path: Path) -> None:
    found, _ = others(tmp_path, over(code=1), over(code=0))
    found.look()
    assert (found.exit_code, found.over) == (1, False)
    assert found.lost is not None


def test_an_agent_that_breaks_the_job_off_is_not_waited_for(tmp_path: Path) -> None:
    swept: list[str] = []
    found, link = others(
        tmp_path, frame("error", text="no /tmp"), end_lost=lambda link, job_id, grace: swept.append(job_id)
    )
    found.look()
    assert found.lost is not None and found.lost.reason == "node n1 (10.0.0.2): no /tmp"
    found.ask_to_end()
    assert link.told[-1]["kind"] == "end"
    assert found.wait_for_end(1000.0) == ""
    assert swept == ["j"]


def test_an_agent_that_a_signal_ends_is_a_lost_node(tmp_path: Path) -> None:
    found, _ = others(tmp_path, over(code=None))
    found.look()
    assert found.lost is not None
    assert found.lost.reason == "node n1 (10.0.0.2) was lost: its agent was ended by a signal"


def test_a_full_disk_here_ends_the_job_and_says_so(tmp_path: Path) -> None:
    found, _ = others(tmp_path, frame("file", name="rank2.jsonl", data="eA=="))
    (tmp_path / "node1" / "rank2.jsonl").symlink_to("/dev/full")
    found.look()
    assert found.lost is not None and "No space left on device" in found.lost.reason


def test_an_agent_that_had_nothing_to_say_for_long_is_not_lost_when_the_job_starts(tmp_path: Path) -> None:
    now = [0.0]
    link = NodeLink(HOST, 1, ("cat",), clock=lambda: now[0])
    spec = JobSpec("j", CASE, 0, str(tmp_path), "cpu", 1, 2)
    found = OtherNodes([Share(link, spec, PLACE, {}, 0.5)], end_none)
    now[0] = 300.0
    found.start()
    link.keep_in_touch()
    assert link.lost is None
    link.close()


def test_what_makes_no_sense_is_the_links_loss(tmp_path: Path) -> None:
    link = NodeLink(HOST, 1, ("echo", "perfgate-node {"))
    while link.lost is None:
        assert link.receive(1.0) == []
    assert "its agent: got" in link.lost
    link.close()
