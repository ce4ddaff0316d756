"""Runs pods of a manifest as a kubelet does, out of the kernel's namespaces: a network namespace a
pod; for each container a tree of processes with PID, IPC and mount namespaces of its own and a root
of its own. Volumes, variables, users, capabilities and read-only roots are those of the manifest.

Needs root. Everything ends with the processes; stop() ends them."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60
BIN = pathlib.Path(os.environ.get("TUTTI_BIN", "/nonexistent"))
SOURCE = pathlib.Path(__file__).resolve().parents[2]

ALL_CAPABILITIES = ("all",)
# Before the programs that hold namespaces: where the test is killed, they end, too.
DIE_WITH_TEST = ("setpriv", "--pdeathsig", "KILL")

# In a mount namespace of its own: a root whose changes go to memory, the volumes, then the program.
# $1: a folder for the root. $2: lines of "source target mode". The rest: the program.
_ENTER = r"""
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
root=$1/root
mkdir "$1/up" "$1/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/run"
while read -r source target mode; do
  if [ -d "$source" ]; then mkdir -p "$root$target"; else touch "$root$target"; fi
  mount --bind "$source" "$root$target"
  [ "$mode" = rw ] || mount -o "remount,bind,$mode" "$root$target"
done <"$2"
[ "$3" = rw ] || mount -o "remount,$3" "$root"
shift 3
exec chroot "$root" "$@"
"""


def why_not():
    """Why pods cannot be run here, or ''."""
    if os.geteuid() != 0:
        return "not root"
    for program in ("unshare", "nsenter", "setpriv", "ip"):
        if shutil.which(program) is None:
            return f"{program} is not there"
    with tempfile.TemporaryDirectory() as home:
        trial = subprocess.run(["unshare", "--net", "--ipc", "--mount", "--pid", "--fork", "sh",
                                "-euc", f"mount -t tmpfs t {home}; cd {home}; mkdir u w r; "
                                "mount -t overlay -o lowerdir=/,upperdir=u,workdir=w o r; "
                                "ip link add one type veth peer name two"],
                               capture_output=True, text=True)
    return f"no namespaces: {trial.stderr.strip()}" if trial.returncode else ""


def wait_until(condition, what, patience_s=PATIENCE_S):
    limit = time.monotonic() + patience_s
    while not (result := condition()):
        if time.monotonic() > limit:
            raise TimeoutError(f"{what} did not come about")
        time.sleep(0.02)
    return result


def children_of(pid):
    """Its children, until it has been waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return list(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    return []


class Container:
    """A process that is pid 1 of its namespace, and its children."""

    def __init__(self, network, home, argv, environment, mounts, uid=0, gid=0, groups=(),
                 capabilities=(), read_only=True):
        home.mkdir()
        root = home / "root"
        root.mkdir()
        mounts = [*mounts, (SOURCE, SOURCE, "ro"), (BIN, BIN, "ro"),
                  (BIN.parent / "lib", BIN.parent / "lib", "ro")]
        table = home / "mounts"
        table.write_text("".join(f"{source} {target} {mode}\n" for source, target, mode in mounts))
        self.log = home / "log"
        self._network = network
        limits = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
        become = ["setpriv", f"--reuid={uid}", f"--regid={gid}",
                  f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups",
                  "--inh-caps=-all", f"--bounding-set={limits}", "--no-new-privs"]
        variables = {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp",
                     "PYTHONDONTWRITEBYTECODE": "1", **environment}
        self.inside = [*become, "env", "-i", *(f"{n}={v}" for n, v in variables.items())]
        with open(self.log, "w") as log:
            self._unshare = subprocess.Popen(
                [*DIE_WITH_TEST, "nsenter", f"--target={network}", "--net",
                 "unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child",
                 "bash", "-c", _ENTER, "enter", root, table, "ro" if read_only else "rw",
                 *self.inside, *argv],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        # None where it has ended before anybody could look.
        self._pid, *_ = wait_until(lambda: children_of(self._unshare.pid) or
                                   (self.ended() and [None]), "the container")

    @property
    def pid(self):
        if self._pid is None or self.ended():
            raise ProcessLookupError(f"the container has ended: {self.text()}")
        return self._pid

    def run(self, *argv):
        """Runs a program in the container and waits for it, as kubectl exec does."""
        return subprocess.run(["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid",
                               "--ipc", "--root", "--wd", *self.inside, *argv],
                              capture_output=True, text=True, timeout=PATIENCE_S)

    def ended(self):
        return self._unshare.poll() is not None

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, patience_s=PATIENCE_S):
        """The exit code; that of a signal is its negative number."""
        code = self._unshare.wait(patience_s)
        return code if code < 128 else 128 - code

    def text(self):
        return self.log.read_text()

    def wait_for(self, words):
        wait_until(lambda: self.ended() or words in self.text(), f"'{words}'")
        if words not in self.text():
            raise AssertionError(f"the container has ended without '{words}': {self.text()}")

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._unshare.pid, signal.SIGKILL)
        self._unshare.wait()


class Network:
    """A network namespace, held by a process that does nothing."""

    def __init__(self):
        self._holder = subprocess.Popen([*DIE_WITH_TEST, "unshare", "--net", "sleep", "infinity"],
                                        stdin=subprocess.DEVNULL)
        self.pid = self._holder.pid
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.pid}/ns/net") != own, "the network")

    def ip(self, *arguments):
        subprocess.run(["nsenter", f"--target={self.pid}", "--net", "ip", *arguments], check=True)

    def connect(self, other, own_address, other_address):
        self.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns",
                str(other.pid))
        for network, address in ((self, own_address), (other, other_address)):
            network.ip("address", "add", f"{address}/24", "dev", "eth0")
            network.ip("link", "set", "lo", "up")
            network.ip("link", "set", "eth0", "up")

    def stop(self):
        self._holder.kill()
        self._holder.wait()


class Pod:
    """A pod of a manifest. Names are resolved by the hosts file; hostPaths lie below `node`."""

    def __init__(self, manifest, index, address, home, hosts, network, node=None):
        self.index = index
        self.name = f"{manifest['metadata']['name']}-{index}-{'abcde'[index]}"
        self.address = address
        self._owner = manifest["metadata"]["name"]
        self._spec = manifest["spec"]["template"]["spec"]
        self._node = node
        self._home = home
        self._network = network
        home.mkdir()
        names = home / "hosts"
        names.write_text("127.0.0.1 localhost\n" +
                         "".join(f"{ip} {name}\n" for name, ip in hosts.items()))
        self._mounts_of_all = [(names, "/etc/hosts", "ro")]
        self._volumes = {volume["name"]: self._make_volume(volume)
                         for volume in self._spec["volumes"]}
        self._containers = []

    def _make_volume(self, volume):
        """As kubelets do: an emptyDir is open to all, a Secret belongs to root and fsGroup."""
        if "hostPath" in volume:
            path = self._node / volume["hostPath"]["path"].strip("/")
            path.mkdir(parents=True, exist_ok=True)
            return path
        path = self._home / volume["name"]
        path.mkdir()
        group = self._spec["securityContext"].get("fsGroup", 0)
        if "secret" in volume:
            secret = path / "token"
            secret.write_text("f00d role=agent\n")
            os.chown(secret, 0, group)
            secret.chmod(volume["secret"]["defaultMode"])
        elif "emptyDir" in volume:
            os.chown(path, 0, group)
            path.chmod(0o2777)
        return path

    def _value(self, variable):
        path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        known = {"status.podIP": self.address, "metadata.name": self.name,
                 "spec.nodeName": "node1",
                 "metadata.labels['batch.kubernetes.io/job-name']": self._owner,
                 "metadata.labels['batch.kubernetes.io/controller-uid']": f"{self._owner}-uid",
                 "metadata.annotations['batch.kubernetes.io/job-completion-index']":
                     str(self.index)}
        return known[path] if path else variable["value"]

    def environment_of(self, container):
        environment = {}
        for variable in container["env"]:
            value = self._value(variable)
            for name, known in environment.items():
                value = value.replace(f"$({name})", known)
            environment[variable["name"]] = value
        return environment

    def start(self, name, argv=None, environment=None, uid=None):
        """Starts a container of the manifest, or another program in its place."""
        every = self._spec.get("initContainers", []) + self._spec["containers"]
        container = next(one for one in every if one["name"] == name)
        context = {**self._spec["securityContext"], **container["securityContext"]}
        own_user = uid is None
        group = [context["fsGroup"]] if own_user and "fsGroup" in context else []
        mounts = [(self._volumes[mount["name"]], mount["mountPath"],
                   "ro" if mount.get("readOnly") else "rw") for mount in container["volumeMounts"]]
        made = Container(
            self._network.pid, self._home / f"{name}-{len(self._containers)}",
            argv or container["command"], {**self.environment_of(container), **(environment or {})},
            self._mounts_of_all + mounts, uid=context["runAsUser"] if own_user else uid,
            gid=context["runAsGroup"] if own_user else uid, groups=group,
            capabilities=context["capabilities"].get("add", ()),
            read_only=context.get("readOnlyRootFilesystem", False))
        self._containers.append(made)
        return made

    def probe(self, name, which):
        """Whether a container's probe succeeds now."""
        every = self._spec.get("initContainers", []) + self._spec["containers"]
        container = next(one for one in every if one["name"] == name)
        get = container[which]["httpGet"]
        port = next(one["containerPort"] for one in container["ports"]
                    if one["name"] == get["port"])
        url = f"http://{self.address}:{port}{get['path']}"
        script = f"import urllib.request; urllib.request.urlopen('{url}', timeout=5)"
        asked = subprocess.run(["nsenter", f"--target={self._network.pid}", "--net",
                                sys.executable, "-c", script], capture_output=True, text=True)
        return asked.returncode == 0

    def stop(self):
        for container in reversed(self._containers):
            container.kill()
