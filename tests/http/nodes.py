"""Real agents with HTTP ports on this machine, and ranks that do what a test says."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["TUTTI_BIN"])
PATIENCE = 120
ADMIN = "sesame-for-administrators"
AGENTS = "sesame-for-agents"


def wait_until(ready, what):
    """Polls until `ready` returns something true, and returns that."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if result := ready():
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE} s")


def tool(package, program):
    """A program that tests/tools/get got, or that is installed; skips the test without."""
    for path in (SOURCE / "build/tools" / package / "usr/bin" / program,
                 pathlib.Path("/usr/bin") / program):
        if path.exists():
            return path
    raise unittest.SkipTest(f"{program} is not there; run tests/tools/get {package}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Rank:
    def __init__(self, agent, job, rank, world_size):
        environment = os.environ | {
            "TUTTI_SOCKET": agent.socket, "TUTTI_JOB": job, "TUTTI_RANK": str(rank),
            "TUTTI_WORLD_SIZE": str(world_size), "PYTHONPATH": str(SOURCE / "client/python"),
            "OMP_NUM_THREADS": "1"}
        program = pathlib.Path(__file__).with_name("rank.py")
        self.process = subprocess.Popen([sys.executable, program], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.process.stdout.readline().strip()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


class Agent:
    def __init__(self, home, host, flags):
        self.host, self.socket = host, f"{home}/{host}.sock"
        self.log = pathlib.Path(home) / f"{host}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [BIN / "tuttid", f"--socket={self.socket}", f"--run-dir={home}/{host}",
                 f"--host={host}", "--config=/dev/null", "--listen=127.0.0.1:0",
                 "--metrics-listen=127.0.0.1:0", *flags], stdout=log, stderr=log)
        served = wait_until(lambda: re.search(
            r"control plane (\S+?),? .*metrics http://(\S+)/metrics", self.log.read_text()),
            f"tuttid of {host} serves")
        self.control, self.metrics = served.groups()

    def get(self, path, token=ADMIN):
        request = urllib.request.Request(f"http://{self.metrics}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def status(self):
        return json.loads(self.get("/api/status"))["status"]["agents"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)


class Mesh:
    """One agent a host; the first coordinates."""

    def __init__(self, *hosts, flags=()):
        self.home = tempfile.mkdtemp(prefix="tutti-http-", dir="/tmp")
        tokens = pathlib.Path(self.home) / "tokens"
        tokens.write_text(f"{AGENTS} role=agent\n{ADMIN} role=admin\n")
        tokens.chmod(0o600)
        self.agents, self.ranks = [], []
        for host in hosts:
            coordinator = [f"--coordinator={self.agents[0].control}"] if self.agents else []
            self.agents.append(
                Agent(self.home, host, [f"--token-file={tokens}", *coordinator, *flags]))

    def join(self, job, per_host):
        """Starts so many ranks on each host and waits until all have joined."""
        world_size = per_host * len(self.agents)
        ranks = [Rank(self.agents[rank // per_host], job, rank, world_size)
                 for rank in range(world_size)]
        self.ranks += ranks
        assert [rank.answer() for rank in ranks] == ["joined"] * world_size
        return ranks

    def traces(self):
        return json.loads(self.agents[0].get("/api/status"))["traces"]

    @staticmethod
    def tell(ranks, line):
        for rank in ranks:
            rank.tell(line)
        return [rank.answer() for rank in ranks]

    def end(self):
        for rank in self.ranks:
            rank.end()
        for agent in reversed(self.agents):
            agent.end()
        subprocess.run(["rm", "-rf", self.home], check=True)


class MeshTest(unittest.TestCase):
    def mesh(self, *hosts, flags=()):
        mesh = Mesh(*hosts, flags=flags)
        self.addCleanup(mesh.end)
        return mesh
