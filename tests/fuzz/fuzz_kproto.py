"""A coverage-guided fuzzer over every parser of kproto: `make fuzz`, or `tests/fuzz/fuzz_kproto.py -runs=100000`.

Whatever the bytes, only ProtocolError may come out, and what was parsed must build to bytes that parse to the same
again. The first byte of an input chooses the parser, the second an API key, the third a version. The arguments are
libFuzzer's; without a corpus directory a temporary one is filled with the default of every message. Needs atheris.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["ottla.kproto"]):
    from ottla.kproto import codec, decode, pcap
    from ottla.kproto.api_keys import ApiKey
    from ottla.kproto.compiler.source import Source
    from ottla.kproto.errors import ProtocolError
    from ottla.kproto.framing import FrameParser
    from ottla.kproto.headers import parse_request_header, parse_response_header
    from ottla.kproto.hot import produce
    from ottla.kproto.internal_records import record_types
    from ottla.kproto.messages import request_class, response_class
    from ottla.kproto.records import iter_batches, iter_records
    from ottla.kproto.schema import Message, Struct

KEYS = list(ApiKey)
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def _instrument_compiled_codecs() -> None:
    """Generated functions are not imported, so they are instrumented where they are made."""
    compile_source = Source.compile

    def compile_instrumented(self: Source, filename: str) -> Callable[..., Any]:
        function: Callable[..., Any] = atheris.instrument_func(compile_source(self, filename))
        return function

    Source.compile = compile_instrumented  # type: ignore[method-assign]


def _version(key: ApiKey, choice: int) -> int:
    lowest, highest = key.valid_versions
    return lowest + choice % (highest - lowest + 1)


def _round_trip(message: Message, version: int) -> None:
    raw = codec.build(message, version)
    again = codec.parse(type(message), version, raw)
    if again != message and not _holds_nan(message):
        raise AssertionError(f"{message!r} became {again!r}")


def _holds_nan(value: object) -> bool:
    if isinstance(value, Struct):
        return any(_holds_nan(getattr(value, field.name)) for field in value.FIELDS)
    if isinstance(value, list):
        return any(_holds_nan(item) for item in value)
    return isinstance(value, float) and math.isnan(value)


def _request(key: ApiKey, version: int, body: bytes) -> None:
    request = codec.parse_request(key, version, body)
    if _last(codec.parse_request_in_steps(key, version, body)) != request and not _holds_nan(request):
        raise AssertionError("parsing in steps disagrees")
    _round_trip(request, version)


def _request_in_steps(key: ApiKey, version: int, body: bytes) -> None:
    _last(codec.parse_request_in_steps(key, version, body))


def _last(steps: codec.Steps[Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _response(key: ApiKey, version: int, body: bytes) -> None:
    _round_trip(codec.parse_response(key, version, body), version)


def _headers(key: ApiKey, version: int, body: bytes) -> None:
    parse_response_header(key, version, body)
    parse_request_header(body)


def _frames(key: ApiKey, version: int, body: bytes) -> None:
    FrameParser(max_size_bytes=1 << 16).feed(body)


def _hot_produce(key: ApiKey, version: int, body: bytes) -> None:
    version = _version(ApiKey.PRODUCE, version)
    if produce.parse_request(version, body) != codec.parse_request(ApiKey.PRODUCE, version, body):
        raise AssertionError("the hot parser of Produce disagrees with the schema")


def _records(key: ApiKey, version: int, body: bytes) -> None:
    for pos, header in iter_batches(body):
        for _ in iter_records(body, pos, header, limit_bytes=1 << 20):
            pass


def _internal_record(key: ApiKey, version: int, body: bytes) -> None:
    topic = INTERNAL_TOPICS[key % len(INTERNAL_TOPICS)]
    record_types(topic).parse(body[:version], body[version:])


def _capture(key: ApiKey, version: int, body: bytes) -> None:
    for connection in pcap.connections(body):
        for _ in decode.decode_connection(connection):
            pass


def _show(key: ApiKey, version: int, body: bytes) -> None:
    decode.decode_response(body, key, version).text(with_records=True)


PARSERS = (
    _request, _response, _headers, _frames, _hot_produce, _records, _internal_record, _capture, _show,
    _request_in_steps,
)  # fmt: skip


def one_input(data: bytes) -> None:
    if len(data) < 3:
        return
    key = KEYS[data[1] % len(KEYS)]
    try:
        PARSERS[data[0] % len(PARSERS)](key, _version(key, data[2]), data[3:])
    except ProtocolError:
        return


def _write_corpus(folder: Path) -> None:
    for index, key in enumerate(KEYS):
        for version in range(key.valid_versions.lowest, key.valid_versions.highest + 1):
            for parser, find in enumerate((request_class, response_class)):
                body = codec.build(find(key)(), version)
                choice = bytes([parser, index, version - key.valid_versions.lowest])
                (folder / f"{key.name}-{version}-{parser}").write_bytes(choice + body)


def main() -> None:
    arguments = list(sys.argv)
    _instrument_compiled_codecs()
    with tempfile.TemporaryDirectory() as corpus:
        if all(argument.startswith("-") for argument in arguments[1:]):
            _write_corpus(Path(corpus))
            arguments.append(corpus)
        atheris.Setup(arguments, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
