"""Where each value of ``helpers/recipe.py`` comes from: a section of METHODS.md, or the suite's choice and why.

A framework has a table of its own. The first entry whose pattern and condition fit a key of a case's settings
is its source. What the trainers do for every case alike stands in FIXED.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from helpers import recipe_sources_paddle as paddle
from helpers import recipe_sources_pytorch as pytorch
from helpers.case import Case, Framework
from helpers.recipe_source import NOT_STATED, OWN, Condition, Fixed, Row, Source

__all__ = ["FIXED", "NOT_STATED", "OWN", "SOURCES", "Fixed", "Source", "fixed_of", "source_of"]

SOURCES: Mapping[Framework, tuple[Row, ...]] = MappingProxyType(
    {Framework.PADDLE: paddle.SOURCES, Framework.PYTORCH: pytorch.SOURCES}
)
FIXED: Mapping[Framework, tuple[tuple[Condition, Fixed], ...]] = MappingProxyType(
    {Framework.PADDLE: paddle.FIXED, Framework.PYTORCH: pytorch.FIXED}
)


def source_of(case: Case, device: str, key: str) -> Source:
    """The source of one key of ``settings_for(case, device)``, dots reaching into groups."""
    for pattern, fits, source in SOURCES.get(case.framework, ()):
        if fnmatchcase(key, pattern) and fits(case, device):
            return source
    return Source(NOT_STATED)


def fixed_of(case: Case, device: str) -> tuple[Fixed, ...]:
    """What the trainers do for this case whatever its settings say."""
    return tuple(fixed for fits, fixed in FIXED.get(case.framework, ()) if fits(case, device))
