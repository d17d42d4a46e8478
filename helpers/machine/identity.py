"""Finds which machine this is, by what survives a new name, a reboot and a new container."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# systemd writes "uninitialized" into images; an id is 32 hexadecimal digits.
_MACHINE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
# The name that container engines give a container that nobody named; it differs at every start.
_MADE_UP_NAME = re.compile(r"[0-9a-f]{12}", re.ASCII)
_PRODUCT = Path("sys/class/dmi/id/product_uuid")


@dataclass(frozen=True)
class HostIdentity:
    """Which machine this is."""

    # 16 hexadecimal digits.
    host_id: str
    # What the id comes from, as text.
    by: str
    # Ids under which the same machine was known before; baselines may be kept under them.
    former: tuple[str, ...] = ()


def identify(root: Path, name: str, card_ids: Sequence[str], hardware: str) -> HostIdentity:
    """The machine's identity: by the machine id of ``/etc`` under ``root``; where there is none, as in a container, by
    the cards' UUIDs, then the mainboard's UUID, then the host's ``name``, then its ``hardware`` (a text)."""
    machine_id = _text(root / "etc/machine-id").lower()
    if _MACHINE_ID.fullmatch(machine_id):
        return HostIdentity(_digits(machine_id), "its machine id")
    by_name = _digits(f"name:{name}")
    if card_ids:
        return HostIdentity(_digits("cards:" + " ".join(sorted(card_ids))), "its cards' UUIDs", (by_name,))
    if product := _text(root / _PRODUCT).lower():
        return HostIdentity(_digits(f"product:{product}"), "its mainboard's UUID", (by_name,))
    if not _MADE_UP_NAME.fullmatch(name):
        return HostIdentity(by_name, "its host name")
    return HostIdentity(_digits(f"hardware:{hardware}"), "its hardware alone, as equal machines have it", (by_name,))


def _digits(source: str) -> str:
    # systemd asks that the id itself is not shown.
    return hashlib.sha256(f"perfgate:{source}".encode()).hexdigest()[:16]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
