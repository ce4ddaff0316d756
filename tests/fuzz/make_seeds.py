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
        cut_text=message((1, 9), (2, "the ranks disagree"))[:-1],
        refusal=message((1, 9), (2, "the ranks disagree"), (3, 2), (4, "b")),
        unknown=message((15, 1), (16, "x")) + b"\x7d\1\2\3\4" + b"\x79" + bytes(8) + b"\x7b\x7c",
        other_types=b"\x0d\1\2\3\4" + b"\x10\1" + b"\x38\1" + message((1, "x"), (5, "y")),
    )


def strategies():
    write(
        "base_strategy",
        name="ring",
        tree="tree:3",
        json='"Ring"',
        json_tree=' { "Tree" : 12 } ',
        pair="tree:2, centralized",
        no_arity="tree:0",
        wide="tree:16777216",
    )


ARENA = 4096
SEGMENT_BYTES = 64 * 1024  # Behind it, in board_match.cc.
RING = 3


def asked(verb, dtype, op, count, at_in, at_out, root=0, strategy=RING, flags=0, records=0):
    what = struct.pack("<BBBBI", verb, dtype, op, flags, root)
    sides = struct.pack("<QQQ", count, at_in, at_out)
    return what + sides + struct.pack("<IIIIQ", 0, strategy, 0, records, 0)


def request(*what, rank=1, size=4, window=0, **how):
    return struct.pack("<HHHH", size - 1, rank, 0x8000, window) + asked(*what, **how)


def matches():
    def both(one, other):
        return one + other

    record = struct.pack("<QQQ", ARENA + 256, ARENA + 512, 8)
    near_end = ARENA + SEGMENT_BYTES - 16
    too_long = struct.pack("<QQQ", near_end, ARENA + 512, 8)
    write(
        "board_match",
        all_reduce=both(asked(0, 0, 0, 8, ARENA, ARENA, strategy=0),
                        asked(0, 0, 0, 8, ARENA, ARENA, strategy=0)),
        listed=both(asked(0, 0, 0, 8, ARENA, 0, strategy=0, flags=4, records=1),
                    asked(0, 0, 0, 8, ARENA, ARENA, strategy=0)) + record,
        listed_outside=both(asked(0, 0, 0, 8, ARENA, 0, strategy=0, flags=4, records=1),
                            asked(0, 0, 0, 8, ARENA, ARENA, strategy=0)) + too_long,
        outside=both(asked(0, 0, 0, 8, ARENA, ARENA, strategy=0),
                     asked(0, 0, 0, 8, near_end, near_end, strategy=0)),
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
        window=request(0, 0, 0, 1 << 30, ARENA, ARENA, flags=3, window=4),
        window_root=request(2, 5, 0, 1 << 30, ARENA, 0, root=1, flags=3, window=4),
        window_gather=request(3, 1, 0, 8, ARENA + 64, ARENA, flags=3, window=4),
        window_outside=request(0, 0, 0, 1 << 30, ARENA + 0x7C00, ARENA, flags=3, window=4),
        listed=request(0, 0, 0, 8, ARENA, 0, flags=4, records=2),
        refused=request(0, 0, 0, 20, ARENA, 0, root=3, flags=8),
    )


def frame(kind, seq, payload_bytes):
    head = struct.pack("<IHHQQ", 0x46545554, 2, kind, seq, payload_bytes)
    return head + struct.pack("<IIQQIIHHHBB", 1, 0, seq, 0x5D0E, 0, 0, 1, 0, 0, 0, 0)


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


def report(reason, phase, *rest, collective=1, op=2):
    tree = 2 | 3 << 8
    what = ((1, collective), (2, 3), (3, op), (4, 1000), (5, 1))
    how = ((6, tree), (7, RING), (8, 12 << 40))
    who = ((4, -1), (9, -1), (10, -1))
    return message((1, reason), (2, phase), (5, message(*what, *how)), *who, *rest)


def control_kinds():
    """By name: the fields of a Control that name no operation."""
    answer, waiting, late, mismatch, refusal = range(5)
    refused, started, over, gathering = range(4)
    strategies = ((2, 2 | 2 << 8), (3, RING))
    measured = [message((1, 0), (2, 20), (3, RING)), message((1, 4), (2, 64), (3, 1))]
    bounds = [message((1, 0), (2, 7)), message((1, 5), (2, 1 << 40))]
    rates = [message((1, i)) + b"\x11" + struct.pack("<d", 0.001 * i) for i in range(2)]
    return {
        "answer": (4, report(answer, refused, (3, b"\1\2"))),
        "gathering": (4, report(waiting, gathering, (3, b"\3"), (4, 1))),
        "late": (4, report(late, started, (6, 1 << 60), (7, 30000), (8, "a frame"), (9, 2))),
        "mismatch": (4, report(mismatch, over, (10, 1), (6, 5))),
        "refusal": (4, report(refusal, refused, (11, status(3)))),
        "no_phase": (4, report(answer, 4)),
        "no_collective": (4, report(answer, started, collective=9)),
        "no_op": (4, report(answer, started, op=9)),
        "query": (5, b""),
        "fail": (6, status(4)),
        "abort": (7, status(14)),
        "gone": (8, message((1, 1), (2, status(14)), *[(3, bound) for bound in bounds])),
        "gone_on_purpose": (8, message((1, 2), (3, bounds[0]), (3, bounds[0]))),
        "gone_nobody": (8, message((1, 1 << 31))),
        "probe": (9, message((1, 5), (2, b"padding"), (3, 1 << 63), (4, 64))),
        "rates": (10, message(*[(1, rate) for rate in rates])),
        "announce": (11, b""),
        "propose": (12, message((1, 3), *strategies, *[(4, one) for one in measured])),
        "propose_auto": (12, message((1, 3), *strategies, (4, message((1, 0), (2, 20))))),
        "propose_no_class": (12, message((1, 3), *strategies, (4, message((2, 65), (3, RING))))),
        "fence": (13, message((1, 3))),
        "adopt": (14, message((1, 3))),
        "want": (15, b""),
        "started": (16, b""),
        "nccl_offer": (17, message((1, message((1, status(14)), (2, 21803))))),
        "nccl_begin": (17, message((2, bytes(128)))),
        "nccl_made": (17, message((3, status(0)))),
        "nccl_refused": (17, message((4, status(14)))),
        "propose_nccl": (12, message((1, 3), *strategies, (5, 1))),
    }


def controls():
    kinds = control_kinds()
    for name, kind in kinds.items():
        one = message((1, 9), (2, 3), (3, b"\1\0"), kind)
        write("group_control", **{name: b"\x05" + message((1, one))})
    whole_job = [message((1, 0), (2, 3), kinds[name]) for name in ("answer", "gone", "want")]
    write("group_control", batch=b"\0" + message(*[(1, control) for control in whole_job]))
    write("group_control", no_kind=b"\0" + message((1, message((1, 0), (2, 3)))))


def rosters():
    ranks = [message((1, i), (2, 4711), (3, "ab"[i]), (4, f"[::1]:{i}")) for i in range(2)]
    schema = {"job": 1, "epoch": 2, "secret": 3, "strategy": 5, "ranks": 4}
    roster = [(schema["job"], "demo"), (schema["epoch"], 7), (schema["secret"], "s")]
    write(
        "membership_roster",
        roster=message(*roster, *[(schema["ranks"], rank) for rank in ranks]),
        rank_missing=message(*roster, (schema["ranks"], ranks[1])),
        rank_twice=message(*roster, (schema["ranks"], ranks[0]), (schema["ranks"], ranks[0])),
        status=status(9),
        address="127.0.0.1:7601",
        address_v6="[::1]:7601",
        no_port="host:",
    )


def calls():
    def frame_of(kind, flags, stream, payload):
        head = struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream)
        return head + payload

    def call(path, body=b"", **more):
        fields = {":method": "POST", ":scheme": "http", ":path": "/tutti.v1." + path}
        fields |= {":authority": "a", "content-type": "application/grpc", "te": "trailers"} | more
        text = b""
        for name, value in fields.items():
            text += b"\0" + bytes([len(name)]) + name.encode()
            text += bytes([len(value)]) + value.encode()
        body = b"\0" + struct.pack(">I", len(body)) + body
        return frame_of(1, 4, 1, text) + frame_of(0, 1, 1, body)

    greets = b"\1\xff\xff"
    windows = frame_of(4, 0, 0, struct.pack(">HI", 4, 0x7FFFFFFF))
    write(
        "control_port",
        status=greets + call("Admin/Call", b"\x0a\0"),
        attend=greets + call("Mesh/Attend", **{"tutti-pass-bin": "CgRkZW1v"}),
        enlist=greets + call("Mesh/Enlist", **{"tutti-token-bin": "b3Blbg"}),
        stop=greets + call("Admin/Call", b"\x22\2\x08\1", **{"tutti-token-bin": "aw"}),
        in_two=b"\1\x40\0" + call("Admin/Call", b"\x1a\2\x08\1"),
        long_message=greets + call("Admin/Call")[:-5] + b"\0\xff\xff\xff\xff",
        no_greeting=b"\0\xff\xffGET / HTTP/1.1\r\n\r\n",
        settings=greets + windows + frame_of(8, 0, 0, b"\x7f\xff\xff\xff"),
    )


def packets():
    write(
        "session_packet",
        plain=b"\0\5hello\0\3abc",
        descriptors=b"\1\5hello\x23\2ab",
        too_many=b"\x24\1x\x2a\1y\0\1z",
        empty=b"\0\0\1\0",
    )


def handshakes():
    magic = 0x4B4E494C54545554
    hello = struct.pack("<QIIIIII", magic, 1, 7, 100, 0, 4, 4) + bytes(32) + b"demohost"
    challenge = struct.pack("<QII", magic, 1, 0) + bytes(32)

    def lie(deed, keep, words):
        return bytes([deed, 4]) + b"demo" + struct.pack("<HH", keep, len(words)) + words

    write(
        "transport_handshake",
        honest=b"\0\4demo",
        another_secret=b"\x10\4demo",
        another_hello=lie(1, 0, hello),
        long_names=lie(1, 24, b"\xff" * 8),
        long_host=lie(1, 28, b"\xff\xff\0\0"),
        another_challenge=lie(2, 0, challenge),
        another_proof=lie(4, 0, bytes(32)),
        another_answer=lie(8, 0, bytes(40)),
        long_refusal=lie(8, 4, b"\xff" * 4),
        cut_refusal=lie(0x18, 4, b"\2\0\0\0"),
    )


def client_hello():
    """The first words of TLS 1.3 (RFC 8446, 4.1.2), in one record."""

    def counted(width, body):
        return len(body).to_bytes(width, "big") + body

    def extension(number, body):
        return struct.pack(">H", number) + counted(2, body)

    extensions = extension(43, b"\2\3\4")  # TLS 1.3
    extensions += extension(10, counted(2, b"\0\x1d"))  # X25519
    extensions += extension(13, counted(2, b"\4\3"))  # ECDSA on P-256 with SHA-256
    extensions += extension(51, counted(2, b"\0\x1d" + counted(2, b"\t" + bytes(31))))
    body = b"\3\3" + bytes(32) + counted(1, bytes(32)) + counted(2, b"\x13\1") + b"\1\0"
    return b"\x16\3\1" + counted(2, b"\1" + counted(3, body + counted(2, extensions)))


def secured():
    hello = client_hello()
    changed = [struct.pack("<HBHB", start, 255, 100, 1) for start in (0, 60, 300, 400)]
    write(
        "transport_tls",
        hello=b"\0\xff\x0f" + hello,
        one_by_one=b"\0\0\0" + hello,
        twice=b"\0\xff\x0f" + hello * 2,
        older=b"\0\xff\x0f" + hello.replace(b"\0\x2b\0\3", b"\0\xaa\0\3"),
        plain=b"\0\xff\x0fTUTTLINK" + bytes(100),
        data=b"\0\xff\x0f\x17\3\3\0\x20" + bytes(32),
        alert=b"\0\xff\x0f\x15\3\3\0\2\2\0",
        undisturbed=b"\1\0\0",
        first_byte=b"\1" + changed[0],
        hello_changed=b"\1" + changed[1],
        finish_changed=b"\1" + changed[2],
        words_changed=b"\1" + changed[3],
    )


def messages():
    def sized(payload_bytes, *cuts):
        bytes_ = frame(1, 0, payload_bytes) + bytes(range(payload_bytes))
        return struct.pack("<H", len(bytes_)) + bytes_ + bytes(cuts)

    write(
        "transport_message",
        one_slice=sized(100),
        cut_head=sized(100, 10, 20, 60),
        empty_slices=sized(20, 0, 30, 0, 0, 40, 0),
        one_byte=sized(1, 64),
        no_payload=sized(0, 64),
        too_short=b"\x0a\0" + bytes(10),
        one_short=b"\x3f\0" + bytes(63),
    )


def agents():
    hand_over = message((1, message((1, message((1, 3), (2, "demo"))), (2, 1000), (3, 4711))))

    def packet(descriptors, body):
        return bytes([descriptors, len(body)]) + body

    report, stop = message((2, 1)), message((3, 1))
    write(
        "worker_agent",
        hand_over=packet(1, hand_over) + packet(0, report),
        hand_over_without=packet(0, hand_over) + packet(2, hand_over),
        report=packet(0, report) * 2 + packet(1, report),
        stop=packet(0, stop),
        failed_gpus=packet(0, message((4, message((1, message((1, "GPU-1"), (2, "XID 79"))))))),
        neither=packet(0, message((2, 0))) + packet(1, message((3, 0))),
        unknown=packet(3, message((9, "x"))) + packet(1, b"\xff"),
    )


def clusters():
    write(
        "distribute_slurm",
        hosts="n[1-2],m5,o[3-4,6,7-9]",
        padded="n[008-011]",
        open="n[1",
        tasks="3(x2),2,1",
    )
    write(
        "distribute_tf_config",
        chief='{"cluster":{"chief":["a:1"],"worker":["b:1","c:1"]},'
        '"task":{"type":"worker","index":1},"rpc_layer":"grpc"}',
        gaps='{"cluster":{"worker":{"0":"a:1","4":"e:1"}},"task":{"type":"worker","index":"0"}}',
        session='{"session_master":"a:1","task":{"type":"evaluator","index":0}}',
        cut='{"cluster":{"worker":',
    )


def recorders():
    words = recorder_words()
    write(
        "trace_recorder",
        whole=struct.pack("<H", 4096),
        none=struct.pack("<H", 0),
        local_ranks=struct.pack("<HIQ", 9, words["local_ranks"], 240 << 32 | 1),
        world=struct.pack("<HIQ", 9, words["world_size"], 1 << 20),
        group=struct.pack("<HIQ", 9, words["group"], 0),
        rank=struct.pack("<HIQ", 9, words["rank"], 1),
        next=struct.pack("<HIQ", 9, words["next"], 1 << 63),
        checked_index=struct.pack("<HIQ", 9, words["record"], 1),
        outcome=struct.pack("<HIQ", 9, words["record"] + 1, 0xFFFF),
    )


def recorder_words():
    """Where proto/recorder.h has what, in words of 8 bytes."""
    rank = (4096 + 4096 * 64) // 8
    ring = rank + (64 + 9 * 4 * 128 + 192) // 8
    words = {"local_ranks": 1, "world_size": 2, "group": 512}
    return words | {"rank": rank, "next": ring, "record": ring + 8}


def main():
    settings()
    greetings()
    strategies()
    requests()
    matches()
    frames()
    controls()
    rosters()
    calls()
    packets()
    handshakes()
    secured()
    messages()
    agents()
    clusters()
    recorders()


main()
