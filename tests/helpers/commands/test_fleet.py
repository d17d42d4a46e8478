"""``perfgate fleet``: what is planned, the answer, and two nodes of a real Slurm with a double as the trainer."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands.main import main
from helpers.history import default_url, open_history
from helpers.launch.slurm.nodes import SlurmNode, nodes_of
from helpers.trainers.contract.errors import ConfigError
from tests.faults.workshop import ONE_CARD, Workshop
from tests.helpers.commands.submitted import Submitted
from tests.helpers.commands.test_submit import with_gate
from tests.helpers.history.made import run as made_run
from tests.slurm_cluster import SlurmCluster

FLEET = "fleet-20261122-020000Z-abcd"
CASES = ("paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic", "paddle-vgg16-fp32-bs1-1x1-synthetic-dynamic")
NODES = tuple(f"n{number:02}" for number in range(12))
Rates = dict[str, dict[str, list[float]]]

SLOW_NODE = """
import os
import sys

def at_step(spec, rank, phase, number):
    if os.environ.get("SLURMD_NODENAME") == "n1":
        sys.modules["__main__"].STEP_SECONDS = 0.06
"""


# ---- the answer


def rates(slow: Mapping[str, float] = {}) -> Rates:
    rng = np.random.default_rng(7)
    return {
        node: {
            case: [float(6 + math.log1p(slow.get(node, 0.0)) + each) for each in rng.normal(0, 0.002, 4)]
            for case in CASES
        }
        for node in NODES
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs folder of a fleet of NODES, as Slurm lists them."""
    found = tuple(SlurmNode(node, "127.0.0.1", "IDLE") for node in NODES)
    monkeypatch.setattr("helpers.commands.fleet.nodes_of", lambda listed, partition: found)
    return tmp_path


def keep(folder: Path, made: Rates, **given: Any) -> None:
    """Write a fleet's runs into the history of ``folder``."""
    results = [
        made_run(uuid.uuid4().hex, rate, f"{FLEET}.{node}", case_id=case, replicate=number, **given)
        for node, cases in made.items()
        for case, found in cases.items()
        for number, rate in enumerate(found)
    ]
    with open_history(default_url(folder)) as history:
        history.add_results(results)


def report(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    words = ["fleet", f"--report={FLEET}", *options, "--", f"--runs-dir={folder}", f"--output={folder / 'gate'}"]
    return main(words), capsys.readouterr().out


def answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status, text = report(folder, capsys, "--json")
    return status, json.loads(text)


@pytest.mark.slow
def test_the_slow_node_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(folder, rates({"n03": -0.2}))
    status, text = report(folder, capsys)
    assert status == 1
    assert text.startswith("1 of 12 nodes is slow beyond chance: n03 (-20.")
    status, record = answer(folder, capsys)
    assert (status, record["fleet"], record["missing"]) == (1, FLEET, {})
    assert [each["node"] for each in record["nodes"] if each["slow"]] == ["n03"] and len(record["nodes"]) == 12
    assert record["nodes"][0]["shift"] == pytest.approx(-0.2, abs=0.01)


@pytest.mark.slow
def test_a_healthy_fleet_ends_with_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(folder, rates())
    status, text = report(folder, capsys)
    assert (status, text.splitlines()[0]) == (0, "none of 12 nodes is slow beyond chance")


@pytest.mark.slow
def test_a_node_and_a_case_without_a_figure_are_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = rates()
    del made["n05"]
    del made["n06"][CASES[1]]
    failed = {"n07": {CASES[1]: made["n07"].pop(CASES[1])}}
    keep(folder, made)
    keep(folder, failed, figures={}, failure="killed: signal 9")
    status, record = answer(folder, capsys)
    assert status == 6
    assert {node: why.count(" [") for node, why in record["missing"].items()} == {"n05": 2, "n06": 1, "n07": 1}


@pytest.mark.slow
def test_a_case_that_no_node_could_measure_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(folder, rates())
    (folder / "gate" / FLEET / "n04").mkdir(parents=True)
    gate = {"failed": [{"case_id": "other", "target": "cpu", "status": "not run"}]}
    (folder / "gate" / FLEET / "n04" / "results.json").write_text(json.dumps({"gate": gate}))
    status, record = answer(folder, capsys)
    assert status == 6 and record["missing"] == dict.fromkeys(NODES, "no figure of other [cpu]")


@pytest.mark.slow
def test_an_excluded_run_does_not_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(folder, rates())
    bad = made_run("a" * 32, 3.0, f"{FLEET}.n02", case_id=CASES[0], replicate=9)
    with open_history(default_url(folder)) as history:
        history.add_result(bad)
        history.exclude(bad.uuid, "me", "2026-11-23T00:00:00+00:00", "a fan")
    _, record = answer(folder, capsys)
    assert {each["node"]: each["runs"] for each in record["nodes"]} == dict.fromkeys(NODES, 8)


# ---- nodes and jobs


SHOWN = """NodeName=n0 Arch=x86_64 NodeAddr=127.0.0.2 NodeHostName=h State=IDLE Partitions=perf
NodeName=n1 Arch=x86_64 NodeAddr=127.0.0.3 NodeHostName=h State=IDLE+DRAIN Partitions=perf Reason=fan failure [root@x]
NodeName=m0 Arch=x86_64 NodeAddr=192.0.2.1 NodeHostName=m State=DOWN* Partitions=other,perf
NodeName=m1 Arch=x86_64 NodeAddr=192.0.2.3 NodeHostName=m State=IDLE+POWERED_DOWN Partitions=perf
NodeName=z0 Arch=x86_64 NodeAddr=192.0.2.2 NodeHostName=m State=IDLE Partitions=other"""


def shown(*words: str, seconds: float) -> str:
    return "n0\nm0\n" if words[-1] == "n0,m0" else "zz\n" if words[-1] == "zz" else SHOWN


def test_the_nodes_are_the_partition_s_or_those_of_a_list_and_some_take_no_job() -> None:
    found = nodes_of(None, "perf", shown)
    assert {each.name: each.problem for each in found} == {
        "n0": "", "n1": "Slurm says IDLE+DRAIN", "m0": "Slurm says DOWN*", "m1": "",
    }  # fmt: skip
    assert [each.is_here for each in found] == [True, True, False, False]
    assert [each.name for each in nodes_of("n0,m0", "other", shown)] == ["n0", "m0"]
    assert len(nodes_of(None, None, shown)) == 5


@pytest.mark.parametrize(("listed", "told"), [("zz", "got 'zz'"), (None, "no node in partition none")])
def test_a_node_that_slurm_lacks_is_refused(listed: str | None, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        nodes_of(listed, "none", shown)


def dry_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *found: SlurmNode, history: str = "") -> int:
    monkeypatch.setattr("helpers.commands.fleet.nodes_of", lambda listed, partition: found)
    named = [f"--history={history}"] if history else []
    return main(["fleet", "--dry-run", "--time=9", "--", f"--runs-dir={folder}", *named, "--", "-k=resnet"])


HERE, DOWN = SlurmNode("n0", "127.0.0.2", "IDLE"), SlurmNode("n1", "127.0.0.3", "DOWN*")
AWAY = SlurmNode("n2", "192.0.2.1", "IDLE")


def test_each_node_has_a_job_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry_run(tmp_path, monkeypatch, HERE, DOWN, AWAY, history="postgresql://me@db/perf") == 0
    script, said = capsys.readouterr()
    assert said == "2 jobs, one a node: n0, n2; no job: n1 (Slurm says DOWN*); fewer than 8 nodes cannot be judged\n"
    for line in ("#SBATCH --nodelist=n0", "#SBATCH --time=9", "#SBATCH --deadline=now+1449minutes"):
        assert f"{line}\n" in script
    assert re.search(r" helpers.commands gate .* --session=fleet-\S+\.n0 --output=\S+/n0 -- -k=resnet\n", script)


def test_many_nodes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry_run(tmp_path, monkeypatch, *(SlurmNode(f"n{number}", "127.0.0.1", "IDLE") for number in range(8))) == 0
    assert capsys.readouterr().err == "8 jobs, one a node: n0, n1, n2 and 5 more\n"


def test_nodes_that_take_no_job_and_a_file_of_sqlite_for_several_machines_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry_run(tmp_path, monkeypatch, DOWN) == 4
    assert "got 'Slurm says DOWN*', expected a node that takes a job" in capsys.readouterr().err
    assert dry_run(tmp_path, monkeypatch, HERE, AWAY) == 4
    told = capsys.readouterr().err
    assert told.startswith("perfgate fleet: error: field 'history': got 'a file of SQLite, and nodes on other machines")
    assert "(n2)" in told


# ---- a real Slurm


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    def change(config: dict[str, Any]) -> None:
        with_gate(config)
        config["clusters"] = {"c": {"partition": "perf", "gres": "gpu"}}

    with Workshop(tmp_path) as found:
        found.configure(change)
        (tmp_path / "fault.py").touch()
        yield found


def fleet(slurm: SlurmCluster, workshop: Workshop, *options: str) -> Submitted:
    folder = workshop.folder
    places = [f"--config={folder / 'perf.yaml'}", f"--baselines={folder / 'baselines'}"]
    of_gate = [f"--runs-dir={folder / 'runs'}", f"--output={folder / 'gate'}"]
    of_pytest = ["-k", ONE_CARD, "-p", "tests.helpers.commands.neighbours_allowed"]
    given = [*places, "--time=30", "--json", *options]
    return Submitted(slurm, workshop, ["fleet", *given, "--", *of_gate, "--", *of_pytest])


def answered(found: Submitted) -> dict[str, Any]:
    """The answer, which follows what was said while the jobs ran."""
    return dict(json.loads(found.text[found.text.index("\n{\n") :]))


@pytest.mark.slow
def test_each_node_runs_the_gate_and_all_results_are_compared(slurm: SlurmCluster, workshop: Workshop) -> None:
    (workshop.folder / "fault.py").write_text(SLOW_NODE)
    found = fleet(slurm, workshop)
    # Two nodes are too few to be judged.
    assert found.ended(240.0) == 6, found.text
    nodes = answered(found)["nodes"]
    assert [each["node"] for each in nodes] == ["n1", "n0"] and answered(found)["missing"] == {}
    # Both are compared with their middle: 16.7% lie between them.
    assert math.log1p(nodes[0]["shift"]) - math.log1p(nodes[1]["shift"]) == pytest.approx(math.log(5 / 6), abs=0.03)
    (session,) = {path.name.rpartition(".")[0] for path in (workshop.folder / "runs").glob("fleet-*.n*")}
    assert (workshop.folder / "gate" / session / "n1" / "results.json").exists()
    assert found.nothing_left()


@pytest.mark.slow
def test_a_node_whose_job_was_cancelled_is_missing(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = fleet(slurm, workshop)
    found.wait_for(lambda: found.steps() >= 1)
    slurm.command("scancel", "--nodelist=n1")
    assert found.ended(240.0) == 6, found.text
    assert "Slurm ended the job: CANCELLED" in answered(found)["missing"]["n1"]
    assert found.nothing_left()
