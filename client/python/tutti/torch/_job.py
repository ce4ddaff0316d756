"""How the processes of a process group become a job: through torch's store."""

import atexit
import ctypes
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile

import tutti
from tutti._library import library_path

_SOCKET = "/run/tutti/tuttid.sock"
_START_SECONDS = 30
_PR_SET_PDEATHSIG = 1


def join(store, rank, size, timeout):
    """The Group of a new job of `size` ranks that share the store."""
    _publish(store, rank)
    hosts = [json.loads(store.get(f"tutti/rank{r}")) for r in range(size)]
    if rank == 0:
        store.set("tutti/job", json.dumps({"job": "torch-" + secrets.token_hex(8),
                                           "token": secrets.token_hex(16)}))
    job = json.loads(store.get("tutti/job"))
    path, token = _agent(store, rank, hosts, job)
    seconds = timeout.total_seconds()
    return tutti.join(job=job["job"], rank=rank, world_size=size, timeout=seconds, socket=path,
                      token=token)


def _publish(store, rank):
    path = os.environ.get("TUTTI_SOCKET", _SOCKET)
    store.set(f"tutti/rank{rank}", json.dumps({"host": _host(), "socket": path,
                                               "served": _is_served(path)}))


def _host():
    """Tells hosts apart, and network namespaces of one host."""
    namespace = os.stat("/proc/self/ns/net").st_ino
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}/{namespace}"


def _is_served(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
            return True
        except OSError:
            return False


def _agent(store, rank, hosts, job):
    """The agent's socket and its token, as join() takes them."""
    mine = hosts[rank]
    if all(other["served"] for other in hosts):
        return mine["socket"], os.environ.get("TUTTI_TOKEN")
    names = [other["host"] for other in hosts]
    leader = names.index(mine["host"])
    if rank == leader:
        coordinator = None
        if leader != 0:
            coordinator = store.get("tutti/agent0").decode().split(" ")[1]
        agent = PrivateAgent(store, _host_name(names, leader), coordinator, job["token"],
                             several=len(set(names)) > 1)
        store.set(f"tutti/agent{leader}", f"{agent.socket} {agent.address}")
    return store.get(f"tutti/agent{leader}").decode().split(" ")[0], job["token"]


def _host_name(hosts, leader):
    """The name of the leader's host in rosters and messages: its hostname, made unique."""
    name = hosts[leader].split("/")[0]
    namesakes = {host for host in hosts if host.split("/")[0] == name}
    return name if len(namesakes) == 1 else f"{name}-{leader}"


class PrivateAgent:
    """An agent for this run alone. It ends with this process, however that ends."""

    def __init__(self, store, name, coordinator, token, several):
        self._dir = tempfile.mkdtemp(prefix="tutti-torch-")
        notify = os.path.join(self._dir, "notify")
        self.socket = os.path.join(self._dir, "tuttid.sock")
        settings = pathlib.Path(self._dir, "tuttid.conf")
        settings.touch(mode=0o600)
        settings.write_text("".join(f"{key} = {value}\n" for key, value in {
            "socket": self.socket, "run_dir": self._dir, "host": name, "token": token,
            "listen": f"{_own_address(store) if several else '127.0.0.1'}:0",
            "coordinator": coordinator or "", "log_level": "warn", "worker_idle_ms": 1000,
        }.items() if value != ""))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(notify)
            environment = {name: value for name, value in os.environ.items()
                           if not name.startswith("TUTTI_")} | {"NOTIFY_SOCKET": notify}
            self._process = subprocess.Popen([_program("tuttid"), "--config", str(settings)],
                                             stdin=subprocess.DEVNULL, env=environment,
                                             preexec_fn=_die_with_parent)
            atexit.register(self.end)
            self.address = self._read_address(ready)

    def _read_address(self, ready):
        """Waits until the agent serves; the address of its control plane."""
        ready.settimeout(0.2)
        for _ in range(5 * _START_SECONDS):
            try:
                found = re.search(r"control plane (\S+)", ready.recv(4096).decode())
            except TimeoutError:
                if self._process.poll() is not None:
                    break
                continue
            if found:
                return found.group(1).rstrip(",")
        raise tutti.Error("UNAVAILABLE", "the private tuttid did not start; its messages, on "
                                         "standard error, say why")

    def end(self):
        self._process.terminate()
        try:
            self._process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        shutil.rmtree(self._dir, ignore_errors=True)


def _own_address(store):
    """The address of this host towards the store's."""
    host = getattr(store, "host", None) or os.environ.get("MASTER_ADDR", "127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return probe.getsockname()[0]


def _program(name):
    """The path of a program of Tutti: beside the library, else in PATH."""
    library = pathlib.Path(library_path())
    for directory in (library.parent.parent / "bin", library.parent):
        if (directory / name).exists():
            return str(directory / name)
    found = shutil.which(name)
    if found is None:
        raise tutti.Error("NOT_FOUND", f"{name} is neither beside {library} nor in PATH; install "
                                       "Tutti, or start an agent on every node")
    return found


def _die_with_parent():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
