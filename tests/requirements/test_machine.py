"""What a machine gets: the set that its GPUs and Python can run, or what it lacks and how to get it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.nvml_stub import LOST, V100_16, machine_of, needs_compiler, nvml_library
from tests.requirements.scripts import REQUIREMENTS, load

machine: Any = load("machine")
V100 = machine.Gpu("Tesla V100-SXM2-32GB", (7, 0))
A100 = machine.Gpu("A100-SXM4-80GB", (8, 0))
H200 = machine.Gpu("H200", (9, 0))
P100 = machine.Gpu("Tesla P100-PCIE-16GB", (6, 0))


# ---- the choice


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_without_a_gpu_the_cpu_set_is_taken(minor: int) -> None:
    assert machine.choose_set([], (3, minor, 1)) == "cpu"


@pytest.mark.parametrize("minor", [11, 12])
@pytest.mark.parametrize("capability", [(6, 1), (7, 0), (7, 5), (8, 0), (8, 6)])
def test_gpus_of_the_supported_capabilities_take_the_cuda_11_set(capability: tuple[int, int], minor: int) -> None:
    gpus = [V100, machine.Gpu("a card", capability)]
    assert machine.choose_set(gpus, (3, minor, 1)) == "gpu-cuda11"


@pytest.mark.parametrize("gpu", [H200, P100])
def test_another_gpu_is_refused_by_name_with_what_to_do(gpu: Any) -> None:
    with pytest.raises(machine.SetUpError) as caught:
        machine.choose_set([V100, gpu], (3, 11, 7))
    text = str(caught.value)
    assert f"NVIDIA {gpu.name} of compute capability {gpu.capability[0]}.{gpu.capability[1]}" in text
    assert "6.1 to 8.6" in text
    assert "frameworks.paddle.interpreter in perf.yaml" in text
    assert "make REQUIREMENTS=cpu perf" in text


@pytest.mark.parametrize(
    ("capabilities", "chosen"),
    [
        ([], "pytorch-cpu"),
        ([(7, 0)], "pytorch-gpu-cuda12"),
        ([(7, 0), (7, 0)], "pytorch-gpu-cuda12"),
        ([(7, 2)], "pytorch-gpu-cuda12"),
        ([(7, 5)], "pytorch-gpu"),
        ([(8, 0), (9, 0)], "pytorch-gpu"),
        ([(12, 1)], "pytorch-gpu"),
        ([(7, 0), (9, 0)], "pytorch-gpu-cuda12"),
    ],
)
def test_pytorch_s_set_has_code_for_every_card_and_is_the_newest_that_has(
    capabilities: list[tuple[int, int]], chosen: str
) -> None:
    assert machine.choose_pytorch_set([machine.Gpu("a card", each) for each in capabilities]) == chosen


@pytest.mark.parametrize("cards", [[P100], [V100, P100], [V100, machine.Gpu("a card", (12, 1))]])
def test_cards_that_no_set_of_pytorch_has_code_for_are_refused_by_name(cards: list[Any]) -> None:
    with pytest.raises(machine.SetUpError) as caught:
        machine.choose_pytorch_set(cards)
    text = str(caught.value)
    assert all(f"NVIDIA {card.name} of compute capability" in text for card in cards)
    assert "runs on 7.5 and newer, requirements/pytorch-gpu-cuda12.txt on 7.0 to 12.0" in text
    assert "frameworks.pytorch.interpreter in perf.yaml" in text
    assert "bootstrap.py --requirements pytorch-cpu" in text


@pytest.mark.parametrize(
    ("capabilities", "chosen"),
    [
        ([], "tensorflow-cpu"),
        ([(7, 0)], "tensorflow-gpu"),
        ([(6, 0), (9, 0)], "tensorflow-gpu"),
        ([(12, 1)], "tensorflow-gpu"),
    ],
)
def test_tensorflow_s_set_has_code_for_every_card(capabilities: list[tuple[int, int]], chosen: str) -> None:
    assert machine.choose_tensorflow_set([machine.Gpu("a card", each) for each in capabilities]) == chosen


def test_a_card_that_tensorflow_has_no_code_for_is_refused_by_name_and_no_other() -> None:
    with pytest.raises(machine.SetUpError) as caught:
        machine.choose_tensorflow_set([V100, machine.Gpu("Tesla M40", (5, 2))])
    text = str(caught.value)
    assert "has an NVIDIA Tesla M40 of compute capability 5.2; requirements/tensorflow-gpu.txt runs on 6.0" in text
    assert "frameworks.tensorflow.interpreter in perf.yaml" in text
    assert "bootstrap.py --requirements tensorflow-cpu" in text


@pytest.mark.parametrize(
    ("capabilities", "chosen"),
    [([], "mxnet-cpu"), ([(7, 0)], "mxnet-gpu"), ([(8, 0), (8, 6)], "mxnet-gpu"), ([(5, 0)], "mxnet-gpu")],
)
def test_mxnet_s_set_follows_the_cards(capabilities: list[tuple[int, int]], chosen: str) -> None:
    assert machine.choose_mxnet_set([machine.Gpu("a card", each) for each in capabilities]) == chosen


def test_a_card_that_is_newer_than_mxnet_is_refused_by_name() -> None:
    with pytest.raises(machine.SetUpError) as caught:
        machine.choose_mxnet_set([V100, H200])
    text = str(caught.value)
    assert "NVIDIA H200 of compute capability 9.0; requirements/mxnet-gpu.txt runs on 5.0 to 8.6" in text
    assert "retired" in text and "bootstrap.py --requirements mxnet-cpu" in text


def test_a_gpu_with_python_3_13_is_refused_with_the_pythons_that_do() -> None:
    with pytest.raises(machine.SetUpError, match=r"V100.*Python 3\.11 to 3\.12; this is Python 3\.13\.0"):
        machine.choose_set([V100], (3, 13, 0))


@pytest.mark.parametrize(
    ("chosen", "remedy"),
    [
        ("gpu-cuda11", r"make PYTHON=/path/to/python3\.12 perf\. To measure the CPU"),
        ("gpu-wheel-on-cpu", r"make PYTHON=/path/to/python3\.12 test-paddle26$"),
    ],
)
@pytest.mark.parametrize("version", [(3, 10, 20), (3, 13, 1)])
def test_a_set_with_the_gpu_wheel_names_the_pythons_it_exists_for(
    chosen: str, remedy: str, version: tuple[int, int, int]
) -> None:
    with pytest.raises(
        machine.SetUpError, match=rf"^asked for, whose wheels exist for Python 3\.11 to 3\.12.*{remedy}"
    ):
        machine.check_gpu_python(version, chosen, "asked for")


# Half of the cards are near those that have a set. Of cards from anywhere hardly any would have one.
CAPABILITIES = st.tuples(st.integers(6, 8), st.integers(0, 7)) | st.tuples(st.integers(0, 20), st.integers(0, 20))


@given(CAPABILITIES, st.sampled_from([11, 12]) | st.integers(0, 30))
def test_every_gpu_and_python_get_a_set_that_exists_or_an_error(capability: tuple[int, int], minor: int) -> None:
    fits = (6, 1) <= capability <= (8, 6) and 11 <= minor <= 12
    try:
        chosen = machine.choose_set([machine.Gpu("a card", capability)], (3, minor, 0))
    except machine.SetUpError:
        assert not fits
    else:
        assert fits
        assert (REQUIREMENTS / f"{chosen}.txt").is_file()


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 10, 20), (3, 14, 0), (4, 0, 0)])
def test_a_python_without_wheels_is_refused_with_those_that_have_them(version: tuple[int, int, int]) -> None:
    with pytest.raises(machine.SetUpError, match=r"expected 3\.11 to 3\.13.*make PYTHON="):
        machine.check_python(version)


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_a_python_with_wheels_is_accepted(minor: int) -> None:
    assert machine.check_python((3, minor, 0)) is None


@pytest.mark.parametrize(
    "kind",
    [("Linux", "aarch64", "glibc"), ("Darwin", "arm64", ""), ("Linux", "x86_64", ""), ("Windows", "AMD64", "")],
)
def test_a_machine_without_wheels_is_refused(kind: tuple[str, str, str]) -> None:
    with pytest.raises(machine.SetUpError, match="Linux on x86_64 with glibc"):
        machine.check_platform(*kind)


def test_missing_libraries_are_named_with_their_packages() -> None:
    with pytest.raises(machine.SetUpError) as caught:
        machine.check_libraries(lambda name: name == "libgcc_s.so.1")
    assert "libstdc++.so.6, libz.so.1" in str(caught.value)
    assert "apt-get install libstdc++6 zlib1g;" in str(caught.value)
    assert "dnf install libstdc++ zlib" in str(caught.value)


# ---- the driver


@pytest.mark.parametrize(
    ("gpus", "driver", "chosen"),
    [
        ([V100], (450, 80, 2), "gpu-cuda11"),
        ([V100], (), "gpu-cuda11"),
        ([V100], (450, 80, 1), "this machine's NVIDIA driver is 450.80.01; requirements/gpu-cuda11.txt is for CUDA 11"),
        ([V100], (418, 226), "which needs 450.80.02 or newer. Update the driver. To measure the CPU on purpose"),
    ],
)
def test_paddle_s_set_needs_a_driver_of_cuda_11(gpus: list[Any], driver: tuple[int, ...], chosen: str) -> None:
    try:
        assert machine.choose_set(gpus, (3, 11, 7), driver) == chosen
    except machine.SetUpError as error:
        assert chosen in str(error)


@pytest.mark.parametrize(
    ("gpus", "driver", "chosen"),
    [
        ([A100], (580, 65, 6), "pytorch-gpu"),
        ([A100], (), "pytorch-gpu"),
        ([A100], (535, 104, 5), "pytorch-gpu-cuda12"),
        ([A100, V100], (525, 60, 13), "pytorch-gpu-cuda12"),
        ([A100], (470, 256, 2), "pytorch-gpu-cuda12.txt is for CUDA 12, which needs 525 or newer"),
        ([machine.Gpu("a card", (12, 1))], (570, 1), "pytorch-gpu.txt is for CUDA 13, which needs 580 or newer"),
    ],
)
def test_pytorch_s_set_is_the_newest_that_the_driver_serves(
    gpus: list[Any], driver: tuple[int, ...], chosen: str
) -> None:
    try:
        assert machine.choose_pytorch_set(gpus, driver) == chosen
    except machine.SetUpError as error:
        assert chosen in str(error)


@pytest.mark.parametrize(
    ("choose", "least"), [(machine.choose_tensorflow_set, "525"), (machine.choose_mxnet_set, "450.80.02")]
)
def test_a_driver_too_old_for_another_framework_is_told(choose: Callable[..., str], least: str) -> None:
    with pytest.raises(machine.SetUpError, match=f"NVIDIA driver is 440.33.*needs {least} or newer"):
        choose([V100], (440, 33))
    assert choose([], (440, 33)).endswith("-cpu")


def test_the_driver_is_the_kernel_module_s(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 9.4.0\n"
    )
    assert machine.find_driver(str(file)) == (535, 104, 5)
    file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n")
    assert machine.find_driver(str(file)) == (570, 124, 6)
    assert machine.find_driver(str(tmp_path / "none")) == ()


# ---- what NVML says


class FakeNvml:
    """The calls bootstrap makes, over a list of GPUs; ``failing`` maps a function to its error code."""

    def __init__(self, gpus: Sequence[Any], failing: dict[str, int] | None = None) -> None:
        self.gpus, self.failing, self.was_shut_down = gpus, failing or {}, False
        self.nvmlErrorString: Callable[[int], bytes] = _Text(b"Driver Not Loaded")

    def __getattr__(self, name: str) -> Callable[..., int]:
        code = self.failing.get(name, 0)
        return (lambda *_: code) if code else getattr(self, "_" + name)

    def _nvmlInit_v2(self) -> int:
        return 0

    def _nvmlShutdown(self) -> int:
        self.was_shut_down = True
        return 0

    def _nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return 0

    def _nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return 0

    def _nvmlDeviceGetName(self, handle: ctypes.c_void_p, name: Any, size: ctypes.c_uint) -> int:
        assert handle.value is not None
        assert size.value >= 96
        name.value = self.gpus[handle.value - 1].name.encode()
        return 0

    def _nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p, major: Any, minor: Any) -> int:
        assert handle.value is not None
        major._obj.value, minor._obj.value = self.gpus[handle.value - 1].capability
        return 0


class _Text:
    restype: object = None

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __call__(self, code: int) -> bytes:
        return self.text


def _unloadable(message: str) -> Callable[[str], ctypes.CDLL]:
    def load(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: {message}")

    return load


def test_every_gpu_is_found_with_name_and_capability() -> None:
    # An A100 as its driver names it: the sentences say whose it is.
    nvml = FakeNvml([V100, A100._replace(name=f"NVIDIA {A100.name}")])
    assert machine.find_gpus(lambda _: nvml) == [V100, A100]
    assert nvml.was_shut_down


def test_a_machine_without_the_driver_library_has_no_gpus(tmp_path: Path) -> None:
    load = _unloadable("cannot open shared object file: No such file or directory")
    assert machine.find_gpus(load, str(tmp_path / "absent")) == []


def test_a_driver_without_its_library_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    load = _unloadable("cannot open shared object file: No such file or directory")
    with pytest.raises(machine.SetUpError, match="lists GPUs, but their library"):
        machine.find_gpus(load, str(tmp_path))


def test_a_library_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(machine.SetUpError, match="file too short"):
        machine.find_gpus(_unloadable("file too short"), str(tmp_path / "absent"))


@pytest.mark.parametrize(
    "name", ["nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetName", "nvmlDeviceGetCudaComputeCapability"]
)
def test_a_driver_that_does_not_answer_is_an_error_and_never_the_cpu(name: str) -> None:
    nvml = FakeNvml([V100], failing={name: 9})
    with pytest.raises(machine.SetUpError, match=rf"{name} failed with error 9 \(Driver Not Loaded\)"):
        machine.find_gpus(lambda _: nvml)
    assert nvml.was_shut_down == (name != "nvmlInit_v2")


@needs_compiler
def test_bootstrap_chooses_by_the_cards_that_answer_and_says_which_does_not(tmp_path: Path) -> None:
    told: list[str] = []
    library = ctypes.CDLL(str(nvml_library(tmp_path, machine_of(V100_16, 8, {3: {"failures": LOST}}))))
    assert machine.find_gpus(lambda _: library, tell=told.append) == [machine.Gpu(V100_16.name, (7, 0))] * 7
    assert len(told) == 1 and "GPU3: nvmlDeviceGetHandleByIndex_v2 failed with error 15 (GPU is lost)" in told[0]
    none_left = ctypes.CDLL(str(nvml_library(tmp_path / "none", machine_of(V100_16, 1, {0: {"failures": LOST}}))))
    with pytest.raises(machine.SetUpError, match=r"no GPU answers: GPU0: .*GPU is lost.*REQUIREMENTS=cpu"):
        machine.find_gpus(lambda _: none_left, tell=told.append)
