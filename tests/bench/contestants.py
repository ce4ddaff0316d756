"""Who races, with which settings, and by which command."""

import dataclasses
import os
import pathlib
import shutil
from typing import Callable

from network import Network
from secured import secured_tutti

# glibc keeps what a peer frees, so that its temporaries stay mapped from one operation to the next.
TUNED_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
}
# And has them, and the tensors, in huge pages.
HUGE_ALLOCATOR = TUNED_ALLOCATOR | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")
STREAM = "stream"  # Rank 0 to rank 1, to see what the wire gives.
ALLOCATORS = {"ordinary": {}, "tuned": TUNED_ALLOCATOR, "huge": HUGE_ALLOCATOR}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    hosts: int
    per_host: int

    @property
    def ranks(self) -> int:
        return self.hosts * self.per_host

    @property
    def networked(self) -> bool:
        return self.hosts > 1

    @property
    def oversubscribed(self) -> bool:
        """More ranks than cores to run on: see on_core()."""
        cores = os.cpu_count() or 1
        return self.per_host > 1 or self.hosts > cores if self.networked else self.ranks > cores


CASES = {
    case.name: case
    for case in (
        Case("shm2", 1, 2),
        Case("shm4", 1, 4),
        Case("tcp2", 2, 1),
        Case("tcp4", 4, 1),
        Case("tcp2x2", 2, 2),
        Case("tcp2x4", 2, 4),
    )
}


@dataclasses.dataclass
class Launch:
    """One process to start; a contestant may need several at once."""

    argv: list[str]
    env: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Field:
    """Where and on what a contestant is to run."""

    case: Case
    bin: pathlib.Path
    scratch: pathlib.Path  # Fresh for each launch.
    network: Network
    arguments: list[str]  # Of the driver: sizes, collectives, seconds, out.

    def driver(self, name: str) -> str:
        return str(self.bin / f"race_{name}")

    def addresses(self) -> list[str]:
        """For each rank's host."""
        per_host = self.case.per_host
        return [self.network.address(rank // per_host) for rank in range(self.case.ranks)]

    def in_host(self, rank: int, argv: list[str]) -> list[str]:
        if not self.case.networked:
            return argv
        return self.network.inside(rank // self.case.per_host, argv)


@dataclasses.dataclass
class Contestant:
    name: str
    kind: str  # tutti, ring, floor, or a peer's: ordinary, tuned or huge
    settings: str
    drivers: list[str]
    package: str
    cases: Callable[[Case], bool]
    launch: Callable[[Field], list[Launch]]
    programs: tuple[str, ...] = ()
    collectives: tuple[str, ...] = COLLECTIVES

    def missing(self, bin_folder: pathlib.Path) -> str:
        """What it lacks on this machine, or ""."""
        lacking = [name for name in self.drivers if not (bin_folder / f"race_{name}").exists()]
        lacking += [name for name in self.programs if shutil.which(name) is None]
        if not lacking:
            return ""
        return f"apt-get install {self.package}" if self.package else f"not built: {lacking}"


def tutti(extra: list[str], env: dict[str, str] | None = None,
          tls: bool = False) -> Callable[[Field], list[Launch]]:
    def launch(field: Field) -> list[Launch]:
        program = secured_tutti(field.bin, field.scratch) if tls else field.bin / "tutti"
        run = [str(program), "run"]
        run += ["--hosts", str(field.case.hosts), "--per-host", str(field.case.per_host)]
        rank = [field.driver("tutti"), *field.arguments, *extra]
        if field.case.networked:
            run += ["--netns"] + (["--rate", field.network.rate] if field.network.rate else [])
            rank = field.network.with_cubic(on_core("$TUTTI_RANK", rank, field.case))
        return [Launch(run + ["--", *rank], env or {})]

    return launch


def on_core(rank: str, argv: list[str], case: Case) -> list[str]:
    """Between hosts, each host has a core for its ranks: hosts know nothing of each other, and the
    kernel, which does not know that they are hosts, would let them crowd on one. `rank`: a number,
    or the variable that has it."""
    if not case.networked:
        return argv
    core = f"$(({rank} / {case.per_host} % {os.cpu_count() or 1}))"
    return ["sh", "-c", f'exec taskset -c "{core}" "$@"', "sh", *argv]


def open_mpi(kind: str, algorithm: str = "") -> Callable[[Field], list[Launch]]:
    def launch(field: Field) -> list[Launch]:
        case = field.case
        env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        run = ["mpirun.openmpi", "-np", str(case.ranks), "--mca", "pml", "ob1"]
        if algorithm:
            run += ["--mca", "coll_tuned_use_dynamic_rules", "1"]
            run += ["--mca", "coll_tuned_allreduce_algorithm", algorithm]
        if case.oversubscribed:
            run += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
        if not case.networked:
            run += ["--mca", "btl", "vader,self"]
        else:
            hosts = [f"{field.network.address(h)}:{case.per_host}" for h in range(case.hosts)]
            local = ",vader" if case.per_host > 1 else ""
            run += ["--mca", "btl", "tcp,self" + local, "--mca", "btl_tcp_if_include", "eth0"]
            run += ["--mca", "oob_tcp_if_include", "eth0", "--bind-to", "none"]
            run += ["--mca", "plm_rsh_agent", field.network.shell(), "--host", ",".join(hosts)]
        exported = ALLOCATORS[kind]
        for name in exported:
            run += ["-x", name]
        driver = [field.driver("openmpi"), *field.arguments]
        run += on_core("$OMPI_COMM_WORLD_RANK", driver, case)
        return [Launch(field.in_host(0, run), env | exported)]

    return launch


def mpich(kind: str) -> Callable[[Field], list[Launch]]:
    def launch(field: Field) -> list[Launch]:
        case = field.case
        run = ["mpiexec.mpich", "-n", str(case.ranks), "-ppn", str(case.per_host)]
        env = dict(ALLOCATORS[kind])
        if not case.networked:
            run += ["-launcher", "fork"] + ([] if case.oversubscribed else ["-bind-to", "core"])
        else:
            env |= {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
            hosts = [f"{field.network.address(h)}:{case.per_host}" for h in range(case.hosts)]
            run += ["-launcher", "ssh", "-launcher-exec", field.network.shell()]
            run += ["-iface", "eth0", "-hosts", ",".join(hosts)]
        if env:
            run += ["-envlist", ",".join(env)]
        run += on_core("$PMI_RANK", [field.driver("mpich"), *field.arguments], case)
        return [Launch(field.in_host(0, run), env)]

    return launch


def gloo(algorithm: str, kind: str) -> Callable[[Field], list[Launch]]:
    def launch(field: Field) -> list[Launch]:
        case = field.case
        store = field.scratch / "store"
        store.mkdir()
        out = []
        for rank in range(case.ranks):
            address = field.addresses()[rank] if case.networked else "127.0.0.1"
            argv = [field.driver("gloo"), "--rank", str(rank), "--ranks", str(field.case.ranks)]
            argv += ["--store", str(store), "--address", address, "--algorithm", algorithm]
            argv = on_core(str(rank), argv + field.arguments, case)
            out.append(Launch(field.in_host(rank, argv), ALLOCATORS[kind]))
        return out

    return launch


def raw_ring(field: Field) -> list[Launch]:
    peers = ",".join(f"{address}:{7000 + rank}" for rank, address in enumerate(field.addresses()))
    launches = []
    for rank in range(field.case.ranks):
        argv = [field.driver("ring"), "--rank", str(rank), "--peers", peers, *field.arguments]
        launches.append(Launch(field.in_host(rank, on_core(str(rank), argv, field.case))))
    return launches


def floor(extra: list[str]) -> Callable[[Field], list[Launch]]:
    def launch(field: Field) -> list[Launch]:
        argv = [field.driver("floor"), "--ranks", str(field.case.ranks), *extra]
        return [Launch(argv + field.arguments)]

    return launch


def local(case: Case) -> bool:
    return not case.networked


def networked(case: Case) -> bool:
    return case.networked


def with_cores(case: Case) -> bool:
    return not case.oversubscribed


def everywhere(_: Case) -> bool:
    return True


GLOO_SETTINGS = "all_reduce by %s; its TCP transport; between hosts a core a host"
OPEN_MPI = ("openmpi-bin libopenmpi-dev", ("mpirun.openmpi",))
MPICH = ("mpich libmpich-dev", ("mpiexec.mpich",))
BOUND = "; within a host a core a rank, where there are enough; between hosts a core a host"
OPEN_MPI_SETTINGS = ("pml ob1; one host: btl vader,self (CMA); several: btl tcp,self (and vader "
                     "within a host); mpi_yield_when_idle where ranks outnumber cores" + BOUND)
MPICH_SETTINGS = ("ch4:ucx; several hosts: UCX_TLS=tcp,self (and its own shared memory within a "
                  "host)" + BOUND)


def described(allocator: dict[str, str]) -> str:
    return "; " + " ".join(f"{k}={v}" for k, v in allocator.items()) if allocator else ""


def peers(kind: str) -> list[Contestant]:
    suffix = "" if kind == "ordinary" else "-" + kind
    more = described(ALLOCATORS[kind])
    out = [
        Contestant("openmpi" + suffix, kind, OPEN_MPI_SETTINGS + more, ["openmpi"], OPEN_MPI[0],
                   everywhere, open_mpi(kind), OPEN_MPI[1]),
        # It spins and never yields: where ranks outnumber cores, milliseconds by any setting.
        Contestant("mpich" + suffix, kind, MPICH_SETTINGS + more, ["mpich"], MPICH[0],
                   everywhere if kind == "ordinary" else with_cores, mpich(kind), MPICH[1]),
    ]
    if kind != "ordinary":  # The only one that beats its own choice, on 4 ranks and large tensors.
        settings = OPEN_MPI_SETTINGS + "; all_reduce by its ring (coll_tuned, 4)" + more
        out.append(Contestant("openmpi-ring" + suffix, kind, settings, ["openmpi"], OPEN_MPI[0],
                              lambda case: case.ranks > 2, open_mpi(kind, "4"), OPEN_MPI[1],
                              collectives=("all_reduce",)))
    # Huge pages change nothing where the sockets' copies decide.
    for algorithm in () if kind == "huge" else ("ring", "bcube", "hd"):
        out.append(Contestant(f"gloo-{algorithm}{suffix}", kind, GLOO_SETTINGS % algorithm + more,
                              ["gloo"], "libgloo-dev", networked, gloo(algorithm, kind),
                              collectives=COLLECTIVES if algorithm == "ring" else ("all_reduce",)))
    return out


def all_contestants() -> list[Contestant]:
    out = [
        Contestant("tutti", "tutti", "defaults; tensors from tutti_alloc()", ["tutti"], "",
                   everywhere, tutti([])),
        Contestant("tutti-staged", "tutti", "defaults; ordinary tensors", ["tutti"], "",
                   everywhere, tutti(["--staged"])),
        Contestant("tutti-reproducible", "tutti", "TUTTI_REPRODUCIBLE=1; of tutti_alloc()",
                   ["tutti"], "", everywhere, tutti([], {"TUTTI_REPRODUCIBLE": "1"}),
                   collectives=("all_reduce", "reduce", "reduce_scatter")),
        Contestant("tutti-tls", "tutti", "tls = require; of tutti_alloc()", ["tutti"], "openssl",
                   networked, tutti([], tls=True), ("openssl",), ("all_reduce",)),
        Contestant("ring", "ring", "a bare ring over raw TCP sockets, one thread a rank", ["ring"],
                   "", networked, raw_ring,
                   collectives=("all_reduce", "all_gather", "reduce_scatter", STREAM)),
    ]
    for name, extra in (("floor-1", ["--threads", "1"]), ("floor-2", ["--threads", "2"]),
                        ("floor-copies", ["--staged"])):
        out.append(Contestant(name, "floor", "processes that fold one mapping: " + " ".join(extra),
                              ["floor"], "", local, floor(extra), collectives=("all_reduce",)))
    for kind in ALLOCATORS:
        out += peers(kind)
    return out
