"""Who may see a page, and from where."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from spark_queue.dashboard import guard
from spark_queue.dashboard.app import ServingOptions, access_of, names_of
from spark_queue.errors import ConfigError, CoordinatorError
from spark_queue.journal.store import Store
from tests.unit.dashboard.asking import HOST, TOKEN, asker
from tests.unit.dashboard.dashboard_world import DashboardWorld

PATHS = [
    "/", "/events", "/j/shop", "/j/shop/log", "/j/shop/peers", "/j/shop/journal", "/j/shop/queues/BILLING",
    "/j/shop/queues/BILLING/messages", "/j/shop/queues/BILLING/messages/1", "/j/shop/queues/BILLING/dead-letters",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_page_is_shown_before_the_login(world: DashboardWorld, path: str) -> None:
    stranger = asker(world.journal, logs_in=False)
    found = stranger.get(path)
    assert (found.status, found.headers["location"].partition("?")[0], found.text) == (303, "/login", "")
    assert stranger.get(path, accept="application/json").status == 401
    stranger.cookie = f"{stranger.access.cookie}={'0' * 64}"
    assert stranger.get(path).status == 303


def test_whoever_leaves_in_the_middle_of_a_login_fills_no_log(world: DashboardWorld) -> None:
    """As often as it likes: strangers choose what would be told."""
    stranger = asker(world.journal, logs_in=False)
    assert stranger.post("/login", {"token": "half"}, leaves="yes").status == 400


@pytest.mark.parametrize("path", [*PATHS, "/login", "/static/page.css", "/nowhere"])
def test_every_answer_carries_the_policy(world: DashboardWorld, path: str) -> None:
    headers = asker(world.journal).get(path).headers
    assert {name.lower(): headers[name.lower()] for name in guard.HEADERS} == {
        name.lower(): value for name, value in guard.HEADERS.items()
    }
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["content-security-policy"].startswith("default-src 'none';")


@pytest.mark.parametrize("path", PATHS[2:])
def test_pages_hold_no_script_no_style_and_no_address_of_another_host(world: DashboardWorld, path: str) -> None:
    found = asker(world.journal, allows_changes=True).get(path)
    assert found.status == 200
    assert re.findall(r"<script\b[^>]*>", found.text) == ['<script src="/static/page.js" defer>']
    assert not re.findall(r"<style|\sstyle=|\son\w+=|javascript:", found.text)
    assert not re.findall(r"(?:src|href|action)=\"(?:[a-z]+:)?//", found.text)


def test_login_takes_the_token_and_gives_a_cookie_that_scripts_cannot_read(world: DashboardWorld) -> None:
    visitor = asker(world.journal, logs_in=False)
    assert "Token" in visitor.get("/login").text
    for answer in (visitor.post("/login", {"token": TOKEN}), visitor.get(f"/login?token={TOKEN.replace(' ', '+')}")):
        assert (answer.status, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
        visitor.cookie = cookie.split(";")[0]
        assert visitor.get("/").status == 200
        visitor.cookie = ""


@pytest.mark.parametrize("given", ["", "wrong", TOKEN[:-1], TOKEN + "x", "ü", "\x00"])
def test_a_wrong_token_is_refused(world: DashboardWorld, given: str) -> None:
    answer = asker(world.journal, logs_in=False).post("/login", {"token": given})
    assert (answer.status, "set-cookie" in answer.headers) == (403, False)
    assert "That is not the token." in answer.text


def test_no_token_is_looked_at_after_many_that_were_wrong(world: DashboardWorld) -> None:
    """However many come at once: not even the right one, or a guess that succeeds would tell at once."""
    visitor, bearer = asker(world.journal, logs_in=False), {"authorization": f"Bearer {TOKEN}"}
    assert [visitor.post("/login", {"token": f"guess {number}"}).status for number in range(7)] == [403] * 5 + [429] * 2
    answer = visitor.post("/login", {"token": TOKEN})
    assert (answer.status, "set-cookie" in answer.headers, "not checked" in answer.text) == (429, False, True)
    scraped = visitor.get("/metrics", **bearer)
    assert (scraped.status, "sparkqueue" in scraped.text) == (429, False)
    visitor.cookie = f"{visitor.access.cookie}={visitor.access.sessions.begin()}"
    assert visitor.get("/").status == 200, "who is logged in does not notice"


@pytest.mark.parametrize("host", ["evil.example:7380", "127.0.0.1", "127.0.0.1:7381", "", "127.0.0.1:7380.evil.example"])
def test_another_name_of_the_host_is_refused(world: DashboardWorld, host: str) -> None:
    assert asker(world.journal).get("/", host=host).status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": f"https://{HOST}"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_form_of_another_site_is_refused(world: DashboardWorld, headers: dict[str, str]) -> None:
    form = {"verb": "purge"}
    answer = asker(world.journal, allows_changes=True).change("/j/shop/queues/REFUNDS/changes", form, **headers)
    assert (answer.status, answer.text) == (403, "The form comes from another site.")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(world: DashboardWorld, method: str) -> None:
    assert asker(world.journal).ask(method, "/", b"", {}).status == 405


TRICKS = [
    "/static/..%2f..%2fpyproject.toml",
    "/static/%2e%2e/guard.py",
    "/static/page.css%00.html",
    "/static//etc/passwd",
    "/j/..%2f..%2fetc",
    "/j/%2e%2e/queues/BILLING",
    "/j/other",
    "/j/shop/queues/..%2f..%2fcontrol",
    "/j/shop/queues/NOTHING",
    "/j/shop/queues/BILLING/messages/-1",
    "/j/shop/queues/BILLING/messages/x",
    "/j/shop/changes/nothing",
]


@pytest.mark.parametrize("path", TRICKS)
def test_paths_lead_nowhere_else(world: DashboardWorld, path: str) -> None:
    answer = asker(world.journal).get(path)
    assert answer.status == 404
    assert "There is no such page." in answer.text


def test_another_host_than_loopback_needs_tls_and_a_token(tmp_path: Path) -> None:
    given: dict[str, Any] = {}
    for name in ("tls_cert", "tls_key", "token_file"):
        with pytest.raises(CoordinatorError, match=f"ADDRESS_UNSAFE.*no --{name.replace('_', '-')}"):
            access_of(ServingOptions(host="0.0.0.0", port=7380, **given))
        given[name] = tmp_path / name
    given["token_file"].write_text("short")
    given["token_file"].chmod(0o600)
    with pytest.raises(ConfigError, match="16 characters"):
        access_of(ServingOptions(host="0.0.0.0", port=7380, **given))
    given["token_file"].write_text("0123456789abcdef")
    given["token_file"].chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        access_of(ServingOptions(host="0.0.0.0", port=7380, **given))
    given["token_file"].chmod(0o600)
    access = access_of(ServingOptions(host="0.0.0.0", port=7380, allowed_hosts=["queues.example"], **given))
    assert (access.is_secure, access.cookie.startswith("__Host-")) == (True, True)
    assert "queues.example:7380" in access.hosts
    assert "127.0.0.1:7380" not in access.hosts


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tls-cert.*given together with --tls-key"):
        access_of(ServingOptions(host="127.0.0.1", port=1, tls_cert=tmp_path))


def test_each_start_has_a_token_of_its_own() -> None:
    first, second = (access_of(ServingOptions(host="localhost", port=7380)) for _ in range(2))
    assert first.token != second.token
    assert len(first.token) >= 32
    assert first.token not in repr(first)


def test_journals_of_one_name_have_pages_of_their_own() -> None:
    named = names_of([Store("/a/shop"), Store("/b/shop"), Store("/c/other")])
    assert {name: store.path for name, store in named.items()} == {"shop": "/a/shop", "shop-2": "/b/shop", "other": "/c/other"}


@pytest.mark.parametrize(
    ("path", "login"),
    [
        ("/", "/login"),
        ("/j/shop", "/login?next=%2Fj%2Fshop"),
        ("/j/shop/log?queue=A%20B&people=1", "/login?next=%2Fj%2Fshop%2Flog%3Fqueue%3DA%2520B%26people%3D1"),
    ],
)
def test_a_login_knows_where_a_link_pointed(world: DashboardWorld, path: str, login: str) -> None:
    stranger = asker(world.journal, logs_in=False)
    sent = stranger.get(path)
    assert (sent.status, sent.headers["location"]) == (303, login)
    field = re.search(r'name="next" value="([^"]*)"', stranger.get(login).text)
    assert field is not None
    assert html.unescape(field[1]) == path
    wrong = stranger.post("/login", {"token": "wrong", "next": path}).text
    assert f'name="next" value="{field[1]}"' in wrong
    assert stranger.post("/login", {"token": TOKEN, "next": path}).headers["location"] == path


@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example", "evil", "",
     "javascript:alert(1)", "/login?next=/login", "/\r\nSet-Cookie: a=b", "/j/\\..\\x"],
)  # fmt: skip
def test_a_login_leads_to_no_other_place(world: DashboardWorld, elsewhere: str) -> None:
    stranger = asker(world.journal, logs_in=False)
    asked = urlencode({"next": elsewhere, "token": TOKEN})
    assert stranger.get(f"/login?{asked}").headers["location"] == "/"
    assert stranger.post("/login", {"token": TOKEN, "next": elsewhere}).headers["location"] == "/"
