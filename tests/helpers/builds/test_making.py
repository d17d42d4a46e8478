"""From a name to an environment: real wheels, a real server and a real uv, without any index."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.builds import making
from helpers.builds.cache import BuildCache
from helpers.builds.fetching import fetch
from helpers.builds.naming import BuildUnavailable, Why, parse_build
from helpers.machine.framework_builds import BuildFinder
from helpers.machine.libraries import LINKS
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.frameworks import Framework
from tests.faults.small_disk import small_disk, why_no_mount
from tests.helpers.builds.conftest import PARTS, Server, Shop, make_wheel, sha256

ROOT = Path(__file__).parents[3]


def refused(shop: Shop, text: str) -> BuildUnavailable:
    """The refusal of a build, which leaves nothing half-made behind."""
    before = shop.entries()
    with pytest.raises(BuildUnavailable) as caught:
        shop.prepare(text)
    assert shop.entries() == before
    return caught.value


# ---- what is made


@pytest.mark.slow
def test_a_wheel_becomes_an_environment_once_by_all_that_decides_its_content(shop: Shop) -> None:
    wheel = make_wheel(shop.folder)
    build = shop.prepare(wheel.name)
    assert (build.name, build.version, build.commit) == ("paddlepaddle 3.2.2", "3.2.2", "abcdef0123")
    assert build.source_text == wheel.name
    found = BuildFinder().find_build(Framework.PADDLE, str(build.interpreter))
    assert not isinstance(found, str)
    assert found.commit == "abcdef0123"
    assert any("making" in line for line in shop.said)
    shop.said.clear()
    assert shop.prepare(wheel.name) == build
    assert shop.said == []
    # The same wheel under another path is the same build; another wheel or another companion is not.
    (shop.folder / "copy").mkdir()
    shutil.copy(wheel, shop.folder / "copy")
    assert shop.prepare(f"copy/{wheel.name}").digest == build.digest
    other = make_wheel(shop.folder / "other", commit="fedcba")
    assert shop.prepare(f"other/{other.name}").digest != build.digest
    make_wheel(shop.folder / "links", name="beside", version="1.0", module="beside")
    (shop.folder / "companions.yaml").write_text('paddle: [{versions: ">=3", why: w, requirements: ["beside==1.0"]}]')
    beside = shop.prepare(wheel.name)
    assert beside.digest != build.digest
    assert len(list(beside.interpreter.parents[1].glob("lib/*/site-packages/beside-1.0.dist-info"))) == 1
    assert len(shop.entries()) == 3


@pytest.mark.slow
def test_a_requirement_is_found_where_the_callers_settings_say(shop: Shop) -> None:
    for version in ("3.1.0", "3.2.2"):
        make_wheel(shop.folder / "links", version)
    exact = shop.prepare("paddlepaddle==3.1.0")
    assert exact.version == "3.1.0"
    newest = shop.prepare("paddlepaddle>=3")
    assert newest.version == "3.2.2"
    # An exact requirement is resolved once, with the hashes that it then had.
    for each in (shop.folder / "links").iterdir():
        each.unlink()
    assert shop.prepare("paddlepaddle==3.1.0") == exact
    assert shop.prepare("paddlepaddle == 3.1.0").digest == exact.digest


@pytest.mark.slow
def test_an_environment_of_the_user_is_taken_as_it_is_and_needs_a_framework(shop: Shop) -> None:
    interpreter = shop.prepare(make_wheel(shop.folder).name).interpreter
    own = shop.folder / "own"
    shutil.copytree(interpreter.parents[1], own, symlinks=True)
    build = shop.prepare("own")
    assert (build.made, build.version, build.interpreter) == (False, "3.2.2", own / "bin/python")
    assert build.digest == shop.prepare("own/bin/python").digest != ""
    assert len(shop.entries()) == 1
    for each in own.glob("lib/*/site-packages/paddle*"):
        shutil.rmtree(each)
    assert refused(shop, "own").kind is Why.NO_FRAMEWORK


PARTED = """
paddle:
  - versions: ">=3"
    why: w
    requirements: []
    parts: [{name: DALI, requirements: ["feeder==1.0"]}, {name: more, requirements: ["beside==1.0"]}]
"""


@pytest.mark.slow
def test_a_part_that_cannot_be_had_is_left_out_and_tried_again(shop: Shop) -> None:
    wheel = make_wheel(shop.folder)
    make_wheel(shop.folder / "links", name="beside", version="1.0", module="beside")
    (shop.folder / "companions.yaml").write_text(PARTED)
    without = shop.prepare(wheel.name)
    (note,) = [each.note for each in shop.cache.kept()]
    assert note["missing"].startswith("DALI: ") and "feeder" in note["missing"]
    assert any("is made without DALI" in line for line in shop.said)
    packages = next(without.interpreter.parents[1].glob("lib/*/site-packages"))
    assert (packages / "beside-1.0.dist-info").is_dir()
    assert shop.prepare(wheel.name).digest == without.digest
    # Now it can be had.
    make_wheel(shop.folder / "links", name="feeder", version="1.0", module="feeder")
    whole = shop.prepare(wheel.name)
    assert whole.digest != without.digest
    assert [each.note["missing"] for each in shop.cache.kept() if each.digest == whole.digest] == [""]


@pytest.mark.slow
def test_a_gpu_build_gets_links_to_the_libraries_of_its_cuda(shop: Shop) -> None:
    """And its import, as its ranks, finds them first."""
    library = "nvidia/cudnn/lib/libcudnn.so.8"
    looks = "import os\nassert os.path.exists(os.environ['LD_LIBRARY_PATH'].split(':')[0] + '/libcudnn.so')\n"
    wheel = make_wheel(shop.folder, name="paddlepaddle_gpu", cuda="11.8", text=PARTS + looks)
    make_wheel(shop.folder / "links", name="nvidia_cudnn_cu11", version="1.0", module="beside", more={library: "x"})
    parts = "[{name: CUDA, distributions: [paddlepaddle-gpu], requirements: ['nvidia-cudnn-cu11==1.0']}]"
    (shop.folder / "companions.yaml").write_text(
        f"paddle: [{{versions: '>=3', why: w, requirements: [], parts: {parts}}}]"
    )
    links = shop.prepare(wheel.name).interpreter.parents[1] / LINKS
    assert sorted(each.name for each in links.iterdir()) == ["libcudnn.so", "libcudnn.so.8"]
    assert (links / "libcudnn.so").read_text() == "x"


# ---- from an address


@pytest.mark.slow
def test_a_wheel_is_fetched_once_and_again_only_when_it_changed(shop: Shop, server: Server) -> None:
    wheel = make_wheel(server.folder)
    address = f"{server.url}/night/{wheel.name}"
    build = shop.prepare(address.replace("http://", "http://me:secret@"))
    assert server.authorised[0].startswith("Basic ")
    assert "secret" not in build.source_text
    assert "secret" not in "".join(each.read_text() for each in shop.cache.folder.rglob("*.json"))
    assert shop.prepare(address.replace("http://", "http://me:secret@")) == build
    assert server.asked == ["200", "304"]
    # Its digest says which one is meant: nobody is asked.
    named = shop.prepare(f"{address}#sha256={sha256(wheel)}")
    assert (named.digest, server.asked) == (build.digest, ["200", "304"])
    make_wheel(server.folder, commit="fedcba")
    assert shop.prepare(address).commit == "fedcba"
    assert sorted(each.note["commit"] for each in shop.cache.kept()) == ["abcdef0123", "fedcba"]


@pytest.mark.slow
def test_an_address_without_a_wheel_is_told_and_one_that_hangs_is_given_up(shop: Shop, server: Server) -> None:
    error = refused(shop, f"{server.url}/paddlepaddle-3.2.2-py3-none-any.whl")
    assert error.kind is Why.NOT_FETCHED
    assert "HTTP 404" in str(error)
    server.hang = True
    error = refused(shop, f"{server.url}/paddlepaddle-3.2.2-py3-none-any.whl")
    assert error.kind is Why.NOT_FETCHED
    assert "nothing in 1 s" in str(error)


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(shop: Shop, server: Server, begun: bytes) -> None:
    """Each byte comes long before the time limit of a socket; in all, no wheel ever comes."""
    server.drip = begun
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(lambda: [(server.drop.release(), time.sleep(0.05)) for _ in range(40)])
        error = refused(shop, f"{server.url}/paddlepaddle-3.2.2-py3-none-any.whl")
    assert error.kind is Why.NOT_FETCHED
    assert "in 1 s from" in str(error)


def test_a_download_is_given_up_after_an_hour_however_fast_it_is(shop: Shop, server: Server) -> None:
    server.drip = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
    times = iter([0.0, 3600.0, 3600.0])
    source = parse_build(f"{server.url}/paddlepaddle-3.2.2-py3-none-any.whl", shop.folder, shop.config)
    with pytest.raises(BuildUnavailable, match=r"a wheel within 3600 s"):
        fetch(source, shop.folder, 0.1, clock=lambda: next(times))


@pytest.mark.parametrize("elsewhere", ["ftp://USER:PW@127.0.0.1:9/x.whl", "file:///etc/passwd"])
def test_a_redirect_to_something_else_than_http_is_not_followed(shop: Shop, server: Server, elsewhere: str) -> None:
    server.elsewhere = elsewhere
    error = refused(shop, f"{server.url}/paddlepaddle-3.2.2-py3-none-any.whl")
    assert error.kind is Why.NOT_FETCHED
    assert "PW" not in str(error)


@pytest.mark.slow
def test_a_download_that_ends_early_is_no_wheel(shop: Shop, server: Server) -> None:
    wheel = make_wheel(server.folder, text=PARTS + "#" * 5_000_000)
    server.cut = True
    error = refused(shop, f"{server.url}/{wheel.name}")
    assert error.kind is Why.NOT_FETCHED
    server.cut = False
    assert shop.prepare(f"{server.url}/{wheel.name}").version == "3.2.2"


# ---- what cannot be used


@pytest.mark.slow
def test_a_wheel_for_another_python_is_refused_before_it_is_fetched(shop: Shop, server: Server) -> None:
    wheel = make_wheel(server.folder, tag="cp27-cp27mu-linux_x86_64")
    for text in (f"{server.url}/{wheel.name}", str(wheel)):
        error = refused(shop, text)
        assert error.kind is Why.WRONG_PYTHON
        assert "cp27-cp27mu-linux_x86_64" in str(error)
        assert f"Python {sys.version_info[0]}.{sys.version_info[1]}" in str(error)
    assert server.asked == []


def test_a_wheel_of_another_digest_and_a_truncated_one_are_refused(shop: Shop, server: Server) -> None:
    wheel = make_wheel(server.folder)
    for text in (f"{server.url}/{wheel.name}", str(wheel)):
        error = refused(shop, f"{text}#sha256={'0' * 64}")
        assert error.kind is Why.WRONG_DIGEST
        assert sha256(wheel) in str(error)
    whole = wheel.read_bytes()
    for size in (0, 100, -30):
        wheel.write_bytes(whole[:size])
        error = refused(shop, str(wheel))
        assert error.kind is Why.NOT_INSTALLED and "a whole wheel" in str(error)


def test_what_no_index_has_cannot_be_installed(shop: Shop) -> None:
    error = refused(shop, "paddlepaddle==3.99.0")
    assert error.kind is Why.NOT_INSTALLED
    assert "3.99.0" in str(error)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("raise ImportError('libmklml.so: cannot open shared object file')", Why.NOT_IMPORTED, "libmklml.so"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", Why.NOT_IMPORTED, "SIGILL"),
        ("nn = amp = jit = None", Why.LACKS_FEATURE, "no distributed, optimizer, static in paddle"),
    ],
)
def test_a_build_that_does_not_work_says_so_as_that(shop: Shop, text: str, kind: Why, told: str) -> None:
    error = refused(shop, make_wheel(shop.folder, text=text).name)
    assert error.kind is kind
    assert told in str(error)


def test_a_home_without_room_for_paddle_is_no_fault_of_the_build(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc")
    with pytest.raises(DeviceError, match="the home /proc cannot be written"):
        making.import_build("a-build", Framework.PADDLE, Path(sys.executable))


def test_a_build_whose_import_does_not_end_is_given_up_within_a_minute(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert making._IMPORT_SECONDS <= 60
    monkeypatch.setattr(making, "_IMPORT_SECONDS", 1.0)
    error = refused(shop, make_wheel(shop.folder, text="import time; time.sleep(3600)").name)
    assert error.kind is Why.NOT_IMPORTED
    assert "import takes longer than 1 s" in str(error)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_no_mount()), reason="no right to mount a small disk")
def test_a_disk_that_fills_leaves_nothing_behind(shop: Shop) -> None:
    wheel = make_wheel(shop.folder, text=PARTS + "".join(f"v{n} = {os.urandom(64).hex()!r}\n" for n in range(60_000)))
    for megabytes in (1, 4):
        with small_disk(shop.folder / f"small{megabytes}", megabytes):
            cache = BuildCache(shop.folder / f"small{megabytes}" / "builds")
            with pytest.raises(BuildUnavailable) as caught:
                shop.prepare(wheel.name, cache)
            assert caught.value.kind is Why.NO_SPACE
            assert not [each for each in cache.folder.iterdir() if each.is_dir() and each.name != "answers"]
    assert shop.prepare(wheel.name).version == "3.2.2"


# ---- several sessions

PREPARES = """
import json, sys
from pathlib import Path
import helpers.builds.uv
from helpers.builds.cache import BuildCache
from helpers.builds.making import prepare
from helpers.builds.naming import parse_build
from helpers.plan.perf_yaml import load_config
helpers.builds.uv._PIP["read"] = lambda python, environ: {}
folder = Path(sys.argv[1])
cache = BuildCache(folder / "builds")
source = parse_build(sys.argv[2], folder, load_config("perf.yaml"))
def say(text):
    print(json.dumps(text), file=sys.stderr, flush=True)
found = prepare(source, cache=cache, progress=say, companions=folder / "companions.yaml")
print(found.digest, flush=True)
sys.stdin.readline()
"""


def session(shop: Shop, text: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREPARES, str(shop.folder), text], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_two_sessions_at_once_make_it_once(shop: Shop) -> None:
    wheel = make_wheel(shop.folder, text=PARTS + "import time; time.sleep(2)")
    both = [session(shop, wheel.name) for _ in range(2)]
    said = [each.communicate("\n", timeout=120) for each in both]
    digests = {out.strip() for out, _ in said}
    assert len(digests) == 1
    assert sum("making" in errors for _, errors in said) == 1
    assert sum("waiting" in errors for _, errors in said) == 1
    assert shop.entries() == sorted(digests)


@pytest.mark.slow
def test_killed_at_any_moment_it_is_complete_or_absent(shop: Shop) -> None:
    wheel = make_wheel(shop.folder, text=PARTS + "import time; time.sleep(0.3)")
    for moment in ("resolving", "making", "checking"):
        maker = session(shop, wheel.name)
        assert maker.stderr is not None
        for line in maker.stderr:
            if moment in line:
                break
        maker.send_signal(signal.SIGKILL)
        maker.communicate(timeout=60)
        assert not any(each.joinpath(".perfgate-build.json").exists() for each in shop.cache.folder.glob("[0-9a-f]*/"))
        assert shop.cache.kept() == []
    build = shop.prepare(wheel.name)
    assert shop.entries() == [build.digest]


@pytest.mark.slow
def test_an_environment_in_use_is_not_removed(shop: Shop) -> None:
    wheel = make_wheel(shop.folder)
    user = session(shop, wheel.name)
    assert user.stdout is not None
    digest = user.stdout.readline().strip()
    assert shop.cache.remove(digest) is False
    assert shop.cache.kept()[0].in_use
    user.communicate("\n", timeout=60)
    assert shop.cache.remove(digest) is True
    assert shop.entries() == []
