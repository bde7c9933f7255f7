"""Bugs in what is sent to whom, and shown to whom: tokens, secrets, and what others wrote."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PROOFS = ("tests/unit/coordinator/test_proofs.py",)
_SHOWN = ("tests/unit/cli/test_harmless.py",)

SECRECY = (
    Mutant("an address is believed without a proof", "if meeting.believes(introduction, reply) and (", "if (", _PROOFS),
    Mutant("a proof may be passed on from another address", "or reply.address == self.address)", "or True)", _PROOFS),
    Mutant(
        "what was sent to one process opens the next",
        'self._mac("bearer", session, key=token)', 'self._mac("bearer", key=token)',
        _PROOFS,
    ),
    Mutant(
        "who knows the hash of a token may call in place of its owner",
        'self._mac("bearer", session, key=token)', 'self._mac("bearer", session)',
        _PROOFS,
    ),
    Mutant(
        "a principal's token goes wherever a journal says",
        "if not is_for_journal and not is_own_word(store, address):", "if False:", _PROOFS,
    ),
    Mutant("a token for one journal is sent to another", "if _is_same_journal(Store(journal), store):", "if True:", _PROOFS),
    Mutant(
        "who introduces itself may ask anything",
        "== (wire.Ping.__name__, self._journal_id)", "== (envelope.kind, self._journal_id)", _PROOFS,
    ),
    Mutant(
        "somebody else's directory has our locks",
        "if shared.lstat().st_uid == os.getuid():", "if True:", ("tests/unit/protocol/test_user_files.py",),
    ),
    Mutant(
        "a journal is made for everybody to read",
        "mkdir(mode=0o700, parents", "mkdir(parents", ("tests/unit/journal/test_open.py",), within="create_journal",
    ),
    Mutant(
        "a secret among the arguments is taken in silence",
        "        if is_secret(key):\n", "        if False:\n", ("tests/unit/cli/test_storage_options.py",),
    ),
    Mutant("a body commands the terminal", "return Text(harmless(text), style=style)", "return Text(text, style=style)", _SHOWN),
    Mutant("a body is markup", "*(styled(cell) for name, cell in", "*(harmless(cell) for name, cell in", _SHOWN),
    Mutant("an alarm looks like wrong usage", "ALARM_EXIT_CODE = 3", "ALARM_EXIT_CODE = 2", ("tests/unit/cli/test_status.py",)),
)  # fmt: skip
