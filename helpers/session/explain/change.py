"""Explains what a search for the first bad build has found: this build beside the one before it."""

from __future__ import annotations

from dataclasses import replace

from helpers.judging.bisect.search import BisectEnd
from helpers.plan.case_plan import SuiteCase
from helpers.session.bisect import BuildSearch, CaseSearch
from helpers.session.explain.case import CaseExplanation, explain_case
from helpers.session.explain.runs import ExplainRequest
from helpers.trainers.contract.errors import SuiteError


def explain_change(search: BuildSearch, suite_case: SuiteCase, found: CaseSearch) -> CaseExplanation | None:
    """Compare the first bad build with the newest build before it that can be tested, by ``explain`` of perf.yaml's
    pairs and steps; None if the search has not found one build. What stops it becomes the reason in the answer."""
    answer = found.answer
    if found.stopped or answer is None or answer.end is not BisectEnd.FOUND or not answer.first:
        return None
    before = max(place for place, each in enumerate(found.builds[: answer.first]) if place == 0 or not each.untestable)
    bad, good = search.plan.builds[answer.first], search.plan.builds[before]
    search.say(f"explaining {suite_case.case.id}: {search.names[answer.first]} beside {search.names[before]}")
    try:
        with search.prepare(bad, good) as named:
            session = f"{search.options.session}.explained"
            options = replace(search.options, session=session, builds=named, resume=True, same_build=True)
            suite = search.load(options)
            wanted = suite.config.explain
            request = ExplainRequest(wanted.pairs, wanted.steps, search.time_is_over, is_slower=True)
            return explain_case(suite, suite_case, request, search.say, search.on_progress)
    except (SuiteError, OSError) as error:
        names = search.names[before], search.names[answer.first]
        return CaseExplanation(suite_case.case.id, suite_case.target, *names, None, str(error))
