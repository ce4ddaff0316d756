"""The hosts of a running job and the links between them, as its agents report them."""

from __future__ import annotations

import glob
import itertools
import json
import math
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy

from tutti._error import AlreadyExists
from tutti._frameworks import error_of, library_path
from tutti._handle import stay_at_exit
from tutti.distribute import _api
from tutti.distribute._topology import Host, Link, Topology

if TYPE_CHECKING:
    from tutti._group import Group

_STATUS_SECONDS = 10  # The other ranks wait as long, for their default timeout 30 s at most.
_GPU_NAME = re.compile("[0-9]+|(GPU|MIG)-.+")
_COMPARED_BYTES = 1 << 20  # Links are compared by the time that so many bytes take.


def discover(group: Group | None = None) -> Topology:
    """The Topology of the running job: its hosts with their cores, NUMA nodes, GPUs and tasks,
    which are the ranks, and the links between hosts as measured so far. Each task has as many
    devices as the one with the fewest GPUs, which are those of CUDA_VISIBLE_DEVICES or its share of
    the host's, and at least one. Every process must call this; all get the same. A process alone
    gets its own host.

    group: what the tasks are the ranks of. None: the strategy whose scope was entered, else
    one that joins for this call as Strategy() does.

    Raises tutti.Error: UNAVAILABLE if no agent answers; FAILED_PRECONDITION if the agents do not
    list the job."""
    from tutti.distribute import _strategy  # Which imports this module.
    if group is None and _strategy.has_strategy():
        return _strategy.get_strategy().topology
    try:
        strategy = _strategy.Strategy(group=group)
    except AlreadyExists as error:
        raise error_of(error.code, f"{error.message}; pass discover(group), or call it in the "
                       "strategy's scope()", error.rank, error.host) from None
    try:
        return strategy.topology
    finally:
        stay_at_exit(strategy.handle)
        _api.function("strategy_leave_job")(strategy.handle.pointer)  # Not that of `group`.


def topology_of(strategy, hosts=None):
    """The Topology of a strategy's job. hosts: of its ranks, where they are known. Every process
    calls it: rank 0 asks its agent, and all tell all what they know."""
    strategy.require_cross_replica("topology")
    with strategy.telling():
        report = None if strategy.rank else _report_of(_read_status(), strategy.world_size, hosts)
        line = numpy.frombuffer(_facts_of(strategy.rank, report), numpy.uint8)
    return _topology_told_by(strategy.gather(line, axis=0).tobytes())


def _program():
    """The path of the command line `tutti`: that of the library's folder, else the system's."""
    beside = pathlib.Path(library_path()).parent.parent / "bin" / "tutti"
    found = str(beside) if beside.is_file() else shutil.which("tutti")
    if found is None:
        raise error_of("NOT_FOUND", f"no program `tutti` in {beside.parent} or PATH, which asks "
                       "the agents for their hosts; install it")
    return found


def _read_status():
    """The status of the mesh, from this host's agent. UNAVAILABLE: none answers."""
    command = [_program(), "status", "--json"]
    if "TUTTI_ADDRESS" not in os.environ and "TUTTI_SOCKET" in os.environ:
        command += ["--address", "unix:" + os.environ["TUTTI_SOCKET"]]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=_STATUS_SECONDS)
    except subprocess.TimeoutExpired:
        raise error_of("DEADLINE_EXCEEDED", "this host's agent has not told its status in "
                       f"{_STATUS_SECONDS} s; see `tutti doctor`") from None
    if told.returncode != 0:
        raise error_of("UNAVAILABLE", "this host's agent tells no topology: "
                       f"{told.stderr.strip()}; start the program with `tutti run`, or tuttid "
                       "on every host")
    return json.loads(told.stdout)


def _own_job(workers, world_size, hosts):
    """The job of this process, which is rank 0; None: it is alone. It is known by its PID, unless
    it has a PID namespace of its own, where the agent knows it by another one, or a process of
    another host has the same; else by TUTTI_JOB."""
    jobs = {worker["job"] for host, worker in workers for rank in worker["ranks"]
            if rank["pid"] == os.getpid()
            and (rank["rank"] == 0 if hosts is None else host == hosts[0])}
    named = {worker["job"] for _, worker in workers} & {os.environ.get("TUTTI_JOB")}
    found = jobs if len(jobs) == 1 else named
    if not found and world_size > 1:
        raise error_of("FAILED_PRECONDITION", f"the agents list {len(jobs)} jobs of process "
                       f"{os.getpid()} with {world_size} ranks; set TUTTI_JOB to the name of its "
                       "job")
    return found.pop() if found else None


def _report_of(status, world_size, hosts=None):
    """What rank 0 tells the others: the host of each rank, the GPUs of each host, and the measured
    links. hosts: by rank, where they are known. FAILED_PRECONDITION: the status lacks the job, or
    one of its ranks."""
    agents = status["agents"]
    workers = [(agent["host"], worker) for agent in agents for worker in agent["workers"]
               if worker["world_size"] == world_size]
    job = _own_job(workers, world_size, hosts)
    if job is None and hosts is None:
        hosts = [os.environ.get("TUTTI_HOST") or platform.node()]
    own = [(host, worker) for host, worker in workers if worker["job"] == job]
    if hosts is None:
        host_of = {rank["rank"]: host for host, worker in own for rank in worker["ranks"]}
        missing = [rank for rank in range(world_size) if rank not in host_of]
        if missing:
            silent = [agent["host"] for agent in agents if agent["state"] != "serving"]
            raise error_of("FAILED_PRECONDITION", f"no agent reports rank {missing[0]} of job "
                           f"{job!r} (not serving: {silent}); see `tutti status`")
        hosts = [host_of[rank] for rank in range(world_size)]
    return {"hosts": list(hosts), "gpus": {agent["host"]: len(agent["gpus"]) for agent in agents},
            "paths": [path for _, worker in own for path in worker["paths"]]}


def _facts_of(rank, report=None):
    """What a rank tells the others of its process and host, as a line. report: rank 0's."""
    facts = {"rank": rank, "cores": os.cpu_count() or 1, "report": report,
             "numa_nodes": max(1, len(glob.glob("/sys/devices/system/node/node[0-9]*"))),
             "gpus": _visible_gpus()}
    return json.dumps(facts).encode() + b"\n"


def _visible_gpus():
    """How many CUDA_VISIBLE_DEVICES lists, as CUDA reads it: up to the first that names none, and
    none if one is named twice. None: it is not set."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return None
    names = list(itertools.takewhile(_GPU_NAME.fullmatch, map(str.strip, listed.split(","))))
    return len(names) if len(set(names)) == len(names) else 0


def _topology_told_by(lines):
    """The Topology that the lines of all ranks describe, some of which may be there twice."""
    facts = {fact["rank"]: fact for fact in map(json.loads, lines.splitlines())}
    report = facts[0]["report"]
    tasks = defaultdict(list)  # By host.
    for task, host in enumerate(report["hosts"]):
        tasks[host].append(task)
    hosts = {name: Host(name, tuple(own), facts[own[0]]["cores"], facts[own[0]]["numa_nodes"],
                        report["gpus"].get(name, 0)) for name, own in tasks.items()}
    links = {(path["from"], path["to"]): Link(path["message_us"], path["bytes_per_s"])
             for path in report["paths"] if path["from"] in hosts and path["to"] in hosts}
    gpus = min(_gpus_of(facts[task], hosts[host]) for task, host in enumerate(report["hosts"]))
    return _lay_out([hosts[name] for name in _ring_of(list(hosts), links)], links, gpus)


def _gpus_of(facts, host):
    """The GPUs of a task: those that it sees, else its share of the host's."""
    return host.gpus // len(host.tasks) if facts["gpus"] is None else facts["gpus"]


def _lay_out(hosts, links, gpus):
    """Hosts along x, the devices of each along the core."""
    devices, points = max(1, gpus), {}
    for x, host in enumerate(hosts):
        for first, task in zip(itertools.count(0, devices), host.tasks):
            points[task] = [[x, 0, 0, first + device] for device in range(devices)]
    mesh_shape = [len(hosts), 1, 1, devices * max(len(host.tasks) for host in hosts)]
    return Topology(mesh_shape, [points[task] for task in sorted(points)],
                    "GPU" if gpus else "CPU", hosts=hosts, links=links)


def _slowness(names, links):
    """By pair of hosts: the power of two by which its link is slower than the median one, at
    least 0. Measurements of equal links differ by less than that."""
    rates = [link.bytes_per_s for link in links.values() if link.bytes_per_s]
    usual_rate = statistics.median(rates) if rates else math.inf
    latencies = [link.latency_us for link in links.values() if link.latency_us]
    usual_latency = statistics.median(latencies) if latencies else 0
    times = {pair: (link.latency_us or usual_latency)
             + 1e6 * _COMPARED_BYTES / (link.bytes_per_s or usual_rate)
             for pair, link in links.items()}
    usual = statistics.median(times.values()) if times else 1
    return {(a, b): max(0, int(math.log2(max(times.get((a, b), usual), times.get((b, a), usual))
                                         / usual))) if usual else 0
            for a, b in itertools.permutations(names, 2)}


def _ring_of(names, links):
    """The hosts in an order for a ring, from the first one on: as given, with parts turned round
    as long as that replaces slow links (2-opt)."""
    slow = _slowness(names, links)

    def cost(a, b):
        return 4 ** slow[a, b]  # A slower link costs more than a few faster ones.

    ring, turned = list(names), True
    while turned:
        turned = False
        for i, j in itertools.combinations(range(1, len(ring)), 2):
            before, first, last, after = (ring[i - 1], ring[i], ring[j], ring[(j + 1) % len(ring)])
            if after != before and (cost(before, last) + cost(first, after)
                                    < cost(before, first) + cost(last, after)):
                ring[i:j + 1] = reversed(ring[i:j + 1])
                turned = True
    return ring
