"""Bugs of who may see and change something on the page, and where metrics are scraped."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FUZZED = ("tests/unit/dashboard/test_fuzzed_pages.py",)
_CHANGES = ("tests/unit/dashboard/test_changes.py", "tests/unit/dashboard/test_change_rights.py")
_GUARDED = ("tests/unit/dashboard/test_guard.py",)
_FINDINGS = ("tests/unit/core/test_findings.py",)
_WRONG = ("tests/unit/dashboard/test_wrong.py",)
_SESSIONS = ("tests/unit/dashboard/test_sessions.py",)
_SCRAPING = ("tests/unit/metrics/test_scraping.py",)

DASHBOARD: tuple[Mutant, ...] = (
    Mutant(
        "a page that cannot be drawn yet stays as it is",
        'may_appear = status == 503 and request.method == "GET"', "may_appear = False", ("tests/unit/dashboard/test_following.py",),
    ),
    Mutant(
        "a form changes something without the token of its session",
        "        await self._pages.refuse_strange_form(request)\n", "", (*_CHANGES, *_FUZZED), within="_admitted",
    ),
    Mutant(
        "one form token holds for all sessions",
        "hmac.new(self._secret, session.encode(), hashlib.sha256)", "hmac.new(self._secret, b'form', hashlib.sha256)",
        (*_SESSIONS, *_FUZZED),
    ),
    Mutant("any token logs in", "lambda: hmac.compare_digest(given.encode(), self.token.encode())", "lambda: bool(given)", _FUZZED),
    Mutant(
        "any cookie of the name is a session",
        "return key if self.sessions.holds(key) else None", "return key or None", _FUZZED,
    ),
    Mutant(
        "what somebody searched for stands on the page as it came",
        'id="where" name="where" value="{{ where }}"', 'id="where" name="where" value="{{ where | safe }}"',
        _FUZZED,
    ),
    Mutant(
        "the error of dead letters stands on the page as it came",
        '<pre>{{ group.kind.error or', '<pre>{{ group.kind.error | safe or',
        ("tests/unit/dashboard/test_pages.py",),
    ),
    Mutant(
        "the page answers under every name",
        'request.headers.get("host", "").lower() not in access.hosts:', 'request.headers.get("host", "") == "":',
        _GUARDED,
    ),
    Mutant("forms of other sites are taken", "if not _is_own(request.headers, access):", "if request.headers is None:", _GUARDED),
    Mutant(
        "answers carry no policy",
        '    "Content-Security-Policy": POLICY,\n', "",
        _GUARDED,
    ),
    Mutant(
        "forms with files are read, in any encoding that they name",
        '.partition(";")[0].strip().lower() != _FORM:', '== "":',
        _FUZZED,
    ),
    Mutant(
        "what is only asked of a redrive is done",
        "bookmarks=self.rows, dry_run=True)", "bookmarks=self.rows, dry_run=False)", _CHANGES,
    ),
    Mutant(
        "another number than was shown is confirmed",
        'if form.get("confirmed") == str(count) and count:', 'if "confirmed" in form and count:',
        _CHANGES,
    ),
    Mutant(
        "hidden bodies are shown in a list",
        "values, trouble = ([], None) if self._pages.hides_bodies else", "values, trouble = ([], None) if not chosen.rows else",
        _FUZZED,
    ),
    Mutant(
        "a path leads to files beside those of pages",
        "if name not in _STATIC:", 'if name == "":',
        _FUZZED,
    ),
    Mutant(
        "logging out leaves the session",
        '        self._pages.access.sessions.end(self._pages.access.session_of(request) or "")\n', "",
        _SESSIONS,
    ),
    Mutant("a login leads to any place", """    return asked if is_own else "/"\n""", "    return asked\n", _GUARDED),
    Mutant(
        "errors that differ in ids are kinds of their own",
        "(reason, error and error_class(error))", "(reason, error)", ("tests/unit/core/test_error_class.py",),
    ),
    Mutant(
        "a session lasts for ever",
        "return begun_ms is not None and self._clock.monotonic_ms() - begun_ms < LENGTH_MS", "return begun_ms is not None",
        _SESSIONS,
    ),
    Mutant(
        "the cookie is sent without TLS, too",
        'samesite="strict", secure=access.is_secure, path="/")', 'samesite="strict", secure=False, path="/")',
        ("tests/integration/test_dashboard_tls.py",),
    ),
    Mutant(
        "metrics are told under every name",
        "None if reaches_others(host) else host_headers(host, server.port)", "None", _SCRAPING,
    ),
    Mutant("metrics are told beyond this host without a token", "lambda: logins.is_own(header)", "lambda: True", _SCRAPING),
    Mutant(
        "metrics leave this host without TLS",
        "tls_context(cert, key) if reaches_others", "tls_context(cert, key) if False", _SCRAPING,
    ),
    Mutant(
        "a certificate that was replaced is never used",
        "if self._versions() != self._known:", "if self._versions() is None:", ("tests/unit/protocol/test_http_ports.py",),
    ),
    Mutant("a change fails while its coordinator is being started", "            self._await_coordinator(journal)\n", "", _CHANGES),
    Mutant(
        "how a change ended stands nowhere once its page was left",
        "return [each for each in reversed(known) if each.journal_name == journal_name and",
        "return [each for each in known if False and", _CHANGES,
    ),
    Mutant(
        "a lease that ran out without a coordinator is no alarm",
        "if lease.due_at_ms + NOT_ENDED_MS <= now_ms and", "if False and", ("tests/unit/dashboard/test_overdue.py",),
    ),
    Mutant("a consumer that hangs is no finding", "        if not (runs_long or is_renewed):\n", "        if True:\n", _FINDINGS),
    Mutant(
        "a batch counts as slow by a fixed time alone",
        "            return max(SLOW_S, SLOW_FACTOR * bound)\n", "            return SLOW_S\n", _FINDINGS,
    ),
    Mutant(
        "a pause begins anew with its queue",
        "ledger.paused_since_ms = old.paused_since_ms", "ledger.paused_since_ms = old.paused_since_ms and 1",
        _FINDINGS,
    ),
    Mutant("dead letters of long ago came lately", "LATELY_MS = 86_400_000", "LATELY_MS = 86_400_000_000", _FINDINGS),
    Mutant(
        "a name that begins with a dash is an option",
        '            behind = [*self.options, "--", *self.names]\n', "            pass\n", _FINDINGS,
    ),
    Mutant(
        "a journal that was not read yet is called well",
        "looked_ms = [each for each in times_ms if each]", "looked_ms = times_ms", _WRONG,
    ),
    Mutant(
        "without principals a change is nobody's",
        "        if asker is None or not signs:", "        if asker is not None or not signs:",
        ("tests/unit/coordinator/test_askers.py",),
    ),
    Mutant("who says a byte at a time keeps a place for ever", "if until_s <= now_s]", "if until_s <= 0]", _SCRAPING),
)  # fmt: skip
