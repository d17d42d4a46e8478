"""``perfgate fleet``: what is planned, what the report says, and two nodes of a real Slurm with a double in the
trainer's place."""

from __future__ import annotations

import json
import math
import re
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands.fleets.array import SlurmNode, WatchedArray, chosen_nodes, is_here, wait_for_array
from helpers.commands.fleets.text import hostlist
from helpers.commands.main import main
from helpers.commands.submission.waiting import Patience
from helpers.history import default_url, open_history
from helpers.history.stored import session_of_node
from helpers.trainers.contract.errors import ConfigError, LaunchError
from tests.faults.workshop import ONE_CARD, Workshop
from tests.helpers.commands.submitted import Submitted
from tests.helpers.history.made import BUILD, ENVIRONMENT
from tests.helpers.history.made import run as made_run
from tests.slurm_cluster import SlurmCluster

FLEET, EARLIER = "fleet-20261122-020000-abcd", "fleet-20261115-020000-abcd"
CASES = ("paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic", "paddle-vgg16-fp32-bs1-1x1-synthetic-dynamic")
NODES = [f"n{number:02}" for number in range(12)]
Rates = Mapping[str, Mapping[str, Sequence[float]]]

SLOW_NODE = """
import os
import sys

def at_step(spec, rank, phase, number):
    if os.environ.get("SLURMD_NODENAME") == "n1":
        sys.modules["__main__"].STEP_SECONDS = 0.06
"""


# ---- the report


def rates(slow: Mapping[str, float] = {}) -> dict[str, dict[str, list[float]]]:
    rng = np.random.default_rng(7)
    return {
        node: {
            case: [float(6 + math.log1p(slow.get(node, 0.0)) + each) for each in rng.normal(0, 0.002, 4)]
            for case in CASES
        }
        for node in NODES
    }


def keep(folder: Path, fleet: str, made: Rates, day: str, drivers: Mapping[str, str] = {}) -> None:
    """Write a fleet's runs into the history of ``folder``."""
    with open_history(default_url(folder)) as history:
        for node, cases in made.items():
            history.add_results(
                [
                    made_run(
                        uuid.uuid4().hex,
                        rate,
                        session_of_node(fleet, node),
                        case_id=case,
                        replicate=number,
                        created=f"{day}T02:0{number}:00+00:00",
                        environment={**ENVIRONMENT, "host": node, "driver": drivers.get(node, "550")},
                    )
                    for case, found in cases.items()
                    for number, rate in enumerate(found)
                ]
            )


def asked(folder: Path, nodes: Mapping[str, str]) -> None:
    (folder / "slurm").mkdir()
    record = {"schema_version": 1, "fleet": FLEET, "cases": [], "runs": 4, "nodes": dict(nodes)}
    (folder / "slurm" / f"{FLEET}.json").write_text(json.dumps(record))


def report(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    status = main(["fleet", "--report", f"--runs-dir={folder}", *options])
    return status, capsys.readouterr().out


def test_the_report_names_the_slow_node_since_when_and_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, EARLIER, rates(), "2026-11-15")
    keep(tmp_path, FLEET, rates({"n03": -0.2}), "2026-11-22", {"n03": "535"})
    status, text = report(tmp_path, capsys)
    assert status == 1
    assert text.startswith("1 of 12 nodes is slow beyond chance: n03 (-20.")
    assert re.search(r"^n03 +SLOW +-20\.\d+% .* 2026-11-22 \(2026-11-15: [+-]0\.\d%\) ", text, re.MULTILINE)
    assert "n03: driver is 535; 11 of 11 others have 550" in text
    assert "They may share a baseline: n[00-02,04-11]" in " ".join(text.split())
    assert '    host: "n[0-9]*"  # also means n03, which should not take part' in text
    drain = f"scontrol update NodeName=n03 State=DRAIN 'Reason=perfgate {FLEET}: -20."
    assert drain in text


def test_a_healthy_fleet_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, FLEET, rates(), "2026-11-22")
    asked(tmp_path, dict.fromkeys(NODES, ""))
    status, text = report(tmp_path, capsys)
    assert status == 0
    assert text.startswith("none of 12 nodes is slow beyond chance\n")


def test_without_the_list_of_nodes_that_were_asked_no_fleet_is_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, FLEET, rates(), "2026-11-22")
    status, text = report(tmp_path, capsys)
    assert status == 6
    assert "which nodes were asked is not known here" in " ".join(text.split())


def test_a_fleet_that_is_still_at_work_is_not_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = {node: {case: found[:2] for case, found in cases.items()} for node, cases in rates().items()}
    keep(tmp_path, FLEET, half, "2026-11-22")
    asked(tmp_path, dict.fromkeys(NODES, ""))
    status, text = report(tmp_path, capsys)
    assert status == 6
    assert "12 nodes measured in part" in " ".join(text.split()) and "Equal nodes" not in text


@pytest.mark.parametrize("said", ["Slurm ended the job: NODE_FAIL", ""])
def test_a_node_that_crashed_after_some_runs_is_not_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    made = rates()
    made["n05"][CASES[1]] = made["n05"][CASES[1]][:2]
    keep(tmp_path, FLEET, made, "2026-11-22")
    asked(tmp_path, {**dict.fromkeys(NODES, ""), "n05": said})
    status, text = report(tmp_path, capsys)
    assert status == 6
    assert f"n05: {CASES[1]}: 2 of 4 runs{f' ({said})' if said else ''}" in " ".join(text.split())
    assert "They may share a baseline: n[00-04,06-11]" in " ".join(text.split())


def test_nodes_and_cases_that_were_not_measured_are_said_and_not_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = rates()
    del made["n05"]
    del made["n06"][CASES[1]]
    keep(tmp_path, FLEET, made, "2026-11-22")
    asked(tmp_path, {**dict.fromkeys(NODES, ""), "n05": "Slurm ended the job: NODE_FAIL"})
    status, text = report(tmp_path, capsys)
    assert status == 6
    first = "none of 11 nodes is slow beyond chance; 1 node not measured; 1 node measured in part "
    assert " ".join(text.split()).startswith(first)
    assert "n05: Slurm ended the job: NODE_FAIL" in text
    assert f"n06: {CASES[1]}: no run of it" in text
    assert "They may share a baseline: n[00-04,07-11]" in " ".join(text.split())
    assert '    host: "n[0-9]*"  # also means n[05-06], which should not take part' in text


def test_a_run_of_another_build_is_not_held_against_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, FLEET, {node: cases for node, cases in rates().items() if node != "n02"}, "2026-11-22")
    other = made_run("a" * 32, 6.0, session_of_node(FLEET, "n02"), case_id=CASES[0], build={**BUILD, "version": "9.9"})
    with open_history(default_url(tmp_path)) as history:
        history.add_result(other)
    status, text = report(tmp_path, capsys)
    assert status == 6
    assert "n02: another build, paddle 9.9" in " ".join(text.split())


def test_few_nodes_are_not_judged_without_a_stated_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = rates({"n01": -0.1})
    keep(tmp_path, FLEET, {node: made[node] for node in NODES[:2]}, "2026-11-22")
    status, text = report(tmp_path, capsys)
    assert status == 6
    assert "2 nodes were measured: fewer than 8 do not show how far healthy nodes are apart" in " ".join(text.split())
    assert report(tmp_path, capsys, "--spread=1%")[0] == 1


def test_the_report_as_json_and_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, FLEET, rates({"n03": -0.2}), "2026-11-22")
    record = json.loads(report(tmp_path, capsys, "--json")[1])
    assert record["nodes"][0]["node"] == "n03" and record["nodes"][0]["slow"]
    assert record["nodes"][0]["shift"] == pytest.approx(-0.2, abs=0.01)
    assert len(record["nodes"]) == 12 and record["since"]["n03"]["fleets"] == 1
    text = report(tmp_path, capsys, "--markdown")[1]
    assert text.startswith("**1 of 12 nodes is slow beyond chance: n03")
    assert "```\nscontrol update NodeName=n03 State=DRAIN" in text


def test_without_a_fleet_there_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_history(default_url(tmp_path)).close()
    assert main(["fleet", "--report", f"--runs-dir={tmp_path}"]) == 4
    assert "a history without a fleet" in capsys.readouterr().err


def test_names_of_nodes_are_written_as_slurm_writes_them() -> None:
    assert hostlist(["n01", "n02", "n03", "n07", "m1", "login"]) == "m1,n[01-03,07],login"


# ---- nodes and tasks


SHOWN = """NodeName=n0 Arch=x86_64 NodeAddr=127.0.0.2 NodeHostName=h State=IDLE Partitions=perf
NodeName=n1 Arch=x86_64 NodeAddr=127.0.0.3 NodeHostName=h State=IDLE+DRAIN Partitions=perf Reason=fan failure [root@x]
NodeName=m0 Arch=x86_64 NodeAddr=192.0.2.1 NodeHostName=m State=DOWN* Partitions=other,perf
NodeName=m1 Arch=x86_64 NodeAddr=192.0.2.3 NodeHostName=m State=IDLE+POWERED_DOWN Partitions=perf
NodeName=z0 Arch=x86_64 NodeAddr=192.0.2.2 NodeHostName=m State=IDLE Partitions=other"""


def answered(*words: str, seconds: float = 0) -> str:
    return "n0\nzz\n" if "hostnames" in words else SHOWN


def test_nodes_are_those_of_the_partition_that_the_pattern_means() -> None:
    found = chosen_nodes("n*", "perf", answered)
    assert [(each.name, each.problem) for each in found] == [
        ("n0", ""),
        ("n1", "Slurm says IDLE+DRAIN (fan failure)"),
    ]
    assert [each.problem for each in chosen_nodes("m?", "perf", answered)] == ["Slurm says DOWN*", ""]


def test_a_fleet_of_nodes_that_take_no_job_has_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    down = SlurmNode("n0", "127.0.0.2", "DOWN*", "no answer")
    monkeypatch.setattr("helpers.commands.fleet.chosen_nodes", lambda pattern, partition: (down,))
    assert main(["fleet", "--nodes=n0", "*-1x1-*", "--dry-run", "--time=9", f"--runs-dir={tmp_path}"]) == 4
    printed = capsys.readouterr()
    assert printed.out == "" and "none of which takes a job" in printed.err and "DOWN* (no answer)" in printed.err


@pytest.mark.parametrize(
    ("pattern", "told"), [("z*", "got 'z.'"), ("n[0,zz]", "got 'zz', expected nodes of partition")]
)
def test_a_pattern_without_a_node_is_refused(pattern: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told.replace("'z.'", r"'z\*'")):
        chosen_nodes(pattern, "perf", answered)


def test_an_address_of_this_machine_is_here() -> None:
    assert is_here("127.0.0.3") and not is_here("192.0.2.1") and not is_here("no such host.invalid")


def line(task: int, state: str, **fields: str) -> str:
    given = {
        "Reason": "None",
        "NodeList": "",
        "ExitCode": "0:0",
        "RunTime": "00:00:01",
        "TimeLimit": "01:00:00",
        **fields,
    }
    return f"JobId={70 + task} ArrayJobId=7 ArrayTaskId={task} JobState={state} " + " ".join(
        f"{name}={value}" for name, value in given.items()
    )


class Slurm:
    """Answers in turn; the clock goes on by 10 s with each sleep."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.now = 0.0
        self.told: list[str] = []
        self.cancelled: list[str] = []
        # How often scancel fails before it succeeds.
        self.refusals = 0
        # Whether the wait ended with the array.
        self.over = False

    def ask(self, *words: str, seconds: float = 0) -> str:
        if words[0] == "scancel" and self.refusals:
            self.refusals -= 1
            raise LaunchError("scancel", got="Unable to contact slurm controller", expected="an answer")
        if words[0] == "scancel":
            self.cancelled += words[1:]
            return ""
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if found.startswith("error:"):
            raise LaunchError("scontrol", got=found, expected="an answer")
        return found

    def sleep(self, seconds: float) -> None:
        self.now += 10.0

    def wait(self, nodes: Sequence[str], most: float | None = None) -> WatchedArray:
        array = WatchedArray("7", nodes)
        patience = Patience(30.0, lambda: self.now)
        self.over = wait_for_array(
            array, self.told.append, patience, most, ask=self.ask, sleep=self.sleep, clock=lambda: self.now
        )
        return array


def test_the_wait_tells_how_many_tasks_run_and_which_ended_badly() -> None:
    slurm = Slurm(
        f"{line(0, 'RUNNING')}\n{line(1, 'PENDING', Reason='Resources')}",
        "error: Unable to contact slurm controller",
        f"{line(0, 'COMPLETED')}\n{line(1, 'NODE_FAIL')}",
    )
    array = slurm.wait(["n0", "n1"])
    assert slurm.told[0] == "job 7: 1 waiting, 1 running"
    assert "Slurm does not answer" in slurm.told[1]
    assert slurm.told[2:] == ["job 7: 2 ended", "n1: Slurm ended the job: NODE_FAIL"]
    assert [array.problem(task, "log") for task in (0, 1)] == ["", "Slurm ended the job: NODE_FAIL"]


def test_a_command_that_failed_is_named_with_its_log() -> None:
    array = Slurm(line(0, "FAILED", ExitCode="6:0")).wait(["n0"])
    assert array.problem(0, "x.log.0") == "its command ended with 6 (x.log.0)"


@pytest.mark.parametrize(
    "reason", ["ReqNodeNotAvail,_UnavailableNodes:n1", "launch_failed_requeued_held", "JobHoldMaxRequeue"]
)
def test_a_task_whose_node_is_lost_is_given_up_and_the_others_go_on(reason: str) -> None:
    gone = line(1, "PENDING", Reason=reason)
    slurm = Slurm(*[f"{line(0, 'RUNNING')}\n{gone}"] * 8, f"{line(0, 'COMPLETED')}\n{line(1, 'CANCELLED')}")
    array = slurm.wait(["n0", "n1"])
    assert slurm.cancelled == ["7_1"] and slurm.now >= 60.0
    assert array.problem(1, "log") == f"Slurm calls the node unavailable ({reason})"


def test_a_task_that_slurm_does_not_cancel_is_cancelled_later_and_the_wait_goes_on() -> None:
    slurm = Slurm(*[line(0, "PENDING", Reason="NodeDown")] * 9, line(0, "CANCELLED"))
    slurm.refusals = 1
    slurm.wait(["n0"])
    assert slurm.cancelled == ["7_0"]
    assert any("it is asked again" in told for told in slurm.told)


def test_slurm_is_waited_for_only_so_long() -> None:
    slurm = Slurm(
        line(0, "RUNNING"), "error: Unable to contact slurm controller", line(0, "RUNNING"), "error: timed out"
    )
    array = slurm.wait(["n0"])
    # 30 minutes after the last answer: one that came in between began the wait again.
    assert (slurm.over, array.is_over, slurm.now) == (False, False, 30.0 + 60.0 * 30)


def test_a_node_that_does_not_begin_in_time_is_given_up() -> None:
    waiting = line(0, "PENDING", Reason="Resources")
    slurm = Slurm(*[waiting] * 4, line(0, "CANCELLED"))
    assert "had not begun after 0 min (--wait" in slurm.wait(["n0"], 20.0).problem(0, "log")


def test_a_task_that_slurm_forgot_is_lost_only_if_it_had_not_ended() -> None:
    slurm = Slurm(f"{line(0, 'COMPLETED')}\n{line(1, 'RUNNING')}", "error: Invalid job id specified")
    array = slurm.wait(["n0", "n1"])
    assert array.problem(0, "log") == ""
    assert "nobody knows how the job ended" in array.problem(1, "log")


# ---- a real Slurm


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with Workshop(tmp_path) as found:
        found.configure(lambda config: config.update(clusters={"c": {"target": "cpu", "partition": "perf"}}))
        (tmp_path / "fault.py").touch()
        yield found


def fleet(slurm: SlurmCluster, workshop: Workshop, *options: str) -> Submitted:
    folder = workshop.folder
    return Submitted(
        slurm,
        workshop,
        [
            *("fleet", "--nodes=n[0-1]", ONE_CARD, "--allow-contention", "--time=30", "--spread=1%"),
            *(f"--config={folder / 'perf.yaml'}", f"--baselines={folder / 'baselines'}"),
            *(f"--runs-dir={folder / 'runs'}", f"--json={folder / 'fleet.json'}", *options),
        ],
    )


def answer(workshop: Workshop) -> dict[str, Any]:
    return dict(json.loads((workshop.folder / "fleet.json").read_text()))


@pytest.mark.slow
def test_the_script_pins_each_task_to_its_node(
    slurm: SlurmCluster, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.variables[name])
    folder = workshop.folder
    argv = ["fleet", "--nodes=n*", ONE_CARD, "--dry-run", "--time=9", "--runs=5", f"--config={folder / 'perf.yaml'}"]
    argv += [f"--baselines={folder / 'baselines'}", f"--runs-dir={folder / 'runs'}"]
    assert main(argv) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --array=0-1\n#SBATCH --hold\n" in script and "#SBATCH --nodes=1\n" in script
    assert "\nset -- n0 n1\n" in script
    assert re.search(rf' calibrate "\$@" .*--runs=5 --target=cpu {ONE_CARD}\n', script)
    assert "# scontrol update JobId=JOB_1 ReqNodeList=n1\n# scontrol release JOB\n" in script
    monkeypatch.setattr("helpers.commands.fleet.is_here", lambda address: address != "127.0.0.3")
    assert main(argv) == 4
    assert "a file of SQLite, and nodes on other machines (n1)" in capsys.readouterr().err


@pytest.mark.slow
def test_the_slow_one_of_two_nodes_is_found(slurm: SlurmCluster, workshop: Workshop) -> None:
    (workshop.folder / "fault.py").write_text(SLOW_NODE)
    found = fleet(slurm, workshop)
    assert found.ended(240.0) == 1, found.text
    assert "1 of 2 nodes is slow beyond chance: n1 (-16.7%)" in found.text
    assert "scontrol update NodeName=n1 State=DRAIN" in found.text
    assert [(each["node"], each["runs"]) for each in answer(workshop)["nodes"]] == [("n1", 4), ("n0", 4)]
    # Each node's session was made by a task on that node.
    assert {path.name.partition(".")[2] for path in (workshop.folder / "runs").glob("fleet-*.n?")} == {"n0", "n1"}
    assert found.nothing_left()


@pytest.mark.slow
def test_a_node_whose_task_was_ended_is_said(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = fleet(slurm, workshop)
    found.wait_for(lambda: found.steps() >= 1)
    tasks = dict(row.split() for row in slurm.command("squeue", "--noheader", "--array", "--format=%N %i").splitlines())
    slurm.command("scancel", tasks["n1"])
    assert found.ended(240.0) == 6, found.text
    assert answer(workshop)["not_measured"].keys() == {"n1"}
    assert "Slurm ended the job: CANCELLED" in answer(workshop)["not_measured"]["n1"]
    assert found.nothing_left()


@pytest.mark.slow
def test_cancelling_ends_all_tasks(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = fleet(slurm, workshop)
    found.wait_for(lambda: found.steps() >= 1)
    found.process.send_signal(signal.SIGINT)
    assert found.ended() == 130, found.text
    assert found.nothing_left()
