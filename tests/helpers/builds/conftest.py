"""Small wheels that stand for a framework's, a server that hands them out, and a cache of their environments."""

from __future__ import annotations

import base64
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import helpers.builds.uv
from helpers.builds.cache import BuildCache
from helpers.builds.making import PreparedBuild, prepare
from helpers.builds.naming import parse_build
from helpers.plan.perf_yaml import BuildsConfig, Config, load_config

ROOT = Path(__file__).parents[3]
COMPANIONS = """
paddle:
  - {versions: ">=3", why: a test, requirements: []}
"""
PARTS = "amp = distributed = jit = nn = optimizer = static = None\n"


def make_wheel(
    folder: Path,
    version: str = "3.2.2",
    *,
    tag: str = "py3-none-any",
    commit: str = "abcdef0123",
    text: str = PARTS,
    name: str = "paddlepaddle",
    module: str = "paddle",
    cuda: str = "False",
    more: Mapping[str, str] | None = None,
) -> Path:
    """A wheel of a distribution called so, with a module ``paddle`` of that text."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n{text}",
        f"{module}/version/__init__.py": f"commit = {commit!r}\ncuda_version = {cuda!r}\n",
        **(more or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        lines = []
        for each, content in files.items():
            member = zipfile.ZipInfo(each)
            # A program, if it is a script.
            member.external_attr = 0o100755 << 16
            archive.writestr(member, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).decode().rstrip("=")
            lines.append(f"{each},sha256={digest},{len(content)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class Shop:
    """A folder for builds, and what is said while they are made."""

    folder: Path
    config: Config
    cache: BuildCache
    said: list[str] = field(default_factory=list)

    def prepare(self, text: str, cache: BuildCache | None = None) -> PreparedBuild:
        return prepare(
            parse_build(text, self.folder, self.config),
            cache=cache or self.cache,
            progress=self.said.append,
            settings=self.config.builds,
            companions=self.folder / "companions.yaml",
        )

    def entries(self) -> list[str]:
        """What stands in the cache beside locks and answers."""
        if not self.cache.folder.exists():
            return []
        return sorted(each.name for each in self.cache.folder.iterdir() if each.is_dir() and each.name != "answers")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    # No test asks an index, or leaves its wheels in the user's cache.
    for name, variable in (("index", "UV_DEFAULT_INDEX"), ("links", "UV_FIND_LINKS")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, (tmp_path / name).as_uri() if name == "index" else str(tmp_path / name))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    # Asking pip for its settings takes a second, and uv's variables above come first.
    monkeypatch.setitem(helpers.builds.uv._PIP, "read", lambda python, environ: {})
    (tmp_path / "companions.yaml").write_text(COMPANIONS)
    config = replace(load_config(ROOT / "helpers/plan/defaults.yaml"), path=tmp_path / "perf.yaml")
    settings = BuildsConfig(silence_seconds=1.0)
    return Shop(tmp_path, replace(config, builds=settings), BuildCache(tmp_path / "builds"))


@dataclass
class Server:
    """Answers for the files of a folder; ``hang`` keeps silent, and ``cut`` ends a file early. After the bytes of
    ``drip`` one byte comes with each release of ``drop``. ``elsewhere`` is where every address redirects to."""

    folder: Path
    url: str = ""
    asked: list[str] = field(default_factory=list)
    authorised: list[str] = field(default_factory=list)
    hang: bool = False
    cut: bool = False
    drip: bytes = b""
    drop: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    elsewhere: str = ""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir()
    found = Server(folder)
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = folder / self.path.rpartition("/")[2].partition("?")[0]
            found.authorised.append(self.headers.get("Authorization", ""))
            if found.hang:
                ended.wait(30)
                return
            if found.elsewhere and not found.elsewhere.endswith(self.path):
                self.send_response(302)
                self.send_header("Location", found.elsewhere)
                self.end_headers()
                return
            if found.drip:
                self.wfile.write(found.drip)
                while found.drop.acquire(timeout=30) and not ended.is_set():
                    self.wfile.write(b"x")
                return
            if not path.exists():
                found.asked.append("404")
                self.send_error(404)
                return
            content = path.read_bytes()
            tag = f'"{hashlib.sha256(content).hexdigest()}"'
            if self.headers.get("If-None-Match") == tag:
                found.asked.append("304")
                self.send_response(304)
                self.end_headers()
                return
            found.asked.append("200")
            self.send_response(200)
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if found.cut else content)

        def log_message(self, format: str, *values: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        found.url = f"http://127.0.0.1:{running.server_port}"
        yield found
        ended.set()
        running.shutdown()
