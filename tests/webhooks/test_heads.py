"""Heads that are known again: the same bytes but for the length of the body, and nothing that can be read otherwise."""

import asyncio

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser
from hypothesis import given, settings
from hypothesis import strategies as st

from webhooks.heads import LONGEST, Head, Heads, first_head

START = b"POST /mutate?timeout=5s HTTP/1.1\r\nHost: gpu-webhooks.svc:443\r\nUser-Agent: kube-apiserver-admission\r\n"
END = b"Accept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"


def head(length: str = "2949", *, start: bytes = START, end: bytes = END) -> bytes:
    return start + f"Content-Length: {length}\r\n".encode() + end


def knowing(*known: bytes) -> Heads[str]:
    heads: Heads[str] = Heads()
    for each in known:
        assert heads.learn(each, "found")
    return heads


@pytest.mark.parametrize("length", ["0", "7", "2949", "63282", "9999999"])
def test_a_head_is_known_again_whatever_the_length_of_its_body(length: str) -> None:
    assert knowing(head()).find(head(length) + b"{}") == Head("found", len(head(length)), int(length))


@pytest.mark.parametrize(
    "other",
    [
        head(start=START.replace(b"5s", b"6s")),
        head(start=START.replace(b"POST", b"PUT")),
        head(start=START.replace(b"1.1", b"1.0")),
        head(start=START.replace(b"Host", b"host")),
        head(start=b"\r\n" + START),
        head(end=b"Connection: close\r\n" + END),
        head(end=b"Transfer-Encoding: chunked\r\n" + END),
        head(end=b"Content-Length: 5\r\n" + END),
        head(end=END.replace(b"json\r\nAccept", b"json\r\n\r\nAccept")),
        head().replace(b"Content-Length", b"content-length"),
        head().replace(b"Content-Length: 2949\r\n", b""),
        head().replace(b"\r\n", b"\n"),
        head()[:-2],
        head()[:40],
        b"",
        b"\r\n\r\n",
        *(head(length) for length in ("", "-1", "+1", "1_0", " 1", "1 ", "1, 1", "0x1", "1\n2", "٣", "10000000")),
    ],
)
def test_any_other_difference_makes_it_unknown(other: bytes) -> None:
    assert knowing(head()).find(other) is None


@pytest.mark.parametrize(
    "ill_formed",
    [
        head(start=START.replace(b"POST", b"GET")),
        head(start=b"\r\n" + START),
        head(start=START.replace(b"Host: ", b"Host:\n ")),
        head(start=START.replace(b"Host: ", b"Host:\r\n ")),
        head(start=START.replace(b"Host: ", b"Host : ")),
        head(start=START.replace(b"svc", b"sv\x00c")),
        head(start=START.replace(b"svc", b"sv\xffc")),
        head(start=START.replace(b"/mutate", b"/mu tate")),
        head(start=START.replace(b"\r\n", b"\n")),
        head(end=b"content-length: 5\r\n" + END),
        head(end=b"X: y\n\n" + END),
        head().replace(b"Content-Length: 2949\r\n", b""),
        head() + b"\r\n",
        head()[:-2],
        b"",
    ],
)
def test_what_parsers_could_differ_about_is_not_learned(ill_formed: bytes) -> None:
    heads: Heads[str] = Heads()

    assert not heads.learn(ill_formed, "found")
    assert heads.find(ill_formed) is None


def test_of_too_many_heads_the_oldest_goes() -> None:
    heads = knowing(*(head(end=b"X: %d\r\n" % n + END) for n in range(65)))

    assert heads.find(head(end=b"X: 0\r\n" + END)) is None
    assert heads.find(head(end=b"X: 1\r\n" + END)) is not None
    assert heads.find(head(end=b"X: 64\r\n" + END)) is not None


def test_a_head_that_is_not_whole_or_too_long_is_none() -> None:
    longest = head(end=b"X: " + b"x" * (LONGEST - len(head()) - len("X: \r\n")) + b"\r\n" + END)

    assert first_head(head() + b"body") == head()
    assert first_head(head()[:-1]) == b""
    assert first_head(longest) == longest
    assert first_head(longest.replace(b"X: ", b"X: x")) == b""


PIECES = [
    *(b"\r\n", b"\r", b"\n", b" ", b":", b"0", b"9", b"\t", b"\x00", b"\x80", b"\r\n\r\n", b"X: y\r\n", b"HTTP/1.1"),
    *(b"Content-Length: 5\r\n", b"content-length: 5\r\n", b"Transfer-Encoding: chunked\r\n"),
]


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    damage = bytearray(data)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(damage)))
        damage[at : at + draw(st.integers(0, 3))] = draw(st.sampled_from(PIECES))
    return bytes(damage)


def parsed(data: bytes) -> tuple[str, bytes] | None:
    """The path and the body of the one call that ``data`` is to aiohttp; None where it is anything else."""
    loop = asyncio.new_event_loop()
    try:
        messages, _, _ = HttpRequestParser(BaseProtocol(loop), loop, 2**16, max_line_size=8190).feed_data(data)
    except HttpProcessingError:
        return None
    finally:
        loop.close()
    if len(messages) != 1 or not messages[0][1].is_eof():
        return None
    return messages[0][0].path, messages[0][1].read_nowait()


@settings(deadline=None)
@given(st.data())
def test_what_is_known_is_what_aiohttp_reads_too(data: st.DataObject) -> None:
    seen = data.draw(damaged(head("17")))
    heads: Heads[str] = Heads()
    if (call := parsed(seen + b"x" * 17)) is not None:
        heads.learn(seen, call[0])
    came = data.draw(damaged(seen.replace(b": 17", data.draw(st.sampled_from([b": 17", b": 5", b": 05", b": 0"])))))

    if (found := heads.find(came)) is not None:
        body = b"x" * found.length
        assert parsed(came[: found.size] + body) == (found.found, body)
