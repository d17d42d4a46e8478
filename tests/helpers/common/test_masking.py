"""No user, password or token in what is shown and kept."""

from __future__ import annotations

import pytest

from helpers.common.masking import masked, remember, remembered, shown_words, without_password, without_secrets

DIGEST = "sha256=" + "a" * 64


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://USER:PW@host/x.whl?token=T", "http://host/x.whl?…"),
        ("https://ghp_token@host:8080/a/x.whl", "https://host:8080/a/x.whl"),
        (f"https://host/x.whl?X-Amz-Signature=abc#{DIGEST}", f"https://host/x.whl?…#{DIGEST}"),
        ("https://host/x.whl#access_token=abc", "https://host/x.whl#…"),
        (f"https://[::1]:80/x.whl#{DIGEST}", f"https://[::1]:80/x.whl#{DIGEST}"),
        # Nobody can tell where the password ends.
        ("https://me:P/W@host/x.whl", "https://***"),
        ("https://me:P?W@host/x.whl", "https://***"),
        ("https://me:P#W@host/x.whl", "https://***"),
        ("HTTPS://me:PW@host/x.whl", "HTTPS://host/x.whl"),
    ],
)
def test_of_an_address_of_http_neither_user_nor_password_nor_query_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert shown_words(["-k", f"--build={url}", url]) == ("-k", f"--build={shown}", shown)
    assert without_secrets(f"HTTP 404 of {url}, see there.") == f"HTTP 404 of {shown}, see there."


def test_what_follows_an_address_in_a_sentence_is_no_password() -> None:
    text = "nothing at (http://host:8000), http://host:8000: refused; http://host."
    assert without_secrets(text) == text


def test_a_configuration_s_passwords_are_masked_wherever_they_stand() -> None:
    found = {
        "history": {"url": "postgresql://me:Pa55word@db/perf"},
        "builds": {"reference": "https://me:0therWord@host/x.whl?sig=1", "most_gigabytes": 20},
        "nodes": {"hosts": [{"name": "a", "environment": {"HF_TOKEN": "hf_12345", "NCCL_ALGO": "Ring"}}]},
    }
    assert masked(found) == {
        "history": {"url": "postgresql://me:***@db/perf"},
        "builds": {"reference": "https://host/x.whl?…", "most_gigabytes": 20},
        "nodes": {"hosts": [{"name": "a", "environment": {"HF_TOKEN": "***", "NCCL_ALGO": "Ring"}}]},
    }
    remember(found)
    assert set(remembered()) == {"Pa55word", "0therWord", "hf_12345"}
    assert without_secrets("role me, Pa55word; hf_12345") == "role me, ***; ***"
