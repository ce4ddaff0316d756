"""An agent for one run alone, where none serves the node."""

import atexit
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile

from tutti._error import Error
from tutti._library import library_path

# Settings of the agent, as of this program.
_SHARED = ("TUTTI_CUDA_DRIVER", "TUTTI_NVML_LIBRARY", "TUTTI_SEGMENT_BYTES")
_START_SECONDS = 30
_END_SECONDS = 40  # Its keeper takes at most 30.
# The longest directory whose sockets' paths still fit into a socket's address, of 108 bytes.
_DIRECTORY_BYTES_MAX = 60
_OTHER_PARENTS = ("/tmp", "/dev/shm")  # Where `tutti` looks for agents, too.
_is_announced = False


class PrivateAgent:
    """An agent that ends with this process, however that ends; with it its directory.

    name: of its host. coordinator: address of the coordinator's agent; None: it is this one.
    address: where it listens for other agents.
    """

    def __init__(self, name, coordinator, token, address):
        program = _program("tuttid")
        self._owner = os.getpid()
        self._dir = _directory()
        self.socket = os.path.join(self._dir, "tuttid.sock")
        settings = pathlib.Path(self._dir, "tuttid.conf")
        settings.touch(mode=0o600)
        settings.write_text("".join(f"{key} = {value}\n" for key, value in {
            "socket": self.socket, "run_dir": self._dir, "host": name, "token": token,
            "listen": f"{address}:0", "coordinator": coordinator or "", "log_level": "warn",
            "worker_idle_ms": 1000}.items() if value != ""))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            notify = os.path.join(self._dir, "notify")
            ready.bind(notify)
            self._process = self._start(program, settings, notify)
            atexit.register(self.end)
            self.address = self._read_address(ready)

    def _start(self, program, settings, notify):
        """The keeper of the agent: see _keep_agent.py. A session of its own spares it Ctrl-C, which
        the trainer handles."""
        keeper = pathlib.Path(__file__).with_name("_keep_agent.py")
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("TUTTI_") or name in _SHARED}
        environment["NOTIFY_SOCKET"] = notify
        return subprocess.Popen([sys.executable, "-I", "-S", str(keeper), str(os.getpid()),
                                 self._dir, program, "--config", str(settings)],
                                stdin=subprocess.PIPE, env=environment, start_new_session=True)

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
        self.end()
        raise Error("UNAVAILABLE", "the private tuttid did not start; its messages on the standard "
                                   "error of the lowest rank of its host say why")

    def announce(self):
        """Says, once a process, how to ask what the run waits for."""
        global _is_announced
        if _is_announced:
            return
        _is_announced = True
        try:
            command = "tutti" if shutil.which("tutti") else _program("tutti")
        except Error:
            return  # Without the command there is nothing to say.
        parent = os.path.dirname(self._dir)
        place = "" if parent in _OTHER_PARENTS else f"TMPDIR={shlex.quote(parent)} "
        print(f"tutti.torch: to see what this run waits for: {place}{command} explain",
              file=sys.stderr, flush=True)

    def end(self):
        """Ends the agent; the job's ranks and workers go on without it. Idempotent; in a forked
        child without effect."""
        if os.getpid() != self._owner or self._process.returncode is not None:
            return
        atexit.unregister(self.end)
        try:
            # A forked child may hold the pipe open: so closing it would not do.
            self._process.communicate(b"\n", _END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def parent_directory():
    """Where private agents have their directories: a place whose name is short enough for sockets;
    None where there is none."""
    for parent in (tempfile.gettempdir(), *_OTHER_PARENTS):
        if len(os.fsencode(parent)) < _DIRECTORY_BYTES_MAX and os.access(parent, os.W_OK | os.X_OK):
            return parent
    return None


def _directory():
    parent = parent_directory()
    if parent is None:
        raise Error("FAILED_PRECONDITION", f"TMPDIR {tempfile.gettempdir()!r} is too long for the "
                                           "path of a socket, and /tmp cannot be written; set a "
                                           "shorter one")
    return tempfile.mkdtemp(prefix="tutti-torch-", dir=parent)


def _program(name):
    """The path of a program of Tutti: beside the library, else in PATH. For a library that the
    system's search path has, the place is not known: "beside" would be the current directory."""
    library = pathlib.Path(library_path())
    known = library.parent.name != ""
    for directory in (library.parent.parent / "bin", library.parent) if known else ():
        if (directory / name).exists():
            return str(directory / name)
    found = shutil.which(name)
    if found is None:
        raise Error("NOT_FOUND", f"{name} is neither beside {library} nor in PATH; install Tutti, "
                                 "or start an agent on every node")
    return found
