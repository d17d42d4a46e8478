"""Which kind of static program a build of Paddle makes of a case: the first that builds, never chosen by a version; and
what is said of the others.

A fault of a package beside Paddle is no fault of the build, and ends the search.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

import paddle

from helpers.trainers.common.process import Refused
from helpers.trainers.contract.program import PROGRAM_FACT, ProgramKind
from helpers.trainers.paddle.companions import refuse_companion, told

# The fact with the errors of the kinds that were tried before.
NOT_BUILT_FACT = "program_not_built"

Built = TypeVar("Built")


class ProgramError(Exception):
    """This build of Paddle makes no kind of program of the case; the text has Paddle's own error for each."""


def first_that_builds(
    makers: Sequence[Tuple[ProgramKind, Callable[[Dict[str, str]], Built]]], facts: Dict[str, str]
) -> Built:
    """The program of the first maker that raises nothing. A maker fills in facts; ``facts`` get those of this one, its
    kind, and the errors of those before.

    Raises ProgramError if none builds, Refused if all refuse, and LaunchError if a package beside Paddle is at fault.
    """
    errors: List[str] = []
    refusals: List[str] = []
    last: Optional[Exception] = None
    for kind, make in makers:
        own: Dict[str, str] = {}
        try:
            built = make(own)
        except Exception as error:  # noqa: BLE001 - a build lacks parts in as many ways as there are errors
            refuse_companion(error)
            refusals += [str(error)] if isinstance(error, Refused) else []
            errors.append(f"{kind.value}: {told(error)}")
            last = error
            continue
        facts.update(own)
        facts[PROGRAM_FACT] = kind.value
        if errors:
            facts[NOT_BUILT_FACT] = "; ".join(errors)
        return built
    if len(refusals) == len(errors):
        raise Refused("; ".join(dict.fromkeys(refusals))) from last
    raise ProgramError(f"Paddle {paddle.__version__} builds no program of this case: {'; '.join(errors)}") from last
