"""Within which facts two results are compared: the machine's, and the settings'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.machine.environment import Environment, segment
from helpers.plan.overrides import settings_segment


def segment_of(environment: Mapping[str, str], settings: Mapping[str, Any], about: str) -> dict[str, str]:
    """What has to be equal for two results of a case to be compared: their environments' segments and settings.

    Raises ConfigError on an environment of another version of the suite.
    """
    return {**segment(Environment.from_mapping(environment, f"environment of {about}")), **settings_segment(settings)}
