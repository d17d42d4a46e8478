"""Finds the control groups of this process, which bound its share of the machine."""

from __future__ import annotations

from pathlib import Path

from helpers.machine.unknown import ask


def control_groups(root: Path, controller: str) -> list[Path]:
    """The folders of this process's control group and of those above it, for both versions of control groups.

    Some may not exist: a container often sees only its own root.
    """
    own: list[tuple[Path, str]] = []
    text = ask(lambda: (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace"))
    for line in str(text).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            own.append((root / "sys/fs/cgroup", path))
        elif controller in names.split(","):
            own.append((root / f"sys/fs/cgroup/{controller}", path))
    found = [root / "sys/fs/cgroup", root / f"sys/fs/cgroup/{controller}"]
    for mount, path in own:
        parts = [part for part in path.split("/") if part not in ("", "..")]
        found += [mount.joinpath(*parts[: count + 1]) for count in range(len(parts))]
    return list(dict.fromkeys(found))
