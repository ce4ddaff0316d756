"""Makes faults on real meshes, and notes when each instrument names them, and its false words."""

import dataclasses
import re
import time

import catalogue
import instruments
import mesh as meshes

ALERT_S = 12  # Alerts have so long beside their `for`.
HEALTHY_S = 6
NAMED_S = 10  # explain has so long.
BAD_METRICS = (r'tutti_(node_failed|gpu_failed){.*} 1|tutti_\w+_(serving|reachable){.*} 0|'
               r'tutti_job_verdict{.*verdict="(?!running|idle|ended)\w+"} 1')


@dataclasses.dataclass
class Seen:
    """When an instrument first named the culprit, and its false lines by their second."""
    first_s: float | None = None
    line: str = ""
    false: dict = dataclasses.field(default_factory=dict)
    last: str = ""


@dataclasses.dataclass
class Outcome:
    fault: str
    title: str
    seen: dict = dataclasses.field(default_factory=dict)
    pending_s: float | None = None
    not_done: str = ""
    observed_s: int = 0

    def faults(self):
        """What the instruments must do and did not."""
        named = [self.seen[name].first_s for name in ("explain", "explain JOB")]
        if not any(second is not None and second <= NAMED_S for second in named):
            yield f"explain has not named it within {NAMED_S} s"
        if self.seen["alert"].first_s is None:
            yield "no alert has fired"
        for name, seen in self.seen.items():
            yield from (f"{name} said at {second:.1f} s: {line}"
                        for line, second in seen.false.items())


def line_of(pattern, text):
    return next((line.strip() for line in text.splitlines() if re.search(pattern, line)), "")


def without_times(line):
    return re.sub(r"\d+(\.\d+)? (m?s|min)\b", "N s", line)


def accusations(instrument, code, text):
    """Lines by which an instrument says that something is wrong."""
    lines = text.splitlines()
    if instrument == "explain JOB":
        return lines[:1] if code == 1 else []
    if instrument in ("explain", "doctor", "page"):
        return [line for line in lines if re.match(r"(FAIL|WARN)\b", line)]
    if instrument == "metrics":
        return [line for line in lines if re.match(BAD_METRICS, line)]
    if instrument == "alert":
        return [line for line in lines if line.startswith("firing ")]
    return []


def judge(fault, instrument, said):
    """What an instrument has said of a fault."""
    pattern = fault.only.get(instrument, fault.culprit)
    true = "|".join(filter(None, (pattern, fault.also)))
    if instrument == "metrics":  # Which say no more than a word: where there is a fault it is true.
        pattern, true = fault.metric, catalogue.NEVER if fault.culprit == catalogue.NEVER else ""
    if instrument == "alert":
        pattern = rf"firing ({fault.alert})\b"
        true = "|".join(filter(None, (fault.alert, fault.alerts)))
    seen = Seen()
    for second, code, text in said:
        seen.last = text
        if second >= 0 and seen.first_s is None and (line := line_of(pattern, text)):
            seen.first_s, seen.line = round(second, 1), line
        for line in accusations(instrument, code, text):
            if not re.search(fault.always if second < 0 else f"{true}|{fault.always}", line):
                seen.false.setdefault(without_times(line), second)
    return seen


def is_firing(fault, watch):
    texts = [text for second, _, text in watch.said["alert"] if second >= 0]
    return any(re.search(rf"firing ({fault.alert})\b", text) for text in texts)


def start(fault, mesh):
    """What is healthy: all, or what is there before a fault with which node 2 begins."""
    fault.before(mesh)
    if fault.begins:
        mesh.nodes[0].start_agent()
    else:
        mesh.start_agents()
        mesh.start_job(fault.count, fault.pause_ms)
        mesh.wait_for_steps(10)


def watch_from_the_start(fault, mesh, prometheus):
    """With a fault with which node 2 begins: its agent serves or has ended, and the job starts."""
    fault.inject(mesh)
    agent = mesh.nodes[1].agent
    meshes.pods.wait_until(lambda: agent.ended() or "serves: " in agent.text(), "node 2")
    watch = instruments.Instruments(mesh, prometheus, mesh.nodes[fault.asked - 1])
    mesh.start_job(fault.count, fault.pause_ms)
    return watch


def watch_before_and_after(fault, mesh, prometheus):
    watch = instruments.Instruments(mesh, prometheus, mesh.nodes[fault.asked - 1])
    try:
        time.sleep(HEALTHY_S)
        watch.begin()
        fault.inject(mesh)
        return watch
    except Exception:
        watch.stop()
        raise


def observe(fault, mesh, prometheus):
    """All that was said until the observed time is over and the alert had its time."""
    begin = watch_from_the_start if fault.begins else watch_before_and_after
    watch = begin(fault, mesh, prometheus)
    patience_s = ALERT_S + instruments.longest_for(fault.alert, fault.scale)
    try:
        while watch.second() < fault.observed_s or (
                watch.second() < patience_s and not is_firing(fault, watch)):
            time.sleep(0.5)
    finally:
        watch.stop()
    return watch


def outcome_of(name, said):
    """What the instruments have said of a fault, judged."""
    fault = catalogue.ALL[name]
    outcome = Outcome(name, fault.title, observed_s=fault.observed_s)
    outcome.seen = {one: judge(fault, one, said[one]) for one in instruments.NAMES}
    is_pending = re.compile(rf"(pending|firing) ({fault.alert})\b")
    outcome.pending_s = next((round(second, 1) for second, _, text in said["alert"]
                              if second >= 0 and is_pending.search(text)), None)
    return outcome


def examine(name):
    """Makes one fault. The outcome, and all that was said."""
    fault = catalogue.ALL[name]
    if reason := fault.why_not():
        return Outcome(name, fault.title, not_done=reason), {}
    mesh = meshes.Mesh(fault.rate)
    try:
        start(fault, mesh)
        with meshes.inside(mesh.networks[0]):
            prometheus = instruments.Prometheus(mesh, fault.scrape, fault.scale)
            try:
                watch = observe(fault, mesh, prometheus)
            finally:
                prometheus.end()
        ranks = {f"rank {i}": rank.text()[-1500:] for i, rank in enumerate(mesh.ranks())}
        return outcome_of(name, watch.said), watch.said | ranks
    finally:
        mesh.end()
