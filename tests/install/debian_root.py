"""Minimal Debians to try things in: overlays over a root of mmdebstrap, and chroot."""

import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_MIRROR = re.compile("Could not (resolve|connect)|Failed to fetch|Unable to connect")
APART = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
LANGUAGE = ("LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES")  # Part of what ccache compares.
CACHE = ""
if shutil.which("ccache"):
    CACHE = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True,
                           check=True).stdout.strip()


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    if done.returncode != 0:
        if NO_MIRROR.search(done.stdout):
            skip("no Debian mirror can be reached")
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


class Stage:
    def __init__(self, work, base):
        self.root, self.arguments = work / "root", {}
        self.config = {}
        for folder in ("root", "upper", "work"):
            (work / folder).mkdir(parents=True)
        run("mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir={base},upperdir={work}/upper,workdir={work}/work", self.root)

    def run(self, command):
        """As docker does: in a shell, with network, /proc and /dev. Returns what it printed."""
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                     "DEBIAN_FRONTEND": "noninteractive", **self.arguments}
        environment = [f"{name}={value}" for name, value in variables.items()]
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        script = ('mount --bind /dev "$0/dev"; mount -t proc proc "$0/proc"; root=$0; '
                  '[[ ! -d $0/ccache ]] || mount --bind "$2" "$0/ccache"; '
                  'exec env -i "${@:3}" chroot "$root" /bin/sh -c "$1"')
        return run("unshare", "--mount", "bash", "-ec", script, self.root, command, CACHE,
                   *environment)

    def add_ccache(self):
        """As deploy/build sets it, so that objects of this machine's builds are found."""
        self.run("apt-get install --yes --no-install-recommends ccache")
        (self.root / "ccache").mkdir()
        self.arguments |= {"CCACHE_DIR": "/ccache", "CCACHE_BASEDIR": "/src",
                           "CCACHE_SLOPPINESS": "pch_defines,time_macros",
                           **{name: os.environ[name] for name in LANGUAGE if name in os.environ}}

    def copy(self, source, target, ignored=()):
        target = self.root / target.lstrip("/")
        leave_out = shutil.ignore_patterns()
        if ignored:
            leave_out = lambda folder, names: [
                name for name in names if any(
                    fnmatch.fnmatch(str((pathlib.Path(folder) / name).relative_to(source)),
                                    pattern.replace("**/", "*")) for pattern in ignored)]
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=leave_out)

    def size(self):
        return int(run("du", "--summarize", "--bytes", "--one-file-system", self.root).split()[0])


def debian(release, folder, *options):
    """Makes a minimal root of a release, in a new folder."""
    run("mmdebstrap", "--quiet", "--variant=minbase", *options, release, folder)


def enter_namespace():
    """Starts this program again with mounts of its own, or skips where that cannot be."""
    if os.geteuid() != 0:
        skip("chroot needs root")
    if subprocess.run([*APART, "true"], capture_output=True).returncode != 0:
        skip("namespaces are not permitted")
    for program in ("mmdebstrap", "setpriv"):
        if not shutil.which(program):
            skip(f"{program} is not installed; run deploy/install-packages tests")
    if os.environ.get("TUTTI_INSTALL_TEST") != "apart":  # Its mounts end with it.
        os.environ["TUTTI_INSTALL_TEST"] = "apart"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
