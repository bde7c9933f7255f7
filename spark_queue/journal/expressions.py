"""The check of queues' expressions against their message type (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_queue.core import commands
from spark_queue.core.commands import AnyCommand
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions, QueueDefinition
from spark_queue.core.message_files.segment import TraitRequest
from spark_queue.core.state.journal_state import JournalState
from spark_queue.errors import ConfigError, SparkQueueError
from spark_queue.expression import BARRIER, FILTER, ORDER_KEY, PRIORITY, Wanted
from spark_queue.journal.schema import check_columns, check_kept, shown_names, stored_schema
from spark_queue.journal.store import normal_path

if TYPE_CHECKING:
    from spark_queue.expression.program import Program


#: The keys of a queue that hold expressions, and the purpose of each.
EXPRESSION_KEYS = {"filter": FILTER, "barrier": BARRIER, "priority": PRIORITY, "order_key": ORDER_KEY}

#: Columns of a dead letter for filters, beside its message.
LETTER_COLUMNS = (pa.field("reason", pa.string()), pa.field("error", pa.string()))


def beside_letters(columns: str) -> Mapping[str, str]:
    """Return the names of the columns of a message type in filters of dead letters."""
    return shown_names(columns, tuple(field.name for field in LETTER_COLUMNS))


def check_expressions(definitions: Definitions) -> None:
    """Check the expressions of all queues, and of all principals, against the columns of message types."""
    for queue in definitions.queues.values():
        for key, wanted in wanted_by_key(TraitRequest(queue=queue)).items():
            _check(wanted, queue.columns, f"{key} of [queues.{queue.name}]")
        for principal in definitions.principals.values():
            for text in principal.filters(queue.name):
                _check(Wanted(text, FILTER), queue.columns, f"filter of [principals.{principal.name}] for queue '{queue.name}'")


def check_peer_paths(definitions: Definitions) -> None:
    """Check that the journals of peers are named as places are."""
    for peer in definitions.peers.values():
        normal_path(peer.journal, key="journal", where=f"[peers.{peer.name}]")


def check_command(state: JournalState, command: AnyCommand) -> None:
    """Refuse a command with an expression that cannot be."""
    if isinstance(command, commands.Apply):
        check_definitions(state, parsing.parse(command.definitions))
    else:
        _check_command(command, lambda queue: state.ledger(queue).definition)


def check_definitions(state: JournalState, definitions: Definitions) -> None:
    """Refuse new definitions with an expression that cannot be, or without columns that messages or subscriptions have."""
    check_expressions(definitions)
    check_peer_paths(definitions)
    for name, message_type in definitions.message_types.items():
        check_columns(name, message_type.columns, rename=message_type.rename, of_instance=definitions.journal.instance is not None)
        if name in state.definitions.message_types:
            check_kept(name, state.definitions.message_types[name].columns, message_type.columns)
    _check_subscriptions(state, definitions)


def translate_ahead(definitions: Definitions, command: object) -> None:
    """Translate the expressions of a command before its check, which must not wait for that; refusals are left to the check."""
    with suppress(SparkQueueError):
        _check_command(command, definitions.queue)


def _check_command(command: object, definition_of: Callable[[str], QueueDefinition]) -> None:
    if isinstance(command, commands.Apply):
        check_expressions(parsing.parse(command.definitions))
    elif isinstance(command, commands.ChangeCommand | commands.SubscriptionCommand) and command.filter_field is not None:
        expression = getattr(command, command.filter_field)
        if isinstance(expression, str):
            queue = definition_of(command.queue)
            of_letters = queue.underlying_topic is None if command.of_letters is None else command.of_letters
            what = f"filter of {command.filter_of.format(command)}"
            _check(Wanted(expression, FILTER), queue.columns, what, of_letters=of_letters)


def _check_subscriptions(state: JournalState, definitions: Definitions) -> None:
    """Check the filters of subscriptions that go on with a queue while its columns change."""
    for name, queue in definitions.queues.items():
        ledger = state.queues.get(name)
        if ledger is not None and ledger.definition.columns != queue.columns:
            for each in ledger.subscriptions.values():
                if each.filter is not None:
                    _check(Wanted(each.filter, FILTER), queue.columns, f"filter of subscription '{each.name}' of queue '{name}'")


def check_search(definition: QueueDefinition, where: str) -> None:
    """Refuse a filter of messages that are looked for, which knows nothing of letters."""
    _check(Wanted(where, FILTER), definition.columns, "filter of a search")


def _check(wanted: Wanted, columns: str, what: str, *, of_letters: bool = False) -> None:
    """Check an expression over a message type's columns; `what` names it, for the error."""
    try:
        program([wanted], columns, of_letters=of_letters)
    except ConfigError as refusal:
        raise ConfigError(refusal.code, **{**refusal.facts, "what": what}) from None


def program(wanted: Iterable[Wanted], columns: str, *, of_letters: bool = False) -> Program:
    """Translate expressions over a message type's columns, given in Spark DDL; each set of them once."""
    # A quarter of the start of a coordinator, where no queue has an expression.
    from spark_queue.expression.program import translate  # noqa: PLC0415 - as said above.

    schema = stored_schema(columns)
    if of_letters:
        shown = beside_letters(columns)
        schema = pa.schema([*(field.with_name(shown.get(field.name, field.name)) for field in schema), *LETTER_COLUMNS])
    return translate(tuple(sorted(set(wanted))), schema)


def wanted_of(request: TraitRequest) -> set[Wanted]:
    """Return all expressions that a queue needs of entering messages."""
    return {*wanted_by_key(request).values(), *(Wanted(text, FILTER) for text in request.filters)}


def wanted_by_key(request: TraitRequest) -> dict[str, Wanted]:
    """Return the expressions of a queue's keys, as far as it has them."""
    texts = {key: getattr(request.queue, key) for key in EXPRESSION_KEYS if key != "barrier" or request.barriers}
    return {key: Wanted(text, EXPRESSION_KEYS[key]) for key, text in texts.items() if text is not None}
