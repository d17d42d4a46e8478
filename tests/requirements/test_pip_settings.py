"""What reaches uv of the caller's settings of pip."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.requirements.scripts import load

pip_settings: Any = load("pip_settings")


def test_pip_s_way_to_packages_reaches_uv_and_what_moves_packages_does_not(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    listed = f"""
:env:.find-links='{tmp_path} https://more.example/wheels /nowhere'
:env:.default-timeout='180'
global.index-url='https://me:key@index.example/simple'
global.extra-index-url='https://a.example/s\\nfile:///srv/simple'
install.trusted-host='index.example'
global.cert='/etc/ca.pem'
global.client-cert="/etc/it's mine.pem"
global.proxy='proxy.example:3128'
global.find-links='/elsewhere'
global.no-index='false'
install.target='/elsewhere'
global.constraint='/etc/constraints.txt'
"""
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    bundle = {"REQUESTS_CA_BUNDLE": str(tmp_path / "ca.pem")}
    found, options = pip_settings.for_uv(pip_settings.settings_of(listed), bundle)
    assert options == []
    assert found == {
        "UV_FIND_LINKS": f"{tmp_path},https://more.example/wheels",
        "UV_DEFAULT_INDEX": "https://me:key@index.example/simple",
        "UV_INDEX": "https://a.example/s file:///srv/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "index.example",
        "SSL_CERT_FILE": "/etc/ca.pem",
        "SSL_CLIENT_CERT": "/etc/it's mine.pem",
        "UV_HTTP_TIMEOUT": "180",
        **dict.fromkeys(proxies, "http://proxy.example:3128"),
        **bundle,
    }
    assert pip_settings.for_uv({}, bundle)[0]["SSL_CERT_FILE"] == str(tmp_path / "ca.pem")
    assert pip_settings.for_uv({"no-index": "1"}, {}) == ({}, ["--no-index"])


def test_uv_s_own_settings_take_precedence_and_none_of_them_moves_packages() -> None:
    settings = {"index-url": "https://pip.example", "timeout": "9", "cert": "/etc/ca.pem"}
    own = {"UV_INDEX_URL": "https://uv.example", "UV_HTTP_TIMEOUT": "60", "UV_CACHE_DIR": "/cache"}
    moving = {"UV_TARGET": "/elsewhere", "UV_CONSTRAINT": "c.txt", "UV_PYTHON": "3.8", "PIP_TARGET": "/elsewhere"}
    assert pip_settings.for_uv(settings, {**own, **moving})[0] == {**own, "SSL_CERT_FILE": "/etc/ca.pem"}
    assert pip_settings.for_pip(settings, moving) == {
        "UV_TARGET": "/elsewhere", "UV_CONSTRAINT": "c.txt", "UV_PYTHON": "3.8", "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "https://pip.example", "PIP_TIMEOUT": "9", "PIP_CERT": "/etc/ca.pem",
    }  # fmt: skip


@pytest.mark.slow
def test_pip_is_asked_for_its_settings_and_a_file_that_it_cannot_read_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nquiet = 3\npython = /nowhere\nindex-url = https://a.example\n")
    variables = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": str(file), "PIP_QUIET": "1"}
    assert pip_settings.read(sys.executable, variables)["index-url"] == "https://a.example"
    file.write_text("no section\n")
    with pytest.raises(pip_settings.PipError, match="config list' ended with"):
        pip_settings.read(sys.executable, variables)
