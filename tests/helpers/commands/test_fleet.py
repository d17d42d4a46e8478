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

from helpers.commands.fleets.array import (
    SlurmNode,
    WatchedArray,
    cards_of_all,
    chosen_nodes,
    is_here,
    wait_for_array,
)
from helpers.commands.fleets.hostlist import hostlist
from helpers.commands.main import main
from helpers.commands.submission.job import submit
from helpers.commands.submission.waiting import Patience
from helpers.history import default_url, open_history
from helpers.history.stored import session_of_place
from helpers.trainers.contract.errors import ConfigError, LaunchError
from tests.faults.workshop import ONE_CARD, Workshop
from tests.helpers.commands.submitted import Submitted
from tests.helpers.history.made import BUILD, ENVIRONMENT
from tests.helpers.history.made import run as made_run
from tests.slurm_cluster import SlurmCluster

FLEET, EARLIER = "fleet-20261122-020000Z-abcd", "fleet-20261115-020000Z-abcd"
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

SLOW_CARD = """
import sys

def at_step(spec, rank, phase, number):
    if ".n1.card1/" in spec.run_folder:
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
    results = [
        made_run(
            uuid.uuid4().hex,
            rate,
            session_of_place(fleet, (node, "")),
            case_id=case,
            replicate=number,
            created=f"{day}T02:0{number}:00+00:00",
            environment={**ENVIRONMENT, "host": node, "driver": drivers.get(node, "550")},
        )
        for node, cases in made.items()
        for case, found in cases.items()
        for number, rate in enumerate(found)
    ]
    with open_history(default_url(folder)) as history:
        history.add_results(results)


def asked(folder: Path, nodes: Mapping[str, str]) -> None:
    (folder / "slurm").mkdir()
    record = {"schema_version": 2, "fleet": FLEET, "cases": [], "runs": 4, "cards": 0, "contended": False}
    record["nodes"] = dict(nodes)
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
    session = session_of_place(FLEET, ("n02", ""))
    other = made_run("a" * 32, 6.0, session, case_id=CASES[0], build={**BUILD, "version": "9.9"})
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
    assert len(record["nodes"]) == 12 and record["nodes"][0]["since"]["fleets"] == 1
    text = report(tmp_path, capsys, "--markdown")[1]
    assert text.startswith("**1 of 12 nodes is slow beyond chance: n03")
    assert "```\nscontrol update NodeName=n03 State=DRAIN" in text


# ---- cards

CARDS = [str(number) for number in range(4)]
EIGHT = "paddle-vgg16-fp32-bs1-1x4-synthetic-dynamic"
# What NVML says of a healthy card: the environment and the facts of the window of its run.
GPU_ENVIRONMENT = {**ENVIRONMENT, "device": "gpu", "driver": "550.54.15", "power_limit_watts": "400"}
GPU_FACTS = {
    "sm_clock_mhz": "1410", "gpu_temperature_c": "61", "gpu_hottest_c": "64", "gpu_power_watts": "395",
    "gpu_clocks_held_by": "software power cap 98%", "gpu_pcie_link": "gen4-x16", "gpu_nvlinks_active": "12-of-12",
}  # fmt: skip
SICK_NODE, SICK_CARD = "n03", "2"
Told = Mapping[str, Mapping[str, str]]


def card_rates(slow: float = 0.0, seed: int = 7, runs: int = 4) -> dict[tuple[str, str], dict[str, list[float]]]:
    """Of each card in two cases, and of each node in one of four cards, with a slow card of SICK_NODE."""
    rng = np.random.default_rng(seed)
    places = [(node, card) for node in NODES for card in ("", *CARDS)]
    return {
        place: {
            case: [
                float(6 + math.log1p(slow if place[0] == SICK_NODE and place[1] in ("", SICK_CARD) else 0.0) + each)
                for each in rng.normal(0, 0.002, runs)
            ]
            for case in (CASES if place[1] else (EIGHT,))
        }
        for place in places
    }


def keep_cards(
    folder: Path,
    fleet: str,
    made: Mapping[tuple[str, str], Mapping[str, Sequence[float]]],
    day: str,
    environment: Mapping[str, str] = {},
    facts: Mapping[str, str] = {},
    **values: Any,
) -> None:
    """Write the runs of cards and nodes; ``environment`` and ``facts`` are those of the sick card, also where it is one
    of four."""
    results = []
    for (node, card), cases in made.items():
        used = [card] if card else CARDS
        each = [{**GPU_FACTS, **(facts if (node, one) == (SICK_NODE, SICK_CARD) else {})} for one in used]
        sick = node == SICK_NODE and SICK_CARD in used
        mine = {**GPU_ENVIRONMENT, **(environment if sick else {}), "host": node}
        mine |= {"cards": f"{len(used)} x A100", "card_ids": " ".join(f"GPU-{node}-{one}" for one in used)}
        results += [
            made_run(
                uuid.uuid4().hex,
                rate,
                session_of_place(fleet, (node, card)),
                case_id=case,
                replicate=number,
                created=f"{day}T02:0{number}:00+00:00",
                environment=mine,
                facts={"card_index": " ".join(used), **{
                    # Of the reasons for lower clocks there is one text for all cards.
                    name: (", " if name == "gpu_clocks_held_by" else " ").join(one[name] for one in each)
                    for name in GPU_FACTS
                }},
                **values,
            )
            for case, found in cases.items()
            for number, rate in enumerate(found)
        ]  # fmt: skip
    with open_history(default_url(folder)) as history:
        history.add_results(results)


def asked_cards(
    folder: Path, cards: int = 4, nodes: Mapping[str, str | None] | None = None, *, contended: bool = False
) -> None:
    (folder / "slurm").mkdir()
    said = dict.fromkeys(NODES, "") if nodes is None else dict(nodes)
    record = {"schema_version": 2, "fleet": FLEET, "cases": [*CASES, EIGHT], "runs": 4, "cards": cards}
    record |= {"nodes": said, "contended": contended}
    (folder / "slurm" / f"{FLEET}.json").write_text(json.dumps(record))


def test_the_report_names_the_slow_card_since_when_and_proposes_to_drain_its_node_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_cards(tmp_path, EARLIER, card_rates(seed=3), "2026-11-15")
    keep_cards(tmp_path, FLEET, card_rates(-0.05), "2026-11-22", facts={"gpu_pcie_link": "gen4-x8"})
    asked_cards(tmp_path)
    status, text = report(tmp_path, capsys)
    assert status == 1
    # A case of four cards is as slow as the slowest of them, so the node is slow, too.
    assert text.startswith("1 of 12 nodes and 1 of 48 cards are slow beyond chance: n03")
    row = r"^n03 card 2 +SLOW +-4\.[89]\d% .* 2026-11-22 \(2026-11-15: [+-]0\.\d%\) +2 +8$"
    assert re.search(row, text, re.MULTILINE)
    assert "n03 card 2: PCI Express link is gen4-x8; 47 of 47 others have gen4-x16" in text
    (drain,) = [line for line in text.splitlines() if line.startswith("scontrol update")]
    assert drain.startswith(f"scontrol update NodeName=n03 State=DRAIN 'Reason=perfgate {FLEET}: ")
    assert "card 2 (GPU-n03-2) -4." in drain and "; the node -4." in drain
    assert "They may share a baseline: n[00-02,04-11]" in " ".join(text.split())


def test_a_slow_card_whose_cases_are_all_of_one_card_makes_no_node_slow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {place: cases for place, cases in card_rates(-0.05).items() if place[1]}
    keep_cards(tmp_path, FLEET, made, "2026-11-22")
    status, text = report(tmp_path, capsys)
    assert status == 1
    assert text.startswith("1 of 48 cards is slow beyond chance: n03 card 2 (-4.9%)")
    record = json.loads(report(tmp_path, capsys, "--json")[1])
    assert not any(each["slow"] for each in record["nodes"])
    assert [(each["node"], each["card"], each["card_id"]) for each in record["cards"] if each["slow"]] == [
        ("n03", "2", "GPU-n03-2")
    ]


@pytest.mark.slow
def test_a_card_that_took_the_place_of_another_is_slow_for_the_first_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = {place: cases for place, cases in card_rates(-0.05, seed=3).items() if place[1]}
    keep_cards(tmp_path, EARLIER, earlier, "2026-11-15")
    now = {place: cases for place, cases in card_rates(-0.05).items() if place[1]}
    keep_cards(tmp_path, FLEET, now, "2026-11-22")
    assert "2026-11-15, all 2 fleets" in report(tmp_path, capsys)[1]
    later = "fleet-20261129-020000Z-abcd"
    results = [
        made_run(
            uuid.uuid4().hex, rate, session_of_place(later, (node, card)), case_id=case, replicate=number,
            environment={**GPU_ENVIRONMENT, "host": node, "card_ids": f"GPU-new-{node}-{card}"},
            facts={**GPU_FACTS, "card_index": card}, created="2026-11-29T02:00:00+00:00",
        )
        for (node, card), cases in now.items()
        for case, found in cases.items()
        for number, rate in enumerate(found)
    ]  # fmt: skip
    with open_history(default_url(tmp_path)) as history:
        history.add_results(results)
    assert "2026-11-29, the first time" in report(tmp_path, capsys)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "facts", "told"),
    [
        ({"driver": "535.104.05"}, {}, "driver is 535.104.05; N of N others have 550.54.15"),
        ({"power_limit_watts": "300"}, {}, "power_limit_watts is 300; N of N others have 400"),
        ({}, {"sm_clock_mhz": "1275"}, "sm_clock_mhz is 1275; N of N others have 1410"),
        ({}, {"gpu_temperature_c": "88"}, "gpu_temperature_c is 88; N of N others have 61"),
        ({}, {"gpu_pcie_link": "gen3-x16"}, "PCI Express link is gen3-x16; N of N others have gen4-x16"),
        ({}, {"gpu_pcie_link": "gen4-x4"}, "PCI Express link is gen4-x4; N of N others have gen4-x16"),
        ({}, {"gpu_nvlinks_active": "11-of-12"}, "active NVLinks is 11-of-12; N of N others have 12-of-12"),
        (
            {},
            {"gpu_clocks_held_by": "hardware thermal slowdown 40%, software power cap 60%"},
            "gpu_clocks_held_by is hardware thermal slowdown, software power cap; N of N others have software power "
            "cap",
        ),
    ],
)
def test_each_fact_that_explains_a_slow_card_is_told_of_the_card_and_of_its_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], environment: dict[str, str], facts: dict[str, str], told: str
) -> None:
    keep_cards(tmp_path, FLEET, card_rates(-0.05, runs=3), "2026-11-22", environment, facts)
    text = " ".join(report(tmp_path, capsys)[1].split())
    assert f"n03 card 2: {told.replace('N of N', '47 of 47')}" in text
    fact = told.partition(" is ")[0]
    if facts.keys() & {"gpu_pcie_link", "gpu_nvlinks_active"}:
        # Of links a node has the words of all its cards.
        usual = told.rpartition(" ")[2]
        words = sorted([*facts.values(), usual])
        told = f"{fact} is {', '.join(words)}; N of N others have {usual}"
    assert f"n03: {told.replace('N of N', '11 of 11')}" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("driver", "", "driver"),
        ("power_limit_watts", "0", "power cap"),
        ("sm_clock_mhz", None, "clocks"),
        ("gpu_temperature_c", None, "temperature"),
        ("gpu_pcie_link", "unknown", "PCI Express link"),
        ("gpu_nvlinks_active", None, "active NVLinks"),
    ],
)
def test_a_fact_that_was_not_recorded_is_said_and_its_node_is_not_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: str | None, told: str
) -> None:
    made = card_rates()
    healthy = {place: cases for place, cases in made.items() if place[0] != "n05"}
    keep_cards(tmp_path, FLEET, healthy, "2026-11-22")
    environment, facts = dict(GPU_ENVIRONMENT), dict(GPU_FACTS)
    changed = environment if name in environment else facts
    if value is None:
        del changed[name]
    else:
        changed[name] = value
    with open_history(default_url(tmp_path)) as history:
        for (node, card), cases in made.items():
            if node != "n05":
                continue
            used = [card] if card else CARDS
            ids = " ".join(f"GPU-{node}-{one}" for one in used)
            history.add_results(
                [
                    made_run(
                        uuid.uuid4().hex, rate, session_of_place(FLEET, (node, card)), case_id=case, replicate=number,
                        environment={**environment, "host": node, "cards": f"{len(used)} x A100", "card_ids": ids},
                        facts={**facts, "card_index": " ".join(used)}, created="2026-11-22T02:00:00+00:00",
                    )
                    for case, found in cases.items()
                    for number, rate in enumerate(found)
                ]
            )  # fmt: skip
    asked_cards(tmp_path)
    text = " ".join(report(tmp_path, capsys)[1].split())
    assert f"Not recorded {told}: on 1 of 12 nodes (n05); what differs in it there is not known" in text
    assert "They may share a baseline: n[00-04,06-11]" in text


def test_a_card_that_was_asked_and_not_measured_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = card_rates()
    del made["n05", "3"]
    keep_cards(tmp_path, FLEET, made, "2026-11-22")
    asked_cards(tmp_path)
    status, text = report(tmp_path, capsys)
    assert status == 6
    assert f"n05: {CASES[0]} on card 3, {CASES[1]} on card 3: no run of it" in " ".join(text.split())
    assert "They may share a baseline: n[00-04,06-11]" in " ".join(text.split())


def test_a_run_of_another_card_than_its_session_says_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = card_rates()
    moved = made.pop(("n05", "3"))
    keep_cards(tmp_path, FLEET, made, "2026-11-22")
    with open_history(default_url(tmp_path)) as history:
        for case, found in moved.items():
            session = session_of_place(FLEET, ("n05", "3"))
            history.add_result(made_run(uuid.uuid4().hex, found[0], session, case_id=case, facts={"card_index": "1"}))
    asked_cards(tmp_path)
    status, text = report(tmp_path, capsys)
    assert status == 6
    assert "it is a run of card 1 in the session of card 3" in " ".join(text.split())


def granted(made: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Two cards of each node, of which Slurm gave other ones on each, and no case of several cards."""
    given = {node: (str(number % 3), str(3 + number % 5)) for number, node in enumerate(NODES)}
    return {(node, given[node][int(card)]): cases for (node, card), cases in made.items() if card and int(card) < 2}


def asked_two_cards(folder: Path) -> None:
    asked_cards(folder, 2)
    place = folder / "slurm" / f"{FLEET}.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "cards": 2, "cases": CASES}))


def test_cards_are_expected_by_the_indexes_that_slurm_gave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_cards(tmp_path, FLEET, granted(card_rates()), "2026-11-22")
    asked_two_cards(tmp_path)
    status, text = report(tmp_path, capsys)
    assert status == 0
    assert text.startswith("none of 12 nodes and 24 cards is slow beyond chance\n")
    assert "They may share a baseline: n[00-11]" in " ".join(text.split())


def test_a_card_that_was_asked_and_has_no_run_is_missing_whatever_its_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = granted(card_rates())
    del made["n05", "3"]
    del made["n07", "1"][CASES[1]]
    keep_cards(tmp_path, FLEET, made, "2026-11-22")
    asked_two_cards(tmp_path)
    status, text = report(tmp_path, capsys)
    assert status == 6
    words = " ".join(text.split())
    assert "2 nodes measured in part" in words
    assert f"n05: {CASES[0]} on card unknown 1, {CASES[1]} on card unknown 1: no run of it" in words
    assert f"n07: {CASES[1]} on card 1: no run of it" in words
    assert "They may share a baseline: n[00-04,06,08-11]" in words


def test_a_node_with_too_few_measured_cards_is_named_and_not_healthy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = card_rates()
    for card in "023":
        del made["n05", card]
    keep_cards(tmp_path, FLEET, made, "2026-11-22")
    asked_cards(tmp_path)
    status, text = report(tmp_path, capsys)
    assert status == 6
    told = f"n05: 1 card measured {CASES[0]}, {CASES[1]}, and 4 do on most nodes. By such a case the node is not held"
    assert told in " ".join(text.split())
    assert "They may share a baseline: n[00-04,06-11]" in " ".join(text.split())
    record = json.loads(report(tmp_path, capsys, "--json")[1])
    assert record["too_few_cards"] == {"n05": {case: {"measured": 1, "usual": 4} for case in CASES}}
    # It is held against the others by the case of four cards alone.
    assert {each["node"]: each["cases"] for each in record["nodes"]} == {
        **dict.fromkeys(NODES, 3),
        "n05": 1,
    }


def test_cards_of_few_nodes_are_judged_although_the_nodes_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {place: cases for place, cases in card_rates(-0.1).items() if place[0] in ("n03", "n04")}
    keep_cards(tmp_path, FLEET, made, "2026-11-22")
    asked_cards(tmp_path, nodes={"n03": "", "n04": ""})
    status, text = report(tmp_path, capsys)
    assert status == 1
    assert text.startswith("1 of 8 cards is slow beyond chance: n03 card 2 (-")
    assert "The nodes are too few to be held against each other without --spread" in " ".join(text.split())


@pytest.mark.parametrize(
    ("nodes", "several_cards", "status"), [(1, False, 0), (1, True, 6), (2, False, 6), (7, True, 6), (8, True, 0)]
)
def test_no_fleet_is_healthy_by_its_cards_alone_where_only_other_nodes_could_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: int, several_cards: bool, status: int
) -> None:
    rng = np.random.default_rng(3)
    # Nobody can say of fewer than eight nodes that the first one, which is slower on all its cards, is slow.
    made = {
        (node, card): {
            case: [6 - (0.3 if at == 0 and nodes < 8 else 0.0) + float(each) for each in rng.normal(0, 0.002, 4)]
            for case in (CASES if card else (EIGHT,))
        }
        for at, node in enumerate(NODES[:nodes])
        for card in (*([""] if several_cards else []), *map(str, range(8)))
    }
    keep_cards(tmp_path, FLEET, made, "2026-11-22")
    asked(tmp_path, dict.fromkeys(NODES[:nodes], ""))
    found, text = report(tmp_path, capsys)
    assert found == status, text
    assert ("the nodes are not held against each other" in " ".join(text.split())) is (status == 6)
    assert ("Equal nodes" in text) is (nodes == 8)


@pytest.mark.parametrize("end", [None, ""])
def test_a_run_that_crashed_does_not_count_as_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str | None
) -> None:
    """Also if the fleet's command was killed, so that nobody saw how the tasks ended."""
    made = card_rates()
    last = made["n05", "3"][CASES[1]].pop()
    keep_cards(tmp_path, FLEET, made, "2026-11-22")
    crashed = made_run(
        uuid.uuid4().hex, last, session_of_place(FLEET, ("n05", "3")), case_id=CASES[1], replicate=3, figures={},
        failure="killed: signal 9", environment={**GPU_ENVIRONMENT, "host": "n05"}, facts={"card_index": "3"},
    )  # fmt: skip
    with open_history(default_url(tmp_path)) as history:
        history.add_result(crashed)
    asked_cards(tmp_path, nodes={**dict.fromkeys(NODES, ""), "n05": end})
    status, text = report(tmp_path, capsys)
    assert status == 6
    why = "nobody has seen the end of its task" if end is None else "killed: signal 9"
    assert f"n05: {CASES[1]} on card 3: 3 of 4 runs ({why})" in " ".join(text.split())
    assert "They may share a baseline: n[00-04,06-11]" in " ".join(text.split())


def test_a_fleet_whose_command_was_killed_is_complete_if_every_run_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_cards(tmp_path, FLEET, card_rates(), "2026-11-22")
    asked_cards(tmp_path, nodes=dict.fromkeys(NODES))
    assert report(tmp_path, capsys)[0] == 0


@pytest.mark.parametrize("asked", [True, False])
def test_disturbed_runs_count_if_the_fleet_was_measured_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: bool
) -> None:
    keep_cards(tmp_path, FLEET, card_rates(), "2026-11-22", marks=("contended",))
    asked_cards(tmp_path, contended=asked)
    assert report(tmp_path, capsys)[0] == (0 if asked else 6)


def test_runs_beside_other_cards_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_cards(tmp_path, FLEET, card_rates(), "2026-11-22", marks=("machine shared",))
    asked_cards(tmp_path)
    assert report(tmp_path, capsys)[0] == 0


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


@pytest.mark.parametrize(
    ("listed", "gres", "cards"),
    [
        ("gpu", "gpu", 1),
        ("gpu:2", "gpu", 2),
        ("gpu:0", "gpu", 0),
        ("gpu:a100:8(S:0-1)", "gpu", 8),
        ("gpu:a100:8(S:0-1)", "gpu:a100", 8),
        ("gpu:a100:8(S:0-1)", "gpu:v100", 0),
        ("gpu:a100:6(S:0,2-3),gpu:v100:2(S:1),shard:16", "gpu:a100", 6),
        ("gpu:a100:6(S:0,2-3),gpu:v100:2(S:1),shard:16", "gpu:v100", 2),
        ("gpu:a100:6(S:0,2-3),gpu:v100:2(S:1),shard:16", "gpu", 8),
        ("gpu:a100", "gpu", 1),
        ("gpu:a100:no_consume:8", "gpu", 8),
        ("gpu:a100:no_consume:8", "gpu:a100", 8),
        ("gpu:no_consume:4", "gpu", 4),
        ("gpu:a100:no_consume", "gpu:a100", 1),
        ("bandwidth:lustre:no_consume:4G,gpu:tesla:1,gpu:kepler:1", "gpu", 2),
        ("bandwidth:lustre:no_consume:4G", "bandwidth", 4 * 1024**3),
        ("gpu:2K", "gpu", 2048),
        ("gpu:a100:2k(S:0)", "gpu:a100", 2048),
        ("gpu:nvidia_a100_3g.20gb:2,gpu:1g.5gb:4", "gpu:1g.5gb", 4),
        ("(null)", "gpu", 0),
        ("", "gpu", 0),
    ],
)
def test_the_cards_of_a_node_are_those_of_slurms_list(listed: str, gres: str, cards: int) -> None:
    assert SlurmNode("n0", "127.0.0.2", "IDLE", gres=listed).cards(gres) == cards


@pytest.mark.parametrize(
    "entry",
    [
        *("gpu:a100:8:2", "gpu:8:a100", "gpu:a100:x8:", "gpu::8", ":8", "gpu:8X", "gpu:1g.5gb", "gpu:-8"),
        *("gpu:a100:8.5", "gpu:8(S:0", "gpu:8(C:0-1)", "gpu:8 ", "gpu:٨", "gpu:a100:no_consume:v100:8", "gpu:2,"),
    ],
)
def test_a_list_of_devices_that_cannot_be_read_is_refused_and_never_no_cards(entry: str) -> None:
    node = SlurmNode("n7", "127.0.0.2", "IDLE", gres=f"shard:4,{entry}")
    with pytest.raises(ConfigError, match=r"node n7: field 'Gres': got .*--cards N"):
        node.cards("gpu")


def test_nodes_with_different_numbers_of_cards_are_refused() -> None:
    nodes = [
        SlurmNode(name, "127.0.0.2", "IDLE", gres=f"gpu:{cards}") for name, cards in (("a1", 8), ("a2", 8), ("b1", 4))
    ]
    assert cards_of_all(nodes[:2], "gpu") == 8
    with pytest.raises(ConfigError, match=r"4 cards \(gpu\) on b1; 8 cards \(gpu\) on a\[1-2\]"):
        cards_of_all(nodes, "gpu")
    with pytest.raises(ConfigError, match="0 cards"):
        cards_of_all([SlurmNode("n0", "127.0.0.2", "IDLE")], "gpu")


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
        cluster = {"target": "cpu", "partition": "perf", "gres": "gpu"}
        found.configure(lambda config: config.update(clusters={"c": cluster}))
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
    assert "#SBATCH --gres=gpu:2\n" in script
    assert re.search(rf'on_node "\$@" --cards=2 -- .*--runs=5 --target=cpu {ONE_CARD}\n', script)
    assert "# scontrol update JobId=JOB_1 ReqNodeList=n1\n# scontrol release JOB\n" in script
    monkeypatch.setattr("helpers.commands.fleet.is_here", lambda address: address != "127.0.0.3")
    assert main(argv) == 4
    assert "a file of SQLite, and nodes on other machines (n1)" in capsys.readouterr().err


@pytest.mark.slow
def test_the_devices_of_real_nodes_are_counted_as_slurm_shows_them(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.variables["SLURM_CONF"])
    found = {each.name: each.cards("gpu") for each in chosen_nodes("*", None)}
    assert found == {"n0": 2, "n1": 2, "listed0": 8, "listed1": 7, "listed2": 1, "listed3": 1, "listed4": 2048,
                     "listed5": 6}  # fmt: skip
    assert {each.name: each.cards("gpu:a100") for each in chosen_nodes("listed*", None)} == {
        "listed0": 8, "listed1": 4, "listed2": 0, "listed3": 1, "listed4": 0, "listed5": 0,
    }  # fmt: skip


@pytest.mark.slow
def test_the_slow_one_of_two_nodes_is_found(slurm: SlurmCluster, workshop: Workshop) -> None:
    (workshop.folder / "fault.py").write_text(SLOW_NODE)
    found = fleet(slurm, workshop)
    assert found.ended(240.0) == 1, found.text
    assert "1 of 2 nodes is slow beyond chance: n1 (-16.7%)" in found.text
    assert "scontrol update NodeName=n1 State=DRAIN" in found.text
    assert [(each["node"], each["runs"]) for each in answer(workshop)["nodes"]] == [("n1", 4), ("n0", 4)]
    assert {(each["node"], each["card"], each["runs"], each["slow"]) for each in answer(workshop)["cards"]} == {
        (node, card, 4, False) for node in ("n0", "n1") for card in ("0", "1")
    }
    # Each card's session was made by a task on that node.
    made = {path.name.partition(".")[2] for path in (workshop.folder / "runs").glob("fleet-*.n*")}
    assert made == {"n0.card0", "n0.card1", "n1.card0", "n1.card1"}
    assert found.nothing_left()


@pytest.mark.slow
def test_the_slow_card_of_a_node_is_found_with_the_cards_side_by_side(slurm: SlurmCluster, workshop: Workshop) -> None:
    (workshop.folder / "fault.py").write_text(SLOW_CARD)
    found = fleet(slurm, workshop, "--share-machine")
    assert found.ended(240.0) == 1, found.text
    assert "1 of 4 cards is slow beyond chance: n1 card 1 (-16.7%)" in found.text
    assert re.search(
        r"scontrol update NodeName=n1 State=DRAIN 'Reason=perfgate fleet-\S+Z-\w+: card 1 -16.7% in all", found.text
    )
    assert "NodeName=n0" not in found.text
    assert {each["runs"] for each in answer(workshop)["cards"]} == {4}
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
def test_an_interrupt_while_the_array_is_submitted_leaves_nothing_of_it(
    slurm: SlurmCluster, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def submitted(script: str, *_: object) -> str:
        submit(script)
        raise KeyboardInterrupt

    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.variables[name])
    monkeypatch.setattr("helpers.commands.fleet.submit_pinned", submitted)
    folder = workshop.folder
    argv = ["fleet", "--nodes=n*", ONE_CARD, "--time=9", f"--config={folder / 'perf.yaml'}"]
    status = main([*argv, f"--baselines={folder / 'baselines'}", f"--runs-dir={folder / 'runs'}"])
    assert status == 130
    assert "Slurm has it, as job" in capsys.readouterr().err
    assert not slurm.command("squeue", "--noheader").strip()


@pytest.mark.slow
def test_cancelling_ends_all_tasks(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = fleet(slurm, workshop)
    found.wait_for(lambda: found.steps() >= 1)
    found.process.send_signal(signal.SIGINT)
    assert found.ended() == 130, found.text
    assert found.nothing_left()
