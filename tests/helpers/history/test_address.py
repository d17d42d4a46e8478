"""No spelling of a URL shows its password; whether a database answers, tried with real sockets of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.common.masking import passwords_in, without_password, without_secrets
from helpers.history import open_history
from helpers.history.address import (
    history_problem,
    named_address,
    refuse_in_command_line,
)
from helpers.trainers.contract.errors import HistoryError
from tests.faults.postgres import Server

# Letters of which none stands elsewhere in these URLs.
SECRETS = st.text(st.sampled_from("XYZ@:/?#&=% ;'\"\\\n\x1b\u202e"), min_size=1, max_size=12)


def leaks(secret: str, shown: str) -> bool:
    return any(letter in shown for letter in set(secret) & set("XYZ"))


@given(SECRETS)
@example("X@Y")
@example("X/Y@Z")
@example("X?Y@Z")
@example("X@Y/Z?")
@example("XYZ:X@")
def test_nothing_of_a_password_is_shown_however_it_is_written(secret: str) -> None:
    for url in (
        f"postgresql://me:{secret}@db.lan:5432/history",
        f"postgresql+psycopg://me:{secret}@db.lan/history?sslmode=require",
        f"postgres://:{secret}@/history?host=/run",
        f"postgresql://db.lan/history?password={secret.replace('&', '')}&user=me",
        f"postgresql://db.lan:5432/history?user=me&sslpassword={secret.replace('&', '')}",
    ):
        assert not leaks(secret, without_password(url)), (url, without_password(url))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db/perf", "postgresql://me:***@db/perf"),
        ("postgresql://me@db/perf", "postgresql://me@db/perf"),
        ("postgresql://db:5432/perf?host=/run&user=me", "postgresql://db:5432/perf?host=/run&user=me"),
        ("postgresql://db/perf?password=a&sslmode=require", "postgresql://db/perf?password=***&sslmode=require"),
        ("sqlite:////a:b@c/d?e.sqlite", "sqlite:////a:b@c/d?e.sqlite"),
        ("nonsense", "nonsense"),
        ("postgresql://[::1]:5432/perf", "postgresql://[::1]:5432/perf"),
        ("postgresql://a:5432,b/perf", "postgresql://a:5432,b/perf"),
    ],
)
def test_the_rest_of_a_url_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize("password", ["p@ss", "p@s/s", "p/s@s", "p?s@s"])
def test_a_password_without_its_escapes_is_refused_with_how_to_write_it(password: str) -> None:
    with pytest.raises(HistoryError, match="as %40") as caught:
        open_history(f"postgresql://me:{password}@127.0.0.1:1/perf")
    assert caught.value.field == "password"


@pytest.mark.parametrize(
    "url",
    [
        "host=db user=me password=XYZ dbname=perf",
        "host=db PASSWORD = 'X Y\\' Z'",
        "postgresql:/me:XYZ/perf",
        "postgresql:me:XYZ@db/perf",
        "postgresql://me:XYZ/perf",
        "postgresql://me:X/Y:Z",
        "sqlite+pysqlcipher://:XYZ@/file.db",
    ],
)
def test_a_slip_of_the_pen_shows_no_password(url: str) -> None:
    assert not leaks("XYZ", without_password(url)), without_password(url)
    with pytest.raises(HistoryError) as caught:
        open_history(url)
    assert not leaks("XYZ", str(caught.value)), str(caught.value)


PASSWORDS = ["secret", "s3cr%40et", "a:b", "x/y", "ü€", "pass word", "quote'd"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize(
    "form",
    [
        "postgresql://me:{}@db/perf",
        "postgres://:{}@db/perf",
        "postgresql+psycopg://me:{}@db:5432/perf?sslmode=require",
        "postgresql://db/perf?user=me&password={}",
        "postgresql://db/perf?sslpassword={}",
        "postgresql://me:{}/perf",
    ],
)
def test_a_password_in_a_command_line_is_refused_and_not_repeated(form: str, password: str) -> None:
    with pytest.raises(HistoryError, match=r"~/\.pgpass") as caught:
        refuse_in_command_line(form.format(password))
    assert password not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////home/a:b@c/history.sqlite", "postgresql://me@db/perf", "postgresql://me@db:5432/perf?sslmode=require",
        "postgresql://me@/perf?host=/run/postgresql", "postgresql://me@[::1]:5432/perf", "postgresql://me@a:1,b:2/perf",
        "postgresql:///perf?passfile=/home/me/.pgpass",
    ],
)  # fmt: skip
def test_an_address_without_a_password_is_taken(url: str) -> None:
    refuse_in_command_line(url)
    assert passwords_in([url]) == ()


@pytest.mark.parametrize("password", PASSWORDS)
def test_no_text_holds_a_password_that_the_command_line_or_a_variable_held(password: str) -> None:
    url = f"postgresql://me:{password}@db/perf"
    text = f"could not connect to {url!r} with {password} (password={password}), {url}"
    known = passwords_in([f"--history={url}", ("PGPASSWORD", password)])
    told = without_secrets(text, known)
    assert len(password) < 4 or password not in told


@pytest.mark.slow
def test_a_database_that_answers_has_no_problem_and_one_that_does_not_is_told(postgres: Server) -> None:
    assert history_problem(postgres.new_database()) == ""
    told = history_problem("postgresql://ann:secret@127.0.0.1:1/perf")
    assert "127.0.0.1" in told and "secret" not in told


def test_a_history_file_needs_a_place_where_it_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert history_problem(f"sqlite:///{tmp_path}/history.sqlite") == ""
    assert history_problem(f"sqlite:///{tmp_path}/new/history.sqlite") == ""
    (tmp_path / "file").touch()
    assert "file is no folder" in history_problem(f"sqlite:///{tmp_path}/file/history.sqlite")
    # Root may write anywhere, so the kernel's answer is made up.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "cannot be written" in history_problem(f"sqlite:///{tmp_path}/history.sqlite")


@pytest.mark.parametrize(
    ("named", "file"),
    [
        ("sqlite:///h.sqlite", "{folder}/h.sqlite"),
        ("sqlite:///../h.sqlite", "{folder}/../h.sqlite"),
        ("sqlite:///~/h.sqlite", "{home}/h.sqlite"),
        ("sqlite:////h.sqlite", "/h.sqlite"),
        ("sqlite:///a?b%20c.sqlite", "{folder}/a?b%20c.sqlite"),
    ],
)
def test_a_relative_file_is_beside_who_names_it_and_a_tilde_is_the_home(
    named: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, started, home = (tmp_path / name for name in ("configured", "started", "home"))
    for folder in (ours, started):
        folder.mkdir()
    monkeypatch.chdir(started)
    monkeypatch.setenv("HOME", str(home))
    configured = named_address(None, named, ours / "perf.yaml")
    assert configured == f"sqlite:///{file.format(folder=ours, home=home)}"
    given = named_address(named, "sqlite:///other", ours / "perf.yaml")
    assert given == f"sqlite:///{file.format(folder=started, home=home)}"
