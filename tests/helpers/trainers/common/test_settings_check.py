"""The settings check as a program: a list in, a list out."""

from __future__ import annotations

import io
import json

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.settings_check import main
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic")


def test_each_job_is_answered_in_order() -> None:
    settings = settings_for(CASE, "cpu")
    right = JobSpec("j", CASE, 0, "r", "cpu", 0, 1, settings=settings).to_json()
    wrong = JobSpec("j", CASE, 0, "r", "cpu", 0, 1, settings={**settings, "momentum": -1}).to_json()
    out, errors = io.StringIO(), io.StringIO()
    assert main(io.StringIO(json.dumps([wrong, right, "{}"])), out, errors) == 0
    answers = json.loads(out.getvalue())
    assert "momentum" in answers[0]
    assert answers[1] is None
    assert "schema" in answers[2]
    assert errors.getvalue() == ""


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[null", "3"])
def test_what_is_no_list_of_texts_is_refused(text: str) -> None:
    out, errors = io.StringIO(), io.StringIO()
    assert main(io.StringIO(text), out, errors) == 1
    assert out.getvalue() == ""
    assert errors.getvalue()
