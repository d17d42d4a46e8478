"""What a suite records as baselines, and on which machine it finds them again."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import helpers.session.suite
from helpers.history.results import interleaved_pairs
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import SessionRecord
from helpers.judging.case.verdict import Status
from helpers.machine.devices import Machine
from helpers.plan.perf_yaml import load_config
from helpers.plan.proposals import Proposal, ProposalKind, parse_accepted
from helpers.plan.recorded import load_recorded
from helpers.report.row import row_of
from helpers.session.outcome import CaseOutcome
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import HistoryError
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.session.workshop import (
    CPU_MACHINE,
    DALI,
    ONE_RUN,
    SXM2,
    SYNTHETIC,
    Bench,
    case_of,
    machine_with,
    record,
)


def kinds(suite: Suite, rows: Sequence[CaseOutcome], *reasons: str) -> list[tuple[str, ProposalKind]]:
    return [(each.case_id, each.kind) for each in suite.recorder.propose(rows, parse_accepted(reasons))]


def test_a_first_result_is_proposed_written_and_then_compared_with(bench: Bench) -> None:
    late = "2026-11-20T23:50:00-08:00"
    suite = bench.suite(to_record=True, record=SessionRecord(began=late))
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    proposals = suite.recorder.propose([outcome])
    assert [(each.case_id, each.kind) for each in proposals] == [(SYNTHETIC, ProposalKind.CREATED)]
    path = suite.baselines.path("cpu")
    assert not path.exists()
    suite.recorder.write([outcome], proposals)
    entry = load_recorded(path, CPU_MACHINE.machine_key("cpu")).entries[SYNTHETIC]
    assert (entry.samples_per_s, entry.replicates) == (100.0, (100.0,) * 3)
    assert entry.provenance.date == late
    assert row_of(bench.suite().measurer.measure(case_of(suite, SYNTHETIC))).status == "PASS"


def test_a_figure_between_the_good_build_and_what_was_accepted_is_no_improvement(bench: Bench) -> None:
    """Good build 100, entry 105, tonight 102: IMPROVEMENT +2.1%, and 105 → 102 was written as "confirmed faster"."""
    bench.runner.usual = {"samples_per_s": 105.0}
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 102.0}
    suite = bench.suite(builds=bench.good, to_record=True)
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    row = row_of(outcome)
    assert row.status not in ("IMPROVEMENT", "PASS")
    (proposal,) = suite.recorder.propose([outcome])
    assert proposal.kind is ProposalKind.REFUSED
    suite.recorder.write([outcome], [proposal])
    assert suite.baselines.load("cpu").entries[SYNTHETIC].samples_per_s == 105.0


def test_a_slower_setting_of_the_shell_does_not_become_the_baseline_by_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL_P2P_DISABLE=1 in the shell wrote 105 → 80, "updated: new segment"."""
    bench.runner.usual = {"samples_per_s": 105.0}
    record(bench, SYNTHETIC)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    bench.runner.usual = {"samples_per_s": 80.0}
    suite = bench.suite(to_record=True)
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    row = row_of(outcome)
    assert row.status == "INCOMPARABLE"
    (refused,) = suite.recorder.propose([outcome])
    assert refused.kind is ProposalKind.REFUSED
    assert "'NCCL_P2P_DISABLE=1" in refused.reason and "-23.8%" in refused.reason
    suite.recorder.write([outcome], [refused])
    assert suite.baselines.load("cpu").entries[SYNTHETIC].samples_per_s == 105.0
    (accepted,) = suite.recorder.propose(
        [outcome], parse_accepted(["paddle-*-synthetic-*=the cards' link is broken for good"])
    )
    suite.recorder.write([outcome], [accepted])
    entry = suite.baselines.load("cpu").entries[SYNTHETIC]
    assert (entry.samples_per_s, entry.provenance.reason) == (
        80.0,
        "accepted regression: the cards' link is broken for good",
    )


def test_a_case_is_recorded_with_pairs_where_a_reference_build_is_at_hand(bench: Bench) -> None:
    bench.runner.usual = {"samples_per_s": 101.0}
    suite = bench.suite(builds=bench.good, to_record=True)
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    pairs = interleaved_pairs(outcome.runs)
    assert len(pairs) >= 3
    (proposal,) = suite.recorder.propose([outcome])
    beside = f"+1.00% against paddle 3.0.0 @abcdef (good) beside it, {len(pairs)} pairs"
    assert (proposal.kind, proposal.reason) == (ProposalKind.CREATED, f"none recorded before; {beside}")
    suite.recorder.write([outcome], [proposal])
    entry = suite.baselines.load("cpu").entries[SYNTHETIC]
    assert entry.provenance.reason == f"recorded with --update-baselines; {beside}"
    (night,) = bench.memory.nights
    assert night.compared is not None and len(night.compared.new) == len(pairs)


def test_a_build_slower_than_the_reference_beside_it_is_no_first_entry_without_a_reason(bench: Bench) -> None:
    bench.runner.usual = {"samples_per_s": 95.0}
    suite = bench.suite(builds=bench.good, to_record=True)
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    (refused,) = suite.recorder.propose([outcome])
    assert refused.kind is ProposalKind.REFUSED
    assert refused.reason.startswith("confirmed slower: confirmed-regression")
    assert kinds(suite, [outcome], f"{SYNTHETIC}=checks every image now") == [(SYNTHETIC, ProposalKind.CREATED)]


def test_what_was_recorded_begins_a_segment_of_the_history(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    (created,) = bench.memory.starts
    entry = bench.suite().baselines.load("cpu").entries[SYNTHETIC]
    assert (created.case_id, created.target, created.segment) == (SYNTHETIC, "cpu", entry.segment)
    assert created.commit == entry.provenance.commit
    assert "created" in created.reason
    suite = bench.suite()
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    unchanged = suite.recorder.write([outcome], suite.recorder.propose([outcome]))
    assert [each.kind for each in unchanged] == [ProposalKind.UNCHANGED]
    assert bench.memory.starts == [created]


def test_a_history_that_fails_after_the_write_says_that_the_baselines_are_there(bench: Bench) -> None:
    suite = bench.suite(to_record=True)
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    bench.memory.fails = ("start_segment",)
    with pytest.raises(HistoryError, match="The baselines are written"):
        suite.recorder.write([outcome], suite.recorder.propose([outcome]))
    assert set(suite.baselines.load("cpu").entries) == {SYNTHETIC}


def at(
    bench: Bench, machine: Machine, samples_per_s: float, case_id: str = SYNTHETIC, target: str = "cpu"
) -> CaseOutcome:
    """One night of a machine: measured, and recorded where nothing was."""
    bench.runner.usual = {"samples_per_s": samples_per_s, "figures": dict.fromkeys(_RULES, samples_per_s)}
    bench.runner.usual["environment"] = {**ENVIRONMENT.to_mapping(), **_place(machine, target)}
    suite = bench.suite(machine, to_record=True, session=f"s{len(bench.runner.asked)}")
    suite.store = bench.runner.store = ResultStore(bench.folder / "runs", suite.options.session)
    outcome = suite.measurer.measure(case_of(suite, case_id, target))
    suite.recorder.write([outcome], suite.recorder.propose([outcome]))
    return outcome


_RULES = ("wall-clock", "median-step", "paddleclas-trimmed")


def _place(machine: Machine, target: str) -> dict[str, str]:
    if target == "cpu":
        return {}
    return {"device": "gpu", "card_ids": " ".join(gpu.uuid for gpu in machine.gpus)}


def _node(host: str, machine: Machine = CPU_MACHINE, **values: Any) -> Machine:
    """A machine of its own id, and with cards of its own."""
    gpus = tuple(replace(gpu, uuid=f"{gpu.uuid}-{host}") for gpu in machine.gpus)
    facts = replace(machine.facts, host=host, host_id=f"{zlib.crc32(host.encode()):08x}" * 2)
    return replace(machine, facts=facts, gpus=gpus, **values)


def test_a_machine_with_a_name_is_the_same_in_every_container(bench: Bench) -> None:
    """A container without a machine id was a new machine at every start."""
    first = at(bench, _node("0123456789ab", name="lab"), 100.0)
    second = at(bench, _node("ba9876543210", name="lab"), 100.0)
    assert (first.status, second.status) == (Status.NO_BASELINE, Status.PASS)
    (file,) = (bench.baselines / "recorded").glob("lab-*.json")
    told = next(line for line in bench.suite(_node("x", name="lab")).header_lines() if line.startswith("baselines: "))
    assert told == f"baselines: {file}, by its name in perf.yaml, lab"


def test_what_was_recorded_under_a_machine_s_own_id_is_found_when_it_gets_a_name(bench: Bench) -> None:
    assert at(bench, _node("a"), 100.0).status is Status.NO_BASELINE
    named = _node("a", name="lab")
    assert at(bench, named, 100.0).status is Status.PASS
    suite = bench.suite(named)
    assert suite.baselines.path("cpu").name == f"{_node('a').machine_key('cpu')}.json"
    assert "as this machine was known before; lab-amd-epyc-4c-x2.json, which comes first" in suite.baselines.describe()
    # What is recorded next goes into the file that is there.
    at(bench, named, 100.0, DALI)
    entries = bench.suite(named).baselines.load("cpu").entries
    assert {each.segment["host"] for each in entries.values()} == {"lab"} and len(entries) == 2
    outcome = bench.suite(named).measurer.measure(case_of(bench.suite(named), SYNTHETIC))
    for kind, files in ((ProposalKind.CREATED, (suite.baselines.path("cpu"),)), (ProposalKind.UNCHANGED, ())):
        assert suite.recorder.files([outcome], [Proposal(SYNTHETIC, kind, None, None, "x")]) == files
    assert at(bench, _node("b", name="other"), 100.0).status is Status.NO_BASELINE


def test_nodes_of_a_pool_are_compared_with_one_another_and_others_are_not(bench: Bench) -> None:
    gpus = machine_with(SXM2)
    one, two = (_node(each, gpus, pool="v100s") for each in ("n1", "n2"))
    case = (ONE_RUN, "v100")
    assert at(bench, one, 1e6, *case).status is not Status.INCOMPARABLE
    assert at(bench, two, 1e6, *case).status is Status.PASS
    assert [each.name for each in (bench.baselines / "recorded").glob("*.json")] == [
        "v100s-tesla-v100-sxm2-32gb-x1.json"
    ]
    segment = bench.suite(two).baselines.load("gpu").entries[ONE_RUN].segment
    assert segment["host"] == "pool v100s" and "card ids" not in segment
    assert "by the pool v100s of perf.yaml, whose nodes count as equal" in bench.suite(two).baselines.describe()
    # Without a pool each is a machine of its own.
    assert bench.suite(_node("n1", gpus)).baselines.load("gpu").entries == {}


@pytest.mark.parametrize(
    ("entry", "name", "pool"),
    [
        ("{host: 'no-such-host', cards: [GPU-0-n1], identity: pool}", "", "lab"),
        ("{cards: [GPU-0-n1], identity: name, cpu_cards: 1}", "lab", ""),
        ("{cards: [GPU-0-n1]}", "", ""),
        ("{cards: [GPU-7], identity: name}", "", ""),
        ("{host: '*', identity: name}", "lab", ""),
    ],
)
def test_perf_yaml_names_a_machine_by_its_host_or_its_cards(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, entry: str, name: str, pool: str
) -> None:
    node = _node("n1", machine_with(SXM2))
    found = replace(node, card_ids=tuple(gpu.uuid for gpu in node.gpus))
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(helpers.session.suite, "discover", lambda **values: asked.append(values) or found)
    options = bench.options()
    text = options.config_path.read_text().replace("machines: {}", f"machines:\n  lab: {entry}")
    options.config_path.write_text(text)
    suite = Suite(options, load_config(options.config_path), bench.published, memory=bench.memory)
    assert (suite.machine.name, suite.machine.pool) == (name, pool)
    assert (suite.machine_config is None) is ("GPU-7" in entry)
    assert ({"cpu_cards": 1} in asked) is ("cpu_cards" in entry)
