"""The page at / in a real browser: empty, busy and failing. Screenshots lie below build/page."""

import json
import os
import signal
import unittest

import answers
import browser
import nodes

SHOTS = nodes.SOURCE / "build/page"
# The cells of all tables but those of links.
ROWS = """[...document.querySelectorAll('table:not(.matrix) tbody tr')].map(row =>
  [...row.children].map(cell => cell.textContent))"""
# As a viewer would: changes an element, and lets the page know.
CHOOSE = """((which, change) => { const one = document.querySelector(which); change(one);
  one.dispatchEvent(new Event('input', {bubbles: true})); })"""


class PageTest(nodes.MeshTest):
    def open(self, agent, **options):
        chromium = browser.Browser()
        self.addCleanup(chromium.end)
        chromium.open(f"http://{agent.metrics}/", **options)
        return chromium

    def show(self, page, made, change="", **variables):
        """Answers the page's requests with this, changed before each by a line of JavaScript."""
        page.wait_for("serving")
        page.evaluate(answers.script(made, change, **variables))

    def test_empty(self):
        mesh = self.mesh("a")
        page = self.open(mesh.agents[0], token=nodes.ADMIN)
        text = page.wait_for("No job is running", "TUTTI_JOB=demo", "1 node", "serving")
        self.assertNotIn("Sign in", text)
        page.screenshot(SHOTS / "empty.png")

    def test_the_address_may_have_the_token(self):
        agent = self.mesh("a").agents[0]
        page = browser.Browser()
        self.addCleanup(page.end)
        page.open(f"http://any:{nodes.ADMIN}@{agent.metrics}/")
        self.assertNotIn("Sign in", page.wait_for("No job is running", "serving"))

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
        page.wait_for("4 ranks")
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
        page.wait_for("Job train", "died) is gone, and all_reduce", "failed",
                      "between operations")
        other = mesh.join("evaluate", per_host=1)
        mesh.tell(other, "all_reduce 1000")
        worker = next(worker["pid"] for agent in mesh.agents[1].status() if agent["host"] == "b"
                      for worker in agent["workers"] if worker["job"] == "evaluate")
        os.kill(worker, signal.SIGKILL)
        page.wait_for("Job evaluate", "epoch 1 failed: ", "host b")
        self.assertEqual(page.evaluate("document.querySelectorAll('[role=alert]').length"), 2)
        bars = "document.querySelectorAll('svg rect.bad').length"
        nodes.wait_until(lambda: page.evaluate(bars) == 3, "the failed operations")
        page.screenshot(SHOTS / "failing.png")

    def test_it_shows_what_is_found_of_each_rank(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        page.wait_for("No job is running")
        ranks = [answers.rank(0, "waits for rank 1", waits=True, late_us=0),
                 answers.rank(1, behind=2, late=True, late_us=30000), answers.rank(2)]
        job = answers.found(ranks, verdict="behind", grade="WARN", gone=[3], missing=1)
        worker = answers.worker("train", [2, 1, 0], 5)
        self.show(page, answers.answer([answers.agent("a", [worker])], [job]))
        page.wait_for("2 behind")
        self.assertEqual(page.evaluate(ROWS), [
            ["0", "a", "9", "waits", "0 µs", "waits for rank 1"],
            ["1", "a", "9", "2 behind", "30 ms", "between operations"],
            ["2", "a", "9", "", "100 µs", "between operations"],
            ["3", "gone"], ["", "1 rank not here"]])

    def test_what_is_wrong_comes_first(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        self.show(page, answers.troubled())
        text = page.wait_for("no quorum")
        self.assertEqual(page.evaluate(
            "[...document.querySelectorAll('.finding')].map(one => one.textContent)"), [
            "GPU 1 of a failed: XID 79", "Node c is lost for 20 s",
            "Job broken rank 1 (host b) is gone", "Job slow rank 1 is late by 30 ms",
            "Node b is draining", "Node b, coordinator unreachable for 12 s: refused",
            "Node a, etcd unreachable for 47 s: no quorum"])
        self.assertEqual(page.evaluate("document.querySelectorAll('[role=alert]').length"), 3)
        self.assertEqual(page.evaluate(
            "[...document.querySelectorAll('h3')].map(one => one.textContent)"),
            ["broken", "slow", "calm", "c", "b", "a"])
        self.assertIn("lost for\n20 s", text)
        self.assertNotIn("ready", text)
        self.assertIsNone(page.evaluate("document.querySelector('.node .good')"))

    def test_no_node_is_ready_that_does_not_reach_etcd(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        self.show(page, answers.answer([answers.agent("a", etcd_state="unreachable for 9 s: why")]))
        text = page.wait_for("Node a, etcd unreachable for 9 s: why", "No job is running")
        self.assertNotIn("ready", text)
        self.assertIsNone(page.evaluate("document.querySelector('.good')"))

    def test_jobs_that_have_ended(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        self.show(page, answers.troubled())
        page.wait_for("2 jobs ended in the last hour, 1 failed")
        page.evaluate("document.querySelector('details').open = true; 0")
        page.wait_for("rank 3 was killed")
        rows = page.evaluate(ROWS.replace("table", "details table"))
        self.assertEqual([[row[i] for i in (0, 1, 3, 4)] for row in rows],
                         [["old", "ended", "b, a", "all ranks have left"],
                          ["old", "failed", "a", "rank 3 was killed"]])

    def test_many_ranks_are_folded(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        self.show(page, answers.big())
        page.wait_for("256 of 256 ranks", "244 more ranks")
        self.assertEqual([[row[0], row[1], row[3]] for row in page.evaluate(ROWS)],
                         [["0-6, 8-255", "8 nodes", "waits"],
                          ["7", "node-with-a-long-name-0", "1 behind"]])
        self.assertEqual(page.evaluate("document.querySelectorAll('svg').length"), 12)
        self.assertIn("rank 7 ", page.text())
        for typed, ranks in [("30-32 200", ["30", "31", "32", "200"]), ("behind", ["7"]),
                             ("name-7", [str(rank) for rank in range(224, 256)])]:
            page.evaluate(CHOOSE + f"('[type=search]', one => one.value = '{typed}')")
            self.assertEqual([row[0] for row in page.evaluate(ROWS)], ranks)
        page.evaluate(CHOOSE + "('[type=search]', one => one.value = '')")
        page.evaluate(CHOOSE + "('[type=checkbox]', one => one.checked = true)")
        self.assertEqual(len(page.evaluate(ROWS)), 256)

    def test_a_rank_that_joins_again_is_there_once(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        worker = answers.worker("train", [0, 1], 2)
        worker["ranks"].append({"rank": 0, "epoch": 0, "operations": 0})
        job = answers.found([answers.rank(0), answers.rank(1)])
        self.show(page, answers.answer([answers.agent("a", [worker])], [job]))
        page.wait_for("2 of 2 ranks")
        self.assertEqual([row[0] for row in page.evaluate(ROWS)], ["0", "1"])

    def test_operations_per_second_are_those_of_one_rank(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        page.wait_for("No job is running")
        job = ("{{key: 'x', operations: {}, bytes: {}, "
               "workers: [{{ranks: [{{}}, {{}}, {{epoch: 0}}]}}]}}")
        page.evaluate(f"per_second({job.format(100, 0)}, 0)")
        self.assertEqual(page.evaluate(f"per_second({job.format(260, 500)}, 2000)"),
                         {"operations": 40, "bytes": 250})

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
        calls = ("Array.from({length: 150000}, (_, i) => ({rank: i % 4, group: 0, number: i, "
                 "collective: 'barrier', bytes: 0, begun_us: i, duration_us: 1, code: 'OK'}))")
        page.evaluate("place(document.body, [timeline({name: 'big', ranks: [], found: {}, "
                      f"calls: {calls}}}, 200000)])")
        self.assertEqual(page.evaluate("document.querySelectorAll('rect').length"), 150000)

    def test_what_the_viewer_does_lives_through_updates(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        made = answers.big()
        made["status"]["agents"][0]["ended"] = [answers.ended("old", "ended", "they have left", 9)]
        self.show(page, made, "sample.diagnosis.jobs[0].sentence = `late for ${updates} s, it is`")
        page.wait_for("late for 2 s, it is", "256 ranks", "ended in the last hour")
        page.evaluate(CHOOSE + "('[type=search]', one => one.value = '7-9')")
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true); 0")
        page.wait_for("they have left")
        self.assertEqual(page.evaluate("""
            var row = document.querySelector('tbody tr'), drawn = document.querySelector('rect');
            var sentence = document.querySelector('.sentence').firstChild;
            row.tabIndex = -1;
            row.focus({preventScroll: true});
            getSelection().setBaseAndExtent(sentence, 0, sentence, sentence.length);
            scrollTo(0, 500);
            [document.activeElement === row, scrollY]"""), [True, 500])
        begun = page.evaluate("updates")
        nodes.wait_until(lambda: page.evaluate("updates") >= begun + 3, "two more updates")
        selected = page.evaluate("`${getSelection()}`")
        self.assertRegex(selected, r"^late for \d+ s, it is$")
        self.assertGreater(int(selected.split()[2]), begun)
        self.assertEqual(
            page.evaluate("[document.activeElement === row, drawn.isConnected, scrollY]"),
            [True, True, 500])
        self.assertEqual([row[0] for row in page.evaluate(ROWS)][:3], ["7", "8", "9"])
        self.assertTrue(page.evaluate(
            "[...document.querySelectorAll('details')].every(one => one.open)"))

    def test_focus_stays_in_a_job_that_goes_up_or_down(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        names = "abc"
        workers = [answers.worker(name, [0], 1) for name in names]
        made = answers.answer([answers.agent("a", workers)],
                              [answers.found([answers.rank(0)], name) for name in names])
        self.show(page, made, "sample.diagnosis.jobs.forEach(one => "
                              "{ one.grade = one.job === worst ? 'FAIL' : 'OK' })", worst="a")
        cards = "[...document.querySelectorAll('.job h3')].map(one => one.textContent).join('')"
        nodes.wait_until(lambda: page.evaluate(cards) == "abc", "the jobs")
        for worst, order in [("c", "cab"), ("a", "abc"), ("b", "bac")]:
            with self.subTest(worst=worst):
                page.evaluate("[...document.querySelectorAll('.job')].find(one => one.textContent"
                              ".startsWith('a')).querySelector('[tabindex]').focus()")
                page.evaluate(f"worst = '{worst}'")
                nodes.wait_until(lambda: page.evaluate(cards) == order, order)
                self.assertEqual(page.evaluate("document.activeElement.ariaLabel"), "Ranks of a")

    def test_what_is_new_is_said_once(self):
        page = self.open(self.mesh("a").agents[0], token=nodes.ADMIN)
        page.wait_for("No job is running")
        page.evaluate("const said_so = []; new MutationObserver(() => said_so.push("
                      "document.getElementById('news').textContent)).observe("
                      "document.getElementById('news'), {childList: true}); 0")
        job = answers.found([answers.rank(0)], grade="WARN", verdict="behind")
        made = answers.answer([answers.agent("a", [answers.worker("train", [0], 1)])], [job])
        self.show(page, made, "sample.diagnosis.jobs[0].sentence = `behind for ${updates} s`")
        page.wait_for("Job train behind for 3 s")
        self.show(page, answers.answer([answers.agent("a")]))
        page.wait_for("No job is running")
        said = page.evaluate("said_so")
        self.assertRegex(said[0], r"^Job train behind for \d s$")
        self.assertEqual(said[1:], ["Job train: nothing is found any more"])

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
