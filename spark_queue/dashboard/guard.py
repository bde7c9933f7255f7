"""The guard of the page: every request passes it first, and every answer carries its headers."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spark_queue.dashboard.sessions import LoginSessions
from spark_queue.protocol.guesses import GuessLimit

#: The files that a page may load: its own, and no script or style that stands in it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)

#: The headers of every answer.
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

#: Paths that need no login: the login itself, and the files of its page.
_OPEN = ("/login", "/static/")

#: The type in which a browser sends the forms of pages.
_FORM = "application/x-www-form-urlencoded"

#: The one path that the token itself opens, too.
_SCRAPED = "/metrics"

#: The answer to an address that tried too many tokens.
TOO_MANY = "Too many wrong tokens came from your address, so this one was not checked. Wait some seconds, and try again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The conditions on which visitors may come in.

    Attributes
    ----------
    token : str
        The token that a login must give.
    hosts : Collection of str
        The values of a ``Host`` header that are this page: any other one is a stranger's name for it (DNS rebinding).
    is_secure : bool
        Whether it is served with TLS.
    allows_changes : bool
        Whether forms that change something are there.
    sessions : LoginSessions
        The sessions of visitors who are logged in.
    """

    token: str = field(repr=False)
    hosts: Collection[str]
    is_secure: bool
    allows_changes: bool
    sessions: LoginSessions = field(default_factory=LoginSessions, repr=False)
    #: Signs the tokens of forms; known to this process alone.
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _guesses: GuessLimit = field(default_factory=GuessLimit, repr=False)

    @property
    def cookie(self) -> str:
        """Name of the session's cookie; pages at other ports of the host have others."""
        mark = hashlib.blake2s(",".join(sorted(self.hosts)).encode(), digest_size=4).hexdigest()
        return f"{'__Host-' if self.is_secure else ''}sparkq-{mark}"

    def session_of(self, request: Request) -> str | None:
        """Return the key of the session that a request belongs to; None where nobody is logged in."""
        key = request.cookies.get(self.cookie, "")
        return key if self.sessions.holds(key) else None

    def form_token(self, request: Request) -> str:
        """Return the token that a session's forms must carry: a page of another site cannot know it. Empty without a login."""
        session = self.session_of(request)
        return "" if session is None else hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    def is_token(self, request: Request, given: str) -> bool | None:
        """Return whether a request gives the token; None where too many wrong ones came from its address."""
        address = "" if request.client is None else request.client.host
        return self._guesses.looked_at(address, lambda: hmac.compare_digest(given.encode(), self.token.encode()))

    async def is_form_of(self, request: Request) -> bool:
        """Return whether the form that a request brings is of its own session."""
        given, expected = str((await request.form()).get("form_token", "")), self.form_token(request)
        return expected != "" and hmac.compare_digest(given.encode(), expected.encode())


class Guard:
    """Stands before the application: refuses strangers' hosts, other sites and visitors without a login, and adds `HEADERS`."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if self._access.is_secure:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        access = self._access
        if request.headers.get("host", "").lower() not in access.hosts:
            text = "This page is not served under that name. Add it with --allowed-host."
            return PlainTextResponse(text, status_code=421)
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("That method is not allowed here.", status_code=405)
        if request.method == "POST":
            if not _is_own(request.headers, access):
                return PlainTextResponse("The form comes from another site.", status_code=403)
            if request.headers.get("content-type", _FORM).partition(";")[0].strip().lower() != _FORM:
                # Forms of ours have no files. The parser of files uses the names of encodings in the request.
                return PlainTextResponse("A form has another content type.", status_code=415)
        elif request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            # Events go on while they are read; a body of the question would end them in the middle.
            return PlainTextResponse("A request for a page has no body.", status_code=400)
        path = request.url.path
        if path.startswith(_OPEN) or access.session_of(request) is not None:
            return None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if path == _SCRAPED and scheme.lower() == "bearer":
            # Prometheus has no cookies. Guesses here are bounded as those at the login.
            is_token = access.is_token(request, token)
            if is_token is not False:
                return None if is_token else PlainTextResponse(TOO_MANY, status_code=429)
        elif request.method == "GET" and "text/html" in request.headers.get("accept", "text/html"):
            # As it was sent: the code of a slash in a name stays a code.
            asked = request.scope["raw_path"].decode() + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse("/login" if asked == "/" else f"/login?{urlencode({'next': asked})}", status_code=303)
        return PlainTextResponse("Log in first.", status_code=401)


def own_path(asked: str) -> str:
    """Return the path to which a login leads: the page that was asked for, where it is one of ours, else the first one."""
    # Browsers read two slashes, of either kind, as the beginning of a host, and leave out control characters.
    is_own = asked.startswith("/") and not asked.startswith(("//", "/login")) and "\\" not in asked and asked.isprintable()
    return asked if is_own else "/"


def _is_own(headers: Headers, access: Access) -> bool:
    """Return whether a form comes from a page of our own, as far as the browser tells."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    if origin is None:
        # It is no browser then, or an old one: the form's token decides.
        return True
    scheme = "https" if access.is_secure else "http"
    return origin.lower() in {f"{scheme}://{host}" for host in access.hosts}
