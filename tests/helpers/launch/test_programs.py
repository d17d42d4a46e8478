"""Checks of a job that does not run: its program built ahead, and its settings, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest

from helpers.judging.utilisation import Peak
from helpers.launch.programs import (
    BuildReport,
    BuildState,
    Finished,
    Peaks,
    Probe,
    card_environment,
    check_builds,
    check_settings,
    measure_peak,
    read_report,
    run_process,
    why_no_build_check,
)
from helpers.machine.devices import CpuCard
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError, ResultError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs256-1x8-native-static")
ANSWER = {
    "built": True,
    "reason": None,
    "facts": {"FLAGS_a": "1", "FLAGS_b": "not applied: this build of Paddle does not know it"},
    "operators": 500,
    "parameters": 25557032,
}
GPU = Gpu(0, "GPU-aa", "NVIDIA H100 80GB HBM3", 80 * 1024**3, (9, 0), 700)
CARD = CpuCard(1, tuple(sorted(os.sched_getaffinity(0)))[:1])
BUILD = {"interpreter": sys.executable, "framework": "pytorch", "version": "2.13.0", "commit": "abc"}
PROBE = Probe(BUILD, "bf16", "cpu", CARD, "host")
PEAK = Peak("bf16", "cpu", "AMD EPYC", "", 0.46, 1024, 5, "torch.matmul", "2.13.0")


def job(folder: Path, name: str = "1") -> JobSpec:
    (folder / name).mkdir()
    suite_case = SuiteCase(CASE, "v100", MeasuringProtocol("p", 1, 1, 1))
    settings = settings_for(CASE, "gpu")
    return draft_job(suite_case, settings, device="gpu", run_folder=str(folder / name), job_id=f"build-{name}")


@dataclass
class Answers:
    """Stands where run_process stands."""

    finished: Finished
    asked: list[tuple[tuple[str, ...], Mapping[str, str], str, float]] = field(default_factory=list)

    def __call__(
        self, argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float
    ) -> Finished:
        self.asked.append((argv, environment, job_id, timeout_seconds))
        return self.finished


def ended(record: object, returncode: int | None = 0, stderr: str = "") -> Finished:
    return Finished(returncode, f"a line of Paddle's own\n{json.dumps(record)}\n", stderr)


def test_a_job_is_started_with_its_spec_and_the_case_s_own_variables(tmp_path: Path) -> None:
    answers = Answers(ended(ANSWER))
    spec = job(tmp_path)
    (report,) = check_builds([spec], "/opt/python", timeout_seconds=7, run=answers)
    ((argv, environment, job_id, seconds),) = answers.asked
    assert argv == ("/opt/python", "-u", "-m", "helpers.trainers.paddle.build", str(spec.spec_path))
    assert JobSpec.from_json(spec.spec_path.read_text(encoding="utf-8")).case == CASE
    assert environment["FLAGS_conv_workspace_size_limit"] == "4000"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert (job_id, seconds) == ("build-1", 7)
    assert report.state is BuildState.BUILT
    assert (report.operators, report.parameters) == (500, 25557032)


def test_reports_come_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    def answer(argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float) -> Finished:
        return ended({**ANSWER, "operators": int(job_id.removeprefix("build-"))})

    specs = [job(tmp_path, str(number)) for number in range(5)]
    assert [report.operators for report in check_builds(specs, "python", run=answer)] == [0, 1, 2, 3, 4]


def test_jobs_with_the_same_variables_share_a_process_and_have_reports_of_their_own(tmp_path: Path) -> None:
    pairs = [[0, ANSWER], [3, {**ANSWER, "built": False, "reason": "no BuildStrategy"}]]
    answers = Answers(ended(pairs))
    specs = [job(tmp_path, "1"), job(tmp_path, "2")]
    first, second = check_builds(specs, "python", timeout_seconds=7, run=answers)
    ((argv, _, _, seconds),) = answers.asked
    assert argv[-2:] == tuple(str(spec.spec_path) for spec in specs)
    assert seconds == 7
    assert (first.state, second.state) == (BuildState.BUILT, BuildState.REFUSED)


def test_jobs_with_other_variables_have_a_process_of_their_own(tmp_path: Path) -> None:
    answers = Answers(ended(ANSWER))
    other = replace(job(tmp_path, "2"), environment={"FLAGS_benchmark": "1"})
    reports = check_builds([job(tmp_path, "1"), other], "python", run=answers)
    assert [len(argv) for argv, *_ in answers.asked] == [5, 5]
    assert [report.state for report in reports] == [BuildState.BUILT] * 2


def test_each_job_of_automatic_parallelism_has_a_process_of_its_own(tmp_path: Path) -> None:
    answers = Answers(ended(ANSWER))
    auto = Case.parse("paddle-vgg16-unstated-bs32-1x8-dali-static-auto")
    check_builds([replace(job(tmp_path, each), case=auto) for each in "12"], "python", run=answers)
    assert [len(argv) for argv, *_ in answers.asked] == [5, 5]


def test_a_crash_of_several_builds_costs_the_one_that_crashes_alone(tmp_path: Path) -> None:
    def crash(argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float) -> Finished:
        return Finished(-11, "", "Segmentation fault") if "2" in Path(argv[-1]).parent.name else ended(ANSWER)

    reports = check_builds([job(tmp_path, "1"), job(tmp_path, "2")], "python", run=crash)
    assert [report.state for report in reports] == [BuildState.BUILT, BuildState.FAILED]
    assert reports[1].reason == "exit status -11: Segmentation fault"


@pytest.mark.parametrize("hanging", [{"2"}, {"2", "3", "4"}])
def test_a_hang_of_several_builds_is_told_of_those_that_hang_and_the_wait_is_bounded(
    tmp_path: Path, hanging: set[str]
) -> None:
    waited: list[float] = []

    def hang(argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float) -> Finished:
        if hanging & {Path(path).parent.name for path in argv[4:]}:
            waited.append(timeout_seconds)
            return Finished(None, "", "")
        return ended(ANSWER)

    told: list[str] = []
    specs = [job(tmp_path, each) for each in "12345678"]
    reports = check_builds(
        specs, "python", timeout_seconds=300, run=hang, on_report=lambda spec, report: told.append(spec.job_id)
    )
    reasons = {spec.job_id.removeprefix("build-"): report.reason for spec, report in zip(specs, reports, strict=True)}
    assert told == [spec.job_id for spec in specs]
    if len(hanging) == 1:
        assert {name: why for name, why in reasons.items() if why} == {"2": "it hangs: not done within 100 s"}
        assert waited == [300, 100]
        return
    assert (reasons["1"], reasons["3"]) == ("", "it hangs: not done within 100 s")
    assert {reasons[each] for each in "45678"} == {"not tried alone: 2 programs before it hang"}
    assert {report.state for report in reports[1:]} == {BuildState.FAILED}
    assert waited == [300, 100, 100]


def test_flags_that_the_build_does_not_know_are_named() -> None:
    assert read_report(ended(ANSWER)).not_applied == ("FLAGS_b",)
    assert BuildReport(BuildState.BUILT).not_applied == ()


def test_a_refusal_has_its_reason() -> None:
    report = read_report(ended({**ANSWER, "built": False, "reason": "no BuildStrategy", "operators": None}, 3))
    assert (report.state, report.reason, report.operators) == (BuildState.REFUSED, "no BuildStrategy", None)


@pytest.mark.parametrize(
    ("finished", "told"),
    [
        (ended({**ANSWER, "built": False, "reason": "TypeError: x"}, 1), "exit status 1: TypeError: x"),
        (ended(ANSWER, 3), "exit status 3, but built is True"),
        (ended({**ANSWER, "built": False}, 0), "exit status 0, but built is False"),
        (ended({**ANSWER, "built": 1}, 0), "exit status 0"),
        (ended({**ANSWER, "facts": {"a": 1}}), "exit status 0"),
        (ended({**ANSWER, "operators": -1}), "exit status 0"),
        (ended({key: value for key, value in ANSWER.items() if key != "facts"}), "exit status 0"),
        (ended({**ANSWER, "more": 1}), "exit status 0"),
        (ended([1]), "exit status 0"),
        (Finished(-11, "", "C++ stack\nSegmentation fault\n"), "exit status -11: Segmentation fault"),
        (Finished(1, "only this", ""), "exit status 1: only this"),
        (Finished(0, "", ""), "exit status 0: no output"),
    ],
)
def test_an_answer_that_is_none_or_contradicts_its_exit_is_a_failure(finished: Finished, told: str) -> None:
    report = read_report(finished)
    assert report.state is BuildState.FAILED
    assert told in report.reason


def test_a_build_that_does_not_end_is_a_failure_that_says_how_long_it_had(tmp_path: Path) -> None:
    (report,) = check_builds([job(tmp_path)], "python", timeout_seconds=60, run=Answers(Finished(None, "", "")))
    assert (report.state, report.reason) == (BuildState.FAILED, "it hangs: not done within 60 s")


def test_a_framework_without_a_build_check_says_so(tmp_path: Path) -> None:
    assert "helpers/trainers/mxnet/build.py" in (why_no_build_check(Framework.MXNET, tmp_path) or "")
    (tmp_path / "helpers/trainers/mxnet").mkdir(parents=True)
    (tmp_path / "helpers/trainers/mxnet/build.py").write_text("", encoding="utf-8")
    assert why_no_build_check(Framework.MXNET, tmp_path) is None


def test_a_real_process_s_output_and_exit_come_back() -> None:
    argv = (sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    finished = run_process(argv, os.environ, "job", 30)
    assert finished == Finished(3, "out\n", "err\n")


@pytest.mark.slow
def test_a_real_process_is_ended_with_its_children_when_its_time_is_over(tmp_path: Path) -> None:
    told = tmp_path / "child"
    code = (
        "import subprocess, sys, pathlib; child = subprocess.Popen([sys.executable, '-c', 'input()'], "
        "stdin=subprocess.PIPE); "
        f"pathlib.Path({str(told)!r}).write_text(str(child.pid)); child.wait()"
    )
    finished = run_process((sys.executable, "-c", code), os.environ, f"job-{os.getpid()}", 2)
    assert finished.returncode is None
    assert not _alive(int(told.read_text(encoding="utf-8")))


def test_an_interpreter_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no-such-python"):
        check_builds([job(tmp_path)], "/no-such-python")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def job_with_settings(case_id: str, device: str) -> JobSpec:
    case = Case.parse(case_id)
    suite_case = SuiteCase(case, "cpu", MeasuringProtocol("p", 1, 1, 1))
    return draft_job(suite_case, settings_for(case, device), device=device, run_folder="RUN")


def answering(folder: Path, text: str, status: int = 0) -> str:
    """An interpreter that prints ``text`` whatever it is asked."""
    script = folder / "python"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.stdin.read()\nprint({text!r})\nsys.exit({status})\n", encoding="utf-8"
    )
    script.chmod(0o755)
    return str(script)


def test_complete_settings_have_no_problem_and_wrong_ones_are_named() -> None:
    right = job_with_settings("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")
    wrong = replace(right, settings={**right.settings, "layout": "CHW"})
    short = replace(right, settings={key: value for key, value in right.settings.items() if key != "momentum"})
    first, second, third = check_settings([right, wrong, short])
    assert first is None
    assert "'layout'" in (second or "")
    assert "momentum" in (third or "")


def test_nothing_is_started_for_no_jobs() -> None:
    assert check_settings([], "/no-such-python") == ()


@pytest.mark.parametrize(
    ("text", "status"), [("[null, null]", 0), ("[1]", 0), ("no JSON", 0), ("{}", 0), ("[null]", 1), ("", 0)]
)
def test_a_check_that_gives_no_answer_for_each_job_is_an_error(tmp_path: Path, text: str, status: int) -> None:
    with pytest.raises(LaunchError, match=r"common\.settings"):
        check_settings(
            [job_with_settings("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")],
            answering(tmp_path, text=text, status=status),
        )


def test_an_interpreter_without_which_no_settings_are_checked_is_an_error() -> None:
    with pytest.raises(LaunchError, match="no-such-python"):
        check_settings([job_with_settings("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")], "/no-such-python")


@dataclass
class Measured:
    """Stands where measure_peak stands: answers, or raises, and counts."""

    answer: Peak | Exception = PEAK
    asked: list[Probe] = field(default_factory=list)

    def __call__(self, probe: Probe) -> Peak:
        self.asked.append(probe)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def program(folder: Path, body: str) -> Probe:
    """A probe whose interpreter is a program of the test's; ``sys`` and ``json`` are imported, ANSWER is a peak's."""
    text = f"#!{sys.executable}\nimport json, os, sys, time\nANSWER = {asdict(PEAK)!r}\n{body}\n"
    path = folder / "python"
    path.write_text(text)
    path.chmod(0o755)
    return replace(PROBE, build={**BUILD, "interpreter": str(path)})


# ---- once a session


def test_a_peak_is_measured_once_and_told_first(tmp_path: Path) -> None:
    measured, told = Measured(), list[str]()
    peaks = Peaks(tmp_path / "session", measured)
    assert [peaks.of(PROBE, lambda: told.append("now")) for _ in range(2)] == [PEAK, PEAK]
    assert (measured.asked, told) == ([PROBE], ["now"])


def test_another_process_of_the_session_finds_it(tmp_path: Path) -> None:
    Peaks(tmp_path, Measured()).of(PROBE)
    later = Measured(LaunchError("not asked"))
    assert Peaks(tmp_path, later).of(PROBE) == PEAK
    assert later.asked == []


@pytest.mark.parametrize(
    "other",
    [
        replace(PROBE, precision="fp32"),
        replace(PROBE, build={**BUILD, "commit": "def"}),
        replace(PROBE, card=CpuCard(1, (7, 8))),
        replace(PROBE, card=GPU, device="gpu"),
        replace(PROBE, host_id="another"),
        replace(PROBE, variables={"MKL_DEBUG_CPU_TYPE": "7"}),
    ],
)
def test_another_build_card_or_precision_has_a_peak_of_its_own(tmp_path: Path, other: Probe) -> None:
    measured = Measured()
    peaks = Peaks(tmp_path, measured)
    peaks.of(PROBE)
    peaks.of(other)
    assert measured.asked == [PROBE, other]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"tflops": NaN}', "\ud800", "[" * 100_000])
def test_a_damaged_file_is_measured_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / PROBE.name).write_bytes(text.encode("utf-8", "surrogatepass"))
    assert Peaks(tmp_path, Measured()).of(PROBE) == PEAK
    assert json.loads((tmp_path / PROBE.name).read_text()) == asdict(PEAK)


def test_a_folder_that_cannot_be_written_costs_another_probe_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    measured = Measured()
    peaks = Peaks(tmp_path / "file", measured)
    assert [peaks.of(PROBE), peaks.of(PROBE)] == [PEAK, PEAK]
    assert len(measured.asked) == 2


@pytest.mark.parametrize(
    "error",
    [LaunchError("probe", got="no\nanswer"), ResultError("probe", got="no answer"), PermissionError("/proc: no")],
)
def test_a_probe_that_failed_is_a_reason_and_not_tried_again(tmp_path: Path, error: Exception) -> None:
    measured = Measured(error)
    peaks = Peaks(tmp_path, measured)
    reasons = [peaks.of(PROBE), peaks.of(PROBE)]
    assert reasons[0] == reasons[1] == f"the peak could not be measured: {error}"
    assert len(measured.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_nothing_can_measure_is_told_without_a_process(tmp_path: Path) -> None:
    measured = Measured()
    peaks = Peaks(tmp_path, measured)
    assert peaks.of(replace(PROBE, precision="unstated")) == "no matrix product is known for precision unstated"
    told = peaks.of(replace(PROBE, build={**BUILD, "framework": "caffe"}))
    assert told == "caffe has no program that measures the peak (helpers.trainers.caffe.peak)"
    assert measured.asked == []


@pytest.mark.parametrize("framework", ["paddle", "pytorch", "tensorflow", "mxnet"])
def test_the_frameworks_that_train_have_a_program(tmp_path: Path, framework: str) -> None:
    assert Peaks(tmp_path, Measured()).of(replace(PROBE, build={**BUILD, "framework": framework})) == PEAK


# ---- the process


def test_the_program_gets_its_cores_and_variables_and_is_marked_as_a_job(tmp_path: Path) -> None:
    body = (
        "seen = [*sys.argv[1:], *(os.environ[n] for n in ('CUDA_VISIBLE_DEVICES', 'X', 'PERFGATE_SUPERVISOR'))]\n"
        "print('noise'); print(json.dumps({**ANSWER, 'how': ' '.join(seen)}))"
    )
    probe = replace(program(tmp_path, body), variables={"X": "7"})
    words = measure_peak(probe).how.split(" ")
    assert words[:6] == ["-m", "helpers.trainers.pytorch.peak", "bf16", "cpu", "--cores", str(CARD.cores[0])]
    assert words[6:8] == ["", "7"]
    assert f"/{os.getpid()}/" in words[8]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("print('first', file=sys.stderr); print('refused: no such arithmetic', file=sys.stderr); sys.exit(3)",
         "refused: no such arithmetic"),
        ("sys.exit(1)", "returned non-zero exit status 1"),
        ("os.kill(os.getpid(), 9)", "died with <Signals.SIGKILL: 9>"),
        ("pass", "no JSON object in its output"),
        ("print('no JSON')", "no JSON object in its output"),
        ("print('[' * 100000)", "maximum recursion depth exceeded"),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_told_by_its_last_words(tmp_path: Path, body: str, told: str) -> None:
    with pytest.raises(LaunchError, match=r"pytorch\.peak bf16 cpu: got .*expected a measured peak") as error:
        measure_peak(program(tmp_path, body))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("changed", "told"),
    [("'precision': 'fp32'", "fp32 on AMD EPYC"), ("'uuid': 'GPU-other'", "bf16 on GPU-other")],
)
def test_another_card_or_precision_than_asked_for_is_no_peak(tmp_path: Path, changed: str, told: str) -> None:
    with pytest.raises(LaunchError, match=rf"got '{told}', expected bf16 on cpu1"):
        measure_peak(program(tmp_path, f"print(json.dumps({{**ANSWER, {changed}}}))"))


def test_an_answer_that_is_no_peak_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="tflops"):
        measure_peak(program(tmp_path, "print(json.dumps({**ANSWER, 'tflops': -1}))"))


# Writes its own id and that of a child which left its session and holds its output open.
_WITH_A_CHILD = (
    "import subprocess\n"
    "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    "open({path!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["time.sleep(60)", "print(json.dumps(ANSWER))"])
def test_a_program_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, communicate = tmp_path / "pids", subprocess.Popen.communicate

    def communicate_once_started(process: subprocess.Popen[str], **limits: float) -> tuple[str, str]:
        wait_for_text(path)
        return communicate(process, **limits)

    monkeypatch.setattr("subprocess.Popen.communicate", communicate_once_started)
    probe = program(tmp_path, _WITH_A_CHILD.format(path=str(path)) + then)
    with pytest.raises(LaunchError, match=r"no answer within 1 s"):
        measure_peak(probe, timeout_seconds=1)
    assert not any(alive(pid) for pid in path.read_text().split())


def test_an_interrupt_of_this_process_alone_ends_the_program_too(tmp_path: Path) -> None:
    path = tmp_path / "pids"
    probe = program(tmp_path, _WITH_A_CHILD.format(path=str(path)) + "time.sleep(60)")

    def interrupt() -> None:
        wait_for_text(path)
        os.kill(os.getpid(), signal.SIGINT)

    # In the background the tests' own process ignores it.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            measure_peak(probe, timeout_seconds=30)
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert not any(alive(pid) for pid in path.read_text().split())


def wait_for_text(path: Path) -> None:
    while not path.exists() or not path.read_text():
        time.sleep(0.01)


def alive(pid: str) -> bool:
    """A zombie is not: an orphan's new parent may not have asked for it yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="No such file"):
        measure_peak(replace(PROBE, build={**BUILD, "interpreter": str(tmp_path / "none")}))


def test_only_the_leased_card_is_seen_by_its_uuid() -> None:
    on_gpu = card_environment(GPU, {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "3", "PYTHONPATH": "/mine"})
    assert (on_gpu["CUDA_VISIBLE_DEVICES"], on_gpu["PATH"]) == ("GPU-aa", "/bin")
    assert on_gpu["PYTHONPATH"].endswith(":/mine")
    assert card_environment(CARD, {})["CUDA_VISIBLE_DEVICES"] == ""
