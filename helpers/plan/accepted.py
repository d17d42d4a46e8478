"""``--accept-regression CASE_PATTERN=REASON``: whose figure may become a baseline although it is worse, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from helpers.trainers.contract.errors import BaselineError

OPTION = "--accept-regression"
_EXAMPLE = f'{OPTION} "paddle-vgg16-*-1x8-*=the loader checks every image since 3.4"'


@dataclass(frozen=True)
class Accepted:
    """``reason`` is given for the cases whose id matches ``pattern``."""

    pattern: str
    reason: str

    def means(self, case_id: str) -> bool:
        return fnmatchcase(case_id, self.pattern)


def parse_accepted(given: Sequence[str]) -> tuple[Accepted, ...]:
    """What the command line gave, one each. Raises BaselineError on a reason that names no case, and on none."""
    return tuple(map(_parse, given))


def reason_for(case_id: str, accepted: Sequence[Accepted]) -> str | None:
    """The reason that was given for a case, of several the last; None without one."""
    return next((each.reason for each in reversed(accepted) if each.means(case_id)), None)


def refuse_unmatched(accepted: Sequence[Accepted], case_ids: Collection[str]) -> None:
    """BaselineError on a reason for no case of this session: a mistyped one would be told after hours of measuring."""
    for each in accepted:
        if not any(map(each.means, case_ids)):
            raise BaselineError(
                OPTION,
                got=each.pattern,
                expected=f"a pattern that one of the {len(case_ids)} selected cases matches",
                remedy="List the ids with --collect-only",
            )


def how_to_accept(case_id: str) -> str:
    return f'{OPTION} "{case_id}=REASON" records it all the same'


def _parse(text: str) -> Accepted:
    pattern, separator, reason = (part.strip() for part in text.partition("="))
    if not separator or not pattern or not reason:
        got = "an empty text" if not text.strip() else text
        raise BaselineError(
            OPTION, got=got, expected="CASE_PATTERN=REASON", remedy=f"Name the case and say why: {_EXAMPLE}"
        )
    if not pattern.strip("*?[]!-"):
        raise BaselineError(
            OPTION,
            got=text,
            expected="a pattern that names cases",
            remedy=f"One that means all of them takes in what nobody looked at. Name the case: {_EXAMPLE}",
        )
    return Accepted(pattern, reason)
