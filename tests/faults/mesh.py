"""A mesh of nodes: the namespaces of tests/pod, agents with tokens, a job."""

import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "pod"))
import pods

NODES_MAX = 8
ADDRESSES = tuple(f"10.0.0.{number}" for number in range(1, NODES_MAX + 1))
NAMES = "127.0.0.1 localhost\n" + "".join(
    f"{address} node{number}\n" for number, address in enumerate(ADDRESSES, 1))
ADMIN = "sesame-for-administrators"
AGENTS = "sesame-for-agents"
METRICS_PORT = 9464
# Process 1 of a node: mounts what a node has, then takes the exit codes of orphans.
INIT = ("mount -t sysfs sysfs /sys; mkdir -p /run/tutti; "
        "mount -t tmpfs -o size=8m,mode=755 run /run/tutti; echo ready; "
        "while :; do sleep infinity & wait; done")
CLONE_NEWNET = 0x40000000
LIBRARY = os.environ.get("TUTTI_LIBRARY", str(pods.BIN.parent / "lib" / "libtutti.so"))


@contextlib.contextmanager
def inside(network):
    """This thread, and what it starts, is in another network."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(path):
        with open(path) as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns {path}")
    with open("/proc/thread-self/ns/net") as own:
        enter(f"/proc/{network.pid}/ns/net")
        try:
            yield
        finally:
            enter(f"/proc/self/fd/{own.fileno()}")


class Program:
    """A program in a node."""

    def __init__(self, node, name, argv, environment):
        self.log = node.home / f"{name}.log"
        with self.log.open("a") as log:
            self._entered = subprocess.Popen(node.enter(argv, environment), stdout=log, stderr=log,
                                             stdin=subprocess.DEVNULL, start_new_session=True)

    @property
    def pid(self):
        """As this machine numbers it."""
        return pods.wait_until(lambda: pods.children_of(self._entered.pid), "the program")[0]

    def text(self):
        return self.log.read_text(errors="replace")

    def ended(self):
        return self._entered.poll() is not None

    def send(self, number):
        os.kill(self.pid, number)

    def end(self, number=signal.SIGTERM):
        if not self.ended():
            with contextlib.suppress(ProcessLookupError):
                self.send(number)
        return self._entered.wait(pods.PATIENCE_S)

    def forget(self):
        """Once its node has stopped: nsenter stops with a program that is stopped, and stays."""
        self._entered.kill()
        self._entered.wait()

    def wait_for(self, words, since=0):
        pods.wait_until(lambda: self.ended() or words in self.text()[since:],
                        f"'{words}' of {self.log}: {self.text()[-2000:]}")
        if words not in self.text()[since:]:
            raise AssertionError(f"ended without '{words}': {self.text()[-2000:]}")


class Node:
    def __init__(self, number, network, home):
        self.number, self.network, self.home = number, network, home
        self.host, self.address = f"node{number}", ADDRESSES[number - 1]
        self.etc = home / "etc"
        self.etc.mkdir(parents=True)
        self.names = home / "hosts"
        self.names.write_text(NAMES)
        self.environment = {}  # Of all that is started here,
        self.of_ranks = {}     # and what is different for ranks.
        self.bin = pods.BIN
        self.agent, self.ranks = None, []
        self._holder = pods.Container(
            network.pid, home / "holder", ["bash", "-c", INIT], {},
            [(self.etc, "/etc/tutti", "rw"), (self.names, "/etc/hosts", "ro"), (home, home, "rw")],
            capabilities=pods.ALL_CAPABILITIES, read_only=False)
        self._holder.wait_for("ready")
        self.configure()

    def configure(self, token=AGENTS, **others):
        settings = {"host": self.host, "listen": f"{self.address}:7601",
                    "data_ports": "7610-7649", "token_file": "/etc/tutti/token",
                    "metrics_listen": f"{self.address}:{METRICS_PORT}"}
        if self.number != 1:
            settings["coordinator"] = "node1:7601"
        settings |= others
        (self.etc / "tuttid.conf").write_text(
            "".join(f"{name} = {value}\n" for name, value in settings.items() if value is not None))
        (self.etc / "token").write_text(f"{token} role=agent\n{ADMIN} role=admin\n")
        (self.etc / "token").chmod(0o600)

    def enter(self, argv, environment=()):
        variables = {"PYTHONPATH": str(pods.SOURCE / "client" / "python"),
                     "TUTTI_LIBRARY": LIBRARY, "OMP_NUM_THREADS": "1",
                     **self.environment, **dict(environment)}
        return ["nsenter", f"--target={self._holder.pid}", "--net", "--mount", "--pid", "--ipc",
                "--root", "--wd", *self._holder.inside, "env",
                *(f"{name}={value}" for name, value in variables.items()), *argv]

    def start(self, name, argv, environment=()):
        return Program(self, name, argv, environment)

    def ask(self, *argv):
        """What a command says, with its exit code; a command that hangs is ended."""
        try:
            done = subprocess.run(self.enter(argv), capture_output=True, text=True, timeout=20)
        except subprocess.TimeoutExpired:
            return None, "no answer within 20 s"
        return done.returncode, done.stdout + done.stderr

    def run(self, *argv):
        code, text = self.ask(*argv)
        if code != 0:
            raise AssertionError(f"{self.host}: {' '.join(argv)}: {code}: {text}")
        return text

    def start_agent(self, before=(), serves=True, environment=()):
        self.agent = self.start("agent", [*before, self.bin / "tuttid"], environment)
        if serves:
            self.agent.wait_for("serves: ")
        return self.agent

    def workers(self):
        """The numbers of its workers on this machine."""
        own = os.readlink(f"/proc/{self._holder.pid}/ns/pid")
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if ((path / "comm").read_text().strip() == "tutti-worker" and
                        os.readlink(path / "ns/pid") == own):
                    found.append(int(path.name))
        return found

    def stop(self):
        self._holder.kill()


def connect(networks):
    """All have an eth0; that of the first is a bridge to those of the others."""
    first, *others = networks
    first.ip("link", "add", "eth0", "type", "bridge")
    for number, other in enumerate(others, 2):
        first.ip("link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns",
                 str(other.pid))
        first.ip("link", "set", f"port{number}", "master", "eth0", "up")
    for network, address in zip(networks, ADDRESSES):
        network.ip("address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            network.ip("link", "set", device, "up")


class Mesh:
    """The nodes, without agents. `rate`: that of the link, as tc has it, from the start."""

    def __init__(self, rate=None, nodes=2):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="tutti-faults-"))
        self.networks = [pods.Network() for _ in range(nodes)]
        connect(self.networks)
        self.nodes = [Node(i, network, self.home / f"node{i}")
                      for i, network in enumerate(self.networks, 1)]
        self.at_end = []  # Functions: what a fault has left on this machine.
        if rate:
            self.limit(rate)

    def limit(self, rate, nodes=(0, 1)):
        for index in nodes:
            subprocess.run(["nsenter", f"--target={self.networks[index].pid}", "--net", "tc",
                            "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate,
                            "burst", "64kb", "latency", "200ms"], check=True)

    def start_agents(self):
        for node in self.nodes:
            node.start_agent()
        pods.wait_until(self._are_all_there, "all nodes in the mesh")

    def _are_all_there(self):
        said = self.nodes[0].ask("tutti", "status")[1]
        return all(re.search(rf"(?m)^{node.host}\b", said) for node in self.nodes)

    def start_job(self, count, pause_ms, per_node=2, job="demo", load="sums"):
        """They print 'joined' once all have joined."""
        program = pathlib.Path(__file__).with_name("rank.py")
        world_size = per_node * len(self.nodes)
        for rank in range(world_size):
            node = self.nodes[rank // per_node]
            node.ranks.append(node.start(
                f"rank{rank}", ["python3", program, str(count), str(pause_ms), load],
                node.of_ranks | {"TUTTI_JOB": job, "TUTTI_RANK": rank,
                                 "TUTTI_WORLD_SIZE": world_size, "TUTTI_TIMEOUT": 60}))

    def ranks(self):
        return [rank for node in self.nodes for rank in node.ranks]

    def wait_for_steps(self, steps):
        for rank in self.ranks():
            rank.wait_for(f"step {steps}\n")

    def end(self):
        for node in self.nodes:
            node.stop()
        for rank in self.ranks():
            rank.forget()
        for network in self.networks:
            network.stop()
        for clean in self.at_end:
            clean()
        shutil.rmtree(self.home, ignore_errors=True)
