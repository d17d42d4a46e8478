"""Shared libraries as a rank finds them: those of its interpreter's environment before anything of the caller's or the
system's.

An environment that the suite makes has a folder of links to libraries of its wheels: those of CUDA, and libgomp where
the machine has none (requirements/link_libraries.py). The loader is told of it by LD_LIBRARY_PATH, which comes before a
library's own search path, and before which nothing comes but LD_PRELOAD.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Below the environment's folder, as in requirements/link_libraries.py.
LINKS = Path("lib", "perfgate-cuda")
SEARCH_PATH = "LD_LIBRARY_PATH"
# Folders that the loader searches unasked, on Debian's and on Red Hat's systems.
_FOLDERS = (
    "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib",
)  # fmt: skip
# Paddle searches it for cuDNN alone, last (paddle/phi/backends/dynload/dynamic_loader.cc).
_CUDNN_FOLDER = "usr/local/cuda/lib64"
_VERSION = re.compile(r"\.so((?:\.\d+)+)$")


@dataclass(frozen=True)
class LibraryFile:
    """A library as the loader finds it by its name without a version."""

    # The name that is opened: libcudnn.so.
    name: str
    # The file behind all links; None if there is none of that name.
    path: Path | None
    # Files of this library with a version in their names, in the folders that are searched.
    others: tuple[Path, ...] = ()

    @property
    def version(self) -> str:
        """By the file's name: libcudnn.so.9.5.1 is 9.5.1; empty if that does not say."""
        found = _VERSION.search(self.path.name) if self.path else None
        return found.group(1)[1:] if found else ""


def with_libraries(environment: Mapping[str, str], interpreter: str) -> dict[str, str]:
    """The variables, with the folder of links of the interpreter's environment first in LD_LIBRARY_PATH; unchanged if
    it has none."""
    # The interpreter may be a link, and its environment is where the link stands.
    folder = Path(interpreter).absolute().parent.parent / LINKS
    if not folder.is_dir():
        return dict(environment)
    # An empty word would be the current folder.
    callers = [word for word in environment.get(SEARCH_PATH, "").split(":") if word not in ("", str(folder))]
    return {**environment, SEARCH_PATH: ":".join([str(folder), *callers])}


def find_library(library: str, interpreter: str, variables: Mapping[str, str], root: Path = Path("/")) -> LibraryFile:
    """The file that a rank of this interpreter loads as ``lib<library>.so``. ``variables`` are the caller's."""
    name = f"lib{library}.so"
    folders = _folders(library, with_libraries(variables, interpreter), root)
    first = next((folder / name for folder in folders if (folder / name).is_file()), None)
    return LibraryFile(name, first and first.resolve(), _with_versions(name, folders))


def library_versions(library: str, variables: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """The versions of ``lib<library>.so`` that the machine has besides any interpreter's, by the files' names."""
    name = f"lib{library}.so"
    found = {LibraryFile(name, path).version for path in _with_versions(name, _folders(library, variables, root))}
    return tuple(sorted(each for each in found if "." in each))


def _folders(library: str, variables: Mapping[str, str], root: Path) -> list[Path]:
    """The folders that the loader searches, in order."""
    named = [Path(word) for word in variables.get(SEARCH_PATH, "").split(":") if word.startswith("/")]
    last = [root / _CUDNN_FOLDER] if library == "cudnn" else []
    return [*named, *_configured(root), *(root / each for each in _FOLDERS), *last]


def _with_versions(name: str, folders: Sequence[Path]) -> tuple[Path, ...]:
    found = {path.resolve() for folder in folders for path in folder.glob(f"{name}.*") if _VERSION.search(path.name)}
    return tuple(sorted(found))


def _configured(root: Path) -> Iterator[Path]:
    """The folders that the administrator added (ldconfig's files)."""
    for file in sorted((root / "etc/ld.so.conf.d").glob("*.conf")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("/"):
                yield root / line.strip().lstrip("/")
