"""The page at / in a real browser: empty, busy and failing. Screenshots lie below build/page."""

import json
import os
import signal
import unittest

import browser
import nodes

SHOTS = nodes.SOURCE / "build/page"


class PageTest(nodes.MeshTest):
    def open(self, agent, **options):
        chromium = browser.Browser()
        self.addCleanup(chromium.end)
        chromium.open(f"http://{agent.metrics}/", **options)
        return chromium

    def test_empty(self):
        mesh = self.mesh("a")
        page = self.open(mesh.agents[0], token=nodes.ADMIN)
        text = page.wait_for("No job is running", "TUTTI_JOB=demo", "1 node", "serving")
        self.assertNotIn("Sign in", text)
        page.screenshot(SHOTS / "empty.png")

    def test_without_a_token_it_shows_the_node_and_how_to_see_more(self):
        mesh = self.mesh("a")
        mesh.join("secret-job", per_host=1)
        page = self.open(mesh.agents[0])
        text = page.wait_for("1 job on this node", "Sign in", "role=admin", "metrics_public")
        self.assertNotIn("secret-job", text)
        page.screenshot(SHOTS / "public.png")

    def test_busy(self):
        mesh = self.mesh("a", "b")
        ranks = mesh.join("train <b>bold</b>", per_host=2)
        page = self.open(mesh.agents[1], token=nodes.ADMIN)
        for _ in range(20):
            mesh.tell(ranks, "all_reduce 2000000")
            mesh.tell(ranks, "barrier")
        text = page.wait_for("train <b>bold</b>", "running", "2 nodes", "4 ranks", "in step")
        self.assertIn("coordinator", text)
        page.wait_for("40", "B/s", "a message")  # Operations of a rank; a link.
        self.assertEqual(page.evaluate("document.querySelectorAll('main b b').length"), 0)
        bars = "document.querySelectorAll('svg rect').length"
        nodes.wait_until(lambda: page.evaluate(bars) == 4 * 40, "the last operations")
        for rank in ranks[:3]:
            rank.tell("all_reduce 2000000")
        page.wait_for("waits for rank 3", "under way", "1 behind")
        page.screenshot(SHOTS / "busy.png")
        ranks[3].tell("all_reduce 2000000")
        self.assertEqual([rank.answer() for rank in ranks], ["done"] * 4)
        page.open(f"http://{mesh.agents[1].metrics}/", token=nodes.ADMIN, dark=True)
        page.wait_for("running")
        page.screenshot(SHOTS / "busy-dark.png")

    def test_failing(self):
        mesh = self.mesh("a", "b")
        ranks = mesh.join("train", per_host=2)
        mesh.tell(ranks, "all_reduce 1000")
        page = self.open(mesh.agents[0], token=nodes.ADMIN)
        ranks[3].tell("die")
        for rank in ranks[:3]:
            rank.tell("all_reduce 1000")
        answers = [rank.answer() for rank in ranks[:3]]
        self.assertTrue(all(answer.startswith("failed: ") for answer in answers), answers)
        page.wait_for("Job train", "rank 3 (host b, left or ended) is gone", "failed", "has left")
        other = mesh.join("evaluate", per_host=1)
        mesh.tell(other, "all_reduce 1000")
        worker = next(worker["pid"] for agent in mesh.agents[1].status() if agent["host"] == "b"
                      for worker in agent["workers"] if worker["job"] == "evaluate")
        os.kill(worker, signal.SIGKILL)
        page.wait_for("Job evaluate", "epoch 1 failed: ", "host b")
        self.assertEqual(page.evaluate("document.querySelectorAll('.alarm').length"), 2)
        bars = "document.querySelectorAll('svg rect.bad').length"
        nodes.wait_until(lambda: page.evaluate(bars) == 3, "the failed operations")
        page.screenshot(SHOTS / "failing.png")

    def test_it_shows_what_is_found_of_each_rank(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        page.wait_for("No job is running")
        ranks = [{"rank": 0, "doing": "waits for rank 1", "waits": True, "behind": 0,
                  "late": False, "late_us": 0},
                 {"rank": 1, "doing": "", "waits": False, "behind": 2, "late": True,
                  "late_us": 30000}]
        worker = {"job": "train", "uid": 1, "world_size": 4, "epoch": 1, "strategy": "auto",
                  "ranks": [{"rank": 1, "operations": 7}, {"rank": 0, "operations": 9}]}
        job = {"job": "train", "uid": 1, "subject": "", "verdict": "behind", "grade": "WARN",
               "healthy": False, "sentence": "", "evidence": [], "ranks": ranks, "gone": [3],
               "missing": 1}
        rows = page.evaluate(
            f"jobs_of([{{host: 'a', workers: [{json.dumps(worker)}]}}], [],"
            f" {{jobs: [{json.dumps(job)}]}})"
            ".flatMap(job => [...ranks_table(job).querySelectorAll('tr')].slice(1)"
            ".map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent)))")
        self.assertEqual(rows, [["0", "a", "9", "in step", "0 µs", "waits for rank 1"],
                                ["1", "a", "7", "2 behind", "30 ms", "between operations"],
                                ["3", "has left"], ["", "1 rank not here yet"]])

    def test_jobs_of_one_user_with_different_subjects(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        page.wait_for("No job is running")
        worker = {"job": "train", "uid": 1, "world_size": 1, "epoch": 1, "strategy": "auto",
                  "ranks": []}
        workers = [{**worker, "subject": subject} for subject in "xy"]
        found = [{"job": "train", "uid": 1, "subject": subject, "ranks": []} for subject in "xy"]
        agents = [{"host": "a", "workers": workers}]
        call = {"collective": "barrier", "bytes": 1, "begun_us": 1, "rank": 0, "group": 0,
                "number": 0}
        traces = [{"job": "train", "uid": 1, "subject": "y", "calls": [call]}]
        self.assertEqual(page.evaluate(
            f"jobs_of({json.dumps(agents)}, {json.dumps(traces)}, {{jobs: {json.dumps(found)}}})"
            ".map(job => job.calls.length).sort()"), [0, 1])

    def test_many_calls(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        page.wait_for("No job is running")
        self.assertEqual(page.evaluate(
            "timeline({name: 'big', ranks: [], calls: Array.from({length: 150000}, (_, i) => "
            "({rank: i % 4, group: 0, number: i, collective: 'barrier', bytes: 0, begun_us: i, "
            "duration_us: 1, code: 'OK'}))}, 200000).querySelectorAll('rect').length"), 150000)

    def test_what_it_needs_is_in_it(self):
        mesh = self.mesh("a")
        page = self.open(mesh.agents[0], token=nodes.ADMIN)
        page.wait_for("No job is running")
        self.assertEqual(page.evaluate(
            "performance.getEntriesByType('resource').map(entry => new URL(entry.name).pathname)"
            ".filter(path => path !== '/api/status' && path !== '/favicon.ico')"), [])
        # The policy keeps out what is not the page's own.
        page.evaluate("document.body.append(Object.assign(document.createElement('script'),"
                      "{textContent: 'window.intruder = 1'}))")
        self.assertIsNone(page.evaluate("window.intruder"))


if __name__ == "__main__":
    unittest.main()
