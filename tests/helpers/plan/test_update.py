"""Proposing and writing recorded baselines."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.judging.rules import RULES
from helpers.plan.accepted import Accepted, how_to_accept, parse_accepted, reason_for, refuse_unmatched
from helpers.plan.baseline import PUBLISHED, FigureStatus, Provenance, RecordedEntry, RecordedSet, load_recorded
from helpers.plan.proposals import Answer, Candidate, Proposal, ProposalKind, propose
from helpers.plan.update import write_recorded
from helpers.report.proposals import format_proposals
from helpers.trainers.contract.errors import BaselineError

ROOT = Path(__file__).resolve().parents[3]
MACHINE = "host_cpux2"
KNOWN = (Accepted("paddle-vgg16-*", "known"),)
A, B = "paddle-vgg16-fp32-bs8-1x1-dali-static", "paddle-vgg16-fp32-bs16-1x1-dali-static"


def entry(samples_per_s: float = 100.0, case_id: str = A) -> RecordedEntry:
    return RecordedEntry(
        case_id=case_id,
        samples_per_s=samples_per_s,
        rule="median-step",
        replicates=(samples_per_s,) * 3,
        interval=None,
        tolerance=None,
        environment={"host": "h"},
        segment={"driver": "525", "cuda": "11.2"},
        provenance=Provenance("abc", "2024-05-06", "h", "measured"),
    )


def recorded(*entries: RecordedEntry) -> RecordedSet:
    return RecordedSet(MACHINE, {each.case_id: each for each in entries})


def proposed(
    old: RecordedSet,
    *candidates: Candidate,
    measured: Iterable[str] | None = None,
    known: Iterable[str] = (A, B),
    accepted: Sequence[Accepted] = (),
) -> tuple[Proposal, ...]:
    return propose(
        old,
        candidates,
        measured_case_ids={each.case_id for each in candidates} if measured is None else set(measured),
        known_case_ids=set(known),
        accepted=accepted,
    )


def created(*entries: RecordedEntry) -> tuple[Proposal, ...]:
    return proposed(recorded(), *(Candidate(each) for each in entries))


def test_a_case_without_an_entry_is_created() -> None:
    (proposal,) = proposed(recorded(), Candidate(entry(50.0)))

    assert (proposal.kind, proposal.old, proposal.new) == (ProposalKind.CREATED, None, entry(50.0))
    assert proposal.change is None


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer.NO_WORSE, ProposalKind.UNCHANGED),
        (Answer.FASTER, ProposalKind.UPDATED),
        (Answer.SLOWER, ProposalKind.REFUSED),
        (Answer.SLOWER_UNCONFIRMED, ProposalKind.REFUSED),
        (Answer.UNSETTLED, ProposalKind.REFUSED),
        (Answer.INCOMPARABLE, ProposalKind.REFUSED),
    ],
)
@pytest.mark.parametrize("samples_per_s", [100.0, 200.0])
def test_the_verdict_decides_and_not_the_figure(answer: Answer, kind: ProposalKind, samples_per_s: float) -> None:
    (proposal,) = proposed(recorded(entry(100.0)), Candidate(entry(samples_per_s), answer=answer))

    assert proposal.kind is kind
    assert proposal.change == pytest.approx(samples_per_s / 100 - 1)


@pytest.mark.parametrize("answer", [Answer.SLOWER, Answer.SLOWER_UNCONFIRMED, Answer.UNSETTLED])
def test_a_refusal_tells_the_verdict_and_how_to_record_the_level_all_the_same(answer: Answer) -> None:
    (proposal,) = proposed(recorded(entry()), Candidate(entry(90.0), answer=answer, why="-10.0% in 4 pairs"))

    assert proposal.reason == f"{answer.value}: -10.0% in 4 pairs; {how_to_accept(A)}"


@pytest.mark.parametrize("answer", [answer for answer in Answer if answer is not Answer.NOTHING_RECORDED])
def test_an_answer_about_an_entry_that_is_gone_is_refused(answer: Answer) -> None:
    (proposal,) = proposed(recorded(), Candidate(entry(), answer=answer), accepted=KNOWN)

    assert proposal.kind is ProposalKind.REFUSED
    assert "another process deleted the entry" in proposal.reason


def test_a_case_judged_without_an_entry_does_not_replace_one() -> None:
    (proposal,) = proposed(recorded(entry(150.0)), Candidate(entry()), accepted=KNOWN)

    assert proposal.kind is ProposalKind.REFUSED
    assert "another process recorded 150.00 images/s" in proposal.reason


def test_a_slow_drift_is_not_adopted_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, MACHINE, created(entry(100.0)))

    for samples_per_s in (99.8, 99.6, 99.4):
        proposals = proposed(load_recorded(path, MACHINE), Candidate(entry(samples_per_s), answer=Answer.NO_WORSE))
        assert write_recorded(path, MACHINE, proposals)[0].kind is ProposalKind.UNCHANGED

    assert load_recorded(path, MACHINE).entries[A].samples_per_s == 100.0


@pytest.mark.parametrize("answer", [Answer.SLOWER, Answer.SLOWER_UNCONFIRMED, Answer.UNSETTLED])
def test_an_accepted_level_is_recorded_with_its_reason(answer: Answer) -> None:
    slower = Candidate(entry(80.0), answer=answer)
    (proposal,) = proposed(recorded(entry(100.0)), slower, accepted=parse_accepted([f"{A} = safer kernels "]))

    assert proposal.kind is ProposalKind.UPDATED
    assert proposal.new is not None
    assert proposal.new.provenance.reason == "accepted regression: safer kernels"
    assert proposal.new.samples_per_s == 80.0


@pytest.mark.parametrize(
    "text", ["", " ", "safer kernels", f"{A}=", f"{A}= ", "= safer kernels", "=", "*=all", "**= x"]
)
def test_a_reason_names_its_case(text: str) -> None:
    with pytest.raises(BaselineError, match="--accept-regression") as caught:
        parse_accepted([text])
    assert '"paddle-vgg16-*-1x8-*=' in str(caught.value)


def test_of_several_reasons_for_a_case_the_last_counts() -> None:
    accepted = parse_accepted(["paddle-vgg16-*=kernels", f"{A}=this very case = slower", "paddle-resnet*=other"])

    assert reason_for(A, accepted) == "this very case = slower"
    assert reason_for(B, accepted) == "kernels"
    assert reason_for("pytorch-vgg16-fp32-bs8-1x1-dali", accepted) is None


def test_a_reason_for_no_selected_case_is_an_error() -> None:
    refuse_unmatched(parse_accepted([f"{A}=x"]), [A, B])
    with pytest.raises(BaselineError, match="paddle-vgg19"):
        refuse_unmatched(parse_accepted(["paddle-vgg16-*=x", "paddle-vgg19-*=x"]), [A, B])


def test_a_reason_for_one_case_does_not_take_in_another() -> None:
    two = [Candidate(entry(80.0, case_id), answer=Answer.UNSETTLED) for case_id in (A, B)]
    proposals = proposed(recorded(entry(100.0, A), entry(100.0, B)), *two, accepted=parse_accepted([f"{A}=known"]))

    assert {each.case_id: each.kind for each in proposals} == {A: ProposalKind.UPDATED, B: ProposalKind.REFUSED}


def test_accepting_a_regression_does_not_admit_an_unhealthy_run() -> None:
    throttled = Candidate(entry(80.0), "the card was throttled", answer=Answer.SLOWER)
    (proposal,) = proposed(recorded(entry(100.0)), throttled, accepted=KNOWN)

    assert (proposal.kind, proposal.reason) == (ProposalKind.REFUSED, "the card was throttled")


def test_accepting_a_regression_does_not_admit_what_cannot_be_compared() -> None:
    incomparable = Candidate(entry(80.0), answer=Answer.INCOMPARABLE, why="settings changed")
    (proposal,) = proposed(recorded(entry()), incomparable, accepted=KNOWN)

    assert (proposal.kind, proposal.reason) == (ProposalKind.REFUSED, "not comparable: settings changed")


def test_accepting_a_regression_leaves_a_case_that_is_no_worse_as_it_is() -> None:
    no_worse = Candidate(entry(99.9), answer=Answer.NO_WORSE)

    assert proposed(recorded(entry()), no_worse, accepted=KNOWN)[0].kind is ProposalKind.UNCHANGED


@pytest.mark.parametrize(("own", "kept"), [(None, 0.2), (0.5, 0.5)])
def test_an_entrys_own_tolerance_outlives_the_figure(own: float | None, kept: float) -> None:
    old = recorded(replace(entry(100.0), tolerance=0.2))
    (proposal,) = proposed(old, Candidate(replace(entry(130.0), tolerance=own), answer=Answer.FASTER))

    assert proposal.new is not None
    assert (proposal.kind, proposal.new.tolerance) == (ProposalKind.UPDATED, kept)


def test_a_new_segment_replaces_the_entry_and_says_what_differs() -> None:
    new = replace(entry(150.0), segment={"driver": "535", "power_cap": "300 W"})
    (proposal,) = proposed(recorded(entry(100.0)), Candidate(new, answer=Answer.INCOMPARABLE))

    assert proposal.kind is ProposalKind.UPDATED
    assert proposal.reason == (
        "new segment: cuda '11.2' → unstated, driver '525' → '535', power_cap unstated → '300 W'"
    )


def test_a_figure_by_another_rule_replaces_the_entry() -> None:
    old = recorded(replace(entry(100.0), rule="wall-clock"))
    (proposal,) = proposed(old, Candidate(entry(150.0), answer=Answer.INCOMPARABLE))

    assert (proposal.kind, proposal.reason) == (ProposalKind.UPDATED, "new rule: wall-clock → median-step")
    assert proposal.new == entry(150.0)


@pytest.mark.parametrize("refusal", ["unhealthy", "contended", "inconclusive", ""])
def test_a_candidate_with_a_refusal_is_refused_even_where_none_is_recorded(refusal: str) -> None:
    (proposal,) = proposed(recorded(), Candidate(entry(), refusal))

    assert proposal.kind is ProposalKind.REFUSED


def test_a_crashed_case_has_no_entry_and_is_refused_with_its_reason() -> None:
    (proposal,) = proposed(recorded(entry()), Candidate(None, "crashed: exit status 1", A))

    assert (proposal.kind, proposal.new, proposal.reason) == (ProposalKind.REFUSED, None, "crashed: exit status 1")


def test_a_candidate_without_entry_or_reason_or_of_two_cases_is_an_error() -> None:
    for new, refusal, case_id in ((None, None, ""), (None, "crashed", ""), (None, None, A), (entry(), None, B)):
        with pytest.raises(BaselineError, match="baseline candidate"):
            Candidate(new, refusal, case_id)


def test_a_measured_case_without_a_candidate_is_refused() -> None:
    (proposal,) = proposed(recorded(entry()), measured=[A])

    assert (proposal.kind, proposal.old) == (ProposalKind.REFUSED, entry())


def test_a_candidate_that_was_not_measured_is_refused() -> None:
    assert proposed(recorded(), Candidate(entry()), measured=[])[0].kind is ProposalKind.REFUSED


def test_entries_of_cases_that_no_longer_exist_are_reported_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, MACHINE, created(entry(case_id=A), entry(case_id=B)))

    proposals = proposed(load_recorded(path, MACHINE), Candidate(entry(200.0), answer=Answer.FASTER), known=[A])
    write_recorded(path, MACHINE, proposals)

    assert {proposal.case_id: proposal.kind for proposal in proposals} == {
        A: ProposalKind.UPDATED,
        B: ProposalKind.UNUSED,
    }
    assert set(load_recorded(path, MACHINE).entries) == {A, B}


def test_entries_that_were_not_measured_tonight_are_not_mentioned() -> None:
    assert proposed(recorded(entry(case_id=B)), known=[A, B]) == ()


def test_a_case_proposed_twice_is_an_error() -> None:
    with pytest.raises(BaselineError, match="two candidates"):
        proposed(recorded(), Candidate(entry(1.0)), Candidate(entry(2.0)))


def test_the_table_shows_old_new_change_and_reason() -> None:
    old = recorded(entry(100.0, A), entry(2.0, B), entry(7.25, "paddle-old-case"))
    faster = Candidate(entry(112.5, A), answer=Answer.FASTER, why="+12.5% in 3 pairs")
    proposals = proposed(old, faster, Candidate(entry(1.0, B), answer=Answer.SLOWER, why="-50.0% in 2 pairs"))

    assert format_proposals(proposals).splitlines() == [
        "case                                       old → new images/s  change %  what     reason",
        "paddle-old-case                          7.250 → -                       unused   "
        "no such case any more; delete the entry by hand if it is not coming back",
        "paddle-vgg16-fp32-bs16-1x1-dali-static   2.000 → 1.000           -50.00  refused  "
        f"confirmed slower: -50.0% in 2 pairs; {how_to_accept(B)}",
        "paddle-vgg16-fp32-bs8-1x1-dali-static   100.00 → 112.50          +12.50  updated  "
        "confirmed faster: +12.5% in 3 pairs",
        "Baselines: 1 updated, 1 refused, 1 unused",
    ]


def test_a_reason_cannot_forge_a_row_or_colour_the_terminal() -> None:
    slower = Candidate(entry(80.0), answer=Answer.SLOWER)
    (proposal,) = proposed(recorded(entry(100.0)), slower, accepted=[Accepted(A, "a\nb\x1b[31m")])

    assert r"accepted regression: a\nb\x1b[31m" in format_proposals([proposal]).splitlines()[1]


def test_an_empty_table_says_so() -> None:
    assert "no case was measured" in format_proposals([])


def test_a_written_file_is_sorted_stable_and_ends_with_a_newline(tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "m.json", tmp_path / "two" / "m.json"
    write_recorded(one, MACHINE, created(entry(case_id=A), entry(case_id=B)))
    write_recorded(two, MACHINE, created(entry(case_id=B)))
    write_recorded(two, MACHINE, created(entry(case_id=A)))

    text = one.read_text(encoding="utf-8")
    assert text == two.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


def test_a_text_that_hides_or_turns_what_follows_stands_escaped_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    hostile = replace(entry(), provenance=Provenance("a\u202eb\x1b[2J", "2024-05-06", "h 猫", "measured"))
    write_recorded(path, MACHINE, created(hostile))

    text = path.read_text(encoding="utf-8")
    assert all(each.isprintable() for each in text.splitlines())
    assert "h 猫" in text
    assert load_recorded(path, MACHINE).entries[A] == hostile


def test_nothing_to_write_touches_no_file(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    proposals = proposed(recorded(), Candidate(entry(), "contended"))

    assert write_recorded(path, MACHINE, proposals) == proposals
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_wrote_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    ours = created(entry(1.0, A))
    write_recorded(path, MACHINE, created(entry(2.0, B)))
    write_recorded(path, MACHINE, ours)

    assert load_recorded(path, MACHINE) == recorded(entry(1.0, A), entry(2.0, B))


def test_a_figure_judged_against_an_entry_that_is_gone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, MACHINE, created(entry(100.0)))
    ours = proposed(load_recorded(path, MACHINE), Candidate(entry(120.0), answer=Answer.FASTER))
    theirs = proposed(load_recorded(path, MACHINE), Candidate(entry(150.0), answer=Answer.FASTER))
    write_recorded(path, MACHINE, theirs)

    (outcome,) = write_recorded(path, MACHINE, ours)

    assert (outcome.kind, outcome.old) == (ProposalKind.REFUSED, entry(150.0))
    assert "another process recorded 150.00 images/s meanwhile" in outcome.reason
    assert load_recorded(path, MACHINE) == recorded(entry(150.0))


WRITER = """
import sys
from pathlib import Path
from helpers.plan.baseline import Provenance, RecordedEntry, RecordedSet
from helpers.plan.proposals import Candidate, propose
from helpers.plan.update import write_recorded
path, model = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for batch in range(1, 21):
    case_id = f"paddle-{model}-fp32-bs{batch}-1x1-dali-static"
    entry = RecordedEntry(case_id, float(batch), "median-step", (float(batch),) * 3, None, None, {}, {"driver": "1"},
                          Provenance("abc", "2024-05-06", "h", "measured"))
    write_recorded(path, "host", propose(RecordedSet("host", {}), [Candidate(entry)], measured_case_ids=[case_id],
                   known_case_ids=[], accepted=()))
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_that_update_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    writers = [start(WRITER, str(path), model) for model in ("vgg16", "resnet50v1.5")]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    errors = [writer.communicate(timeout=60)[1] for writer in writers]

    assert [writer.returncode for writer in writers] == [0, 0], errors
    entries = load_recorded(path, "host").entries
    assert {each.samples_per_s for each in entries.values()} == {float(batch) for batch in range(1, 21)}
    assert len(entries) == 40


KILLED = """
import os, signal, sys
from pathlib import Path
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
point, real_sync, real_replace = sys.argv[3], os.fsync, Path.replace
calls = []
def sync(descriptor):
    calls.append(descriptor)
    if point == "before the file is synced" or (point == "before the folder is synced" and len(calls) == 2):
        die()
    real_sync(descriptor)
def replace(self, target):
    if point == "before the rename":
        die()
    return real_replace(self, target)
os.fsync, Path.replace = sync, replace
print("ready", flush=True)
"""


@pytest.mark.parametrize(
    ("point", "survivor", "left_over"),
    [
        ("before the file is synced", "old", 1),
        ("before the rename", "old", 1),
        ("before the folder is synced", "new", 0),
    ],
)
def test_a_process_killed_while_writing_leaves_the_old_or_the_new_file_whole(
    tmp_path: Path, point: str, survivor: str, left_over: int
) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, "host", created(entry(case_id=A)))
    writer = start(KILLED + WRITER, str(path), "resnet50v1.5", point)
    writer.communicate("go\n", timeout=60)

    assert writer.returncode == -9
    names = {A} if survivor == "old" else {A, "paddle-resnet50v1.5-fp32-bs1-1x1-dali-static"}
    assert set(load_recorded(path, "host").entries) == names
    assert len(list(tmp_path.glob(".*.tmp"))) == left_over

    write_recorded(path, "host", created(entry(case_id=B)))
    assert set(load_recorded(path, "host").entries) == names | {B}
    assert list(tmp_path.glob(".*.tmp")) == []


def test_a_temporary_file_of_the_same_process_number_is_in_nobody_s_way(tmp_path: Path) -> None:
    # A killed update left it, and numbers come again: containers start at 1 each time.
    (tmp_path / f".m.json.{os.getpid()}.tmp").write_text("half")
    write_recorded(tmp_path / "m.json", MACHINE, created(entry(case_id=A)))

    assert set(load_recorded(tmp_path / "m.json", MACHINE).entries) == {A}
    assert list(tmp_path.glob(".*.tmp")) == []


@pytest.mark.parametrize("refused_call", ["fsync", "open"])
def test_a_full_disk_names_the_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_call: str
) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, MACHINE, created(entry(case_id=A)))
    before = path.read_bytes()
    real_open = os.open

    def full(target: object, *arguments: object, **options: object) -> int:
        if refused_call == "fsync" or str(target).endswith(".tmp"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_open(target, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, refused_call, full)
        with pytest.raises(BaselineError) as caught:
            write_recorded(path, MACHINE, created(entry(case_id=B)))

    assert str(path) in str(caught.value)
    assert "Free some disk space" in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.glob(".*.tmp")) == []


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(BaselineError, match="Check the folder's permissions"):
        write_recorded(tmp_path / "file" / "m.json", MACHINE, created(entry()))


def test_a_lock_that_stays_held_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    with FileLock(tmp_path / "m.json.lock"), pytest.raises(BaselineError, match="held by another process") as caught:
        write_recorded(path, MACHINE, created(entry()), lock_timeout_seconds=0.0)

    assert str(path) in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize("damage", ["{", '{"schema_version": 2}'])
def test_a_file_that_cannot_be_read_is_never_overwritten(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(damage, encoding="utf-8")

    with pytest.raises(BaselineError):
        write_recorded(path, MACHINE, created(entry()))
    assert path.read_text(encoding="utf-8") == damage


def test_the_file_of_another_machine_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, "other", created(entry()))

    with pytest.raises(BaselineError, match="machine_key"):
        write_recorded(path, MACHINE, created(entry(case_id=B)))
    assert set(load_recorded(path, "other").entries) == {A}


def test_published_figures_are_never_written() -> None:
    before = (PUBLISHED / "v100.json").read_bytes()

    for name in ("v100.json", "host.json", "sub/host.json", "../published/host.json"):
        with pytest.raises(BaselineError, match="published"):
            write_recorded(PUBLISHED / name, MACHINE, created(entry()))
    assert (PUBLISHED / "v100.json").read_bytes() == before
    assert {path.name for path in PUBLISHED.iterdir()} == {"v100.json", "a100.json", "schema.json"}


def test_a_link_to_the_published_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "baselines" / "published").mkdir(parents=True)
    (tmp_path / "recorded").symlink_to(tmp_path / "baselines" / "published")

    with pytest.raises(BaselineError, match="published figures"):
        write_recorded(tmp_path / "recorded" / "m.json", MACHINE, created(entry()))


@pytest.mark.parametrize("name", ["m.json", "m.json.lock"])
def test_a_link_is_never_written_through(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("precious", encoding="utf-8")
    (tmp_path / name).symlink_to(target)

    with pytest.raises(BaselineError, match="symbolic link"):
        write_recorded(tmp_path / "m.json", MACHINE, created(entry()))
    assert target.read_text(encoding="utf-8") == "precious"


def test_a_linked_folder_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "recorded").symlink_to(tmp_path / "real")

    with pytest.raises(BaselineError, match="symbolic link"):
        write_recorded(tmp_path / "recorded" / "m.json", MACHINE, created(entry()))
    assert list((tmp_path / "real").iterdir()) == []


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "m.json"

    with pytest.raises(BaselineError, match="case id"):
        write_recorded(path, MACHINE, created(entry(case_id="no case")))
    with pytest.raises(BaselineError, match="UTF-8"):
        write_recorded(path, MACHINE, created(replace(entry(), environment={"host": "\ud800"})))
    assert not path.exists()


figures = st.floats(min_value=1e-6, max_value=1e9, allow_nan=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
full_texts = texts.filter(lambda text: bool(text.strip()))
entries = st.builds(
    RecordedEntry,
    case_id=st.from_regex(r"[a-z0-9_.]+(-[a-z0-9_.]+)+", fullmatch=True),
    samples_per_s=figures,
    rule=st.sampled_from(sorted(RULES)),
    replicates=st.lists(figures, min_size=3, max_size=5).map(tuple),
    interval=st.none() | st.tuples(figures, figures).map(lambda pair: (min(pair), max(pair))),
    tolerance=st.none() | st.floats(min_value=0, max_value=0.99),
    environment=st.dictionaries(full_texts, texts, max_size=3),
    segment=st.dictionaries(full_texts, texts, min_size=1, max_size=3),
    provenance=st.builds(
        Provenance, commit=full_texts, date=st.dates().map(str), machine=full_texts, reason=full_texts
    ),
    status=st.sampled_from(FigureStatus),
    protocol=st.dictionaries(full_texts, st.integers(min_value=0, max_value=1_000_000), max_size=3),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(entries, max_size=3, unique_by=lambda each: each.case_id), full_texts)
def test_what_is_written_is_what_is_read(tmp_path: Path, several: list[RecordedEntry], machine_key: str) -> None:
    path = tmp_path / "m.json"
    path.unlink(missing_ok=True)
    write_recorded(path, machine_key, created(*several))

    assert load_recorded(path, machine_key) == RecordedSet(machine_key, {each.case_id: each for each in several})
