"""Jobs of one step with their recipe's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec


def spec_of(case_id: str, device: str = "cpu", folder: Path | None = None, **overrides: Any) -> JobSpec:
    """The job of a case; it is written into ``folder`` if there is one."""
    case = Case.parse(case_id)
    settings = {**settings_for(case, device), **overrides}
    spec = JobSpec("j", case, 0, str(folder or "r"), device, 0, 1, settings=settings, overrides=overrides)
    if folder is not None:
        spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    return spec
