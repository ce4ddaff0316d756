"""A real Prometheus scrapes real agents, and its tools check what they say and what deploy/ has."""

import json
import pathlib
import re
import subprocess
import tempfile
import time
import unittest
import unittest.mock
import urllib.error
import urllib.parse
import urllib.request

import nodes

ALERTS = nodes.SOURCE / "deploy/prometheus/alerts.yml"
ALERTS_TEST = nodes.SOURCE / "tests/http/alerts_test.yml"
DASHBOARD = nodes.SOURCE / "deploy/grafana/tutti.json"


class Prometheus:
    scrape = "500ms"

    def __init__(self, mesh):
        self.home = tempfile.TemporaryDirectory(prefix="tutti-prometheus-")
        self.port = nodes.free_port()
        config = pathlib.Path(self.home.name) / "prometheus.yml"
        targets = [agent.metrics for agent in mesh.agents]
        config.write_text(json.dumps({  # JSON is YAML.
            "global": {"scrape_interval": self.scrape, "evaluation_interval": "500ms"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "tutti", "authorization": {"credentials": nodes.ADMIN},
                                "static_configs": [{"targets": targets}]}]}))
        self.log = open(f"{self.home.name}/log", "w+")
        self.process = subprocess.Popen(
            [nodes.tool("prometheus", "prometheus"), f"--config.file={config}",
             f"--storage.tsdb.path={self.home.name}/data", "--log.level=warn",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)

    def query(self, text):
        """The value by labels, each a tuple of (name, value)."""
        query = urllib.parse.urlencode({"query": text})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{query}"
        try:
            with urllib.request.urlopen(url, timeout=nodes.PATIENCE) as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:  # It does not listen yet.
            return {}
        return {tuple(sorted(one["metric"].items())): float(one["value"][1]) for one in result}

    def refusal(self, text):
        """What it says against a query, or None."""
        query = urllib.parse.urlencode({"query": text})
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{query}"
        try:
            with urllib.request.urlopen(url, timeout=nodes.PATIENCE):
                return None
        except urllib.error.HTTPError as error:
            return json.load(error)["error"]

    def end(self):
        self.process.terminate()
        self.process.wait(nodes.PATIENCE)
        self.log.close()
        self.home.cleanup()


class PrometheusTest(nodes.MeshTest):
    def setUp(self):
        nodes.tool("prometheus", "prometheus")

    def test_what_it_scrapes_are_the_counts_of_the_job(self):
        mesh = self.mesh("a", "b")
        ranks = mesh.join("train", per_host=2)
        for _ in range(7):
            self.assertEqual(mesh.tell(ranks, "all_reduce 1000"), ["done"] * 4)
        prometheus = Prometheus(mesh)
        self.addCleanup(prometheus.end)

        def is_seen():
            ops = prometheus.query('sum by (rank) (tutti_operations_total{job_name="train"})')
            return len(ops) == 4 and set(ops.values()) == {7.0}
        nodes.wait_until(is_seen, "seven operations of four ranks")
        sizes = prometheus.query('sum by (host) (tutti_operation_bytes_total{job_name="train"})')
        self.assertEqual(sizes, {(("host", host),): 2 * 7 * 4000.0 for host in "ab"})
        self.assertEqual(prometheus.query("sum(tutti_segments)"), {(): 4.0})
        self.assertEqual(prometheus.query("sum(tutti_agent_coordinator)"), {(): 1.0})
        self.assertEqual(set(prometheus.query("up").values()), {1.0})

        def is_sent():  # Links are still measured, for a while.
            sent = sum(worker["sent_bytes"] for agent in mesh.agents[0].status()
                       for worker in agent["workers"])
            return sent > 0 and \
                prometheus.query("sum(tutti_job_sent_bytes_total)") == {(): float(sent)}
        nodes.wait_until(is_sent, "the bytes sent")

        timed = 'tutti_operation_duration_seconds_{}{{job_name="train",collective="all_reduce"}}'
        self.assertEqual(prometheus.query("sum by (rank, size) (" + timed.format("count") + ")"),
                         {(("rank", str(rank)), ("size", "4KiB")): 7.0 for rank in range(4)})
        self.assertEqual(prometheus.query("sum(tutti_collective_bytes_total)"),
                         {(): 4 * 7 * 4000.0})
        seconds = prometheus.query("sum by (rank) (" + timed.format("sum") + ")")
        self.assertEqual(len(seconds), 4)
        self.assertTrue(all(0 < value < nodes.PATIENCE for value in seconds.values()), seconds)
        self.assertEqual(len(prometheus.query("tutti_rank_lateness_seconds")), 4)
        calls = 7 + self.call_until_paths_are_measured(mesh, ranks, prometheus)
        mesh.tell(ranks, "all_reduce 250")
        nodes.wait_until(lambda: prometheus.query("sum(tutti_operations_total)") ==
                         {(): 4.0 * (calls + 1)}, "the next operation")
        for rank in ranks:
            rank.end()
        nodes.wait_until(lambda: prometheus.query("sum(tutti_jobs)") == {(): 0.0}, "no jobs")
        for name in ("tutti_operations_total", "tutti_job_info", "tutti_job_sent_bytes_total"):
            self.assertEqual(prometheus.query(name), {})

    def call_until_paths_are_measured(self, mesh, ranks, prometheus):
        """A measurement that a busy machine has spoilt is repeated with a later operation, not
        without one. Returns the number of calls."""
        calls = 0
        for name in ("bytes_per_second", "latency_seconds"):
            for a, b in ("ab", "ba"):
                path = f'tutti_path_{name}{{from="{a}",to="{b}",job_name="train"}} > 0'

                def is_measured(path=path):
                    nonlocal calls
                    if len(prometheus.query(path)) == 1:
                        return True
                    self.assertEqual(mesh.tell(ranks, "all_reduce 1000"), ["done"] * 4)
                    calls += 1
                    return False
                nodes.wait_until(is_measured, path)
        return calls

    def test_who_is_late_and_what_fails_is_reported_by_rank(self):
        mesh = self.mesh("a")
        ranks = mesh.join("train", per_host=2)
        mesh.tell(ranks, "barrier")
        for _ in range(3):
            ranks[0].tell("all_reduce 1000")
            # Rank 1 calls once rank 0 is seen to wait, and a while after that.
            nodes.wait_until(lambda: any("duration_us" not in call for trace in mesh.traces()
                                         for call in trace["calls"]), "rank 0 waits")
            time.sleep(0.2)
            ranks[1].tell("all_reduce 1000")
            self.assertEqual([rank.answer() for rank in ranks], ["done"] * 2)
        text = mesh.agents[0].get("/metrics")
        late = {rank: float(value) for rank, value in re.findall(
            r'(?m)^tutti_rank_lateness_seconds{.*rank="(\d)"} (\S+)$', text)}
        self.assertGreaterEqual(late["1"], 0.2)
        self.assertEqual(late["0"], 0)
        ranks[1].tell("die")
        ranks[0].tell("all_reduce 1000")
        self.assertTrue(ranks[0].answer().startswith("failed: "))
        self.assertRegex(mesh.agents[0].get("/metrics"),
                         r'(?m)^tutti_operation_failures_total{.*rank="0",code="UNAVAILABLE"} 1$')

    def test_a_wrong_token_is_a_target_that_is_down(self):
        mesh = self.mesh("a")
        with unittest.mock.patch.object(nodes, "ADMIN", "guess"):
            prometheus = Prometheus(mesh)
        self.addCleanup(prometheus.end)
        nodes.wait_until(lambda: set(prometheus.query("up").values()) == {0.0}, "down")
        self.assertIn("http", mesh.agents[0].get("/metrics"))


    def test_it_understands_the_queries_of_the_dashboard(self):
        prometheus = Prometheus(self.mesh("a"))
        self.addCleanup(prometheus.end)
        nodes.wait_until(lambda: prometheus.query("up"), "it answers")
        self.assertIn("parse error", prometheus.refusal("sum by (rank"))
        variables = {"$job_name": ".*", "$host": ".*", "$__rate_interval": "1m"}
        panels = json.loads(DASHBOARD.read_text())["panels"]
        queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
        self.assertGreater(len(queries), 10)
        for query in queries:
            for name, value in variables.items():
                query = query.replace(name, value)
            self.assertNotIn("$", query.replace('$"', '"'))
            self.assertIsNone(prometheus.refusal(query), query)


class PromtoolTest(nodes.MeshTest):
    def promtool(self, *arguments, **options):
        return subprocess.run([nodes.tool("prometheus", "promtool"), *arguments], text=True,
                              capture_output=True, check=False, timeout=nodes.PATIENCE, **options)

    def test_metrics_keep_the_rules_of_their_format(self):
        mesh = self.mesh("a")
        mesh.tell(mesh.join("train", per_host=2), "all_reduce 1000")
        done = self.promtool("check", "metrics", input=mesh.agents[0].get("/metrics"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")

    def test_alerts_are_rules_and_fire_when_they_should(self):
        for arguments in (["check", "rules", ALERTS], ["test", "rules", ALERTS_TEST]):
            done = self.promtool(*arguments)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class NamesTest(nodes.MeshTest):
    def test_what_alerts_and_dashboard_name_is_there(self):
        mesh = self.mesh("a", "b")
        ranks = mesh.join("train", per_host=2)
        mesh.tell(ranks, "all_reduce 100000")
        nodes.wait_until(lambda: "tutti_path_" in mesh.agents[0].get("/metrics"), "a measured path")
        families = set(re.findall(r"(?m)^# TYPE (\S+) ", mesh.agents[0].get("/metrics")))
        # These appear with what they count.
        families |= {"tutti_refused_callers_total", "tutti_operation_failures_total",
                     "tutti_gpu_failed", "tutti_gpu_used_bytes",
                     "tutti_gpu_memory_bytes", "tutti_gpu_ecc_errors"}
        for path in (ALERTS, DASHBOARD):
            names = set(re.findall(r"\btutti_[a-z_]+", path.read_text()))
            self.assertGreater(len(names), 5)
            for name in names - families:
                base = re.sub(r"(_bucket|_sum|_count)$", "", name)
                self.assertIn(base, families, f"{path.name} names {name}")

    def test_the_dashboard_is_one_that_grafana_imports(self):
        dashboard = json.loads(DASHBOARD.read_text())
        self.assertEqual((dashboard["uid"], dashboard["title"]), ("tutti", "Tutti"))
        self.assertGreaterEqual(dashboard["schemaVersion"], 36)
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in dashboard["panels"]:
            if panel["type"] == "row":
                continue
            self.assertEqual(panel["datasource"]["uid"], "${datasource}", panel["title"])
            for target in panel["targets"]:
                self.assertTrue(target["expr"], panel["title"])


if __name__ == "__main__":
    unittest.main()
