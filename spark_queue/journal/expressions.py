"""The expressions of queues: which there are, and checking them against their message type (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import pyarrow as pa

from spark_queue.core import commands
from spark_queue.core.commands import AnyCommand
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, QueueDefinition
from spark_queue.core.message_files.segment import TraitRequest
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError, SparkQueueError
from spark_queue.expression import BARRIER, FILTER, ORDER_KEY, PRIORITY, Program, Wanted, translate
from spark_queue.journal.schema import stored_schema

#: The keys of a queue that hold expressions, and what each is for.
EXPRESSION_KEYS = {"filter": FILTER, "barrier": BARRIER, "priority": PRIORITY, "order_key": ORDER_KEY}

#: What a filter can ask of a dead letter beside its message, which has no columns of these names.
LETTER_COLUMNS = (pa.field("reason", pa.string()), pa.field("error", pa.string()))


def check_expressions(definitions: Definitions) -> None:
    """Check the expressions of all queues, and of all principals, against the columns of message types.

    Raises
    ------
    ConfigError
        EXPRESSION_INVALID or EXPRESSION_UNSUPPORTED.
    """
    for queue in definitions.queues.values():
        for key, wanted in wanted_by_key(TraitRequest(queue=queue)).items():
            _check(wanted, queue.columns, f"{key} of [queues.{queue.name}]")
        for principal in definitions.principals.values():
            for text in principal.filters(queue.name):
                _check(Wanted(text, FILTER), queue.columns, f"filter of [principals.{principal.name}] for queue '{queue.name}'")


def check_command(state: JournalState, command: AnyCommand) -> None:
    """Refuse a command with an expression that cannot be.

    Raises
    ------
    ConfigError
        EXPRESSION_INVALID or EXPRESSION_UNSUPPORTED, or what is wrong with the definitions around it; UNKNOWN_QUEUE.
    """
    if isinstance(command, commands.Apply):
        check_definitions(state, parsing.parse(command.definitions))
    else:
        _check_command(command, lambda queue: state.ledger(queue).definition)


def check_definitions(state: JournalState, definitions: Definitions) -> None:
    """Refuse new definitions with an expression that cannot be, or that leave a subscription's filter without its columns.

    Raises
    ------
    ConfigError
        EXPRESSION_INVALID or EXPRESSION_UNSUPPORTED.
    """
    check_expressions(definitions)
    _check_subscriptions(state, definitions)


def translate_ahead(definitions: Definitions, command: object) -> None:
    """Translate the expressions of a command before somebody checks it who must not be kept waiting; refusals are left to them."""
    with suppress(SparkQueueError):
        _check_command(command, definitions.queue)


def _check_command(command: object, definition_of: Callable[[str], QueueDefinition]) -> None:
    def check(queue: str, expression: str, what: str, *, of_letters: bool | None = False) -> None:
        found = definition_of(queue)
        holds_letters = found.underlying_topic is None if of_letters is None else of_letters
        _check(Wanted(expression, FILTER), found.columns, f"filter of {what}", of_letters=holds_letters)

    match command:
        case commands.Apply():
            check_expressions(parsing.parse(command.definitions))
        case commands.Attach(filter=str(expression)):
            check(command.queue, expression, f"subscription '{command.subscription}'")
        case commands.SettleWhere(where=str(expression)):
            check(command.queue, expression, "a settlement", of_letters=None)
        case commands.Purge(where=str(expression)):
            check(command.queue, expression, "a purge", of_letters=None)
        case commands.FindDeadLetters(where=str(expression)):
            check(command.queue, expression, "a redrive", of_letters=True)


def _check_subscriptions(state: JournalState, definitions: Definitions) -> None:
    """Check the filters of subscriptions that go on with a queue whose columns become others."""
    for name, queue in definitions.queues.items():
        ledger = state.queues.get(name)
        if ledger is not None and ledger.definition.columns != queue.columns:
            for each in ledger.subscriptions.values():
                if each.filter is not None:
                    _check(Wanted(each.filter, FILTER), queue.columns, f"filter of subscription '{each.name}' of queue '{name}'")


def _check(wanted: Wanted, columns: str, what: str, *, of_letters: bool = False) -> None:
    """Check an expression over a message type's columns; `what` says which it is, for the error."""
    try:
        program([wanted], columns, of_letters=of_letters)
    except ConfigError as refusal:
        raise ConfigError(refusal.code, **{**refusal.facts, "what": what}) from None


def program(wanted: Iterable[Wanted], columns: str, *, of_letters: bool = False) -> Program:
    """Translate expressions over a message type's columns, given in Spark DDL; each set of them once."""
    schema = stored_schema(columns)
    return translate(tuple(sorted(set(wanted))), pa.schema([*schema, *LETTER_COLUMNS]) if of_letters else schema)


def wanted_of(request: TraitRequest) -> set[Wanted]:
    """Return all expressions that a queue needs of entering messages."""
    return {*wanted_by_key(request).values(), *(Wanted(text, FILTER) for text in request.filters)}


def wanted_by_key(request: TraitRequest) -> dict[str, Wanted]:
    """Return the expressions of a queue's keys, as far as it has them."""
    texts = {key: getattr(request.queue, key) for key in EXPRESSION_KEYS if key != "barrier" or request.barriers}
    return {key: Wanted(text, EXPRESSION_KEYS[key]) for key, text in texts.items() if text is not None}
