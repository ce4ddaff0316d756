"""How the processes of a process group become a job: through torch's store."""

import json
import os
import pathlib
import secrets
import socket
import time
from datetime import timedelta

import tutti
from tutti._error import Error
from tutti.torch import _address
from tutti.torch._agent import PrivateAgent
from tutti.torch._work import BackendError, backend_error

_SOCKET = "/run/tutti/tuttid.sock"
_CONNECT_SECONDS = 2


class Members:
    """The ranks of a process group: its tutti.Group, and their ranks in the job. agent: the private
    agent that this process started for the job, or None."""

    def __init__(self, group, ranks, whole=None, agent=None):
        self.group = group
        self._ranks = ranks
        self._whole = whole or group
        self._agent = agent

    @property
    def job_rank(self):
        """This rank's number in the job, by which failures name ranks."""
        return self._whole.rank

    def subgroup(self, ranks):
        """The Members of some of these ranks."""
        ranks = [self._ranks[rank] for rank in ranks]
        try:
            group = self._whole.subgroup(ranks)
        except Error as error:
            raise backend_error(error) from None
        return Members(group, ranks, self._whole)

    def leave(self):
        """Leaves the group; the last thing that is done with it. Ends the private agent."""
        try:
            self.group.leave()
        except Error:
            pass  # It was left already, with the job.
        if self._agent is not None:
            self._agent.end()


def join(store, rank, size, timeout):
    """The Members of a new job of `size` ranks that share the store. Every rank must call this as
    often as the others: the number of calls tells one job from the next on the same store."""
    board = _Board(store, store.add(f"tutti/joins{rank}", 1), timeout)
    board.write(f"rank{rank}", _own_place(store))
    if rank == 0:
        board.write("job", {"job": "torch-" + secrets.token_hex(8),
                            "token": secrets.token_hex(16), "places": board.places(size)})
    job = board.read_job(size)
    agent, path, token = _find_agent(board, rank, job)
    try:
        group = tutti.join(job=job["job"], rank=rank, world_size=size,
                           timeout=board.seconds_left(), socket=path, token=token)
    except Error as error:
        if agent is not None:
            agent.end()
        raise backend_error(error) from None
    return Members(group, list(range(size)), agent=agent)


class _Board:
    """What the ranks tell each other for one job, before one deadline: JSON under names."""

    def __init__(self, store, number, timeout):
        self._store = store
        self._prefix = f"tutti/{number}/"
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout.total_seconds()

    def seconds_left(self):
        return max(0.001, self._deadline - time.monotonic())

    def write(self, name, value):
        self._store.set(self._prefix + name, json.dumps(value))

    def read(self, name, missing):
        """The value that another rank writes; raises its failure, or `missing` at the deadline."""
        try:
            self._store.wait([self._prefix + name], timedelta(seconds=self.seconds_left()))
        except RuntimeError:  # FileStore raises no DistStoreError.
            raise BackendError("DEADLINE_EXCEEDED",
                               f"{missing} within {self._timeout.total_seconds():g} s") from None
        value = json.loads(self._store.get(self._prefix + name))
        if "error" in value:
            raise BackendError(**value["error"])
        return value

    def write_failure(self, name, error):
        self.write(name, {"error": {"code": error.code, "message": error.message}})

    def places(self, size):
        """Where all ranks are, which rank 0 gathers for the others."""
        return [self.read(f"rank{rank}", _absent(rank)) for rank in range(size)]

    def read_job(self, size):
        """What rank 0 writes once it knows where all ranks are."""
        try:
            return self.read("job", "rank 0 did not name the job")
        except BackendError:
            for rank in range(size):
                if not self._store.check([f"{self._prefix}rank{rank}"]):
                    self.read(f"rank{rank}", _absent(rank))
            raise


def _absent(rank):
    return f"rank {rank} has not called init_process_group"


def _own_place(store):
    path = os.environ.get("TUTTI_SOCKET", _SOCKET)
    return {"host": host(), "socket": path, "served": _is_served(path),
            "address": _address.toward_store(store)}


def host():
    """Tells hosts apart, and network namespaces of one host. Begins with the hostname and "/"."""
    namespace = os.stat("/proc/self/ns/net").st_ino
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}/{namespace}"


def _is_served(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
            return True
        except OSError:  # Also where the path is too long.
            return False


def _find_agent(board, rank, job):
    """The private agent that this process started, if it did; the agent's socket, and its token as
    join() takes it. The lowest rank of a host starts its agent; rank 0's is the coordinator."""
    places, mine = job["places"], job["places"][rank]
    if all(place["served"] for place in places):
        return None, mine["socket"], os.environ.get("TUTTI_TOKEN")
    leader = [place["host"] for place in places].index(mine["host"])
    agent = None
    if rank == leader:
        try:
            agent = _start_agent(board, places, leader, job)
        except Exception as error:  # The host's other ranks wait for this one.
            error = _failure_of_agent(error, mine)
            board.write_failure(f"agent{leader}", error)
            raise error from None
        board.write(f"agent{leader}", {"socket": agent.socket, "address": agent.address})
    found = board.read(f"agent{leader}", f"rank {leader}, the lowest of its host, did not start "
                                         "an agent")
    return agent, found["socket"], job["token"]


def _failure_of_agent(error, place):
    if isinstance(error, Error):
        return backend_error(error)
    host_name = place["host"].split("/")[0]
    return BackendError("UNAVAILABLE", f"the private agent of host {host_name} did not start: "
                                       f"{type(error).__name__}: {error}")


def _start_agent(board, places, leader, job):
    coordinator = None
    if leader != 0:
        coordinator = board.read("agent0", "rank 0 did not start an agent")["address"]
    hosts = [place["host"] for place in places]
    return PrivateAgent(_host_name(hosts, leader), coordinator, job["token"],
                        _address.to_listen_at(places, leader))


def _host_name(hosts, leader):
    """The name of the leader's host in rosters and messages: its hostname, made unique."""
    name = hosts[leader].split("/")[0]
    namesakes = {other for other in hosts if other.split("/")[0] == name}
    return name if len(namesakes) == 1 else f"{name}-{leader}"
