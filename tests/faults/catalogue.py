"""The faults: how each is made on a real mesh, and by what words an instrument names the culprit.

Node 1 coordinates; the fault is at node 2 or at its rank 3, and at node 1 where node 2 is asked.
Where `begins` is set it is there when the agent of node 2 starts, and the job is started after it.
"""

import dataclasses
import os
import pathlib
import signal
import subprocess
from typing import Callable

import patched
import mesh as meshes

FAKETIME = (meshes.pods.SOURCE / "build/tools/libfaketime/usr/lib/x86_64-linux-gnu/faketime"
            / "libfaketimeMT.so.1")
ETCD = meshes.pods.SOURCE / "build/tools/etcd-server/usr/bin/etcd"
OTHER_VERSION = patched.other_version(meshes.pods.SOURCE)
NEVER = "(?!)"
MEMORY = pathlib.Path("/sys/fs/cgroup/memory")


@dataclasses.dataclass
class Fault:
    title: str
    inject: Callable
    culprit: str  # A regular expression of what explain, doctor, status, page and log may say.
    metric: str
    alert: str
    # What else is true of it: lines that are no false words, and alerts.
    also: str = ""
    alerts: str = ""
    always: str = NEVER  # Also true before it.
    begins: bool = False
    before: Callable = lambda mesh: None
    asked: int = 1  # The node where explain, status and the page are asked.
    rate: str = ""  # Of the link, as tc has it.
    count: int = 16384
    pause_ms: int = 50
    only: dict = dataclasses.field(default_factory=dict)  # Other expressions, by instrument.
    why_not: Callable = lambda: ""
    observed_s: int = 15
    scrape: str = "500ms"  # How often Prometheus asks, and for how long at most,
    scale: int = 30        # and by what the times of alerts are divided.
    is_quick: bool = False  # Part of the suite.


def second(mesh):
    return mesh.nodes[1]


# ---- How they are made ----

def kill_rank(mesh):
    second(mesh).ranks[1].send(signal.SIGKILL)


def stop_rank(mesh):
    second(mesh).ranks[1].send(signal.SIGSTOP)


def use_ring(mesh):
    for node in mesh.nodes:
        (node.etc / "strategy").write_text("ring")


def use_another_strategy(mesh):
    (second(mesh).etc / "strategy").write_text("centralized")


def kill_agent(mesh):
    second(mesh).agent.send(signal.SIGKILL)


def kill_coordinator(mesh):
    mesh.nodes[0].agent.send(signal.SIGKILL)


def start_with_tls(mesh):
    """And with a certificate that is its own authority."""
    files = second(mesh).etc / "tls"
    files.mkdir()
    second(mesh).run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=node2", "-addext",
        "subjectAltName=DNS:node2", "-keyout", files / "tls.key", "-out", files / "tls.crt")
    (files / "ca.crt").write_bytes((files / "tls.crt").read_bytes())
    start_with(tls="require", tls_dir="/etc/tutti/tls")(mesh)


def elect_through_etcd(mesh):
    """A cluster of one member, at node 2."""
    url = f"http://{second(mesh).address}:2379"
    mesh.etcd = second(mesh).start("etcd", [
        ETCD, "--data-dir=/tmp/etcd", f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}"])
    mesh.etcd.wait_for("serving")
    for node in mesh.nodes:
        node.configure(coordinator=None, etcd=url.removeprefix("http://"), trust_network="yes")


def kill_etcd(mesh):
    mesh.etcd.send(signal.SIGKILL)


def no_etcd():
    return "" if ETCD.exists() else "run tests/tools/get etcd-server"


def fill_run_dir(mesh):
    second(mesh).ask("sh", "-c", "cat /dev/zero >/run/tutti/filler")


def make_run_dir_read_only(mesh):
    second(mesh).run("mount", "--bind", "/run/tutti", "/run/tutti")
    second(mesh).run("mount", "-o", "remount,ro,bind", "/run/tutti")


def cut_network(mesh):
    second(mesh).network.ip("link", "set", "eth0", "down")


def start_with(**settings):
    def start(mesh):
        second(mesh).configure(**settings)
        second(mesh).start_agent(serves=False)
    return start


def make_another_version(mesh):
    second(mesh).bin = second(mesh).home / "bin"
    second(mesh).bin.mkdir()
    patched.speak_another_version(meshes.pods.BIN, second(mesh).bin)


def start_agent(mesh):
    second(mesh).start_agent(serves=False)


def start_where_node1_is(address):
    def start(mesh):
        second(mesh).names.write_text(f"127.0.0.1 localhost\n{address} node1\n10.0.0.2 node2\n")
        second(mesh).start_agent(serves=False)
    return start


def start_a_minute_ahead(mesh):
    second(mesh).environment |= {"LD_PRELOAD": FAKETIME, "FAKETIME": "+61s",
                                 "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    second(mesh).of_ranks = {"LD_PRELOAD": ""}  # Python cannot sleep with it.
    second(mesh).start_agent(serves=False)


def start_with_few_descriptors(mesh):
    """And as many jobs as use them up."""
    second(mesh).start_agent(["prlimit", "--nofile=64:64"], serves=False)
    second(mesh).start("others", ["python3", pathlib.Path(__file__).with_name("many_jobs.py")])


def add_gpus(mesh):
    second(mesh).environment |= {
        "TUTTI_NVML_LIBRARY": meshes.pods.BIN.parent / "lib" / "libfake_nvml.so",
        "FAKE_NVML_EVENTS": second(mesh).home / "events"}
    (second(mesh).home / "events").touch()


def lose_gpu(mesh):
    with (second(mesh).home / "events").open("a") as events:
        events.write("1 79\n")


def is_removed(group):
    """A group can be removed once its processes are gone."""
    try:
        group.rmdir()
        return True
    except OSError:
        return False


def exhaust_memory(mesh):
    """The worker gets a limit, then more to do than it allows: the kernel kills it."""
    worker, = second(mesh).workers()
    group = MEMORY / f"tutti-faults-{os.getpid()}"
    group.mkdir()
    mesh.at_end.append(lambda: meshes.pods.wait_until(lambda: is_removed(group), "an empty group"))
    (group / "memory.limit_in_bytes").write_text(str(1 << 20))
    (group / "cgroup.procs").write_text(str(worker))
    for node in mesh.nodes:
        (node.etc / "count").write_text(str(8 << 20))


def no_memory_groups():
    there = (MEMORY / "memory.limit_in_bytes").exists()
    return "" if there else "there is no memory controller of cgroup v1"


def no_faketime():
    return "" if FAKETIME.exists() else "run tests/tools/get libfaketime"


def no_objdump():
    found = subprocess.run(["sh", "-c", "command -v objdump readelf"], capture_output=True)
    return "" if found.returncode == 0 else "objdump and readelf are not there"


def start_busy_loops(mesh):
    """Nice: the kernel counts it within a session, and for the session where it groups those."""
    for i in range(8):
        second(mesh).start(f"busy{i}", ["nice", "-n5", "sh", "-c", "echo 5 >/proc/self/autogroup; "
                                        "while :; do :; done"])


# ---- What names them ----


JOB_ENDS = (r"job demo|demo\b.*(failed|UNAVAILABLE)|"
            r"(ranks?|host) .*(was in|went|gone|last operation)")
NOT_JOINED = r"has ended before all of its|ranks 2, 3 of 4 have not joined|rank [23] .*not joined"
UNKNOWN = "which ranks did not is not known"
NODE_LOST = r"[Nn]ode2?\b.*lost|node2\b.*(lost|unreachable|stopped)"

FAULTS = {
    "rank killed": Fault(
        "a rank is killed (SIGKILL)", kill_rank,
        r"rank 3\b.*(died|killed|is gone|ended without|signal 9)",
        metric=r'tutti_ranks_died_total{host="node2"} [1-9]',
        alert="TuttiRankDied", alerts="TuttiJobFailed|TuttiOperationsFail|TuttiRanksDisagree",
        also=JOB_ENDS, is_quick=True),
    "rank stuck": Fault(
        "a rank hangs in user code (SIGSTOP)", stop_rank, r"rank 3\b.*behind",
        metric=r'tutti_job_verdict{[^}]*verdict="behind"} 1', alert="TuttiRankBehind",
        also=r"ranks 0, 1, 2 in all_reduce|next: py-spy",
        only={"status": r"rank 3\b.*behind", "log": r"rank 3\b"}, is_quick=True),
    "other strategy": Fault(
        "the ranks of one host ask for another strategy", use_another_strategy,
        r"(disagree|rank [01] .*ring.*rank [23] .*centralized|rank [23] .*centralized.*rank [01] )",
        metric=r'tutti_job_verdict{[^}]*verdict="disagreement"} 1', alert="TuttiRanksDisagree",
        alerts="TuttiJobFailed|TuttiOperationsFail", also=JOB_ENDS, before=use_ring,
        is_quick=True),
    "link at 1/10": Fault(
        "a link falls to a tenth (tc tbf, 200 to 20 Mbit/s)",
        lambda mesh: mesh.limit("20mbit"), r"link node(1->node2|2->node1)",
        metric=r'tutti_job_verdict{[^}]*verdict="slow_link"} 1', alert="TuttiSlowLink",
        also="data is under way", rate="200mbit", count=1 << 18, pause_ms=100),
    "link at 1/100": Fault(
        "a link falls to a hundredth (tc tbf, 200 to 2 Mbit/s)",
        lambda mesh: mesh.limit("2mbit"), r"link node(1->node2|2->node1)",
        metric=r'tutti_job_verdict{[^}]*verdict="slow_link"} 1', alert="TuttiSlowLink",
        alerts="TuttiRankBehind", scrape="4s", scale=6,
        also=UNKNOWN + "|data is under way|data has been under way",
        rate="200mbit", count=1 << 18, pause_ms=100),
    "agent down": Fault(
        "an agent is killed (SIGKILL)", kill_agent, NODE_LOST,
        metric=r'tutti_node_failed{[^}]*node="node2"} 1', alert="TuttiNodeLost|TuttiAgentDown",
        alerts="TuttiNodeLost|TuttiAgentDown|TuttiRankBehind",
        also=r"2 of 4 ranks|node2|agent|mesh|demo +.*unanswered",
        only={"doctor": r"FAIL +agent"}, is_quick=True),
    "coordinator down": Fault(
        "the agent of the coordinator is killed (SIGKILL)", kill_coordinator,
        r"coordinator.*node1|[Nn]ode1?\b.*(lost|unreachable|stopped)",
        metric=r'tutti_coordinator_reachable{host="node2"} 0',
        alert="TuttiCoordinatorUnreachable|TuttiAgentNotServing",
        alerts="TuttiNodeLost|TuttiAgentDown|TuttiRankBehind",
        also=r"2 of 4 ranks|node1|coordinator|mesh", asked=2,
        only={"doctor": "FAIL +coordinator"}, is_quick=True),
    "etcd down": Fault(
        "the only member of etcd is killed (SIGKILL)", kill_etcd, "etcd",
        metric=r'tutti_etcd_reachable{host="node[12]"} 0', alert="TuttiEtcdUnreachable",
        alerts="TuttiAgentNotServing|TuttiCoordinatorUnreachable", before=elect_through_etcd,
        why_not=no_etcd, only={"doctor": r"FAIL +etcd"}, also="etcd|only this node is known",
        always="trust_network"),
    "TLS at one side": Fault(
        "an agent has TLS, the coordinator has not", start_with_tls, NOT_JOINED,
        metric=r'tutti_(coordinator_reachable|agent_serving){host="node2"} 0',
        alert="TuttiAgentNotServing|TuttiCoordinatorUnreachable",
        alerts="TuttiCallersRefused|TuttiRanksMissing|TuttiJobFailed",
        also="node2|mesh|coordinator", begins=True, is_quick=True,
        only={"doctor": r"(FAIL|->) .*TLS", "log": r"node2: .*TLS", "status": "node2"}),
    "wrong token": Fault(
        "an agent has another token", start_with(token="guess"),
        r"(node2|10\.0\.0\.2)\b.*token|token.*(node2|10\.0\.0\.2)",
        metric=r'tutti_(coordinator_reachable|agent_serving){host="node2"} 0',
        alert="TuttiAgentNotServing|TuttiCoordinatorUnreachable",
        alerts="TuttiCallersRefused|TuttiRanksMissing|TuttiJobFailed",
        also=NOT_JOINED + "|node2|mesh|coordinator",
        begins=True, only={"doctor": r"(FAIL|->) .*token"}, is_quick=True),
    "other version": Fault(
        "an agent speaks another protocol version", start_agent,
        r"node2\b.*protocol|protocol.*node2",
        metric=r'tutti_build_info{host="node2",[^}]*protocol="%d"' % OTHER_VERSION,
        alert="TuttiVersionsDiffer",
        alerts="TuttiCallersRefused|TuttiRanksMissing|TuttiJobFailed",
        also=NOT_JOINED + "|version|protocol|release", begins=True,
        before=make_another_version, why_not=no_objdump,
        only={"doctor": r"FAIL +versions",
              "status": f"(protocol|version) {OTHER_VERSION}"}),
    "run_dir full": Fault(
        "run_dir has no room", fill_run_dir, r"node2\b.*run_dir|run_dir.*node2|/run/tutti.*full",
        metric=r'tutti_run_dir_free_bytes{host="node2"} 0\b', alert="TuttiRunDirFull",
        only={"doctor": r"FAIL +directories"}, also="directories"),
    "network down": Fault(
        "a network interface goes down", cut_network,
        NODE_LOST + r"|(host|worker of host) node2\b.*(answer|gone|lost|reach|silent)",
        metric=r'tutti_node_failed{[^}]*node="node2"} 1', alert="TuttiNodeLost|TuttiAgentDown",
        alerts="TuttiJobFailed|TuttiRankBehind|TuttiOperationsFail|TuttiRanksDisagree|"
               "TuttiAgentNotServing|TuttiCoordinatorUnreachable",
        also=JOB_ENDS + "|node2|coordinator|mesh|mtu|clocks|listen|data is under way|" + UNKNOWN,
        only={"doctor": r"FAIL +(coordinator|network|listen|mesh)"}),
    "DNS: nowhere": Fault(
        "the coordinator's name leads nowhere", start_where_node1_is("10.0.0.99"), NOT_JOINED,
        metric=r'tutti_coordinator_reachable{host="node2"} 0',
        alert="TuttiCoordinatorUnreachable|TuttiAgentNotServing",
        alerts="TuttiRanksMissing|TuttiJobFailed", also="node2|coordinator|mesh", begins=True,
        only={"doctor": r"FAIL +coordinator.*(10\.0\.0\.99|node1)", "log": r"node2: .*node1:7601",
              "status": "node2"}),
    "DNS: itself": Fault(
        "the coordinator's name leads to the node itself",
        start_where_node1_is(meshes.ADDRESSES[1]), NOT_JOINED,
        metric=r'tutti_node_coordinates_alone{[^}]*node="node2"[^}]*} 1',
        alert="TuttiTwoCoordinators",
        alerts="TuttiRanksMissing|TuttiJobFailed", also="node2|coordinator|mesh",
        begins=True, only={"doctor": r"OK +coordinator.*node1:7601", "log": r"node2: .*node1:7601",
              "status": "node2"}),
    "clock off": Fault(
        "a clock is a minute ahead", start_a_minute_ahead, r"(node2\b.*clock|clock.*node2)",
        metric=r'tutti_node_clock_offset_seconds{[^}]*node="node2"[^}]*} (6|59)',
        alert="TuttiClockOff", begins=True, why_not=no_faketime,
        only={"doctor": r"(WARN|FAIL) +clocks"}, also="clocks"),
    "worker OOM": Fault(
        "the kernel kills a worker that is out of memory (cgroup)", exhaust_memory,
        r"worker of host node2\b.*(signal 9|killed|memory)",
        metric=r'tutti_jobs_ended_total{host="node2",outcome="failed"} [1-9]',
        alert="TuttiJobFailed", alerts="TuttiRankDied|TuttiOperationsFail|TuttiRanksDisagree",
        also=JOB_ENDS + "|ranks? .* in all_reduce", why_not=no_memory_groups,
        only={"log": r"node2: .*worker.*(signal 9|killed|memory)"}),
    "few descriptors": Fault(
        "an agent has 64 descriptors (ulimit -n 64)", start_with_few_descriptors,
        r"node2\b.*(descriptor|NOFILE|nofile)|(descriptor|NOFILE|open files).*node2",
        metric=r'tutti_agent_descriptors_max{host="node2"} 64',
        alert="TuttiFewDescriptorsLeft",
        alerts="TuttiRanksMissing|TuttiJobFailed|TuttiNodeLost|TuttiAgentDown",
        also="descriptors|other|node2|mesh|" + NOT_JOINED, begins=True, scrape="4s", scale=6,
        only={"doctor": r"(WARN|FAIL) +descriptors"}),
    "run_dir read-only": Fault(
        "run_dir becomes read-only", make_run_dir_read_only,
        r"node2\b.*run_dir|run_dir.*node2|/run/tutti.*read-only",
        metric=r'tutti_run_dir_free_bytes{host="node2"} 0\b', alert="TuttiRunDirFull",
        only={"doctor": r"FAIL +directories"}, also="directories"),
    "one name twice": Fault(
        "two agents have one name", start_with(host="node1"),
        r"node1\b.*(two|another|twice|already|10\.0\.0\.2)|(two|another|other) agents?.*node1",
        metric=r'tutti_node_agents{[^}]*node="node1"[^}]*} 2',
        alert="TuttiNameTwice",
        alerts="TuttiCallersRefused|TuttiRanksMissing|TuttiAgentDown|TuttiJobFailed",
        also=NOT_JOINED + "|node1|coordinator|mesh", begins=True,
        only={"doctor": r"(WARN|FAIL|->) .*(name|node1)", "status": "two agents|twice"}),
    "GPU fails": Fault(
        "a GPU has a fatal XID (the fake NVML)", lose_gpu, r"GPU 1 of node2\b.*XID 79|XID 79",
        metric=r'tutti_gpu_failed{host="node2",[^}]*gpu="1"[^}]*} 1|tutti_gpu_failed{[^}]*} 1',
        alert="TuttiGpuFailed", before=add_gpus, only={"doctor": r"(WARN|FAIL) +gpus.*XID 79"},
        also="gpus|GPU 1", always="RLIMIT_MEMLOCK", is_quick=True),
}

# Nothing may be said of a mesh that is healthy, beside programs that leave it few cores.
HEALTHY = "healthy"
ALL = FAULTS | {HEALTHY: Fault("nothing, beside 8 busy loops", start_busy_loops, NEVER, NEVER,
                               NEVER, observed_s=300)}
