"""docs/install.md, followed on two nodes: namespaces that share a link and nothing else, with the
page's firewall between them where nftables is there."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import pods

PAGE = (pods.SOURCE / "docs" / "install.md").read_text()
ADDRESSES = ("10.0.0.1", "10.0.0.2")
# Closed but for what the page opens, and for answers.
CLOSED = """
nft add table inet filter
nft add chain inet filter input '{ type filter hook input priority 0; policy drop; }'
nft add rule inet filter input ct state established accept
nft add rule inet filter input iif lo accept
nft add rule inet filter input icmp type echo-request accept
"""


def blocks(*info):
    """The texts of the blocks that begin with these words."""
    return re.findall(rf"```{' '.join(info)}\n(.*?)```", PAGE, re.DOTALL)


class Node:
    """A node: everything of it is a container without a limit, started by the shell."""

    def __init__(self, number, network, home):
        self._network = network
        self._home = home
        self._etc = home / "etc"
        self._etc.mkdir(parents=True)
        self.number = number
        self._hosts = home / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n10.0.0.1 node1\n10.0.0.2 node2\n")
        self._containers = []

    def start(self, script):
        """Starts commands of the page, as root, in its node."""
        variables = {"PYTHONPATH": str(pods.SOURCE / "client" / "python"),
                     "TUTTI_LIBRARY": str(pods.BIN.parent / "lib" / "libtutti.so")}
        home = self._home / f"process{len(self._containers)}"
        run = self._home / "run"
        run.mkdir(exist_ok=True)
        made = pods.Container(
            self._network.pid, home, ["bash", "-euc", "cd /etc/tutti\n" + script], variables,
            [(self._etc, "/etc/tutti", "rw"), (run, "/run/tutti", "rw"),
             (self._hosts, "/etc/hosts", "ro")],
            capabilities=pods.ALL_CAPABILITIES, read_only=False)
        self._containers.append(made)
        return made

    def run(self, script):
        done = self.start(script)
        if done.wait() != 0:
            raise AssertionError(f"node {self.number}: {script}: {done.text()}")
        return done.text()

    def write(self, name, text):
        (self._etc / name).write_text(text)

    def copy(self, name, other):
        shutil.copy2(self._etc / name, other._etc / name)

    def stop(self):
        for container in self._containers:
            container.kill()


class MachinesTest(unittest.TestCase):
    def setUp(self):
        if reason := pods.why_not():
            self.skipTest(reason)
        home = pathlib.Path(tempfile.mkdtemp(prefix="tutti-machines-"))
        self.addCleanup(shutil.rmtree, home)
        self.networks = [pods.Network(), pods.Network()]
        for network in self.networks:
            self.addCleanup(network.stop)
        self.networks[0].connect(self.networks[1], *ADDRESSES)
        self.nodes = [Node(i, self.networks[i - 1], home / f"node{i}") for i in (1, 2)]
        for node in self.nodes:
            self.addCleanup(node.stop)

    def close_firewall(self):
        """True: all ports are closed but those that the page opens."""
        if shutil.which("nft") is None:
            return False
        for network in self.networks:
            opened, = blocks("sh both nodes")
            subprocess.run(["nsenter", f"--target={network.pid}", "--net", "sh", "-euc",
                            CLOSED + opened], check=True)
        return True

    def follow_page_until_training(self):
        first, second = self.nodes
        make_token, = blocks("sh node 1")
        first.run(make_token)
        first.copy("token", second)
        program, = blocks("python train.py")
        for node in self.nodes:
            settings, = blocks(f"text node {node.number}")
            node.write("tuttid.conf", settings)
            node.write("train.py", program)
        start, = blocks("sh both nodes, in the background")
        agents = [node.start("exec " + start.strip()) for node in self.nodes]
        for agent in agents:
            agent.wait_for("serves: ")
        look, = blocks("sh node 2")
        pods.wait_until(lambda: all(f"node{i}" in second.run(look) for i in (1, 2)), "both nodes")
        return agents

    def train(self, *commands):
        trainers = [node.start(command) for node, command in zip(self.nodes, commands)]
        for trainer in trainers:
            self.assertEqual(trainer.wait(), 0, trainer.text())
        return [trainer.text() for trainer in trainers]

    def test_two_nodes_train(self):
        if not self.close_firewall():
            print("nft is not there: no firewall is between the nodes")
        agents = self.follow_page_until_training()
        outputs = self.train(*blocks("sh node 1, with the next"),
                             *blocks("sh node 2, with the last"))
        for rank, output in enumerate(outputs):
            self.assertIn(f"rank {rank} of 2 (TUTTI_*): [2.0, -3.0]", output)
        for agent in agents:
            ports = re.findall(r"worker of host node\d at tcp://10\.0\.0\.\d:(\d+)", agent.text())
            self.assertTrue(ports, agent.text())
            self.assertTrue(all(7610 <= int(port) <= 7649 for port in ports), ports)

    def test_firewall(self):
        """A port that it does not open is not reached, and that alone stops the job."""
        if not self.close_firewall():
            self.skipTest("nft is not there; run deploy/install-packages operations")
        agents = self.follow_page_until_training()
        settings = blocks("text node 2")[0].replace("7610-7649", "7700")
        self.nodes[1].write("tuttid.conf", settings)
        agents[1].signal(signal.SIGTERM)
        agents[1].wait()
        agents[1] = self.nodes[1].start("exec tuttid")
        agents[1].wait_for("serves: ")
        trainers = [node.start(f"TUTTI_TIMEOUT=3 TUTTI_JOB=closed TUTTI_RANK={rank} "
                               "TUTTI_WORLD_SIZE=2 python3 train.py")
                    for rank, node in enumerate(self.nodes)]
        for trainer in trainers:
            self.assertEqual(trainer.wait(), 1, trainer.text())
            self.assertIn("DEADLINE_EXCEEDED: all_reduce #0 timed out after 3000 ms on host node",
                          trainer.text())
        self.assertIn("worker of host node2 at tcp://10.0.0.2:7700", agents[1].text())

    def launch_line(self, program):
        return next(line for text in blocks("sh") for line in text.splitlines()
                    if line.startswith(program + " ")).split(" #")[0].strip()

    def test_mpirun(self):
        """On one node: without ssh it starts nothing on another."""
        if shutil.which("mpirun.openmpi") is None:
            self.skipTest("mpirun of Open MPI is not there")
        self.follow_page_until_training()
        line = self.launch_line("mpirun").replace("-np 16 --host node1:8,node2:8", "-np 2")
        output = self.nodes[0].run(line.replace(
            "mpirun", "mpirun.openmpi --allow-run-as-root --oversubscribe"))
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2 (Open MPI): [2.0, -3.0]", output)

    def test_torchrun(self):
        python = os.environ.get("TUTTI_TORCH_PYTHON",
                                str(pods.SOURCE / "build" / "torch" / "bin" / "python"))
        if not os.access(python, os.X_OK):
            self.skipTest("torch is not installed; run tests/run --with torch")
        self.follow_page_until_training()
        line = self.launch_line("torchrun").replace("per-node=8", "per-node=1")
        line = line.replace("torchrun", f"{python} -m torch.distributed.run")
        outputs = self.train(line, line.replace("node-rank=0", "node-rank=1"))
        for rank, output in enumerate(outputs):
            self.assertIn(f"rank {rank} of 2 (torchrun): [2.0, -3.0]", output)


if __name__ == "__main__":
    unittest.main()
