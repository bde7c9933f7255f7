"""The texts of `CoordinatorError` and `AccessError`, as `error_texts` has those of all others."""

from __future__ import annotations

#: The caller may not do that.
ACCESS: dict[str, str] = {
    "NOBODY_ADMINISTERS": (
        "None of the principals {principals} may administer the journal permanently, so nobody could change them any more. "
        "Give one that never expires the right 'administer'."
    ),
    "ACCESS_DENIED": (
        "Principal '{principal}' has no right '{right}' on {what}. Ask an administrator of the journal for it, or call with the "
        "token of a principal that has it."
    ),
    "SUBSCRIPTION_OF_OTHER": (
        "Subscription '{subscription}' of queue '{queue}' belongs to another principal than '{principal}'. Take another name, or "
        "have somebody with the right 'change' unsubscribe it."
    ),
    "TOKEN_EXPIRED": (
        "The tokens of principal '{principal}' expired at {expired_at}. Ask an administrator of the journal for a new one: "
        "`sparkq token new {principal}`."
    ),
    "TOKEN_WITHDRAWN": (
        "The token of principal '{principal}' was taken out of the definitions. Call with its new token, or ask an administrator "
        "of the journal for one: `sparkq token new {principal}`."
    ),
}

#: No coordinator could be reached, or one may not serve here and now.
COORDINATOR: dict[str, str] = {
    "COORDINATOR_UNAVAILABLE": (
        "The coordinator of '{path}' could not be reached or started: {reason} `sparkq doctor` finds out why; its log is {log}."
    ),
    "COORDINATOR_ELSEWHERE": (
        "The coordinator of '{path}' runs on another host: process {pid} on '{host}', at {address}, last heard from {age_s} s ago. "
        "It only serves its own host. Run `sparkq serve` there with TLS and point jobs at it with option 'coordinator', or end it "
        "there with `sparkq stop`."
    ),
    "COORDINATOR_UNTRUSTED": (
        "The coordinator of '{path}' is at {address}, and its certificate is not trusted here. Name its root in SPARKQ_TLS_ROOTS."
    ),
    "COORDINATOR_SERVES": (
        "Another coordinator serves '{path}' already, at {address}; nothing was started. End that one with `sparkq stop`, or run "
        "`sparkq serve --standby`, which waits and takes over when it ends."
    ),
    "COORDINATOR_STANDS_BY": (
        "The coordinator that was asked stands by: it does not serve '{path}' while another one does. Name all of them in "
        "'coordinator', such as a:7337,b:7337; the one that serves is found."
    ),
    "COORDINATOR_RECOVERING": ("The coordinator of '{path}' is still reading its log, or those of its peers. Try again shortly."),
    "REPLICATION_PENDING": (
        "The {rows} row(s) are published, but within {timeout} only {found} of {wanted} peer(s) have pulled them: {reason} They "
        "are pulled as soon as that is possible. Publish them again only under the same publisher name and numbers."
    ),
    "COORDINATOR_DEPOSED": (
        "Coordinator epoch {epoch} of '{path}' is over: {reason}. Nothing it did not commit counts. A newer one serves."
    ),
    "CLOCK_SKEW": (
        "The last record of '{path}' is {ahead_s} s ahead of this host's clock, so leases and expirations would be wrong. "
        "Set the clock, or run `sparkq serve --accept-clock`."
    ),
    "UNAUTHENTICATED": (
        "The coordinator at {address} refused the token. Name a file with its user's token, or a principal's, in SPARKQ_TOKEN_FILE."
    ),
    "COORDINATOR_OLDER": (
        "The coordinator at {address} is of an older version and wants the token itself, which is not sent any more: it would open "
        "all journals of its user. End it with the version that started it, by `sparkq stop` there or by a signal; the next call "
        "starts one of this version."
    ),
    "TOKEN_OF_OTHER_JOURNAL": (
        "The token from {source} is for other journals than '{path}', and is sent to no other. If you trust this journal, add a "
        "line there: the token that it gave you, a space, and the journal as you name it."
    ),
    "TOKEN_NAMES_NO_JOURNAL": (
        "The token of a principal was not sent to {address}: this address stands in '{path}', which others may have written, and "
        "the token does not say which journal it is for. In its file, or in SPARKQ_TOKEN, write the journal behind it, as in "
        "`TOKEN {path}`; or name the address yourself as 'coordinator'."
    ),
    "TOKEN_FILE_UNSAFE": (
        "The token file '{file}' {problem}, so somebody else could act as you or read your queues. Check who wrote it, "
        "then run `chmod 600` on it, or delete it: the next start makes a new one."
    ),
    "FRAME_TOO_LARGE": ("A call of {size} bytes is over the limit of {limit} bytes. Settle fewer rows at once."),
    "FRAME_MALFORMED": ("A call could not be understood: {reason} Use one version of spark_queue on both sides."),
    "USER_DIRECTORY_UNUSABLE": (
        "The directory '{directory}' cannot be used for the token, logs and locks of coordinators: {reason} Set the environment "
        "variable {variable} to a directory that this user may write to."
    ),
    "ADDRESS_UNUSABLE": (
        "No coordinator can listen on {address}: {reason} Free the address, or give another one with --bind; port 0 finds one."
    ),
    "ADDRESS_UNSAFE": (
        "Serving on {address} would expose the queue beyond this host: {reason} Give --tls-cert, --tls-key and a token."
    ),
    "INTERNAL": ("An invariant did not hold: {what}. Nothing was committed. Please report it with the journal's `sparkq verify`."),
}
