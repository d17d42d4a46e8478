"""The packages beside Paddle, whose faults are no faults of the build, and Paddle's import, which needs some of them.

Imports no framework by itself.
"""

from __future__ import annotations

import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any, Optional

from helpers.trainers.common.process import Refused, not_imported, one_line
from helpers.trainers.contract.errors import LaunchError

# The versions that work with every line of Paddle from 3.0 on (requirements/companions.yaml).
WORKING_COMPANIONS = {"protobuf": "6.33.0", "numpy": "2.2.6", "setuptools": "80.9.0"}
# By the first part of a module's name.
_DISTRIBUTIONS = {"google": "protobuf", "numpy": "numpy", "setuptools": "setuptools"}
_FRAMES, _LONGEST = 3, 300


class CompanionError(LaunchError):
    """A package beside Paddle does not fit it. ``distribution`` is its name."""

    distribution = ""


def import_paddle() -> Any:
    """Paddle. Raises Refused if it is not installed or cannot be imported, CompanionError if a package beside it is
    missing or at fault."""
    try:
        import paddle
    except Exception as error:
        refuse_companion(error)
        if isinstance(error, ImportError):
            raise not_imported("Paddle", "paddle", error) from error
        raise
    return paddle


def told(error: BaseException) -> str:
    """Type and message of an error on one line, and file and line of its last frames."""
    message = one_line(str(error))
    message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ..."
    if isinstance(error, Refused):
        return message
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = " > ".join(f"{_short(each.filename)}:{each.lineno}" for each in frames)
    return f"{type(error).__name__}: {message} ({places})"


def refuse_companion(error: BaseException) -> None:
    """Raise CompanionError if the error is that of a package beside Paddle that does not fit it."""
    name = _companion_at_fault(error)
    if name is None:
        return
    try:
        found = f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        found = f"{name}, which is not installed"
    version = getattr(sys.modules.get("paddle"), "__version__", "")
    fault = CompanionError(
        f"{found}, beside Paddle {version}".rstrip(),
        expected=f"a version that works with this line of Paddle, as {name} {WORKING_COMPANIONS[name]}",
        remedy="It is no fault of this build of Paddle. Install "
        f"{name}=={WORKING_COMPANIONS[name]} beside it, or make the environment with perfgate builds make "
        # Here it is whole: what was got is cut to one line's length.
        f"(requirements/companions.yaml). Paddle's own error: {told(error)}",
    )
    fault.distribution = name
    raise fault from error


def _companion_at_fault(error: BaseException) -> Optional[str]:
    """The distribution whose object lacks an attribute, whose own code raised, or whose module is missing."""
    if isinstance(error, ImportError):
        return _DISTRIBUTIONS.get(str(error.name).partition(".")[0])
    if not isinstance(error, (AttributeError, TypeError)):
        return None
    # Python 3.10 and newer know the object.
    owner = type(getattr(error, "obj", None)).__module__.partition(".")[0]
    frames = traceback.extract_tb(error.__traceback__)
    if owner == "google" or "FieldDescriptor" in str(error) or (frames and "/google/protobuf/" in frames[-1].filename):
        return "protobuf"
    return None


def _short(path: str) -> str:
    """The path within its package's folder."""
    parts = Path(path).parts
    for folder in ("site-packages", "dist-packages"):
        if folder in parts:
            return "/".join(parts[parts.index(folder) + 1 :])
    return "/".join(parts[-2:])
