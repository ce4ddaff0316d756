"""tutti.distribute.discover(): topologies from recorded status documents."""

import itertools
import json
import os
import platform
import subprocess
import unittest
from unittest import mock

from ranks import RanksTest

import tutti
from tutti import distribute
from tutti._error import AlreadyExists
from tutti.distribute import _discovery

FAST, SLOW = 1e9, 1e8  # Bytes per second.


def status_of(ranks_by_host, slow=(), gpus=0, job="run", measured=True):
    """What `tutti status --json` prints of a job, whose rank 0 is this process. slow: pairs of
    hosts between which the link is slow in the first one's direction."""
    names = list(ranks_by_host)
    paths = [{"from": a, "to": b, "message_us": 50, "bytes_per_s": SLOW if (a, b) in slow else FAST}
             for a, b in itertools.permutations(names, 2)] if measured else []
    agents, ranks_of_all = [], sum(map(len, ranks_by_host.values()))
    for name, ranks in ranks_by_host.items():
        worker = {"job": job, "world_size": ranks_of_all, "paths": paths if 0 in ranks else [],
                  "ranks": [{"rank": rank, "pid": os.getpid() if rank == 0 else -rank}
                            for rank in ranks]}
        agents.append({"host": name, "state": "serving", "gpus": [{}] * gpus, "workers": [worker]})
    return {"agents": agents}


def topology_of(status, world_size, variables=({},)):
    """The topology that ranks with these variables make of a status."""
    lines = []
    for rank in range(world_size):
        with mock.patch.dict("os.environ", variables[rank % len(variables)]):
            report = None if rank else _discovery._report_of(status, world_size)
            lines.append(_discovery._facts_of(rank, report))
    return _discovery._topology_told_by(b"".join(reversed(lines)) + lines[-1])


def neighbours(topology):
    """The pairs of hosts next to each other in the ring of all devices."""
    host_of = {task: host.name for host in topology.hosts for task in host.tasks}
    ring = [host_of[task] for task, _ in topology.ring_order()]
    return {frozenset(pair) for pair in zip(ring, ring[1:] + ring[:1]) if pair[0] != pair[1]}


class Layouts(unittest.TestCase):
    def test_hosts_tasks_and_links(self):
        topology = topology_of(status_of({"a": [0, 2], "b": [1]}), 3)
        self.assertEqual([(host.name, host.tasks, host.gpus) for host in topology.hosts],
                         [("a", (0, 2), 0), ("b", (1,), 0)])
        self.assertEqual(topology.hosts[0].cores, os.cpu_count())
        self.assertGreaterEqual(topology.hosts[0].numa_nodes, 1)
        self.assertEqual(topology.links["a", "b"], distribute.Link(50, FAST))
        self.assertEqual(topology.device_coordinates.tolist(),
                         [[[0, 0, 0, 0]], [[1, 0, 0, 0]], [[0, 0, 0, 1]]])
        self.assertEqual(topology.missing_devices.tolist(), [[1, 0, 0, 1]])
        self.assertEqual(topology.ring_order(), [(0, 0), (2, 0), (1, 0)])
        self.assertEqual(topology.options["device_type"], "CPU")

    def test_gpus(self):
        status = status_of({"a": [0, 1], "b": [2, 3]}, gpus=4)
        for variables, devices in (({}, 2), ({"CUDA_VISIBLE_DEVICES": "5,-1,2"}, 1),
                                   ({"CUDA_VISIBLE_DEVICES": "GPU-5, MIG-1/2,foo,3"}, 2),
                                   ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, 3)):
            topology = topology_of(status, 4, [variables])
            self.assertEqual(topology.num_tpus_per_task, devices)
            self.assertEqual(topology.mesh_shape.tolist(), [2, 1, 1, 2 * devices])
            self.assertEqual(topology.options["device_type"], "GPU")
        for none in ("", "-1", "NoDevFiles", "void", "0,0"):  # One task sees none.
            topology = topology_of(status, 4, [{}, {"CUDA_VISIBLE_DEVICES": none}])
            self.assertEqual(topology.num_tpus_per_task, 1)
            self.assertEqual(topology.options["device_type"], "CPU")

    def test_the_ring_avoids_a_slow_link(self):
        names = ["a", "b", "c", "d", "e"]
        for size in (4, 5):
            hosts = {name: [2 * i, 2 * i + 1] for i, name in enumerate(names[:size])}
            for slow in itertools.permutations(hosts, 2):  # In one direction.
                topology = topology_of(status_of(hosts, [slow]), 2 * size)
                self.assertEqual(topology.hosts[0].name, "a")
                self.assertEqual(len(neighbours(topology)), size)
                self.assertNotIn(frozenset(slow), neighbours(topology))

    def test_build_follows_the_ring(self):
        topology = topology_of(status_of({"a": [0], "b": [1], "c": [2], "d": [3]}, [("b", "c")]), 4)
        assignment = distribute.DeviceAssignment.build(topology, num_replicas=4)
        tasks = [assignment.tpu_device(replica) for replica in range(4)]
        self.assertEqual(tasks, [f"/task:{task}/device:CPU:0" for task in (0, 1, 3, 2)])

    def test_what_does_not_differ_changes_nothing(self):
        hosts = {name: [i] for i, name in enumerate("abcd")}
        for status in (status_of(hosts), status_of(hosts, measured=False), status_of({"a": [0]}),
                       status_of(hosts, list(itertools.permutations("abcd", 2))),
                       status_of({"a": [0], "b": [1], "c": [2]}, [("a", "b")])):
            ranks = len(status["agents"])
            topology = topology_of(status, ranks)
            self.assertEqual([host.name for host in topology.hosts], list("abcd")[:ranks])

    def test_slow_links_cost_by_powers_of_two(self):
        rates = {"ab": 10, "ba": 10, "ac": 10, "ca": 10 / 1.9, "ad": 10, "da": 0, "bc": 10,
                 "cb": 10 / 4.1, "bd": 10 / 2.1, "cd": 99}
        slowness = _discovery._slowness("abcd", {tuple(pair): distribute.Link(0, rate)
                                                 for pair, rate in rates.items()})
        self.assertEqual({"".join(pair): slow for pair, slow in slowness.items() if slow},
                         {"bc": 2, "cb": 2, "bd": 1, "db": 1})

    def test_links_that_were_not_measured_are_usual_ones(self):
        pairs = itertools.permutations("abc", 2)
        links = {pair: distribute.Link(0 if "c" not in pair else 30, 0) for pair in pairs}
        links["a", "c"] = distribute.Link(100, 0)
        self.assertEqual({pair: slow for pair, slow in
                          _discovery._slowness("abc", links).items() if slow},
                         {("a", "c"): 1, ("c", "a"): 1})


class Statuses(unittest.TestCase):
    def assert_refused(self, code, words, call, *args):
        with self.assertRaisesRegex(tutti.Error, words) as caught:
            call(*args)
        self.assertEqual(caught.exception.code, code)

    def test_jobs_that_are_not_listed(self):
        self.assert_refused("FAILED_PRECONDITION", "0 jobs .* TUTTI_JOB", _discovery._report_of,
                            {"agents": []}, 2)
        status = status_of({"a": [0], "b": [1]})
        status["agents"][1].update(workers=[], state="unreachable: refused")
        self.assert_refused("FAILED_PRECONDITION", r"rank 1 of job 'run' \(not serving: \['b'\]",
                            _discovery._report_of, status, 2)

    def test_how_the_own_job_is_known(self):
        pair = {"a": [0, 1]}, {"b": [0, 1]}
        one, other = status_of(pair[0]), status_of(pair[1], job="other")
        both = {"agents": one["agents"] + other["agents"]}  # Their processes have the same PID.
        self.assert_refused("FAILED_PRECONDITION", "2 jobs", _discovery._report_of, both, 2)
        self.assertEqual(_discovery._report_of(both, 2, ["b"] * 2)["hosts"], ["b"] * 2)
        with mock.patch.dict("os.environ", {"TUTTI_JOB": "other"}):
            self.assertEqual(_discovery._report_of(both, 2)["hosts"], ["b"] * 2)
            self.assertEqual(_discovery._report_of(one, 2)["hosts"], ["a"] * 2)
            with mock.patch("os.getpid", lambda: 1):  # Another PID namespace.
                self.assertEqual(_discovery._report_of(both, 2)["hosts"], ["b"] * 2)
                self.assert_refused("FAILED_PRECONDITION", "0 jobs", _discovery._report_of, one, 2)
        second = status_of({"a": [2], "b": [0, 1]})  # Rank 2 has the PID of a rank 0 elsewhere.
        second["agents"][0]["workers"][0].update(job="other")
        second["agents"][0]["workers"][0]["ranks"][0]["pid"] = os.getpid()
        second["agents"][1]["workers"][0]["world_size"] = 3
        self.assert_refused("FAILED_PRECONDITION", "rank 2 of job 'run'", _discovery._report_of,
                            second, 3)

    def test_jobs_of_other_sizes_are_not_the_own_one(self):
        """A process may be rank 0 of several, or alone beside a job."""
        both = {"agents": status_of({"a": [0, 1]}, job="two")["agents"]
                + status_of({"a": [0], "b": [1], "c": [2]})["agents"]}
        with mock.patch.dict("os.environ", {"TUTTI_JOB": "two", "TUTTI_HOST": "b"}):
            self.assertEqual(_discovery._report_of(both, 3)["hosts"], ["a", "b", "c"])
            alone = topology_of(both, 1)
            self.assertEqual([(host.name, host.tasks) for host in alone.hosts], [("b", (0,))])
            self.assertEqual(_discovery._report_of(both, 1, ["c"])["hosts"], ["c"])
            del os.environ["TUTTI_HOST"]
            self.assertEqual(_discovery._report_of(both, 1)["hosts"], [platform.node()])

    def test_without_an_agent(self):
        with mock.patch.dict("os.environ", {"TUTTI_SOCKET": "/nowhere/tuttid.sock"}), \
                mock.patch.object(_discovery, "_program", lambda: "/bin/false"):
            self.assert_refused("UNAVAILABLE", "start the program with `tutti run`",
                                distribute.discover)
        with mock.patch.object(_discovery, "library_path", lambda: "libtutti.so.0"), \
                mock.patch("shutil.which", lambda name: None):
            self.assert_refused("NOT_FOUND", "no program `tutti`", distribute.discover)
        late = subprocess.TimeoutExpired("tutti", 30)
        with mock.patch("subprocess.run", side_effect=late), \
                mock.patch.object(_discovery, "_program", lambda: "tutti"):
            self.assert_refused("DEADLINE_EXCEEDED", "tutti doctor", distribute.discover)

    def test_a_process_that_has_joined_learns_what_to_pass(self):
        joined = AlreadyExists("ALREADY_EXISTS", "rank 0 runs", 0, "a")
        with mock.patch("tutti.distribute._strategy.Strategy", side_effect=joined):
            self.assert_refused("ALREADY_EXISTS", r"rank 0 runs; pass discover\(group\)",
                                distribute.discover)

    def test_the_agent_that_is_asked(self):
        told = subprocess.CompletedProcess([], 0, json.dumps({"agents": []}), "")
        with mock.patch("subprocess.run", return_value=told) as run, \
                mock.patch.object(_discovery, "_program", lambda: "tutti"):
            with mock.patch.dict("os.environ", {"TUTTI_SOCKET": "/s"}, clear=True):
                self.assertEqual(_discovery._read_status(), {"agents": []})
                self.assertEqual(run.call_args.args[0][3:], ["--address", "unix:/s"])
            with mock.patch.dict("os.environ", {"TUTTI_SOCKET": "/s", "TUTTI_ADDRESS": "h:1"}):
                _discovery._read_status()
                self.assertEqual(run.call_args.args[0][3:], [])


class Ranks(RanksTest):
    def test_all_ranks_get_the_answer_of_rank_0(self):
        def body(group):
            topology = distribute.Strategy(group=group, local_replicas=2).topology
            return group.hosts, [(host.name, host.tasks) for host in topology.hosts], topology.links

        status = status_of({"x": [0], "y": [1]})
        with mock.patch.object(_discovery, "_read_status", side_effect=[status]), \
                mock.patch.dict("os.environ", {"TUTTI_JOB": "run"}):
            (names, hosts, links), other = self.on_ranks(body)
        self.assertEqual(other, (names, hosts, links))
        self.assertEqual([name for name, tasks in hosts for _ in tasks], names)  # The group's.
        self.assertEqual(links, {})  # The status has none between these hosts.

    def test_a_failure_of_rank_0_is_that_of_all(self):
        def body(group):
            try:
                distribute.discover(group)
            except tutti.Error as error:
                return error.message
            return ""

        def fail():
            raise tutti.Error("UNAVAILABLE", "nobody answers")

        with mock.patch.object(_discovery, "_read_status", fail):
            for message in self.on_ranks(body):
                self.assertIn("nobody answers", message)


class Strategies(unittest.TestCase):
    def test_the_topology_of_a_strategy(self):
        topology = distribute.Topology([1, 1, 1, 2], [[[0, 0, 0, 0], [0, 0, 0, 1]]])
        assignment = distribute.DeviceAssignment.build(topology, num_replicas=2)
        self.assertIs(distribute.Strategy(None, assignment).topology, topology)
        strategy = distribute.Strategy(local_replicas=2)
        with mock.patch.object(_discovery, "_read_status",
                               side_effect=[status_of({"a": [0]})]), strategy.scope():
            self.assertEqual(distribute.discover().hosts[0].name, "a")
            self.assertIs(distribute.discover(), strategy.topology)  # It asks once.
        with self.assertRaisesRegex(RuntimeError, "cross-replica"):
            distribute.Strategy().run(distribute.discover)
        self.assertEqual((topology.hosts, topology.links), ((), {}))


if __name__ == "__main__":
    unittest.main()
