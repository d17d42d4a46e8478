import pytest

from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import LaunchCommand, LocalLauncher, Place, job_environment
from helpers.launch.launchers.paddle import PaddleLauncher
from helpers.launch.launchers.torchrun import TorchLauncher
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import SLOWDOWN_VARIABLE, JobSpec


def job(cards: int, device: str = "cpu", gpus: tuple[str, ...] = ()) -> JobSpec:
    case = Case.parse(f"paddle-resnet50v1.5-fp32-bs8-1x{cards}-synthetic-dynamic")
    return JobSpec("job1", case, 0, "runs/x", device, 1, 1, cards=gpus, environment={"OMP_NUM_THREADS": "1"})


def options(command: LaunchCommand) -> dict[str, str]:
    return {word: command.argv[index + 1] for index, word in enumerate(command.argv[:-1]) if word.startswith("--")}


def test_one_card_is_the_trainer_itself() -> None:
    command = LocalLauncher().command(job(1), "/opt/python")
    assert command.argv == ("/opt/python", "-u", "-m", "helpers.trainers.paddle.trainer", "runs/x/spec.json")
    assert command.environment["CUDA_VISIBLE_DEVICES"] == ""


def test_gpus_are_shown_by_their_nvml_index() -> None:
    command = LocalLauncher().command(job(1, "gpu", ("3",)), "python")
    assert dict(command.environment) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3"}


def test_several_cards_of_a_cpu_go_through_paddles_launcher_with_gloo() -> None:
    command = PaddleLauncher().command(job(2), "/opt/python")
    assert command.argv[:4] == ("/opt/python", "-u", "-m", "paddle.distributed.launch")
    assert command.argv[-5:] == LocalLauncher().command(job(2), "/opt/python").argv
    assert options(command)["--nproc_per_node"] == "2"
    assert options(command)["--devices"] == ","
    assert command.environment["PADDLE_DISTRI_BACKEND"] == "gloo"
    assert command.rank_logs == ("runs/x/launch_logs/workerlog.0", "runs/x/launch_logs/workerlog.1")


def test_several_gpus_are_listed_and_nccl_is_left_to_paddle() -> None:
    command = PaddleLauncher().command(job(2, "gpu", ("0", "5")), "python")
    assert options(command)["--devices"] == "0,5" == command.environment["CUDA_VISIBLE_DEVICES"]
    assert "PADDLE_DISTRI_BACKEND" not in command.environment


@pytest.mark.parametrize("node", [0, 1])
def test_each_node_of_several_starts_its_own_cards_and_they_meet_at_the_first(node: int) -> None:
    case = Case.parse("paddle-vgg16-fp32-bs8-2x8-dali-static")
    spec = JobSpec("job1", case, 0, "runs/x", "gpu", 1, 1, cards=tuple(map(str, range(8))))
    place = Place(node, 2, f"10.0.0.{node + 1}", "10.0.0.1:36000", "ib0")
    command = PaddleLauncher().command(spec, "/opt/python", place)
    assert command.argv == (
        "/opt/python", "-u", "-m", "paddle.distributed.launch",
        "--nproc_per_node", "8",
        "--devices", "0,1,2,3,4,5,6,7",
        "--nnodes", "2", "--rank", str(node), "--master", "10.0.0.1:36000", "--host", f"10.0.0.{node + 1}",
        "--job_id", "job1",
        "--log_dir", "runs/x/launch_logs",
        "--enable_gpu_log", "0",
        "/opt/python", "-u", "-m", "helpers.trainers.paddle.trainer", "runs/x/spec.json",
    )  # fmt: skip
    assert command.environment["NCCL_SOCKET_IFNAME"] == command.environment["GLOO_SOCKET_IFNAME"] == "ib0"
    assert command.environment["NO_PROXY"] == command.environment["no_proxy"] == "10.0.0.1"
    assert command.rank_logs == tuple(f"runs/x/launch_logs/workerlog.{rank}" for rank in range(8))


def test_two_nodes_of_one_cpu_card_speak_gloo_and_choose_their_interface_themselves() -> None:
    case = Case.parse("paddle-resnet50v1.5-fp32-bs8-2x1-synthetic-dynamic")
    spec = JobSpec("job1", case, 0, "runs/x", "cpu", 1, 1)
    command = PaddleLauncher().command(spec, "/opt/python", Place(1, 2, "127.0.0.3", "127.0.0.2:36000"))
    assert options(command)["--nnodes"] == "2"
    assert command.environment["PADDLE_DISTRI_BACKEND"] == "gloo"
    assert "GLOO_SOCKET_IFNAME" not in command.environment


def test_the_launcher_follows_from_the_case() -> None:
    assert isinstance(launcher_for(job(1).case), LocalLauncher)
    assert isinstance(launcher_for(job(4).case), PaddleLauncher)
    assert isinstance(launcher_for(Case.parse("paddle-vgg16-fp32-bs8-2x1-dali-static")), PaddleLauncher)


def test_a_chosen_launcher_starts_several_cards_and_one_card_needs_none() -> None:
    assert isinstance(launcher_for(job(4).case, "torchrun"), TorchLauncher)
    assert isinstance(launcher_for(job(1).case, "torchrun"), LocalLauncher)
    with pytest.raises(LaunchError, match=r"'launcher': got 'mpirun', expected one of paddle\.distributed\.launch"):
        launcher_for(job(4).case, "mpirun")


@pytest.mark.parametrize("case_id", ["pytorch-resnet50v1.5-fp32-bs8-1x2-dali", "pytorch-vgg16-fp32-bs8-2x8-dali"])
def test_several_cards_of_pytorch_go_through_its_own_launcher(case_id: str) -> None:
    assert isinstance(launcher_for(Case.parse(case_id)), TorchLauncher)
    assert isinstance(launcher_for(Case.parse("pytorch-vgg16-fp32-bs8-1x1-dali")), LocalLauncher)


def torch_job(cards: str, device: str = "cpu", gpus: tuple[str, ...] = ()) -> JobSpec:
    case = Case.parse(f"pytorch-resnet50v1.5-fp32-bs8-{cards}-synthetic")
    return JobSpec("job1", case, 0, "runs/x", device, 1, 1, cards=gpus)


def test_several_cards_of_one_node_meet_at_a_port_that_torchrun_finds() -> None:
    command = TorchLauncher().command(torch_job("1x2"), "/opt/python")
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


def test_several_gpus_of_pytorch_are_shown_and_their_interface_is_nccls_choice() -> None:
    command = TorchLauncher().command(torch_job("1x2", "gpu", ("0", "5")), "python")
    assert command.environment["CUDA_VISIBLE_DEVICES"] == "0,5"
    assert not any("IFNAME" in name for name in command.environment)


@pytest.mark.parametrize("node", [0, 1])
def test_pytorch_s_nodes_keep_their_order_and_meet_at_the_first(node: int) -> None:
    place = Place(node, 2, f"10.0.0.{node + 1}", "10.0.0.1:36000", "ib0")
    command = TorchLauncher().command(torch_job("2x8", "gpu", tuple(map(str, range(8)))), "/opt/python", place)
    given = options(command)
    assert (given["--nnodes"], given["--node-rank"], given["--rdzv-backend"]) == ("2", str(node), "static")
    assert (given["--master-addr"], given["--master-port"]) == ("10.0.0.1", "36000")
    assert given["--local-addr"] == f"10.0.0.{node + 1}"
    assert command.environment["NCCL_SOCKET_IFNAME"] == command.environment["GLOO_SOCKET_IFNAME"] == "ib0"
    assert command.rendezvous == "10.0.0.1:36000"
    assert command.rank_logs == tuple(f"runs/x/launch_logs/rank{rank}.log" for rank in range(8))


@pytest.mark.parametrize("case_id", ["tensorflow-resnet50v1.5-fp32-bs8-1x2-dali", "mxnet-vgg16-fp32-bs8-2x8-dali"])
def test_a_case_that_nothing_launches_is_an_error(case_id: str) -> None:
    with pytest.raises(LaunchError, match=case_id):
        launcher_for(Case.parse(case_id))


def test_a_jobs_variables_come_over_the_callers_and_no_other_launchers_get_in() -> None:
    inherited = {"PATH": "/bin", "PADDLE_TRAINER_ID": "3", "RANK": "1", "OMP_NUM_THREADS": "64", "PYTHONPATH": "/mine"}
    inherited["PET_STANDALONE"] = "1"
    command = LaunchCommand(("x",), {"PADDLE_DISTRI_BACKEND": "gloo"})
    assert job_environment(inherited, job(2), command, {"MARK": "1"}) == {
        "PATH": "/bin",
        "PYTHONPATH": f"{ROOT}:/mine",
        "OMP_NUM_THREADS": "1",
        "PADDLE_DISTRI_BACKEND": "gloo",
        "MARK": "1",
    }


def test_the_tests_own_slowdown_reaches_the_trainer() -> None:
    given = job_environment({SLOWDOWN_VARIABLE: "0.05"}, job(1), LaunchCommand(("x",)), {})
    assert given[SLOWDOWN_VARIABLE] == "0.05"
