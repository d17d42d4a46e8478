"""Which interpreters the tests of Paddle's lines train in, how many threads compute in the tests' process, what
Paddle's import leaves there, which signals reach the sessions that tests start, where errors that a test injects are
written down, new histories that are copies, a real Slurm, in which order workers take tests, and small images to train
on."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest

from fixtures.missing import DEV, refuse_without
from tests.slurm_cluster import NAMED, PACKAGES, SlurmCluster, missing_programs, slurm_cluster

# Threads that multiply small matrices wait for each other longer than they compute, above all beside other workers: the
# search for the first bad build took seven times the processor time. Only this process has one thread: those that tests
# start, trainers among them, compute as ever.
_THREADS = "OPENBLAS_NUM_THREADS"
if _THREADS not in os.environ:
    os.environ[_THREADS] = "1"
    import numpy  # noqa: F401 # It reads the variable when it is loaded.

    del os.environ[_THREADS]

OPTION = "--paddle-interpreter"


def pytest_addoption(parser: pytest.Parser) -> None:
    refuse_without(DEV, "the suite's own tests", "make env-dev, then .venv/bin/python -m pytest tests")
    _load_hypothesis_profiles()
    parser.addoption(
        OPTION,
        action="append",
        metavar="PYTHON",
        help="Train in this Python instead of the one that runs the tests; repeat it for several "
        "(tests/helpers/trainers/paddle/test_lines.py).",
    )


def _load_hypothesis_profiles() -> None:
    # An environment without the tests' packages must get so far that it is refused.
    from hypothesis import HealthCheck, settings

    # How long an example takes says how busy the machine is, and nothing about the code.
    # Each check draws new examples, so that many checks see many.
    settings.register_profile("perfgate", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
    # The readers under test (tests/fuzz): the same few examples in every check, and many new ones in "make fuzz", which
    # loads that profile by its name (--hypothesis-profile).
    fuzz = settings(deadline=None, suppress_health_check=list(HealthCheck))
    settings.register_profile("fuzz-quick", fuzz, max_examples=60, derandomize=True, database=None)
    settings.register_profile("fuzz-long", fuzz, max_examples=5000, print_blob=True)
    settings.load_profile("perfgate")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``paddle_interpreter`` runs once for each, named by its environment's folder."""
    if "paddle_interpreter" in metafunc.fixturenames:
        # The name is not resolved: a virtual environment is found through it.
        given = [str(Path(name).absolute()) for name in metafunc.config.getoption(OPTION) or [sys.executable]]
        metafunc.parametrize("paddle_interpreter", given, ids=[Path(name).parts[-3] for name in given], scope="module")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Nearly all that is imported and collected stays: looking through it again and again finds no garbage.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests with a Slurm first: xdist gives the first worker the first part, so that one Slurm is started, and the
    others compute while it waits."""
    items.sort(key=lambda item: "running_slurm" not in getattr(item, "fixturenames", ()))


def pytest_collection_finish() -> None:
    """Called in each process that runs tests, and not in xdist's controller."""
    _have_paddle_crash_at_once()
    _let_sessions_be_interrupted()
    # Thousands of tests stay in memory until the end: no search for garbage need look through them. What is left is
    # searched a third as often as Python would, and what survived that a thirtieth as often.
    gc.freeze()
    gc.set_threshold(2_000, 100, 1_000)


def _have_paddle_crash_at_once() -> None:
    """Paddle's handler of fatal signals takes memory for its trace: where one struck in malloc, the process waits for
    ever instead of crashing."""
    paddle = sys.modules.get("paddle")
    if paddle is not None:
        paddle.disable_signal_handler()


def _let_sessions_be_interrupted() -> None:
    """Sessions that tests start end on SIGHUP and SIGINT as they do at a terminal, even if the tests run under nohup or
    in the background: what a process ignores, those that it starts ignore too."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            # Here the signal still does nothing, but a handler is not passed on to a program that is started.
            signal.signal(number, lambda *_: None)


@pytest.fixture
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is trained, is trained on images of 64 x 64 pixels: a twelfth of the work, by all the same layers."""
    from helpers.common import inherited

    # Trainers' PYTHONPATH is the suite's alone, whatever the caller's is.
    folder = Path(__file__).parent / "small_images"
    monkeypatch.setattr(inherited, "ROOT", f"{folder}:{inherited.ROOT}")


@pytest.fixture(autouse=True)
def no_passwords_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    from helpers.common import masking

    monkeypatch.setattr(masking, "_remembered", set())


@pytest.fixture(scope="session", autouse=True)
def histories_copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., object]]:
    """A new history on SQLite is a copy of the first one that was made in this process: making one runs every
    migration. Tests of the making itself take ``histories_made``."""
    # xdist's controller runs no test.
    from helpers.history import database

    made = tmp_path_factory.mktemp("copied") / "history.sqlite"
    make_ready = database.make_ready

    def copied(engine: object, file: Path | None, *also: object) -> object:
        if file is not None and not file.exists():
            if not made.exists():
                make_ready(database.open_sqlite(made, 60), made, str(made), 60).dispose()
            _copy(made, file)
        return make_ready(engine, file, *also)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "make_ready", copied)
        yield make_ready


def _copy(made: Path, file: Path) -> None:
    """Another thread may make the same file, and what cannot be copied is made as ever."""
    beside = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        try:
            shutil.copyfile(made, beside)
            os.link(beside, file)
        finally:
            beside.unlink(missing_ok=True)


@pytest.fixture
def histories_made(histories_copied: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """New histories are made as the product makes them."""
    monkeypatch.setattr("helpers.history.database.make_ready", histories_copied)


@pytest.fixture
def accidents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, in this process and in those that it starts: a test's own, so that tracebacks of
    errors that nobody foresaw are found there and left nowhere else."""
    folder = tmp_path / "accidents"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(scope="session")
def running_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    _need_slurm(PACKAGES, missing_programs())
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def _need_slurm(packages: str, missing: Sequence[str]) -> None:
    """Skip where programs of Slurm are missing, and fail where they should be there."""
    if not missing:
        return
    text = f"no Slurm: {', '.join(missing)} not found (apt-get install {packages})"
    if os.environ.get(NAMED):
        pytest.fail(f"{text}, and {NAMED} says that it is there")
    pytest.skip(text)


@pytest.fixture
def slurm(running_slurm: SlurmCluster) -> SlurmCluster:
    """The Slurm of this session, with idle nodes."""
    running_slurm.mend()
    return running_slurm


@pytest.fixture
def allocation(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of a job of both nodes. This process is a part of it, since it is on the machine of the first node."""
    yield from _allocation(slurm, monkeypatch)


def _allocation(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch, *options: str) -> Iterator[str]:
    words = ["salloc", "--no-shell", "--nodes=2", "--gres=gpu:1", *options]
    done = subprocess.run(words, env=slurm.variables, capture_output=True, text=True)
    found = re.search(r"Granted job allocation (\d+)", done.stderr)
    assert found is not None, done.stderr
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.variables[name])
    for name, value in {
        "SLURM_JOB_ID": found[1], "SLURMD_NODENAME": "n0", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_JOB_NUM_NODES": "2",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    yield found[1]
    slurm.command("scancel", found[1])
