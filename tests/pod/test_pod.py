"""Pods of deploy/kubernetes: agent and trainer in namespaces of their own that share the directory
of the socket, and in a sidecar's pod the network, and nothing else."""

import json
import pathlib
import shutil
import signal
import tempfile
import time
import unittest

import pods

try:
    import yaml
except ImportError:
    yaml = None

TRAINER = pathlib.Path(__file__).with_name("trainer.py")
MANIFESTS = pods.SOURCE / "deploy" / "kubernetes"
ADDRESSES = ("10.77.0.1", "10.77.0.2")


class PodCase(unittest.TestCase):
    """Two networks that are connected, and a folder for pods."""

    def setUp(self):
        if reason := pods.why_not():
            self.skipTest(reason)
        if yaml is None:
            self.skipTest("python3-yaml is not installed")
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="tutti-pods-"))
        self.home.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.home)
        self.networks = [self.make_network(), self.make_network()]
        self.networks[0].connect(self.networks[1], *ADDRESSES)

    def make_network(self):
        network = pods.Network()
        self.addCleanup(network.stop)
        return network

    def make_pod(self, path, kind, index, network, hosts, address=""):
        manifest = next(one for one in yaml.safe_load_all((MANIFESTS / path).read_text())
                        if one["kind"] == kind)
        name = f"{manifest['metadata']['name']}-{index}"
        pod = pods.Pod(manifest, index, address, self.home / name, hosts, network,
                       node=self.home / "node")
        self.addCleanup(pod.stop)
        return pod

    def start_agent(self, pod, probe="startupProbe"):
        agent = pod.start("tuttid")
        pods.wait_until(lambda: pod.probe("tuttid", probe) or agent.ended(), "the start")
        self.assertFalse(agent.ended(), agent.text())
        return agent

    @staticmethod
    def start_trainer(pod, *what, **options):
        library = {"PYTHONPATH": str(pods.SOURCE / "client" / "python"),
                   "TUTTI_LIBRARY": str(pods.BIN.parent / "lib" / "libtutti.so")}
        return pod.start("trainer", ["/usr/bin/python3", str(TRAINER), *what], library, **options)

    def start_trainers(self, *what, **options):
        return [self.start_trainer(pod, *what, **options) for pod in self.pods]

    def expect_values(self, **options):
        for trainer in self.start_trainers("values", **options):
            self.assertEqual(trainer.wait(), 0, trainer.text())
            self.assertIn("values are right", trainer.text())


class SidecarTest(PodCase):
    """For deploy/kubernetes/base."""

    def setUp(self):
        super().setUp()
        names = {f"train-{i} train-{i}.train": address for i, address in enumerate(ADDRESSES)}
        self.pods = [self.make_pod("base/job.yaml", "Job", i, self.networks[i], names, ADDRESSES[i])
                     for i in range(2)]
        self.agents = [self.start_agent(pod) for pod in self.pods]

    def test_trains(self):
        for pod in self.pods:
            pods.wait_until(lambda: pod.probe("tuttid", "readinessProbe"), "readiness")
            self.assertTrue(pod.probe("tuttid", "livenessProbe"))
        self.expect_values()
        status = self.agents[1].run("tutti", "status")
        for pod in self.pods:
            self.assertIn(pod.name, status.stdout, status.stderr)
        # For another user than the agent, which cannot become that user.
        self.expect_values(uid=10001)

    def test_a_killed_trainer_is_named_and_the_next_ones_train(self):
        survivor, victim = self.start_trainers("hold")
        survivor.wait_for("joined")
        victim.wait_for("joined")
        victim.signal(signal.SIGKILL)
        self.assertEqual(survivor.wait(), 0, survivor.text())
        error = json.loads(survivor.text().splitlines()[-1])
        self.assertEqual((error["rank"], error["host"]), (1, self.pods[1].name), error)
        self.assertIn(f"rank 1 (host {self.pods[1].name}", error["text"])
        self.assertNotIn("pid 0", error["text"])
        self.expect_values()

    def test_an_idle_sidecar_is_gone_at_once(self):
        self.expect_values()
        for agent in self.agents:
            began = time.monotonic()
            agent.signal(signal.SIGTERM)
            self.assertEqual(agent.wait(), 0, agent.text())
            took = time.monotonic() - began
            self.assertLess(took, 20, agent.text())  # By rights two; TUTTI_DRAIN_MS is a minute.

    def test_a_busy_sidecar_stays_until_its_trainer_has_left(self):
        trainers = self.start_trainers("steps", "/run/tutti/enough")
        for trainer in trainers:
            trainer.wait_for("joined")
        for agent in self.agents:
            agent.signal(signal.SIGTERM)
            agent.wait_for("stopping when the jobs of this node have ended")
        late = self.start_trainers("values")[0]
        self.assertEqual(late.wait(), 1)
        self.assertIn("is stopping", late.text())
        self.assertFalse(any(agent.ended() for agent in self.agents))
        (self.home / "train-0" / "socket" / "enough").touch()
        for one in (*trainers, *self.agents):
            self.assertEqual(one.wait(), 0, one.text())


class LateNameTest(PodCase):
    """The name of pod 0 leads nowhere when the agents start, as before a Service has its pods."""

    def test_the_agent_to_which_the_name_leads_coordinates(self):
        self.pods = [self.make_pod("base/job.yaml", "Job", i, self.networks[i], {}, ADDRESSES[i])
                     for i in range(2)]
        for pod in self.pods:
            self.start_agent(pod)
        for i in range(2):
            with (self.home / f"train-{i}" / "hosts").open("a") as hosts:
                hosts.write(f"{ADDRESSES[0]} train-0.train\n")
        self.expect_values()


class DaemonSetTest(PodCase):
    """For deploy/kubernetes/daemonset: a node's agent, the coordinator, and trainers in pods whose
    networks lead nowhere."""

    def setUp(self):
        super().setUp()
        names = {"coordinator": ADDRESSES[0]}
        coordinator = self.make_pod("daemonset/coordinator.yaml", "StatefulSet", 0,
                                    self.networks[0], names, ADDRESSES[0])
        self.start_agent(coordinator, "livenessProbe")
        node = self.make_pod("daemonset/daemonset.yaml", "DaemonSet", 1, self.networks[1], names,
                             ADDRESSES[1])
        self.agent = self.start_agent(node)
        self.pods = [self.make_pod("daemonset/trainers.yaml", "Job", i, self.make_network(), {})
                     for i in range(2)]

    def test_trains_each_job_as_its_user(self):
        self.expect_values()
        trainers = self.start_trainers("hold", uid=10002)
        for trainer in trainers:
            trainer.wait_for("joined")
        workers = self.agent.run("sh", "-c", "grep -H Uid /proc/[0-9]*/status; "
                                 "grep -H CapEff /proc/[0-9]*/status")
        self.assertIn("Uid:\t10002\t10002\t10002\t10002", workers.stdout)
        trainers[1].signal(signal.SIGKILL)
        self.assertEqual(trainers[0].wait(), 0, trainers[0].text())
        self.assertIn('"rank": 1, "host": "node1"', trainers[0].text())

    def test_a_second_process_of_one_rank_is_refused(self):
        """Both are pid 1, each in its container."""
        first, second = self.pods
        trainer = self.start_trainer(first, "values")
        pods.wait_until(lambda: "joining" in self.agent.run("tutti", "status").stdout, "the join")
        other = self.start_trainer(first, "values")
        self.assertEqual(other.wait(), 1)
        self.assertIn("rank 0 of job train-uid is joining already", other.text())
        for one in (self.start_trainer(second, "values"), trainer):
            self.assertEqual(one.wait(), 0, one.text())


if __name__ == "__main__":
    unittest.main()
