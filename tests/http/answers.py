"""Made-up answers of /api/status, for what no small mesh shows."""

import json
import time


def rank(number, doing="", waits=False, behind=0, late=False, late_us=100):
    return {"rank": number, "doing": doing, "waits": waits, "behind": behind, "late": late,
            "late_us": late_us}


def found(ranks, job="train", verdict="running", grade="OK", sentence="all is well", **more):
    return {"job": job, "uid": 1, "subject": "", "verdict": verdict, "grade": grade,
            "healthy": grade == "OK", "sentence": sentence, "evidence": [], "ranks": ranks,
            "gone": [], "missing": 0, **more}


def worker(job, ranks, world_size, paths=(), operations=9):
    """A worker of which each of these ranks has done so many operations."""
    return {"job": job, "uid": 1, "subject": "", "world_size": world_size, "epoch": 1,
            "strategy": "auto", "operations": operations * len(ranks), "failures": 0, "bytes": 4096,
            "memory_bytes": 1 << 20, "sent_bytes": 1 << 20, "paths": list(paths),
            "ranks": [{"rank": number, "epoch": 1, "operations": operations} for number in ranks]}


def agent(host, workers=(), **more):
    return {"host": host, "address": f"{host}:7601", "state": "serving", "coordinator": False,
            "coordinator_state": "connected", "etcd_state": "", "version": "1.0", "uptime_ms": 5000,
            "descriptors": 1, "descriptors_max": 9, "workers": list(workers), "gpus": [],
            "refused": [], **more}


def answer(agents, jobs=(), alarms=(), grades=None, traces=()):
    """What the page gets; `jobs` are of found(), `alarms` (subject, finding)."""
    return {"access": "all", "hidden_jobs": 0, "now_us": int(time.time() * 1e6),
            "diagnosis": {"alarms": [{"subject": subject, "finding": finding}
                                     for subject, finding in alarms],
                          "nodes": grades or ["OK"] * len(agents), "jobs": list(jobs)},
            "traces": list(traces), "status": {"agents": agents}}


def ended(job, outcome, sentence, seconds_ago, worker_end="", epoch=1):
    return {"outcome": outcome, "time_ms": int((time.time() - seconds_ago) * 1000),
            "sentence": sentence, "worker_end": worker_end,
            "last": {"job": job, "uid": 1, "subject": "", "epoch": epoch}}


def big(world_size=256, hosts=8, stuck=7, calls=40):
    """A job of many ranks that wait for one."""
    names = [f"node-with-a-long-name-{i}" for i in range(hosts)]
    per_host = world_size // hosts
    paths = [{"from": one, "to": other, "message_us": 30 + i, "bytes_per_s": 1e9 / (1 + i)}
             for i, one in enumerate(names) for other in names if one != other]
    workers = [worker("train", range(i * per_host, (i + 1) * per_host), world_size,
                      paths if i == 0 else (), operations=calls) for i in range(hosts)]
    ranks = [rank(i, behind=1) if i == stuck else rank(i, f"waits for rank {stuck}", waits=True)
             for i in range(world_size)]
    now_us = int(time.time() * 1e6)
    traced = [{"rank": i, "group": 0, "number": n, "collective": "all_reduce", "bytes": 4096,
               "begun_us": now_us - 9_000_000 + 50_000 * n}
              | ({} if n == calls - 1 else {"duration_us": 40_000, "code": "OK"})
              for i in range(world_size) for n in range(calls) if i != stuck or n < calls - 1]
    job = found(ranks, verdict="behind", grade="WARN",
                sentence=f"rank {stuck} (host {names[0]}, pid 4711) is 1 operation behind",
                evidence=[f"ranks 0-{world_size - 1} in all_reduce #{calls - 1} for 7 s"])
    trace = {"job": "train", "uid": 1, "subject": "", "calls": traced}
    return answer([agent(name, [one]) for name, one in zip(names, workers)], [job], traces=[trace])


def troubled():
    """One of each that may be wrong."""
    gpu = {"index": 1, "name": "", "failed": True, "state": "failed: XID 79", "used_bytes": 0,
           "memory_bytes": 0}
    jobs = [found([rank(0), rank(1)], "calm"),
            found([rank(0, "waits for rank 1", True), rank(1, behind=2, late=True)], "slow",
                  "late_rank", "WARN", "rank 1 is late by 30 ms"),
            found([rank(0)], "broken", "failed", "FAIL", "rank 1 (host b) is gone", gone=[1],
                  evidence=["ranks 0 waited"])]
    paths = [{"from": one, "to": other, "message_us": 30, "bytes_per_s": speed}
             for one, other, speed in [("a", "b", 1e9), ("b", "a", 2e8)]]
    agents = [agent("a", [worker("calm", [0], 2, paths), worker("slow", [0, 1], 2),
                          worker("broken", [0], 2)], coordinator=True, coordinator_state="",
                    etcd_state="unreachable for 47 s: no quorum", gpus=[gpu],
                    ended=[ended("old", "ended", "all ranks have left", 60),
                           ended("old", "failed", "rank 3 was killed", 1000)]),
              agent("b", [worker("calm", [1], 2)], state="draining",
                    coordinator_state="unreachable for 12 s: refused",
                    refused=[{"door": "http", "code": "UNAUTHENTICATED", "count": 3}],
                    ended=[ended("old", "ended", "all ranks have left", 61),
                           ended("older", "ended", "all ranks have left", 4000)]),
              agent("c", state="lost 20 s ago", lost=True, lost_ms=20_000, coordinator_state="")]
    now_us = int(time.time() * 1e6)
    calls = [{"rank": i, "group": 0, "number": n, "collective": name, "bytes": 64,
              "begun_us": now_us - 9000 + 1000 * n, "duration_us": 900, "code": code}
             for i in range(2) for n, (name, code) in enumerate(
                 [("all_reduce", "OK"), ("barrier", "OK"), ("broadcast", "TIMED_OUT")])]
    trace = {"job": "calm", "uid": 1, "subject": "", "calls": calls}
    alarms = [("GPU 1 of a", "failed: XID 79"), ("Node c", "is lost for 20 s"),
              ("Job broken", "rank 1 (host b) is gone")]
    return answer(agents, jobs, alarms, ["OK", "WARN", "FAIL"], [trace])


def script(made, change="", **variables):
    """Makes the page show this from its next update on; `change` is done to `sample` before each,
    with `updates`, the number of those so far."""
    return (f"var sample = {json.dumps(made)}, updates = 0;"
            + "".join(f"var {name} = {json.dumps(value)};" for name, value in variables.items())
            + f"request = async () => {{ ++updates; {change};"
            "return {ok: true, json: async () => structuredClone(sample)}; }; 0")
