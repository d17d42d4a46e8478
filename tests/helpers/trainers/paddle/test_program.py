"""Which kind of program is taken, and what is said of the kinds and packages that fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf import descriptor_pb2

from helpers.builds.companions import companions_for
from helpers.trainers.common.process import Refused
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.program import ProgramKind
from helpers.trainers.paddle.companions import WORKING_COMPANIONS
from helpers.trainers.paddle.program import ProgramError, first_that_builds

Make = Callable[[dict[str, str]], str]


def _makes(facts: dict[str, str]) -> str:
    facts["operators"] = "1"
    return "a program"


def _raises(error: Exception) -> Make:
    def fail(facts: dict[str, str]) -> str:
        facts["left"] = "by a kind that failed"
        raise error

    return fail


def _first(*makers: Make) -> tuple[str, dict[str, str]]:
    facts: dict[str, str] = {}
    return first_that_builds(list(zip(ProgramKind, makers, strict=False)), facts), facts


def test_the_first_kind_that_builds_is_taken_and_the_others_are_not_tried() -> None:
    assert _first(_makes, _raises(AssertionError())) == ("a program", {"operators": "1", "program": "old"})


def test_a_kind_that_fails_is_followed_by_the_next_and_its_error_is_a_fact() -> None:
    _, facts = _first(_raises(TypeError("any(): not\n a Variable")), _raises(Refused("not cast")), _makes)
    assert facts.pop("program_not_built").startswith("old: TypeError: any(): not a Variable (")
    assert facts == {"operators": "1", "program": "PIR"}


def test_if_none_builds_the_error_has_paddle_s_own_of_each_with_file_and_line() -> None:
    with pytest.raises(ProgramError) as raised:
        _first(_raises(TypeError("one")), _raises(ValueError("two")))
    text = str(raised.value)
    assert "old: TypeError: one (" in text
    assert "old, with paddle.any shimmed: ValueError: two (" in text
    assert "paddle/test_program.py:" in text


def test_if_all_refuse_it_is_a_refusal() -> None:
    with pytest.raises(Refused, match=r"^not cast$"):
        _first(_raises(Refused("not cast")), _raises(Refused("not cast")))


def test_a_field_that_protobuf_s_objects_no_longer_have_is_protobuf_s_fault_and_ends_the_search() -> None:
    def ask(facts: dict[str, str]) -> str:
        return str(getattr(descriptor_pb2.FileDescriptorProto.DESCRIPTOR.fields[0], field))

    field = "a_field_that_older_ones_have_" * 8

    with pytest.raises(LaunchError, match=r"^protobuf .* no fault of this build") as raised:
        _first(ask, _makes)
    told = str(raised.value)
    assert f"Install protobuf=={WORKING_COMPANIONS['protobuf']}" in told
    # Whole, with its place.
    assert f"no attribute '{field}'" in told and "paddle/test_program.py:" in told


@pytest.mark.parametrize("version", ["3.0.0", "3.1.1", "3.2.2"])
def test_the_versions_that_are_said_to_work_are_those_that_are_installed(version: str) -> None:
    installed = companions_for(Framework.PADDLE, "paddlepaddle", version, False).requirements
    assert {f"{name}=={pin}" for name, pin in WORKING_COMPANIONS.items()} <= set(installed)
