"""How the processes of a process group become a job: through torch's store."""

import json
import os
import pathlib
import secrets
import socket
import time

import tutti
from tutti._error import Error
from tutti.torch import _address
from tutti.torch._agent import PrivateAgent, parent_directory
from tutti.torch._work import BackendError, backend_error

_SOCKET = "/run/tutti/tuttid.sock"
_CONNECT_SECONDS = 2
_STEP_SECONDS = 1  # How long a rank does not look whether another has tried again.
_PAUSE_SECONDS_MIN, _PAUSE_SECONDS_MAX = 0.001, 0.1  # Between two looks into the store.
_JOIN_SECONDS = 60  # For ranks all of which were there a moment ago.


class Members:
    """The ranks of a process group: its tutti.Group, and their ranks in the job. agent: the private
    agent that this process started for the job, or None. name: of the job, where this made it."""

    def __init__(self, group, ranks, whole=None, agent=None, name=None):
        self.name = name
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


def given_store(store):
    """The store that init_process_group() was given, or made. Behind it torch adds the device, and
    before that the number of the group, which differs where ranks have tried differently often."""
    for _ in range(2):
        store = getattr(store, "underlying_store", store)
    return store


def join(store, rank, size, timeout):
    """The Members of a new job of `size` ranks that share the store.

    Each rank writes where it is, under a number of this try alone; rank 0 proposes a job of the
    numbers that it finds, and begins it once all ranks have answered. A rank that tries again, or
    whose process was started again, has another number: then rank 0 proposes another job. So the
    ranks meet however often each has tried, if their tries overlap."""
    board = _Board(store, "tutti/", timeout)
    while True:
        number = secrets.token_hex(8)
        board.write(f"rank{rank}", _own_place(store) | {"number": number})
        proposals = (_Proposer if rank == 0 else _Follower)(board, number, size)
        try:
            members = proposals.join(rank)
        except Error as error:
            if error.code == "DEADLINE_EXCEEDED" and not board.has_ended():
                continue  # A rank has ended since it answered.
            raise backend_error(error) from None
        board.erase(f"rank{rank}")
        return members


class _Superseded(Exception):
    """Rank 0 proposes another job."""


class _Board:
    """What the ranks tell each other through the store, before one deadline: JSON under names."""

    def __init__(self, store, prefix, timeout, deadline=None):
        self._store = store
        self._prefix = prefix
        self._timeout = timeout
        self._deadline = deadline or time.monotonic() + timeout.total_seconds()

    def below(self, name):
        """A board of the same deadline."""
        return _Board(self._store, f"{self._prefix}{name}/", self._timeout, self._deadline)

    def seconds_left(self):
        return max(0.001, self._deadline - time.monotonic())

    def has_ended(self):
        return time.monotonic() >= self._deadline

    def write(self, name, value):
        self._store.set(self._prefix + name, json.dumps(value))

    def erase(self, name):
        try:
            self._store.delete_key(self._prefix + name)
        except RuntimeError:
            pass  # What is left there is of no use to anybody, nor in the way.

    def has(self, name):
        return self._store.check([self._prefix + name])

    def wait(self, names, seconds):
        """Whether the names are there within so many seconds, or by the deadline. Asks again and
        again: torch's store prints warnings where it waits in vain."""
        names = [self._prefix + name for name in names]
        limit = time.monotonic() + min(seconds, self.seconds_left())
        pause = _PAUSE_SECONDS_MIN
        while not self._store.check(names):
            if time.monotonic() >= limit:
                return False
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)
        return True

    def wait_while(self, names, check):
        """Whether the names are there by the deadline. check(): called every second; raises where
        waiting is of no use."""
        while not self.wait(names, _STEP_SECONDS):
            if self.has_ended():
                return False
            check()
        return True

    def read(self, name, missing, check=lambda: None):
        """The value that another rank writes; raises its failure, or `missing` at the deadline."""
        if not self.wait_while([name], check):
            raise self.late(missing)
        value = json.loads(self._store.get(self._prefix + name))
        if "error" in value:
            raise BackendError(**value["error"])
        return value

    def late(self, what):
        seconds = self._timeout.total_seconds()
        return BackendError("DEADLINE_EXCEEDED", f"{what} within {seconds:g} s")

    def write_failure(self, name, error):
        self.write(name, {"error": {"code": error.code, "message": error.message}})


class _Proposals:
    """The jobs that rank 0 proposes to one try of a rank to join."""

    def __init__(self, board, number, size):
        self._board = board
        self._number = number
        self._size = size

    def join(self, rank):
        """The Members of the first job that comes about. DEADLINE_EXCEEDED, also before the board's
        deadline: a rank is missing."""
        while True:
            job = self.next()
            board = self._board.below(job["job"])
            agent = None
            try:
                agent, path, token = _find_agent(board, rank, job, self.check)
                board.write(f"ready{rank}", {})
                self.await_all(board)
                group = tutti.join(job=job["job"], rank=rank, world_size=self._size,
                                   timeout=min(board.seconds_left(), _JOIN_SECONDS),
                                   socket=path, token=token)
                if agent is not None:
                    agent.announce()
                return Members(group, list(range(self._size)), agent=agent, name=job["job"])
            except BaseException as error:
                if agent is not None:
                    agent.end()
                if not isinstance(error, _Superseded):
                    raise

    def first_missing(self, board, name):
        return next((rank for rank in range(self._size) if not board.has(f"{name}{rank}")), None)

    def absent(self, rank):
        return self._board.late(f"rank {rank} has not called init_process_group")

    def silent(self, rank):
        return self._board.late(f"rank {rank} has called init_process_group, but has ended or has "
                                "not gone on")


class _Proposer(_Proposals):
    """For rank 0."""

    def next(self):
        places = [self._place(rank) for rank in range(self._size)]
        self._numbers = [place["number"] for place in places]
        job = {"job": "torch-" + secrets.token_hex(8), "token": secrets.token_hex(16),
               "places": places}
        self._board.write(job["job"], job)
        for number in self._numbers:
            self._board.write(number, {"job": job["job"]})
        return job

    def _place(self, rank):
        if not self._board.wait([f"rank{rank}"], self._board.seconds_left()):
            raise self.absent(rank)
        return self._board.read(f"rank{rank}", "")

    def check(self):
        """Raises where a rank has tried again since the proposal."""
        if [self._place(rank)["number"] for rank in range(self._size)] != self._numbers:
            raise _Superseded

    def await_all(self, board):
        """Returns when all ranks are ready."""
        def check():
            if board.has("go"):  # A failure of another rank.
                board.read("go", "")
            self.check()

        if not board.wait_while([f"ready{rank}" for rank in range(self._size)], check):
            raise self.silent(self.first_missing(board, "ready"))
        board.write("go", {})


class _Follower(_Proposals):
    """For the other ranks."""

    def next(self):
        if not self._board.wait([self._number], self._board.seconds_left()):
            missing = self.first_missing(self._board, "rank")
            raise self.silent(0) if missing is None else self.absent(missing)
        self._name = self._proposed()
        return self._board.read(self._name, "")

    def _proposed(self):
        return self._board.read(self._number, "")["job"]

    def check(self):
        """Raises where rank 0 has proposed another job."""
        if self._proposed() != self._name:
            raise _Superseded

    def await_all(self, board):
        """Returns when rank 0 has begun the job."""
        if not board.wait_while(["go"], self.check):
            raise self.silent(self.first_missing(board, "ready") or 0)
        board.read("go", "")


def _own_place(store):
    path = os.environ.get("TUTTI_SOCKET", _SOCKET)
    return {"host": host(), "sees": _seen_paths(), "socket": path, "served": _is_served(path),
            "address": _address.toward_store(store)}


def host():
    """The hostname, the machine's number of this boot and that of the network namespace, between
    "/"; a number is empty where the system does not tell it."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}/{_inode('/proc/self/ns/net')}"


def _inode(path):
    try:
        return os.stat(path).st_ino
    except OSError:
        return ""


def _seen_paths():
    """What tells whether two processes of a machine see the same paths, so that both can open a
    socket below the directory of private agents: one mount namespace and root, or that directory
    itself, which containers may share."""
    root, parent = os.stat("/"), parent_directory()
    seen = [f"{_inode('/proc/self/ns/mnt')}:{root.st_dev}:{root.st_ino}"]
    if parent is not None:
        there = os.stat(parent)
        seen.append(f"{parent}:{there.st_dev}:{there.st_ino}")
    return seen


def _is_served(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(path)
            return True
        except OSError:  # Also where the path is too long.
            return False


def leaders_of(places):
    """For each rank the one whose private agent serves it: the lowest rank whose sockets it can
    open."""
    leaders = []
    for rank, place in enumerate(places):
        leaders.append(next((leader for leader in sorted(set(leaders))
                             if _is_one_host(places[leader], place)), rank))
    return leaders


def _is_one_host(one, other):
    return (one["host"].split("/")[0] == other["host"].split("/")[0]
            and _address.is_one_network(one, other)
            and not set(one["sees"]).isdisjoint(other["sees"]))


def _find_agent(board, rank, job, check):
    """The private agent that this process started, if it did; the agent's socket, and its token as
    join() takes it. The lowest rank of a host starts its agent; rank 0's is the coordinator.
    check(): raises where the job is not wanted any longer."""
    places, mine = job["places"], job["places"][rank]
    if all(place["served"] for place in places):
        return None, mine["socket"], os.environ.get("TUTTI_TOKEN")
    leaders = leaders_of(places)
    leader, agent = leaders[rank], None
    if rank == leader:
        try:
            agent = _start_agent(board, places, leaders, rank, job, check)
        except Exception as error:  # All ranks wait for this one.
            if isinstance(error, _Superseded):
                raise
            error = _failure_of_agent(error, mine)
            for name in (f"agent{leader}", "go"):
                board.write_failure(name, error)
            raise error from None
        board.write(f"agent{leader}", {"socket": agent.socket, "address": agent.address})
    found = board.read(f"agent{leader}", f"rank {leader}, the lowest of its host, did not start "
                                         "an agent", check)
    return agent, found["socket"], job["token"]


def _failure_of_agent(error, place):
    if isinstance(error, Error):
        return backend_error(error)
    host_name = place["host"].split("/")[0]
    return BackendError("UNAVAILABLE", f"the private agent of host {host_name} did not start: "
                                       f"{type(error).__name__}: {error}")


def _start_agent(board, places, leaders, leader, job, check):
    coordinator = None
    if leader != 0:
        coordinator = board.read("agent0", "rank 0 did not start an agent", check)["address"]
    return PrivateAgent(_host_name(places, leaders, leader), coordinator, job["token"],
                        _address.to_listen_at(places, leader))


def _host_name(places, leaders, leader):
    """The name of the leader's host in rosters and messages: its hostname, made unique."""
    names = [places[other]["host"].split("/")[0] for other in set(leaders)]
    name = places[leader]["host"].split("/")[0]
    return name if names.count(name) == 1 else f"{name}-{leader}"
