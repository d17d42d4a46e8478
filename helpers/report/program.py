"""The operators of a case's program as it is built here, beside those of the published one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from helpers.plan.case_plan import SuiteCase
from helpers.plan.recipes.published_programs import published_program
from helpers.session.programs import BuiltProgram, build_programs
from helpers.session.suite import Suite
from helpers.trainers.contract.program import PROGRAM_FACT


@dataclass(frozen=True)
class ProgramLine:
    """The operators of one rank's program, by the names of contract.program.COUNTED."""

    # Of the program behind the published figures, and where that is from.
    published: Mapping[str, int]
    source: str
    # The build that was asked, how that ended (BuildState), and the kind of its program; empty if none was asked.
    by: str = ""
    state: str = ""
    kind: str = ""
    # None if it was not built.
    built: Mapping[str, int] | None = None
    # In what it differs from the published one.
    differences: tuple[str, ...] = ()
    # Why there is no program, or what was pretended to build it.
    note: str = ""


def program_line(suite_case: SuiteCase) -> ProgramLine | None:
    """The published program, not built here; None if nobody knows one."""
    known = published_program(suite_case.case, suite_case.device)
    return None if known is None else ProgramLine(known.of(suite_case.case), str(known.source))


def built_here(suite: Suite, suite_case: SuiteCase, is_changed: bool, say: Callable[[str], None]) -> ProgramLine | None:
    """The published program beside the one that is built here, or why it is not; None if nobody knows one.

    With changed settings none is built. Raises LaunchError if the build's interpreter cannot be started.
    """
    line = program_line(suite_case)
    if line is None:
        return None
    if is_changed:
        return replace(line, note="with changed settings (--set) no program is built")
    build = suite.build(suite_case)
    if isinstance(build, str):
        return replace(line, note=build)
    say(f"building the program of {suite_case.case.id}")
    (report,) = build_programs([suite_case], build.interpreter)
    built = BuiltProgram(suite_case, (suite_case,), report)
    by = f"{build.distribution} {build.version}"
    return replace(
        line,
        by=by,
        state=report.state.value,
        kind=report.facts.get(PROGRAM_FACT, ""),
        built=built.counts,
        differences=built.differences,
        note=built.note,
    )


def operator_lines(line: ProgramLine) -> tuple[list[str], list[str]]:
    """A table of the counts, published and as built here, without those that neither program has; and sentences on
    it."""
    built = line.built or {}
    names = [name for name, count in line.published.items() if count or built.get(name)]
    widest = max(map(len, names))
    table = [f"{'':{widest}}  published" + ("  here" if built else "")]
    for name in names:
        table.append(f"{name:{widest}}  {line.published[name]:9}" + (f"  {built[name]:4}" if built else ""))
    kind = f", {line.kind}" if line.kind else ""
    here = f"{line.state} by {line.by}{kind}" if line.by else f"not built{'' if line.note else ' (--build-program)'}"
    sentences = [f"published: {line.source}", f"here: {here}" + (f"; {line.note}" if line.note else "")]
    if line.differences:
        sentences.append(f"not the published program's operators: {'; '.join(line.differences)}")
    return table, sentences
