"""tuttid under a real systemd, which tests/install/booted boots. Each step is a function; a job
runs under most of them, and its values are checked throughout.

    systemd_scenario.py service     the service, as `cmake --install` made it
    systemd_scenario.py packages    the Debian packages in /debs, their upgrade to those in /newer
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

DEBS, NEWER = pathlib.Path("/debs"), pathlib.Path("/newer")
CONF = pathlib.Path("/etc/tutti/tuttid.conf")
LOG = pathlib.Path("/out/tuttid.log")
DROP_IN = pathlib.Path("/etc/systemd/system/tuttid.service.d/test.conf")
WORK = pathlib.Path("/run/trainers")
TRAINER_UID = 12345
PATIENCE_S = 60


def run(*command, fails=False):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, f"{' '.join(command)}: {done.returncode}: {text}"
    return text


def wait_for(what, condition):
    limit = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < limit, f"waited in vain: {what}; the log ends: {log()[-2000:]}"
        time.sleep(0.02)
    return value


def show(name):
    return run("systemctl", "show", "--property", name, "--value", "tuttid").strip()


def main_pid():
    return int(show("MainPID"))


def is_active():
    return show("ActiveState") == "active"


def log():
    return LOG.read_text() if LOG.exists() else ""


def in_log(text, since=0):
    wait_for(f"{text!r} in the log", lambda: text in log()[since:])


def status_of_mesh():
    return json.loads(run("tutti", "status", "--json"))


def is_there(pid):
    return pathlib.Path(f"/proc/{pid}").exists()


class Job:
    """Ranks of a job, on this node."""

    def __init__(self, name, ranks=2):
        self.name, self.ranks = name, ranks
        self.trainers = [self.start(rank) for rank in range(ranks)]
        self.goes_on()

    def start(self, rank):
        environment = dict(os.environ, TUTTI_JOB=self.name, TUTTI_RANK=str(rank),
                           TUTTI_WORLD_SIZE=str(self.ranks), TUTTI_TIMEOUT="60")
        return subprocess.Popen(["python3", "/test/systemd_trainer.py", WORK], env=environment,
                                user=TRAINER_UID, group=TRAINER_UID, extra_groups=[])

    def steps(self):
        files = [WORK / f"{self.name}-{rank}" for rank in range(self.ranks)]
        return min(int(file.read_text()) if file.exists() else 0 for file in files)

    def goes_on(self):
        """Its ranks check more values than they have until now."""
        before = self.steps()
        for trainer in self.trainers:
            assert trainer.poll() is None, f"a trainer has ended: {trainer.returncode}"
        wait_for(f"steps of {self.name}", lambda: self.steps() >= before + 3)

    def end(self):
        (WORK / "stop").touch()
        for trainer in self.trainers:
            assert trainer.wait(PATIENCE_S) == 0, f"a trainer of {self.name}: {trainer.returncode}"
        (WORK / "stop").unlink()
        print(f"   {self.name}: {self.steps()} steps, all values right")


def workers():
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == "tutti-worker":
                found[int(path.parent.name)] = (path.parent / "status").read_text()
        except OSError:
            pass  # It has ended meanwhile.
    return found


def adopted(before):
    """The agent that runs now is another one, and has the workers of the one before."""
    wait_for("another agent", lambda: main_pid() not in (0, before) and is_active())
    in_log(f"tuttid[{main_pid()}] took over job \"train\"")


# ---- The steps ----

def starts():
    run("systemctl", "start", "tuttid")
    assert is_active()
    status = show("StatusText")
    assert status.startswith("serves: socket /run/tutti/tuttid.sock"), status


def runs_jobs_of_other_users():
    wait_for("the end of earlier workers", lambda: not workers())
    job = Job("train")
    (status,) = workers().values()
    uid = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
    assert int(uid) == TRAINER_UID, status
    assert "Seccomp:\t2" in status, status  # The unit's filter holds for workers, too.
    assert "CapEff:\t0000000000000000" in status, status
    return job


def reloads(job):
    before, seen = main_pid(), len(log())
    CONF.write_text('jobs_max = 1\nlog_level = "debug"\nlisten = "127.0.0.1:7777"\n')
    run("systemctl", "reload", "tuttid")
    in_log('jobs_max: "1" from now on, until now "256"', seen)
    in_log(f'warning tuttid[{before}] listen: "127.0.0.1:7601" until a restart, '
           'then "127.0.0.1:7777"', seen)
    assert main_pid() == before and is_active()
    refused = run("python3", "-c", "import tutti; tutti.join('second', 0, 1)", fails=True)
    assert "jobs_max" in refused, refused
    job.goes_on()


def keeps_its_settings_where_the_file_is_wrong(job):
    seen = len(log())
    CONF.write_text("jobs_max = 7\njobs_max = many\n")
    run("systemctl", "reload", "tuttid")
    sentence = f"{CONF}:2: setting jobs_max = 'many': expected a number from 1 to 65536"
    in_log("all settings stay as they are: " + sentence, seen)
    assert is_active() and sentence in run("systemctl", "status", "--no-pager", "tuttid")
    CONF.write_text("")
    run("systemctl", "reload", "tuttid")
    in_log('jobs_max: "256" from now on, until now "1"', seen)  # Not 7.
    job.goes_on()


def hands_jobs_over(job):
    before, workers_before = main_pid(), workers().keys()
    run("systemctl", "restart", "tuttid")
    adopted(before)
    job.goes_on()
    before = main_pid()
    os.kill(before, signal.SIGKILL)
    adopted(before)
    job.goes_on()
    assert workers().keys() == workers_before
    run("systemctl", "stop", "tuttid")
    job.goes_on()
    run("systemctl", "start", "tuttid")
    adopted(0)
    job.goes_on()


def is_watched(job):
    DROP_IN.write_text(DROP_IN.read_text() + "WatchdogSec=2\nTimeoutAbortSec=1\n")
    run("systemctl", "daemon-reload")
    before = main_pid()
    run("systemctl", "restart", "tuttid")
    adopted(before)
    before = main_pid()
    fed = int(show("WatchdogTimestampMonotonic"))
    wait_for("the watchdog is fed", lambda: int(show("WatchdogTimestampMonotonic")) > fed)
    os.kill(before, signal.SIGSTOP)  # A loop that hangs.
    adopted(before)
    assert not is_there(before)
    job.goes_on()


def says_why_it_does_not_start():
    CONF.write_text("listen = 127.0.0.1:7601\nlog_levl = info\n")
    run("systemctl", "start", "tuttid", fails=True)
    subprocess.run(["systemctl", "reset-failed"])
    run("systemctl", "start", "tuttid", fails=True)
    text = run("systemctl", "status", "--no-pager", "tuttid", fails=True)
    assert "status=2" in text, text
    assert f"{CONF}:2: there is no setting 'log_levl'" in text, text
    assert show("NRestarts") == "0"  # It would be the same again.
    CONF.write_text("listen = nowhere\n")
    run("systemctl", "start", "tuttid", fails=True)
    assert f"{CONF}:1: setting listen = 'nowhere': expected host:port" in run(
        "systemctl", "status", "--no-pager", "tuttid", fails=True)
    assert show("NRestarts") == "0"
    CONF.write_text("")


def waits_for_its_address():
    """As at boot, before the network has it: for longer than systemd would try by default."""
    CONF.write_text("listen = 192.0.2.7:7601\ntoken = for-agents-only\n")
    run("systemctl", "start", "tuttid", fails=True)
    wait_for("more tries", lambda: int(show("NRestarts")) > 6)
    run("ip", "address", "add", "192.0.2.7/32", "dev", "lo")
    wait_for("the agent", is_active)
    run("systemctl", "stop", "tuttid")
    CONF.write_text("")


def drains():
    """With drain_ms the end of the agent waits for the jobs, and refuses new ones."""
    CONF.write_text("drain_ms = 600000\n")
    run("systemctl", "start", "tuttid")
    job = Job("last")
    run("systemctl", "stop", "--no-block", "tuttid")
    wait_for("draining", lambda: show("StatusText").startswith("stopping when the jobs"))
    job.goes_on()
    job.end()
    wait_for("the end of the agent", lambda: show("ActiveState") == "inactive")
    assert show("Result") == "success"
    assert not workers()


def do(step, *arguments):
    print(f"== {step.__name__}")
    return step(*arguments)


def service():
    os.environ["PYTHONPATH"] = "/usr/share/tutti/python"
    do(starts)
    job = do(runs_jobs_of_other_users)
    for step in (reloads, keeps_its_settings_where_the_file_is_wrong, hands_jobs_over, is_watched):
        do(step, job)
    job.end()
    wait_for("the end of its worker", lambda: not workers())
    run("systemctl", "stop", "tuttid")
    do(says_why_it_does_not_start)
    do(waits_for_its_address)
    do(drains)


# ---- Packages ----

def version_of(package):
    return run("dpkg-query", "--show", "--showformat", "${Version}", package)


def is_complete():
    assert run("systemctl", "is-enabled", "tuttid").strip() == "enabled"
    for program in ("tutti", "tuttid"):
        text = run(program, "--version")
        assert text.startswith(f"{program} {version_of('tuttid')} (protocol "), text
    library = run("python3", "-c", "import tutti; print(tutti._library.library_path())").strip()
    assert library.endswith("/libtutti.so.0"), library  # There is none without a number.
    known = run("python3", "-c", "from importlib.metadata import distribution as d; "
                "print(d('tutti-collectives').version, *d('tutti-collectives').entry_points)")
    backend = ("EntryPoint(name='tutti', value='tutti.torch:register', "
               "group='torch.distributed.backends')")
    assert known.strip() == f"{version_of('tuttid')} {backend}", known
    complete = (". /usr/share/bash-completion/completions/tutti; COMP_WORDS=(tutti {}); "
                "COMP_CWORD={}; _tutti; echo ${{COMPREPLY[@]}}")
    assert run("bash", "-c", complete.format("stat", 1)).split() == ["status"]
    assert run("bash", "-c", complete.format("bench --comp", 2)).split() == ["--compare"]


def trains():
    """By the service, and by agents of its own."""
    train = ["python3", "/test/train_line.py"]
    ranks = [subprocess.Popen(train, env=dict(os.environ, TUTTI_JOB="line", TUTTI_RANK=str(rank),
                                              TUTTI_WORLD_SIZE="2"), user=TRAINER_UID,
                              stdout=subprocess.PIPE, text=True) for rank in range(2)]
    lines = [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0] and lines[0] == lines[1], lines
    print("   " + lines[0].strip())
    text = run("tutti", "run", "--hosts", "2", "--per-host", "1", "--", *train)
    assert text.count("slope 3.000") == 2, text


def is_replaced(job, folder, version):
    """Another version is one restart, and keeps the settings. As docs/install.md says."""
    CONF.write_text("jobs_max = 99\n")
    before, starts = main_pid(), log().count(" serves: ")
    run("apt-get", "install", "--yes", "--allow-downgrades", *map(str, folder.glob("*.deb")))
    assert version_of("tuttid") == version
    adopted(before)
    assert log().count(" serves: ") == starts + 1
    assert CONF.read_text() == "jobs_max = 99\n"
    job.goes_on()


def is_purged(job):
    run("apt-get", "purge", "--yes", "tuttid")
    assert not main_pid()
    job.goes_on()
    job.end()
    for path in ("/run/tutti", "/etc/tutti", "/usr/bin/tuttid"):
        assert not pathlib.Path(path).exists(), path
    run("python3", "-O", "-c", "import tutti")  # Compiles it once more.
    run("apt-get", "purge", "--yes", "libtutti0", "libtutti-dev", "python3-tutti")
    left = run("find", "/usr", "/etc", "/var", "-xdev", "-iname", "*tutti*").split()
    assert left == [str(DROP_IN.parent)], left


def packages():
    old = version_of("tuttid")
    do(starts)
    do(is_complete)
    do(trains)
    job = do(runs_jobs_of_other_users)
    print("== an upgrade")
    is_replaced(job, NEWER, old + "+newer")
    print("== back to the version of before")
    is_replaced(job, DEBS, old)
    do(is_purged, job)


def main():
    WORK.mkdir()
    os.chown(WORK, TRAINER_UID, TRAINER_UID)
    DROP_IN.parent.mkdir(parents=True)
    DROP_IN.write_text(f"[Service]\nStandardError=append:{LOG}\n")
    run("systemctl", "daemon-reload")
    {"service": service, "packages": packages}[sys.argv[1]]()


if __name__ == "__main__":
    sys.exit(main())
