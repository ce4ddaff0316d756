#!/usr/bin/env python3
"""Writes the seeds of the fuzzers' corpora: small inputs to begin from, most of them sound.

Run it again where a layout or a message in proto/ has changed. Inputs that once broke a promise lie
beside the seeds under other names and stay.
"""

import struct
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(*fields):
    """Protobuf of (number, value): an int as a varint, bytes or a text with its length."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value & (1 << 64) - 1)
            continue
        data = value.encode() if isinstance(value, str) else value
        out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def framed(body):
    return struct.pack("<I", len(body)) + body


def write(fuzzer, **seeds):
    folder = CORPUS / fuzzer
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def settings():
    write(
        "base_settings",
        numbers="# a comment\njoin_timeout_ms = 5000\nslice_bytes=4096\n",
        texts='host = "a # b" # c\ntransport = grpc\n\nsocket=/run/x.sock\n',
        wrong="ops_in_flight = 65\n",
        unknown="colour = red\n",
    )


def greetings():
    hello = message((1, 3), (2, "demo"), (3, "token"), (4, 1), (5, 4), (6, 30000), (7, 4711))
    write(
        "session_hello",
        whole=b"\xff" + framed(hello),
        in_two=b"\x06" + framed(hello),
        more_behind=b"\x06" + framed(hello) + b"more",
        too_short=b"\x06" + framed(hello)[:-1],
        too_long=b"\x02" + struct.pack("<I", 1 << 20),
    )
    write(
        "client_welcome",
        welcome=message((3, -1), (5, 3), (6, 7), (7, "a"), (7, ""), (7, "b")),
        refusal=message((1, 9), (2, "the ranks disagree"), (3, 2), (4, "b")),
        unknown=message((15, 1), (16, "x")) + b"\x7d\1\2\3\4" + b"\x79" + bytes(8) + b"\x7b\x7c",
        other_types=b"\x0d\1\2\3\4" + b"\x10\1" + b"\x38\1" + message((1, "x"), (5, "y")),
    )


def strategies():
    write(
        "schedule_strategy",
        name="ring",
        tree="tree:3",
        json='"Ring"',
        json_tree=' { "Tree" : 12 } ',
        pair="tree:2, centralized",
        no_arity="tree:0",
    )


ARENA = 4096
RING = 3


def asked(verb, dtype, op, count, at_in, at_out, root=0, strategy=RING, flags=0, records=0):
    what = struct.pack("<BBBBI", verb, dtype, op, flags, root)
    sides = struct.pack("<QQQ", count, at_in, at_out)
    return what + sides + struct.pack("<IIIIQ", 0, strategy, 0, records, 0)


def request(*what, rank=1, size=4, **how):
    return struct.pack("<HHH", size - 1, rank, 0x8000) + asked(*what, **how)


def matches():
    def both(one, other):
        return one + other

    record = struct.pack("<QQQ", ARENA + 256, ARENA + 512, 8)
    write(
        "board_match",
        all_reduce=both(asked(0, 0, 0, 8, ARENA, ARENA, strategy=0),
                        asked(0, 0, 0, 8, ARENA, ARENA, strategy=0)),
        listed=both(asked(0, 0, 0, 8, ARENA, 0, strategy=0, flags=4, records=1),
                    asked(0, 0, 0, 8, ARENA, ARENA, strategy=0)) + record,
        staged=both(asked(0, 0, 0, 8, ARENA, ARENA, strategy=0, flags=3),
                    asked(0, 0, 0, 8, ARENA, ARENA, strategy=0)),
        gather=both(asked(3, 0, 0, 8, ARENA, ARENA + 64, strategy=0),
                    asked(3, 0, 0, 8, ARENA, ARENA + 64, strategy=0)),
        scatter=both(asked(4, 0, 0, 8, ARENA, ARENA + 64, strategy=0),
                     asked(4, 0, 0, 8, ARENA, ARENA + 64, strategy=0)),
    )


def requests():
    write(
        "session_request",
        all_reduce=request(0, 0, 0, 8, ARENA, ARENA),
        mean=request(0, 3, 1, 100, ARENA, ARENA + 4096),
        reduce=request(1, 7, 3, 8, ARENA, ARENA + 64, root=1),
        broadcast_root=request(2, 5, 0, 8, ARENA, 0, root=1),
        broadcast=request(2, 5, 0, 8, 0, ARENA, root=0),
        all_gather=request(3, 1, 0, 8, ARENA + 64, ARENA),
        reduce_scatter=request(4, 6, 4, 8, ARENA, ARENA + 32, strategy=2 | 3 << 8),
        barrier=request(5, 0, 0, 0, 0, 0),
        end_wraps=request(0, 0, 0, (1 << 62) - 1, ARENA, ARENA, rank=0, size=1),
        overlap=request(0, 0, 0, 8, ARENA, ARENA + 4),
        unknown=request(200, 0, 0, 8, ARENA, ARENA),
        staged=request(0, 0, 0, 1 << 30, ARENA, ARENA, flags=3),
        listed=request(0, 0, 0, 8, ARENA, 0, flags=4, records=2),
        refused=request(0, 0, 0, 20, ARENA, 0, root=3, flags=8),
    )


def frame(kind, seq, payload_bytes):
    head = struct.pack("<IHHQQ", 0x46545554, 1, kind, seq, payload_bytes)
    return head + struct.pack("<IIQIIHHHBB", 1, 0, seq, 0, 0, 1, 0, 0, 0, 0)


def frames():
    deed = {"none": b"\0", "lie": b"\7", "cut": b"\x08", "place": b"\x10", "take": b"\x30"}
    write(
        "transport_frames",
        small=b"\0\0" + b"".join(deed["none"] + frame(1, i, 100) for i in range(4)),
        placed=b"\0\0" + deed["place"] + frame(1, 0, 20000) + deed["none"] + frame(2, 1, 10),
        taken_back=b"\0\1" + deed["take"] + frame(1, 0, 20000) + deed["place"] + frame(1, 1, 9000),
        too_large=b"\0\0" + deed["lie"] + frame(1, 0, 1 << 40),
        out_of_order=b"\0\0" + deed["none"] + frame(3, 0, 7) + deed["lie"] + frame(1, 2, 7),
        cut=b"\0\0" + deed["cut"] + frame(1, 0, 5000) + deed["none"] + frame(1, 1, 5000),
    )


def status(code):
    return message((1, code), (2, "words"), (3, 1), (4, "b"))


def controls():
    tree = 2 | 3 << 8
    signature = message((1, 1), (2, 3), (3, 2), (4, 1000), (5, 1), (6, tree), (7, RING))
    arrive = message((1, 1), (2, signature), (3, 30000), (5, 120))
    refused = message((1, 1), (2, signature), (4, status(3)))
    start = message((1, 1), (2, RING), (3, 1 << 20), (4, message()))
    kinds = {
        "arrive": (4, arrive),
        "refused": (4, refused),
        "start": (5, start),
        "fail": (6, status(4)),
        "abort": (7, status(14)),
        "gone": (8, message((1, 1), (2, status(14)))),
        "probe": (9, message((1, 5), (2, b"padding"))),
    }
    for name, kind in kinds.items():
        write("group_control", **{name: b"\x05" + message((1, message((1, 0), (2, 3), kind)))})
    both = [message((1, 9), (3, b"\1\0"), kinds["arrive"]), message((1, 0), kinds["gone"])]
    write("group_control", batch=b"\0" + message(*[(1, control) for control in both]))


def rosters():
    ranks = [message((1, i), (2, 4711), (3, "ab"[i]), (4, f"[::1]:{i}")) for i in range(2)]
    schema = {"job": 1, "epoch": 2, "secret": 3, "strategy": 5, "ranks": 4}
    roster = [(schema["job"], "demo"), (schema["epoch"], 7), (schema["secret"], "s")]
    write(
        "mesh_roster",
        roster=message(*roster, *[(schema["ranks"], rank) for rank in ranks]),
        rank_missing=message(*roster, (schema["ranks"], ranks[1])),
        status=status(9),
        address="127.0.0.1:7601",
        address_v6="[::1]:7601",
        no_port="host:",
    )


def packets():
    write(
        "session_packet",
        plain=b"\0\5hello\0\3abc",
        descriptors=b"\1\5hello\x23\2ab",
        too_many=b"\x24\1x\x2a\1y\0\1z",
        empty=b"\0\0\1\0",
    )


def main():
    settings()
    greetings()
    strategies()
    requests()
    matches()
    frames()
    controls()
    rosters()
    packets()


main()
