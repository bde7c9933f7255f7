"""The texts of `AccessError`, as `error_texts` has those of all others."""

from __future__ import annotations

ACCESS = {
    "NOBODY_ADMINISTERS": (
        "None of the principals {principals} may administer the journal for good, so nobody could change them any more. Give one "
        "that never expires the right 'administer'."
    ),
    "ACCESS_DENIED": (
        "Principal '{principal}' has no right '{right}' on {what}. Ask who administers the journal for it, or call with the token "
        "of somebody who has it."
    ),
    "SUBSCRIPTION_OF_OTHER": (
        "Subscription '{subscription}' of queue '{queue}' belongs to another principal than '{principal}'. Take another name, or "
        "let somebody with the right 'change' unsubscribe it."
    ),
    "TOKEN_EXPIRED": (
        "The tokens of principal '{principal}' expired at {expired_at}. Ask who administers the journal for a new one: "
        "`sparkq token new {principal}`."
    ),
    "TOKEN_WITHDRAWN": (
        "The token of principal '{principal}' was taken out of the definitions. Call with its new token, or ask who administers "
        "the journal for one: `sparkq token new {principal}`."
    ),
}
