"""Each message on the wire as bytes, and the frames and the handshake around it."""

from __future__ import annotations

from typing import Any

from msgspec import inspect

from spark_queue.coordinator.flight_messages import encode_result
from spark_queue.core.commands import Command
from spark_queue.protocol import wire
from spark_queue.protocol.connection import LOCATION_HEADER
from spark_queue.protocol.proof import PROOF_HEADER, Introduction, Meeting, key_of
from tests.golden.forms import REPLIES

#: A token, as `user_files` makes them, of nobody.
TOKEN = "a-token-of-nobody"


def samples() -> dict[str, Any]:
    """Return one message of each class, with a value in every field."""
    calls = {f"call {name}": filled(kind) for name, kind in sorted(wire.REQUESTS.items())}
    return calls | {f"reply {name}": filled(kind) for name, kind in sorted(REPLIES.items())}


def frames() -> dict[str, str]:
    """Return the bytes of each sample, and of Flight's message around one, in hexadecimal digits; and the handshake as text."""
    found = {
        name: (wire.encode(each) if isinstance(each, Command) else wire.encode_answer(each)).hex()
        for name, each in samples().items()
    }
    result = encode_result(bytes.fromhex(found["reply Done"]))
    return found | {"result around reply Done": result.hex(), **handshake()}


def handshake() -> dict[str, str]:
    """Return the headers by which a caller and a coordinator meet, for a token and a nonce that are given."""
    meeting = Meeting(key=key_of(TOKEN), journal_id="uuid", location="place")
    introduction = Introduction(is_principal=False, nonce="0" * 32, mark=meeting._mac("caller", "0" * 32))
    pong = wire.Pong(journal="uuid", epoch=1, pid=1, recovering=False, address="grpc://127.0.0.1:1", session="session")
    return {
        "action": wire.ACTION, "header of the place": LOCATION_HEADER, "header of the introduction": PROOF_HEADER,
        "introduction": introduction.header(), "proof": meeting.prove(introduction, pong),
        "bearer": meeting.bearer(TOKEN.encode(), pong.session),
    }  # fmt: skip


def filled(kind: Any) -> Any:
    """Return a value of a class with something in every field."""
    return _value(inspect.type_info(kind), kind.__name__)


def _value(kind: inspect.Type, name: str) -> Any:
    match kind:
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 7
        case inspect.FloatType():
            return 1.5
        case inspect.StrType() | inspect.AnyType():
            return name
        case inspect.UnionType(types=types):
            return _value(next(each for each in types if not isinstance(each, inspect.NoneType)), name)
        case inspect.TupleType(item_types=types):
            return tuple(_value(each, name) for each in types)
        case inspect.VarTupleType(item_type=of):
            return (_value(of, name),)
        case inspect.DictType(key_type=key, value_type=of):
            return {_value(key, name): _value(of, name)}
        case inspect.StructType(cls=cls, fields=of) | inspect.DataclassType(cls=cls, fields=of):
            given = {each.name: _value(each.type, each.name) for each in of}
            return cls(**(given | {"version": 1} if "version" in given and hasattr(cls, "right") else given))
    raise AssertionError(f"nothing fills {kind}")
