"""Hosts of their own on this machine: network namespaces on a bridge, as `tutti run --netns` has.

Connections between them use cubic: a machine's default may pace even the loopback (bbr does), and
every contestant shall run over the same TCP.
"""

import pathlib
import subprocess

ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
CHOSEN = "/proc/sys/net/ipv4/tcp_congestion_control"
CUBIC = f"echo cubic > {CHOSEN}"
BURST_LEAST = 128 << 10  # Bytes; above the kernel's largest packet, 64 KiB.
UNITS = {"gbit": 10**9, "mbit": 10**6, "kbit": 10**3}


def bits_per_s(rate: str) -> int:
    """Of "1gbit"; 0: unlimited."""
    for unit, factor in UNITS.items():
        if rate.endswith(unit):
            return int(float(rate.removesuffix(unit)) * factor)
    return int(rate or 0)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


class Network:
    """Use it in a `with`: what it makes goes with it."""

    def __init__(self, hosts: int, rate: str, scratch: pathlib.Path):
        self.hosts = hosts
        self.rate = rate
        self._scratch = scratch
        self._prefix = f"race{scratch.name[-6:]}".replace("_", "x")
        self._spaces: list[str] = []
        self._allowed = ""

    def __enter__(self) -> "Network":
        if self.hosts == 0:
            return self
        self._allowed = ALLOWED.read_text().strip()
        if "cubic" not in self._allowed.split():
            ALLOWED.write_text(self._allowed + " cubic")
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)
        self._spaces.clear()
        if self._allowed:
            ALLOWED.write_text(self._allowed)

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}" if self.hosts else "127.0.0.1"

    def inside(self, host: int, argv: list[str]) -> list[str]:
        """`argv`, on a host: with its network and a hostname of its own."""
        named = f"hostname race-{host + 1}; exec \"$@\""
        enter = ["ip", "netns", "exec", self._space(host), "unshare", "--uts"]
        return enter + ["sh", "-c", named, "sh", *argv]

    def with_cubic(self, argv: list[str]) -> list[str]:
        """`argv`, in a namespace that somebody else has made."""
        return ["sh", "-c", f"{CUBIC}; exec \"$@\"", "sh", *argv]

    def shell(self) -> str:
        """A program to be used as ssh is: [OPTIONS] ADDRESS COMMAND..."""
        path = self._scratch / "shell"
        if not path.exists():
            path.write_text(
                "#!/bin/sh\n"
                "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
                "host=${1##*.}\n"
                "shift\n"
                f"exec ip netns exec {self._prefix}h$((host - 1)) unshare --uts \\\n"
                "  sh -c \"hostname race-$host; $*\"\n")
            path.chmod(0o755)
        return str(path)

    def _space(self, host: int) -> str:
        return f"{self._prefix}h{host}"

    def _make(self) -> None:
        bridge = f"{self._prefix}br"
        self._add(bridge)
        run("ip", "-n", bridge, "link", "add", "dev", "bridge0", "type", "bridge")
        run("ip", "-n", bridge, "link", "set", "dev", "bridge0", "up")
        for host in range(self.hosts):
            self._add_host(host, bridge)

    def _add(self, space: str) -> None:
        run("ip", "netns", "add", space)
        self._spaces.append(space)
        run("ip", "-n", space, "link", "set", "dev", "lo", "up")
        run("ip", "netns", "exec", space, "sh", "-c", CUBIC)

    def _add_host(self, host: int, bridge: str) -> None:
        space, port = self._space(host), f"port{host}"
        self._add(space)
        run("ip", "-n", bridge, "link", "add", "dev", port, "type", "veth", "peer", "name", "eth0",
            "netns", space)
        run("ip", "-n", bridge, "link", "set", "dev", port, "master", "bridge0", "up")
        run("ip", "-n", space, "addr", "add", self.address(host) + "/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "dev", "eth0", "up")
        for where, device in ((bridge, port), (space, "eth0")):
            self._limit(where, device)

    def _limit(self, space: str, device: str) -> None:
        rate = bits_per_s(self.rate)
        if rate == 0:
            return
        burst = max(BURST_LEAST, rate // 8 // 1000)
        run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{rate}bit",
            "burst", str(burst), "latency", "50ms")
