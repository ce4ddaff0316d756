"""`tutti trace` of a real job: what it writes can be read by the programs that it is meant for."""

import collections
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(os.environ["TUTTI_BIN"])
ROOT = pathlib.Path(__file__).parents[2]

# Rank 3 leaves a call out, while the others wait for it; rank 0 looks at that from inside the job.
TRAINER = '''
import json, os, subprocess, sys, time
import tutti, numpy

group = tutti.join()
place, program = sys.argv[1:]
x = numpy.ones(1000, "float32")
for _ in range(20):
    works = [group.all_reduce(part, blocking=False) for part in (x[:10], x[10:30], x[30:60])]
    for work in works:
        work.wait()
group.broadcast(x, root=1)
group.barrier()
if group.rank != 3:
    work = group.all_reduce(x, blocking=False, timeout=120)

def trace(*flags):
    command = [program, "trace", os.environ["TUTTI_JOB"], *flags]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout

def wait_until(ready, what):
    limit = time.monotonic() + 100
    while not ready():
        assert time.monotonic() < limit, what + ": not within 100 s"
        time.sleep(0.01)

def is_settled():
    """All ranks have returned from all but the last, in which three ranks and a worker wait."""
    operations = json.loads(trace("--json"))["operations"]
    if len(operations) != 63 or len(operations[-1]["ranks"]) != 3:
        return False
    trace("--chrome", place + "/chrome.json")
    with open(place + "/chrome.json") as file:
        return sum(event["ph"] == "B" for event in json.load(file)["traceEvents"]) == 4

done = place + "/done"
if group.rank == 0:
    wait_until(is_settled, "three ranks wait")
    trace("--chrome", place + "/chrome.json", "--torch", place + "/torch")
    with open(place + "/trace.json", "wb") as file:
        file.write(trace("--json"))
    open(done, "w").close()
wait_until(lambda: os.path.exists(done), "rank 0 has looked")
if group.rank == 3:
    group.all_reduce(x)
else:
    work.wait()
'''


def run(command):
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200
    )


class TraceOfAJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.place = pathlib.Path(directory.name)
        script = cls.place / "train.py"
        script.write_text(TRAINER)
        command = [BIN / "tutti", "run", "--hosts", "2", "--per-host", "2", "--"]
        command += [sys.executable, script, cls.place, BIN / "tutti"]
        done = run(command)
        assert done.returncode == 0, done.stdout

    def test_json_names_who_is_waited_for(self):
        trace = json.loads((self.place / "trace.json").read_text())
        self.assertEqual(sorted(host["host"] for host in trace["hosts"]), ["a", "b"])
        self.assertEqual(trace["missing"], [])
        operations = trace["operations"]
        self.assertEqual(len(operations), 63)
        *ended, waiting = operations
        self.assertTrue(all(len(operation["ranks"]) == 4 for operation in ended))
        ranks = [rank for operation in ended for rank in operation["ranks"]]
        self.assertTrue(all(rank["code"] == "OK" for rank in ranks))
        self.assertEqual([o["collective"] for o in ended[-2:]], ["broadcast", "barrier"])
        self.assertEqual(waiting["waits_for"], [3])
        self.assertEqual([rank["rank"] for rank in waiting["ranks"]], [0, 1, 2])

    def test_chrome_events_nest(self):
        trace = json.loads((self.place / "chrome.json").read_text())
        tracks = collections.defaultdict(list)
        for event in trace["traceEvents"]:
            if event["ph"] in "XB":
                tracks[event["pid"], event["tid"]].append(event)
        names = {
            (event["pid"], event["tid"]): event["args"]["name"]
            for event in trace["traceEvents"]
            if event["ph"] == "M" and event["name"] == "thread_name"
        }
        self.assertEqual(set(names), set(tracks))
        self.assertTrue({"rank 0", "rank 3", "among hosts"} <= set(names.values()))
        for events in tracks.values():
            end = 0
            for event in events:
                self.assertGreaterEqual(event["ts"] + 1e-6, end)
                end = event["ts"] + event.get("dur", float("inf"))
        calls = [event for events in tracks.values() for event in events]
        # The last one is under way on three ranks, and among hosts on the one that all called on.
        self.assertEqual(len(calls), 4 * 62 + 2 * 62 + 4)
        self.assertEqual(sum(event["ph"] == "B" for event in calls), 4)

    def test_torch_dumps_are_pickles_of_version_2_4(self):
        for rank in range(4):
            dump = pickle.loads((self.place / f"torch/rank_{rank}").read_bytes())
            self.assertEqual(dump["version"], "2.4")
            self.assertEqual(dump["pg_config"]["0"]["ranks"], "[0, 1, 2, 3]")
            entries = dump["entries"]
            self.assertEqual(len(entries), 62 if rank == 3 else 63)
            self.assertEqual(entries[0]["profiling_name"], "c10d:all_reduce")
            self.assertEqual(entries[0]["input_sizes"], [[10]])
            self.assertEqual(entries[0]["process_group"], ("0", "tutti"))
            self.assertEqual(entries[61]["state"], "completed")
            self.assertGreater(entries[0]["time_created_ns"], 1_600_000_000_000_000_000)
            if rank != 3:
                self.assertEqual(entries[62]["state"], "scheduled")

    def test_torchs_analyser_names_the_missing_rank(self):
        python = os.environ.get("TUTTI_TORCH_PYTHON", ROOT / "build/torch/bin/python")
        analyser = pathlib.Path(python).parent / "torchfrtrace"
        if not analyser.exists():
            self.skipTest("torchfrtrace is not installed; run tests/run --with torch")
        done = run([analyser, self.place / "torch", "--prefix", "rank_"])
        self.assertIn("missing ranks: {3}", done.stdout)


if __name__ == "__main__":
    unittest.main()
