"""What each instrument says, second by second, from when a fault begins."""

import json
import pathlib
import re
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import mesh as meshes

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "http"))
import nodes
import test_prometheus

NAMES = ("explain", "explain JOB", "doctor", "status", "page", "metrics", "log", "alert")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def scaled(scale):
    """The shipped alerts with shorter times."""
    def shorter(match):
        return f"{match[1]}{max(1, int(match[2]) * _SECONDS[match[3]] // scale)}s{match[4]}"
    rules = test_prometheus.ALERTS.read_text()
    rules = re.sub(r"(for: )(\d+)([smhd])()", shorter, rules)
    return re.sub(r"(\[)(\d+)([smhd])(\])", shorter, rules)


def longest_for(names, scale):
    """Seconds of the longest `for`, shortened, of the alerts whose names match."""
    found = re.findall(r"- alert: (\w+)(.*?)(?=- alert|\Z)",
                       scaled(scale), re.DOTALL)
    waits = [int(wait) for name, rule in found if re.fullmatch(names, name)
             for wait in re.findall(r" for: (\d+)s", rule)]
    return max(waits, default=0)


def get(address, path):
    request = urllib.request.Request(f"http://{address}:{meshes.METRICS_PORT}{path}")
    request.add_header("Authorization", f"Bearer {meshes.ADMIN}")
    try:
        with urllib.request.urlopen(request, timeout=3) as answer:
            return answer.read().decode()
    except OSError as error:
        return f"no answer: {error}"


class Prometheus(test_prometheus.Prometheus):
    """Asks all agents with the shipped alerts, whose times are shorter."""

    def __init__(self, mesh, scrape, scale):
        self.scrape = scrape
        rules = mesh.home / "alerts.yml"
        rules.write_text(scaled(scale))

        class Targets:
            agents = [type("Agent", (), {"metrics": f"{node.address}:{meshes.METRICS_PORT}"})
                      for node in mesh.nodes]
        before = test_prometheus.ALERTS, nodes.ADMIN
        test_prometheus.ALERTS, nodes.ADMIN = rules, meshes.ADMIN
        try:
            super().__init__(Targets)
        finally:
            test_prometheus.ALERTS, nodes.ADMIN = before
        nodes.wait_until(lambda: self.query("up"), "Prometheus has asked the agents")

    def alerts(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/alerts",
                                    timeout=5) as answer:
            return json.load(answer)["data"]["alerts"]


def alert_lines(alerts):
    """A line for each: state, name and what it is about."""
    return "\n".join(sorted(
        f"{one['state']} {one['labels']['alertname']}: {one['annotations']['summary']}"
        for one in alerts))


def page_text(answer):
    """What the page shows of /api/diagnosis, as lines."""
    try:
        said = json.loads(answer)
    except ValueError:
        return answer
    lines = [f"FAIL {alarm['subject']}: {alarm['finding']}" for alarm in said["alarms"]]
    for job in said["jobs"]:
        lines.append(f"{job['grade']} {job['job']}: {job['verdict']}: {job['sentence']}")
        lines += [f"  {line}" for line in job["evidence"]]
    return "\n".join(lines)


class Instruments:
    """Asks them all once a second in threads of their own, until stop(): doctor at node 2, and what
    speaks of the whole mesh at `asked`."""

    def __init__(self, mesh, prometheus, asked):
        self._mesh = mesh
        self._stop = threading.Event()
        self._began = time.monotonic()
        self.said = {name: [] for name in NAMES}  # (second, exit code, text)
        self._logs = {node.host: 0 for node in mesh.nodes}
        questions = {
            "explain": lambda: asked.ask("tutti", "explain"),
            "explain JOB": lambda: asked.ask("tutti", "explain", "demo"),
            "doctor": lambda: mesh.nodes[1].ask("tutti", "doctor"),
            "status": lambda: asked.ask("tutti", "status"),
            "page": lambda: (0, page_text(get(asked.address, "/api/diagnosis"))),
            "metrics": lambda: (0, "\n".join(get(n.address, "/metrics") for n in mesh.nodes)),
            "log": lambda: (0, self._new_lines()),
            "alert": lambda: (0, alert_lines(prometheus.alerts()))}
        self._threads = [threading.Thread(target=self._repeat, args=pair)
                         for pair in questions.items()]
        for thread in self._threads:
            thread.start()

    def second(self):
        return time.monotonic() - self._began

    def begin(self):
        """The fault begins now; what the logs have is not of it."""
        self._logs = {node.host: len(node.agent.text()) for node in self._mesh.nodes}
        shift = self.second()
        self._began += shift
        for name, said in self.said.items():
            self.said[name] = [(at - shift, *rest) for at, *rest in said]

    def _new_lines(self):
        """What the agents have logged, from level warning on."""
        return "\n".join(f"{node.host}: {line}" for node in self._mesh.nodes if node.agent
                         for line in node.agent.text()[self._logs[node.host]:].splitlines()
                         if re.search(" (warning|error|critical) ", line))

    def _repeat(self, name, ask):
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                code, text = ask()
            except (OSError, ProcessLookupError) as error:
                code, text = None, f"no answer: {error}"
            self.said[name].append((time.monotonic() - self._began, code, text))
            self._stop.wait(max(0.0, began + 1 - time.monotonic()))

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()
