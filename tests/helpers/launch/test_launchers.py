import pytest

from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import LaunchCommand, Place, job_environment, local_command, trainer_argv
from helpers.launch.launchers.paddle import paddle_command
from helpers.launch.launchers.tensorflow import tensorflow_command
from helpers.launch.launchers.torchrun import torch_command
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

TF, MX = "tensorflow-resnet50v1.5-fp32-bs8-{}-synthetic", "mxnet-resnet50v1.5-fp32-bs8-{}-dali"
PADDLE = "paddle-resnet50v1.5-fp32-bs8-{}-synthetic-dynamic"
TORCH = "pytorch-resnet50v1.5-fp32-bs8-{}-synthetic"
EIGHT = tuple(map(str, range(8)))


def job(cards: int) -> JobSpec:
    case = Case.parse(f"paddle-resnet50v1.5-fp32-bs8-1x{cards}-synthetic-dynamic")
    return JobSpec("job1", case, 0, "runs/x", "cpu", 1, 1, environment={"OMP_NUM_THREADS": "1"})


def settled(case_id: str, device: str = "cpu", gpus: tuple[str, ...] = (), **settings: object) -> JobSpec:
    return JobSpec("job1", Case.parse(case_id), 0, "runs/x", device, 1, 1, cards=gpus, settings=settings)


def options(command: LaunchCommand) -> dict[str, str]:
    return {word: command.argv[index + 1] for index, word in enumerate(command.argv[:-1]) if word.startswith("--")}


def test_several_cards_of_a_cpu_go_through_paddles_launcher_with_gloo() -> None:
    command = paddle_command(job(2), "/opt/python", None)
    assert command.argv[:4] == ("/opt/python", "-u", "-m", "paddle.distributed.launch")
    assert command.argv[-5:] == trainer_argv(job(2), "/opt/python")
    assert (options(command)["--nproc_per_node"], options(command)["--devices"]) == ("2", ",")
    assert command.environment["PADDLE_DISTRI_BACKEND"] == "gloo"
    assert command.rank_logs == ("runs/x/launch_logs/workerlog.0", "runs/x/launch_logs/workerlog.1")


@pytest.mark.parametrize(("node", "folder"), [(0, "runs/x"), (1, "runs/x/node1")])
def test_each_node_of_several_starts_its_own_cards_and_they_meet_at_the_first(node: int, folder: str) -> None:
    case = Case.parse("paddle-vgg16-fp32-bs8-2x8-dali-static")
    spec = JobSpec("job1", case, 0, "runs/x", "gpu", 1, 1, cards=EIGHT)
    place = Place(node, 2, f"10.0.0.{node + 1}", "10.0.0.1:36000", "ib0")
    command = paddle_command(spec, "/opt/python", place)
    assert command.argv == (
        "/opt/python", "-u", "-m", "paddle.distributed.launch",
        "--nproc_per_node", "8",
        "--devices", "0,1,2,3,4,5,6,7",
        "--nnodes", "2", "--rank", str(node), "--master", "10.0.0.1:36000", "--host", f"10.0.0.{node + 1}",
        "--job_id", "job1",
        "--log_dir", f"{folder}/launch_logs",
        "--enable_gpu_log", "0",
        "/opt/python", "-u", "-m", "helpers.trainers.paddle.trainer", f"{folder}/spec.json",
    )  # fmt: skip
    assert command.environment["NCCL_SOCKET_IFNAME"] == command.environment["GLOO_SOCKET_IFNAME"] == "ib0"
    assert command.environment["NO_PROXY"] == command.environment["no_proxy"] == "10.0.0.1"
    assert command.rank_logs == tuple(f"{folder}/launch_logs/workerlog.{rank}" for rank in range(8))
    assert all(pattern.startswith(f"{folder}/launch_logs/".removeprefix("runs/x/")) for pattern in command.discard)


def test_several_cards_of_one_node_meet_at_a_port_that_torchrun_finds() -> None:
    command = torch_command(settled(TORCH.format("1x2")), "/opt/python", None)
    assert command.argv == (
        "/opt/python", "-u", "-m", "torch.distributed.run",
        "--nproc-per-node", "2",
        "--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", "job1",
        "--local-addr", "127.0.0.1",
        "--max-restarts", "0", "--monitor-interval", "1", "--log-dir", "runs/x/launch_logs",
        "--no-python",
        "/opt/python", "-u", "-m", "helpers.trainers.common.rank_log", "runs/x/launch_logs",
        "/opt/python", "-u", "-m", "helpers.trainers.pytorch.trainer", "runs/x/spec.json",
    )  # fmt: skip
    assert command.environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert command.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert command.rank_logs == ("runs/x/launch_logs/rank0.log", "runs/x/launch_logs/rank1.log")
    assert command.rendezvous == ""


@pytest.mark.parametrize(("node", "folder"), [(0, "runs/x"), (1, "runs/x/node1")])
def test_pytorch_s_nodes_keep_their_order_and_meet_at_the_first(node: int, folder: str) -> None:
    place = Place(node, 2, f"10.0.0.{node + 1}", "10.0.0.1:36000", "ib0")
    command = torch_command(settled(TORCH.format("2x8"), "gpu", EIGHT), "/opt/python", place)
    given = options(command)
    assert (given["--nnodes"], given["--node-rank"], given["--rdzv-backend"]) == ("2", str(node), "static")
    assert (given["--master-addr"], given["--master-port"]) == ("10.0.0.1", "36000")
    assert given["--local-addr"] == f"10.0.0.{node + 1}"
    assert command.environment["NCCL_SOCKET_IFNAME"] == command.environment["GLOO_SOCKET_IFNAME"] == "ib0"
    assert command.rendezvous == "10.0.0.1:36000"
    assert command.rank_logs == tuple(f"{folder}/launch_logs/rank{rank}.log" for rank in range(8))


@pytest.mark.parametrize(
    ("case_id", "settings", "launcher"),
    [
        (TF.format("1x8"), {}, tensorflow_command),
        (TF.format("1x1"), {}, local_command),
        (MX.format("1x8"), {"cards_per_process": 8}, local_command),
        (MX.format("2x8"), {"cards_per_process": 8}, local_command),
        (PADDLE.format("1x4"), {"launcher": "torchrun"}, torch_command),
        (PADDLE.format("1x1"), {"launcher": "torchrun"}, local_command),
        (PADDLE.format("1x4"), {"launcher": "mpirun"}, "'launcher': got 'mpirun', expected for several ranks"),
        (
            MX.format("1x8"),
            {"cards_per_process": 8, "launcher": "torchrun"},
            "'launcher': got 'torchrun', expected process: one process drives its 8",
        ),
    ],
)
def test_the_cards_of_a_process_and_the_setting_decide_what_starts_the_job(
    case_id: str, settings: dict[str, object], launcher: object
) -> None:
    spec = settled(case_id, **settings)
    if isinstance(launcher, str):
        with pytest.raises(LaunchError, match=launcher):
            launcher_for(spec)
    else:
        assert launcher_for(spec) is launcher


@pytest.mark.parametrize("node", [0, 3])
def test_one_process_a_node_finds_its_place_in_variables(node: int) -> None:
    spec = settled("mxnet-resnet50v1.5-fp32-bs8-4x8-dali", "gpu", EIGHT, cards_per_process=8)
    command = local_command(spec, "python", Place(node, 4, f"10.0.0.{node + 1}", "10.0.0.1:36000", "ib0"))
    wanted = {
        "RANK": str(node), "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "36000", "NCCL_SOCKET_IFNAME": "ib0",
    }  # fmt: skip
    assert {name: command.environment[name] for name in wanted} == wanted


def test_tensorflows_ranks_are_started_by_our_own_starter() -> None:
    spec = settled(TF.format("2x8"), "gpu", EIGHT)
    command = tensorflow_command(spec, "/opt/python", Place(1, 2, "10.0.0.2", "10.0.0.1:36000", "ib0"))
    assert command.argv == (
        "/opt/python", "-u", "-m", "helpers.trainers.common.start_ranks",
        "--ranks", "8",
        "--address", "10.0.0.2", "--nodes", "2", "--node", "1", "--meet", "runs/x/launch_logs",
        "--logs", "runs/x/node1/launch_logs",
        "--", "/opt/python", "-u", "-m", "helpers.trainers.tensorflow.trainer", "runs/x/node1/spec.json",
    )  # fmt: skip
    assert command.environment["NCCL_SOCKET_IFNAME"] == "ib0"
    assert command.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert command.rank_logs == tuple(f"runs/x/node1/launch_logs/rank{rank}.log" for rank in range(8))


def test_a_jobs_variables_come_over_the_callers_and_no_other_launchers_get_in() -> None:
    inherited = {"PATH": "/bin", "PADDLE_TRAINER_ID": "3", "RANK": "1", "OMP_NUM_THREADS": "64", "PYTHONPATH": "/mine"}
    inherited.update(PET_STANDALONE="1", TF_CONFIG="{}", DMLC_ROLE="worker")
    command = LaunchCommand(("x",), {"PADDLE_DISTRI_BACKEND": "gloo"})
    assert job_environment(inherited, job(2), command, {"MARK": "1"}) == {
        "PATH": "/bin",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "PADDLE_DISTRI_BACKEND": "gloo",
        "MARK": "1",
    }
