"""Every check on a machine with one fault: how bad, what it is called, the numbers, and what to do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.common.unknown import Unknown
from helpers.machine.doctor import diagnose
from helpers.machine.doctor.issue import Check, Context, Issue, Severity
from helpers.machine.facts import FrameworkFacts, Storage
from helpers.machine.host import Space
from helpers.machine.libraries import find_library
from helpers.machine.nvml import Gpu, GpuDetails
from helpers.machine.watch.contention import ContentionSample, ForeignProcess
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.machine.doctor.context import BUILD, LIBRARIES, context, facts, with_card, with_host, without_gpus
from tests.helpers.machines import GIB, details_of_all, gpu_machine, host_state, v100s

BLOCKER, WARNING, NOTE = Severity.BLOCKER, Severity.WARNING, Severity.NOTE
MIB = 1024**2
PAIRS = {cpu: frozenset({cpu % 24, cpu % 24 + 24}) for cpu in range(48)}
LOST = Gpu(8, "", "", 0, (0, 0), fault="NVML nvmlDeviceGetHandleByIndex: GPU is lost")
BUSY = ContentionSample(0.2, (ForeignProcess("cc1plus", 77, 0.4),), 1.0, 0.1)


def only(found: Context) -> Issue:
    issues = diagnose(found).issues
    assert len(issues) == 1, issues
    return issues[0]


def with_machine(**values: Any) -> Context:
    return context(facts=facts(machine=replace(gpu_machine(v100s()), **values)))


def of_all(**values: Any) -> dict[str, GpuDetails]:
    return {uuid: replace(each, **values) for uuid, each in details_of_all().items()}


def test_a_machine_in_order_has_no_finding() -> None:
    assert diagnose(context()).issues == ()
    # A quota that two CPUs cannot use up.
    assert diagnose(with_host(allowed_cpus=frozenset({0, 1}), quota_cores=2.0)).issues == ()


@pytest.mark.parametrize(
    ("broken", "severity", "name", "words"),
    [
        # cores
        (context(contention=BUSY), BLOCKER, "others on the cores", "20.0%.*cc1plus .pid 77.*hypervisor"),
        (context(contention=ContentionSample(None, note="no /proc/stat")), WARNING, "others on the cores", "no /proc"),
        (with_host(governors=frozenset({"powersave", "performance"})), WARNING, "frequency governor", "^powersave$"),
        (with_host(quota_cores=0.5), BLOCKER, "CPU quota", "0.5 cores"),
        (with_host(quota_cores=2.5), WARNING, "CPU quota", "2.5 cores for 48 CPUs"),
        (with_host(siblings=PAIRS, allowed_cpus=frozenset(range(4))), WARNING, "cores shared with others", "CPUs 0-3 "),
        (with_host(clock_source="hpet"), WARNING, "clock source", "hpet"),
        (context(files_from_the_future="20271121-0200, by 900 s"), WARNING, "wall clock", "behind 20271121-0200"),
        (with_host(numa_nodes={0: frozenset({0}), 1: frozenset({1})}, numa_balancing=True), WARNING,
         "automatic NUMA balancing", "on"),
        # memory, disk, limits
        (with_host(memory_available_bytes=3 * GIB), WARNING, "memory", "3.0 GiB"),
        (with_host(memory_limit_bytes=2 * GIB), WARNING, "memory", "2.0 GiB"),
        (with_host(swap_used_bytes=GIB), WARNING, "swap", "1.0 GiB"),
        (with_host(shared_memory=Space(64 * MIB, 64 * MIB)), BLOCKER, "/dev/shm", "64 MiB free of 64 MiB"),
        (with_host(shared_memory=Space(GIB, GIB)), WARNING, "/dev/shm", "1024 MiB free"),
        (with_host(open_files=1024), WARNING, "open files", "1024"),
        (with_host(locked_bytes=8 * MIB), WARNING, "locked memory", "8 MiB"),
        (context(runs=Space(GIB, 500 * MIB)), WARNING, "disk", "500 MiB"),
        (context(runs=Space(GIB, 50 * MIB)), BLOCKER, "disk", "50 MiB"),
        (context(runs=Space(GIB, 2 * GIB), runs_needed_bytes=3 * GIB), BLOCKER, "disk", "a night .* 3072 MiB"),
        (context(runs=Space(GIB, 4 * GIB), runs_needed_bytes=3 * GIB), WARNING, "disk", "4096 MiB free"),
        (with_host(processes=1024), WARNING, "processes", "1024 more"),
        (with_host(free_processes=3000), WARNING, "processes", "3000 more"),
        (with_host(free_processes=100), BLOCKER, "processes", "100 more"),
        (context(node_problems=("host b: b is not resolved within 2 s",)), BLOCKER, "nodes", "b is not resolved"),
        (context(history_problem="postgresql://db does not answer"), WARNING, "history", "does not answer"),
        (context(runs_problem="/runs cannot be written"), BLOCKER, "run folder", "/runs"),
        (with_machine(loopback_problem="127.0.0.1 cannot be reached"), BLOCKER, "ports", "cannot be reached"),
        (with_machine(home_problem="the home /proc cannot be written"), BLOCKER, "home", "/proc"),
        # data, other sessions, this shell
        (context(data_problem="/data/train_list.txt cannot be read"), BLOCKER, "dataset", "train_list"),
        (context(data_root=None), NOTE, "dataset", "for published cases of one node the suite makes images"),
        (context(leases=("GPU-0 is held by process 5",)), WARNING, "another session", "process 5"),
        (context(orphans=("python (pid 9)",)), WARNING, "left-over job", "pid 9"),
        (context(variables={"CUDA_LAUNCH_BLOCKING": "1"}), BLOCKER, "debugging switches", "CUDA_LAUNCH_BLOCKING=1"),
        (context(variables={"NCCL_ALGO": "Ring"}), WARNING, "variables of this shell", "NCCL_ALGO=Ring"),
        # cards
        (context(gpu_failure=DeviceError("NVML", got="not loaded")), BLOCKER, "NVIDIA driver", "not loaded"),
        (context(gpu_failure=DeviceError("GPUs", got="GPU0: lost")), BLOCKER, "GPUs", "GPU0: lost"),
        (with_card(processes=(41, 42)), BLOCKER, "processes on a card", "GPU3: pid 41, pid 42; 0.0 of 32 GiB in use"),
        (with_card(pages_pending=True), BLOCKER, "memory to be retired", "GPU3"),
        (with_card(memory_used_bytes=9 * GIB), WARNING, "memory in use on a card", "GPU3: 9.0 GiB"),
        (with_card(throttle_reasons=0x40, temperature_c=70), BLOCKER, "throttled card", "GPU3: hardware thermal"),
        (with_card(uncorrected_ecc=1), WARNING, "ECC errors", "GPU3"),
        (with_card(ecc=False), WARNING, "ECC off", "GPU3"),
        (with_card(persistence=False), WARNING, "persistence mode off", "GPU3"),
        (with_card(power_limit_watts=200), WARNING, "power limit", "GPU3: 200 W, by default 300 W"),
        (with_card(applications_clock_mhz=900), WARNING, "applications clock", "GPU3: 900 MHz, by default 1290 MHz"),
        (with_machine(faulty=(LOST,)), WARNING, "card left out", "GPU8 of unknown model: NVML .*: GPU is lost"),
        (with_machine(unread="CUDA stops at '9'"), WARNING, "visible cards", "stops at '9'"),
        (with_machine(shared_memory_problem="there is no /dev/shm"), BLOCKER, "/dev/shm", "there is no /dev/shm"),
        (with_card(pcie_width=8), WARNING, "narrow PCI Express", "GPU3: x8 of x16"),
        (with_card(cpus=frozenset({90})), WARNING, "cores far from a card", "GPU3"),
        (context(facts=facts(details=of_all(nvlinks=(False, False)))), WARNING, "no NVLink", "8 SXM cards"),
        (context(facts=facts(details=of_all(ecc=False))), NOTE, "ECC off", "GPU0, GPU1"),
        (context(facts=facts(storage={"data": Storage("nfs4", "server:/x")})), WARNING, "dataset's disk", "network"),
        (context(facts=facts(storage={"data": Storage("fuse.ssh", "host:/")})), WARNING, "dataset's disk", "network"),
        (with_host(allowed_cpus=frozenset({0, 1}), quota_cores=1.5), WARNING, "CPU quota", "1.5 cores for 2 CPUs"),
    ],
)  # fmt: skip
def test_one_fault_is_one_finding_with_its_numbers(broken: Context, severity: Severity, name: str, words: str) -> None:
    issue = only(broken)
    assert (issue.severity, issue.name) == (severity, name)
    assert re.search(words, issue.found), issue.found
    assert issue.why and issue.remedy


def test_work_on_the_cores_while_a_session_holds_them_is_no_blocker() -> None:
    found = diagnose(context(contention=BUSY, leases=("the machine is held by process 5",))).issues
    assert [(each.severity, each.name) for each in found] == [
        (WARNING, "others on the cores"),
        (WARNING, "another session"),
    ]


@pytest.mark.parametrize("held", ["the machine is held by process 5 for c", "GPU-3 is held by process 5 for c"])
def test_a_process_on_a_card_that_a_session_holds_is_no_blocker(held: str) -> None:
    found = diagnose(
        replace(with_card(processes=(41,)), leases=(held,), process_names={41: "python (pid 41, user ann)"})
    )
    assert found.fit
    issue = next(each for each in found.issues if each.name == "processes on a card")
    assert issue.severity is WARNING and "python (pid 41, user ann)" in issue.found


@pytest.mark.parametrize(
    ("version", "cuda", "archs", "card", "words"),
    [
        ("2.6.2", "11.8", "", (7, 0), ""),
        ("2.6.2", "11.8", "", (8, 9), ""),
        ("2.6.2", "11.8", "", (9, 0), r"sm_90, paddlepaddle-gpu 2\.6\.2 is for sm_61 to sm_86"),
        ("3.3.1", "11.8", "", (9, 0), ""),
        ("3.3.1", "11.8", "", (10, 0), "is for sm_35 to sm_90"),
        ("3.3.1", "12.0", "", (3, 7), "is for sm_50 to sm_90"),
        ("3.3.1", "12.0", "70 75 80 86", (8, 9), ""),
        ("3.3.1", "12.0", "75 80 86", (7, 0), "has kernels for sm_75, sm_80, sm_86"),
        ("3.3.1", "12.0", "80", (9, 0), "has kernels for sm_80"),
    ],
)
def test_a_build_must_have_kernels_for_the_card(
    version: str, cuda: str, archs: str, card: tuple[int, int], words: str
) -> None:
    gpus = tuple(replace(gpu, compute_capability=card) for gpu in v100s())
    build = FrameworkFacts(replace(BUILD, version=version), {**LIBRARIES, "cuda": cuda, "archs": archs})
    found = diagnose(context(facts=facts(machine=gpu_machine(gpus), frameworks=(build,)))).issues
    assert [each.name for each in found] == (["card and framework"] if words else [])
    assert not words or re.search(words, found[0].found), found[0].found


def test_a_cpu_card_over_two_memory_nodes_is_told() -> None:
    nodes = {0: frozenset(range(24)), 1: frozenset(range(24, 48))}
    machine = gpu_machine(v100s())
    wide = replace(machine, cpu_cards=(replace(machine.cpu_cards[0], cores=(23, 24)),))
    issue = only(context(facts=facts(machine=wide, host=host_state(numa_nodes=nodes))))
    assert (issue.name, issue.found) == ("NUMA", "the cores of cpu0 lie on more than one of 2 nodes")


def test_a_driver_too_old_for_the_build_is_named_with_the_least_that_will_do() -> None:
    machine = replace(gpu_machine(v100s()), driver="440.33.01", cuda_driver="10.2")
    framework = FrameworkFacts(BUILD, {**LIBRARIES, "dali_wheel": "none"})
    issue = only(context(facts=facts(machine=machine, frameworks=(framework,))))
    assert (issue.severity, issue.name) == (BLOCKER, "driver and framework")
    assert issue.found == (
        "driver 440.33.01 serves CUDA 10.2, paddle was built for 11.8, whose least driver is 450.80.02"
    )


@pytest.mark.parametrize(
    ("cuda", "severity"), [("13.0", BLOCKER), ("12.4", WARNING), ("12.0", None), ("11.8", None)]
)  # fmt: skip
def test_the_driver_must_serve_the_builds_cuda(cuda: str, severity: Severity | None) -> None:
    framework = FrameworkFacts(BUILD, {**LIBRARIES, "cuda": cuda})
    found = diagnose(context(facts=facts(frameworks=(framework,)))).issues
    assert [each.severity for each in found] == ([severity] if severity else [])
    assert all("driver 525.60.11 serves CUDA 12.0" in each.found for each in found)


def test_dali_must_be_for_the_drivers_cuda_too() -> None:
    machine = replace(gpu_machine(v100s()), driver="470.57", cuda_driver="11.4")
    framework = FrameworkFacts(BUILD, {**LIBRARIES, "cuda": "11.2", "dali_wheel": "nvidia-dali-cuda120 2.4.0"})
    issue = only(context(facts=facts(machine=machine, frameworks=(framework,))))
    assert (issue.severity, issue.name) == (BLOCKER, "driver and DALI")
    assert (
        issue.found
        == f"driver 470.57 serves CUDA 11.4, {BUILD.framework.value}'s nvidia-dali-cuda120 2.4.0 is for CUDA 12"
    )


def test_libraries_that_neither_a_wheel_nor_the_machine_has_are_told() -> None:
    found = diagnose(context(facts=facts(machine_libraries={}))).issues
    assert [(each.severity, each.name) for each in found] == [(WARNING, "cuDNN"), (WARNING, "NCCL")]
    one = gpu_machine(v100s()[:1])
    assert diagnose(context(facts=facts(machine=one, machine_libraries={"cudnn": ("8.9.7",)}))).issues == ()


@pytest.mark.parametrize(
    ("framework", "distribution", "version"),
    [(Framework.PADDLE, "paddlepaddle", "3.3.1"), (Framework.PYTORCH, "torch", "2.13.0+cpu")],
)
def test_a_build_without_gpu_kernels_beside_gpus_blocks(framework: Framework, distribution: str, version: str) -> None:
    build = replace(BUILD, framework=framework, distribution=distribution, version=version)
    found = FrameworkFacts(build, {"python": "3.11", "dali_wheel": "nvidia-dali-cuda120 2.4.0"})
    issue = only(context(facts=facts(frameworks=(found,))))
    assert (issue.severity, issue.name) == (BLOCKER, "framework build")
    assert f"{distribution} {version} has no GPU kernels, and here are 8 x " in issue.found


def test_a_framework_without_dali_and_one_whose_libraries_are_unknown_are_told() -> None:
    without = FrameworkFacts(BUILD, {"python": "3.11", "cuda": "11.8"})
    assert only(context(facts=facts(frameworks=(without,)))).name == "DALI"
    silent = FrameworkFacts(BUILD, "/opt/python does not answer")
    assert only(context(facts=facts(frameworks=(silent,)))).found == "/opt/python does not answer"


def test_a_missing_framework_blocks_only_where_it_is_the_only_one() -> None:
    problems = {"pytorch": "torch is not installed"}
    assert only(context(framework_problems=problems)).severity is NOTE
    assert only(context(framework_problems=problems, facts=facts(frameworks=()))).severity is BLOCKER


def test_a_card_on_the_bus_without_a_driver_blocks_and_hidden_cards_are_a_note() -> None:
    bare = without_gpus()
    issue = diagnose(replace(bare, gpus_on_bus=2)).issues[0]
    assert (issue.severity, issue.found) == (BLOCKER, "2 NVIDIA cards on the PCI bus, and no libnvidia-ml.so.1")
    machine = replace(bare.facts.machine, gpu_note="CUDA_VISIBLE_DEVICES is empty")
    hidden = replace(bare, gpus_on_bus=2, facts=replace(bare.facts, machine=machine))
    assert [each.name for each in diagnose(hidden).issues] == ["hidden GPUs"]


def test_secrets_and_foreign_variables_are_never_shown() -> None:
    variables = {
        "PYTORCH_TOKEN": "hunter2",
        "CUDA_API_KEY": "hunter2",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "HOME": "/x",
    }
    diagnosis = diagnose(context(variables=variables))
    assert "hunter2" not in repr(diagnosis)
    assert only(context(variables=variables)).found == "AWS_SECRET_ACCESS_KEY CUDA_API_KEY PYTORCH_TOKEN"


def test_what_could_not_be_looked_at_is_one_note() -> None:
    details = details_of_all()
    details["GPU-2"] = replace(details["GPU-2"], persistence=Unknown("no permission"))
    found = context(facts=facts(host=host_state(governors=Unknown("hidden")), details=details), runs=Unknown("gone"))
    issue = only(found)
    assert (issue.severity, issue.name) == (NOTE, "not looked at")
    assert issue.found == (
        "governors (hidden); GPU2 persistence (no permission); the run folder's disk (gone)"
    )  # fmt: skip


def test_a_card_or_host_of_which_nothing_is_known_breaks_no_check() -> None:
    details = details_of_all()
    details["GPU-5"] = replace(details["GPU-5"], **{name: Unknown("lost") for name in vars(details["GPU-5"])})
    assert only(context(facts=facts(details=details))).name == "not looked at"
    names = (
        "numa_nodes governors load_1m quota_cores clock_source hypervisor memory_available_bytes memory_limit_bytes "
        "swap_used_bytes huge_pages numa_balancing shared_memory"
    )
    host = host_state(**{name: Unknown("lost") for name in names.split()})
    assert only(context(facts=facts(host=host))).name == "not looked at"


def check(*severities: Severity, name: str = "a") -> Check:
    return lambda context: [Issue(each, name, "found", "why", "do") for each in severities]


def test_the_worst_comes_first_and_equals_keep_their_order() -> None:
    found = diagnose(context(), (check(NOTE, WARNING), check(WARNING, name="other"), check(BLOCKER))).issues
    assert [(each.severity, each.name) for each in found] == [
        (BLOCKER, "a"), (WARNING, "a"), (WARNING, "other"), (NOTE, "a"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("found", "fit", "verdict"),
    [
        ((BLOCKER, NOTE, NOTE), False, "NOT FIT to measure: 1 blocker, 2 notes;"),
        ((WARNING,), True, "FIT to measure, with reservations: 1 warning"),
        ((NOTE,), True, "FIT to measure: 1 note"),
        ((), True, "FIT to measure: nothing found"),
    ],
)
def test_a_blocker_alone_makes_the_machine_unfit(found: tuple[Severity, ...], fit: bool, verdict: str) -> None:
    diagnosis = diagnose(context(), (check(*found),))
    assert diagnosis.fit is fit and diagnosis.verdict.startswith(verdict)


def _opened(tmp_path: Path, *files: str, interpreter: str = "/opt/bin/python", card: int = 1) -> list[Issue]:
    """What the doctor finds of the libraries of Paddle 2.6.2 where these files are all there is under the root."""
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        if ".so." in name:
            (path.parent / f"{path.name.partition('.so')[0]}.so").symlink_to(path.name)
    names = BUILD.framework.spec.opens
    opened = {name: find_library(name, interpreter, {}, tmp_path) for name in names}
    framework = FrameworkFacts(BUILD, LIBRARIES, opened)
    machine = gpu_machine(v100s()[:card])
    return list(diagnose(context(facts=facts(machine=machine, frameworks=(framework,)))).issues)


def test_libraries_of_the_build_s_majors_are_no_finding(tmp_path: Path) -> None:
    files = ("usr/lib64/libcudnn.so.8", "usr/local/cuda/lib64/libcublas.so.11.11.3", "usr/lib64/libnccl.so.2.15.5")
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d/cuda.conf").write_text("# CUDA\n/usr/local/cuda/lib64\n")
    assert _opened(tmp_path, *files, card=8) == []


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            ["usr/lib64/libcudnn.so.9.5.1", "usr/lib64/libcublas.so.11"],
            "libcudnn.so.9.5.1 as libcudnn.so, and was built for cuDNN 8.6.0",
        ),
        (
            ["usr/lib64/libcudnn.so.8", "usr/lib/libcublas.so.12.6.4.1"],
            "libcublas.so.12.6.4.1 as libcublas.so, and was built for cuBLAS 11.8",
        ),
        # Paddle looks there for cuDNN alone.
        (
            ["usr/local/cuda/lib64/libcudnn.so.8", "usr/local/cuda/lib64/libcublas.so.11"],
            "no libcublas.so, which paddlepaddle-gpu 2.6.2 opens",
        ),
    ],
)
def test_a_library_of_another_cuda_or_none_blocks(tmp_path: Path, files: list[str], told: str) -> None:
    (issue,) = _opened(tmp_path, *files)
    assert issue.severity is BLOCKER
    assert told in issue.found


def test_a_library_without_the_name_that_paddle_opens_is_told_with_the_file_that_is_there(tmp_path: Path) -> None:
    """Where only libcudnn.so.9.5.1 is there."""
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libcudnn.so.9.5.1").touch()
    (issue,) = _opened(tmp_path, "usr/lib64/libcublas.so.11")
    assert (issue.severity, issue.name) == (BLOCKER, "cuDNN")
    assert issue.found == (
        f"no libcudnn.so, which paddlepaddle-gpu 2.6.2 opens; there is {tmp_path}/usr/lib64/libcudnn.so.9.5.1"
    )
    assert "make env" in issue.remedy


def test_the_environment_s_own_libraries_come_before_the_system_s(tmp_path: Path) -> None:
    own = ("env/lib/perfgate-cuda/libcudnn.so.8", "env/lib/perfgate-cuda/libcublas.so.11")
    system = ("usr/lib64/libcudnn.so.9.5.1", "usr/lib64/libcublas.so.12.6")
    assert _opened(tmp_path, *own, *system, interpreter=f"{tmp_path}/env/bin/python") == []
