"""Requests that no browser of an honest visitor sends: drawn at random, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from tests.unit.dashboard.asking import HOST, TOKEN

#: An element and an attribute that no page has: wherever they come out, something was not escaped.
MARK = "\"'><zq7 onzq7=1>"

_NAMES = ["shop", "gone", "BILLING", "BILLING_FAILED", "SHIPPING", "REFUNDS", "queues", "messages", "dead-letters",
          "changes", "log",
          "journal", "peers", "cancel", "static", "page.css", "page.js", "metrics", "events", "login", "logout",
          "j"]  # fmt: skip
_PATHS = [
    "/", "/login", "/logout", "/metrics", "/events", "/static/{}", "/static/{}/{}", "/j/{}", "/j/{}/log", "/j/{}/peers",
    "/j/{}/journal", "/j/{}/queues/{}", "/j/shop/queues/{}/messages", "/j/shop/queues/{}/messages/{}",
    "/j/{}/queues/{}/dead-letters",
    "/j/{}/queues/{}/changes", "/j/{}/changes/{}", "/j/{}/changes/{}/cancel", "/{}", "/{}/{}/{}", "/j/shop/queues/BILLING{}",
    "/j/shop/queues/BILLING/messages", "/j/shop/queues/SHIPPING/messages", "/j/shop/queues/BILLING/dead-letters", "/j/shop/log",
    "/j/shop/journal", "/j/shop/queues/BILLING", "/j/shop/queues/SHIPPING/changes", "/j/shop/queues/BILLING/changes",
]  # fmt: skip
_TRICKS = [
    "..", ".", "", "../..", "..\\..", "../../guard.py", "../../../../../../etc/passwd", "/etc/passwd", "\x00",
    "page.css\x00.html", "~", "*",
    "%2e%2e", "%2e%2e%2fguard.py", "a" * 5_000, "ü", "\u202e", "\U0001f600", "{{7*7}}", "${7*7}", "{% raw %}",
    "; ls", "' OR 1=1 --",
    "\r\nset-cookie: zq7=1", MARK, f"<script>{MARK}</script>", f"javascript:{MARK}", "%s%s%n", "null", "None", "true",
]  # fmt: skip
_NUMBERS = [
    "0",
    "1",
    "5",
    "-1",
    "1e9",
    "0x10",
    "1,000",
    "٣",
    "²",
    "9" * 18,
    "9" * 19,
    "9" * 4_000,
    "1.5",
    " 7 ",
    "+3",
    "1_0",
    "2147483648",
    "NaN",
]
_TIMES = [
    "2001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00",
    "2026-13-45T99:99:99Z", "99999999999",
    "253402300800", "0", "2026-01-01T00:00:00+23:59", "2026-01-01T00:00:00-23:59", "1969-12-31T23:59:59Z", "24:00",
    "-0001-01-01T00:00:00Z",
]  # fmt: skip
_FILTERS = [
    "amount > 3", "item = 'x'", "amount >", "SELECT 1", "(" * 60 + "amount" + ")" * 60, "(" * 3_000,
    "amount + " * 300 + "1 > 0", "1/0 = 1",
    "item RLIKE '(a+)+$'", "item RLIKE '('", "item LIKE '%\\'", "nothing = 1", "amount IN (" + ",".join(map(str,
    range(500))) + ")",
    "CAST(item AS BIGINT) > 1", "amount > 99999999999999999999", "item = '" + MARK.replace("'", "''") + "'",
    "/* " + MARK, "-- x", "true",
    "amount IS NULL; DROP TABLE x", "java_method('a','b')", "item = '\x00'", "exists(select 1)", "amount = amount",
]  # fmt: skip
#: What pages are asked by, with some values of each.
WORDS = {
    "span": ["15min", "6h", "all", "2y"], "end": _TIMES, "at": _TIMES, "state": ["in the queue", "leased", "dead", "removed"],
    "where": _FILTERS, "bookmark": _NUMBERS, "after": _NUMBERS, "group": ["0" * 16], "queue": ["BILLING"],
    "kind": ["paused", "removed"],
    "people": ["1", "0"], "before": _NUMBERS, "older": _NUMBERS, "newer": _NUMBERS, "since": _TIMES, "until": _TIMES,
    "reason": ["forced_expire"], "error": ["declined"], "token": ["guessed"], MARK: [MARK],
}  # fmt: skip
#: What forms have.
FIELDS = {
    "verb": ["redrive", "settle", "purge", "purge", "pause", "unpause", "drop"], "of": ["letters", "messages"], "where": _FILTERS,
    "outcome": ["acknowledge", "expire", "cancel", "lose"], "per_second": _NUMBERS, "group": ["0" * 16],
    "confirmed": ["20", "1", "0"],
    "since": _TIMES, "until": _TIMES, "reason": ["forced_expire"], "error": ["declined"], "token": ["guessed"], MARK: [MARK],
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class StrangeRequest:
    """One request, as bytes come from the network."""

    method: str
    raw_path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: Sequence[bytes]

    def __repr__(self) -> str:
        """Say it as short as it can be sent again."""
        body = b"".join(self.body)
        told = f"{self.method} {self.raw_path[:300]}?{self.query[:300]!r} {self.headers} {body[:300]!r} ({len(body)} bytes)"
        return told[:2_000]

    @property
    def path(self) -> str:
        """The path as servers give it on."""
        return unquote(self.raw_path)


@dataclass(kw_only=True)
class Stranger:
    """Draws requests.

    Attributes
    ----------
    seed : int
        Chooses all that is drawn.
    cookies, form_tokens : sequence of str
        What requests may carry.
    """

    seed: int
    cookies: Sequence[str]
    form_tokens: Sequence[str]

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._headers: Sequence[Callable[[], tuple[str, str]]] = (
            lambda: ("accept", self._random.choice(["text/html", "*/*", "", "application/json", MARK])),
            lambda: ("origin", self._random.choice([f"http://{HOST}", "null", "http://evil.example", "http://[", MARK])),
            lambda: ("sec-fetch-site", self._random.choice(["same-origin", "cross-site", "none", MARK])),
            lambda: ("authorization", self._random.choice(["Bearer guessed", "Bearer", "Basic Zm9v", f"Bearer {MARK}", "\xff"])),
            lambda: ("x-forwarded-host", "evil.example"),
            lambda: ("x-forwarded-for", MARK),
            lambda: ("range", self._random.choice(["bytes=0-5", "bytes=-1", "zq7"])),
            lambda: ("if-none-match", "*"),
            lambda: ("accept-encoding", self._random.choice(["gzip", "br;q=zq7", "*"])),
        )

    def request(self) -> StrangeRequest:
        """Return the next one."""
        draw = self._random
        method = draw.choice(
            ["GET"] * 10 + ["POST"] * 8 + ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "ZQ7", ""]
        )
        names = [draw.choice(_NAMES) if draw.random() < 0.6 else self._odd() for _ in range(4)]
        path = draw.choice(_PATHS).format(*(self._quoted(name) for name in names))
        query = "&".join(self._pairs(WORDS, draw.choice([0, 0, 1, 2, 3, 8])))
        body = self._body() if method == "POST" or draw.random() < 0.1 else []
        headers = self._head()
        if body:
            headers.append((b"content-length", str(sum(map(len, body))).encode()))
        return StrangeRequest(method=method, raw_path=path, query=query.encode("latin-1", "replace"), headers=headers, body=body)

    def _odd(self) -> str:
        return self._random.choice([*_TRICKS, *_NUMBERS, *_TIMES, *_FILTERS])

    def _quoted(self, text: str) -> str:
        # Some quote every byte, some as few as a path can do with, and some twice.
        how = self._random.randrange(4)
        if how == 0:
            return "".join(f"%{byte:02x}" for byte in text.encode()[:300])
        once = quote(text, safe="" if how == 1 else "/.:;,'()*!~")
        return quote(once) if how == 2 and self._random.random() < 0.2 else once

    def _pairs(self, words: dict[str, list[str]], count: int) -> list[str]:
        pairs = []
        for _ in range(count):
            name = self._random.choice(list(words))
            value = self._random.choice(words[name]) if self._random.random() < 0.7 else self._odd()
            ends = self._random.choice([""] * 8 + ["%", "%ff%fe", "%ed%a0%80", "=", ";", "+"])
            pairs.append(f"{quote(name)}={quote(value, safe='')}{ends}")
        return pairs

    def _head(self) -> list[tuple[bytes, bytes]]:
        draw = self._random
        host = HOST if draw.random() < 0.95 else draw.choice(["evil.example", "", MARK, f"{HOST}.evil.example", "\xff"])
        found = [
            ("host", host),
            ("cookie", draw.choice(self.cookies)),
            *(draw.choice(self._headers)() for _ in range(draw.randrange(3))),
        ]
        kinds = ["application/x-www-form-urlencoded"] * 30 + [
            "multipart/form-data; boundary=b", "multipart/form-data; boundary=b; charset=unicode_escape", "multipart/form-data",
            "text/plain", "application/json", "", "application/x-www-form-urlencoded; charset=utf-7", MARK,
        ]  # fmt: skip
        found.append(("content-type", draw.choice(kinds)))
        return [(name.encode(), value.encode("latin-1", "replace")) for name, value in found]

    def _body(self) -> list[bytes]:
        draw = self._random
        kind = draw.randrange(10)
        if kind == 0:
            return [draw.randbytes(draw.choice([1, 100, 3_000]))]
        if kind == 1:
            return [b"verb=" + b"x" * 40_000, b"y" * 40_000]
        if kind == 2:
            part = b'--b\r\nContent-Disposition: form-data; name="verb"\r\n\r\n\\ud800\r\n'
            part += b'--b\r\nContent-Disposition: form-data; name="form_token"; filename="../x"\r\n\r\n\\ud800\r\n--b--\r\n'
            return [part]
        if kind == 3:
            return [b"&".join(b"a=1" for _ in range(2_000))]
        fields = self._pairs(FIELDS, draw.choice([0, 2, 4, 8]))
        fields.append(f"form_token={quote(draw.choice(self.form_tokens))}")
        if draw.random() < 0.5:
            fields.append(f"verb={draw.choice(['redrive', 'settle', 'purge'])}")
        draw.shuffle(fields)
        return ["&".join(fields).encode()]


def guesses_of(access_cookie: str) -> list[str]:
    """Return cookies of who is not logged in."""
    texts = ["", "0" * 43, MARK, "x" * 9_000, '"\\377"', "\xff", TOKEN]
    return [f"{access_cookie}={text}" for text in texts] + [
        "",
        "=",
        f"{access_cookie}",
        f"{access_cookie}; {access_cookie}=1",
        "a=b; " * 500,
    ]
