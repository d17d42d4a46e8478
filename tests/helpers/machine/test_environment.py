from dataclasses import replace
from pathlib import Path

import pytest

from helpers.machine.environment import THREAD_VARIABLES, Environment, differences, flags_of, segment
from helpers.machine.host import Host, probe_host
from helpers.trainers.common import process
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import FRAMEWORKS, Framework
from tests.helpers.machines import write

GPU_ENVIRONMENT = Environment(
    host="dgx-1", host_id="0123456789abcdef", os="Ubuntu 20.04", kernel="5.4.0", cpu_model="AMD EPYC 7742",
    logical_cores="256", memory_gib="1008", device="gpu", cards="8 x NVIDIA A100-SXM4-40GB", card_ids="GPU-1 GPU-2",
    driver="525.60", cuda="11.8", power_limit_watts="400", framework="paddle", framework_version="2.5.0",
    framework_commit="abc",
)  # fmt: skip
CPU_ENVIRONMENT = replace(
    GPU_ENVIRONMENT, device="cpu", cards="2 x 1 core", card_ids="", driver="", cuda="", threads="1"
)


def test_an_unknown_a_missing_and_a_non_text_key_are_errors() -> None:
    record = GPU_ENVIRONMENT.to_mapping()
    with pytest.raises(ConfigError, match="'altitude'"):
        Environment.from_mapping({**record, "altitude": "300 m"})
    with pytest.raises(ConfigError, match="'driver'"):
        Environment.from_mapping({key: value for key, value in record.items() if key != "driver"})
    with pytest.raises(ConfigError, match="expected str"):
        Environment.from_mapping({**record, "logical_cores": 256})


def test_a_commit_under_test_and_a_patch_release_stay_in_the_segment() -> None:
    newer = replace(GPU_ENVIRONMENT, framework_version="2.5.2", framework_commit="def", kernel="5.15")
    assert differences(segment(GPU_ENVIRONMENT), segment(newer)) == ()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("driver", "535.1", "driver: 525.60 → 535.1"),
        ("host_id", "f" * 16, "host: 0123456789abcdef → ffffffffffffffff"),
        ("card_ids", "GPU-1 GPU-3", "card ids: GPU-1 GPU-2 → GPU-1 GPU-3"),
        ("cuda", "12.0", "CUDA: 11.8 → 12.0"),
        ("cublas", "11.11.3", "cuBLAS: none → 11.11.3"),
        ("power_limit_watts", "300", "power cap (W): 400 → 300"),
        ("framework_version", "2.6.0", "framework line: paddle 2.5 → paddle 2.6"),
        ("program", "PIR", "program: not recorded → PIR"),
        ("flags", "MALLOC_ARENA_MAX=1", "flags: none → MALLOC_ARENA_MAX=1"),
        ("cards", "4 x NVIDIA A100-SXM4-40GB", "cards: 8 x NVIDIA A100-SXM4-40GB → 4 x NVIDIA A100-SXM4-40GB"),
    ],
)
def test_what_verdict_md_names_as_a_change_changes_the_segment(field: str, value: str, said: str) -> None:
    assert differences(segment(GPU_ENVIRONMENT), segment(replace(GPU_ENVIRONMENT, **{field: value}))) == (said,)


def test_a_cpu_segment_holds_model_cores_and_threads_but_no_driver() -> None:
    changed = replace(CPU_ENVIRONMENT, cpu_model="Xeon", logical_cores="64", threads="2", driver="1", cuda="2")
    found = differences(segment(CPU_ENVIRONMENT), segment(changed))
    assert [text.partition(":")[0] for text in found] == ["cpu", "logical cores", "threads"]


def test_a_key_that_one_side_lacks_is_a_difference() -> None:
    assert differences({"driver": "525"}, {"CUDA": "12"}) == ("driver: 525 → not recorded", "CUDA: not recorded → 12")


def test_flags_are_the_callers_measuring_variables_only() -> None:
    # Of the compiler behind torch.compile, what changes the code and not where its results are kept.
    compiler = {
        "TRITON_F32_DEFAULT": "tf32x3", "TRITON_DEFAULT_FP_FUSION": "0", "TORCHDYNAMO_DISABLE": "1",
        "PTXAS_OPTIONS": "-O1", "TRITON_CACHE_DIR": "/scratch/triton", "TRITON_CACHE_AUTOTUNING": "1",
        "TRITON_PRINT_AUTOTUNING": "1", "TRITON_HOME": "/scratch",
    }  # fmt: skip
    variables = {
        "OMP_PROC_BIND": "close", "FLAGS_max_inplace_grad_add": "8", "FLAGS_selected_gpus": "0",
        "CUDA_VISIBLE_DEVICES": "0", "CUDA_HOME": "/usr/local/cuda", "DALI_EXTRA_PATH": "/data/dali",
        "NCCL_VERSION": "2.18", "SECRET_TOKEN": "x", "PATH": "/bin", **compiler,
    }  # fmt: skip
    assert flags_of(variables, "paddle") == "FLAGS_max_inplace_grad_add=8 OMP_PROC_BIND=close"
    assert flags_of(compiler, "pytorch") == (
        "PTXAS_OPTIONS=-O1 TORCHDYNAMO_DISABLE=1 TRITON_DEFAULT_FP_FUSION=0 TRITON_F32_DEFAULT=tf32x3"
    )


def test_another_frameworks_and_another_programs_variables_are_no_flags() -> None:
    variables = {
        "FLAGS_conv_workspace_size_limit": "4000",
        "MXNET_CUDNN_AUTOTUNE_DEFAULT": "1",
        "NCCL_P2P_DISABLE": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TF_CLI_CONFIG_FILE": "/home/me/.terraformrc",
        "TF_XLA_FLAGS": "--tf_xla_auto_jit=2",
    }
    names = [each.value for each in FRAMEWORKS]
    own = {name: flags_of(variables, name).replace("NCCL_P2P_DISABLE=1", "").strip() for name in names}
    theirs = {
        "paddle": "FLAGS_conv_workspace_size_limit=4000",
        "pytorch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "tensorflow": "TF_XLA_FLAGS=--tf_xla_auto_jit=2",
        "mxnet": "MXNET_CUDNN_AUTOTUNE_DEFAULT=1",
    }
    assert own == dict.fromkeys((each.value for each in Framework), "") | theirs


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("/usr/lib/libtcmalloc.so.4", "libtcmalloc.so.4"),
        ("/a/libjemalloc.so.2:/b/c/libx.so relative/liby.so", "libjemalloc.so.2:libx.so liby.so"),
        ("libtcmalloc.so", "libtcmalloc.so"),
    ],
)
def test_a_preloaded_allocator_is_told_without_its_folder(value: str, kept: str) -> None:
    assert flags_of({"LD_PRELOAD": value}, "paddle") == f"LD_PRELOAD={kept}"


def test_the_thread_counts_that_a_trainer_sets_itself_are_no_flags() -> None:
    assert THREAD_VARIABLES == process.THREAD_VARIABLES
    assert flags_of(dict.fromkeys(THREAD_VARIABLES, "1"), "paddle") == ""


def test_the_host_is_read_from_proc_and_etc(tmp_path: Path) -> None:
    root = write(tmp_path, {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)   Gold 6148\nmodel name : other\n",
        "proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 1 kB\n",
        "etc/os-release": 'NAME=Debian\nPRETTY_NAME="Debian GNU/Linux 12"\n', "etc/machine-id": "0" * 32 + "\n",
    })  # fmt: skip
    host = probe_host(root, node=lambda: "node7", logical_cores=lambda: 80)
    assert (host.host, host.cpu_model, host.memory_bytes) == ("node7", "Intel(R) Xeon(R) Gold 6148", 1024**3)
    assert (host.os, host.logical_cores) == ("Debian GNU/Linux 12", 80)


@pytest.mark.parametrize("content", [None, "", "uninitialized\n"])
def test_without_a_machine_id_the_host_name_makes_the_host_id(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "etc").mkdir()
    if content is not None:
        (tmp_path / "etc/machine-id").write_text(content)
    ids = {probe_host(tmp_path, node=lambda name=name: name).host_id for name in ("one", "two")}
    assert len(ids) == 2


def test_a_container_without_a_machine_id_is_known_by_what_does_not_change(tmp_path: Path) -> None:
    """It got another name at every start, and so was a new machine, without baselines and nights."""
    write(tmp_path, {"proc/meminfo": "MemTotal:       8388608 kB\n"})

    def host(name: str, *cards: str) -> Host:
        return probe_host(tmp_path, node=lambda: name, logical_cores=lambda: 8, card_ids=cards)

    one, two = host("0123456789ab", "GPU-1", "GPU-0"), host("ba9876543210", "GPU-0", "GPU-1")
    assert (one.host_id, one.id_by) == (two.host_id, "its cards' UUIDs")
    assert one.host_id != host("0123456789ab", "GPU-2").host_id
    bare, other = host("0123456789ab"), host("ba9876543210")
    assert (bare.host_id, bare.id_by) == (other.host_id, "its hardware alone, as equal machines have it")
    write(tmp_path, {"sys/class/dmi/id/product_uuid": "4C4C-11\n"})
    boards = {host(name).host_id for name in ("0123456789ab", "ba9876543210", "node7")}
    assert len(boards) == 1 and boards.isdisjoint({bare.host_id, one.host_id})
    write(tmp_path, {"etc/machine-id": "a" * 32})
    assert host("x", "GPU-0") == host("x", "GPU-1")
