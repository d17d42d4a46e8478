"""``for_each``: one test of one property over many values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Check = Callable[..., None]


def for_each(
    names: str | Sequence[str], values: Iterable[Any], ids: Callable[[Any], object] | Sequence[str] = repr
) -> Callable[[Check], Check]:
    """Called as ``pytest.mark.parametrize``, but all values are one test: for tables, rows and seeds over which one
    property must hold, where a test of its own for each costs more than what it tests. It stops at the first value that
    fails, and the error names it."""
    given = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    listed = list(values)
    assert listed, "a test of no value cannot fail"
    named = list(map(ids, listed)) if callable(ids) else list(ids)

    def decorate(check: Check) -> Check:
        signature = inspect.signature(check)

        def test(**others: Any) -> None:
            for value, name in zip(listed, named, strict=True):
                arguments = dict(zip(given, (value,) if len(given) == 1 else value, strict=True))
                try:
                    check(**others, **arguments)
                # pytest.fail and pytest.raises raise no Exception.
                except BaseException as error:
                    error.add_note(f"{', '.join(given)}: {name}")
                    raise

        # Marks, and what a decorator below this one has noted.
        test.__dict__.update(check.__dict__)
        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        left = [each for each in signature.parameters.values() if each.name not in given]
        test.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return test

    return decorate
