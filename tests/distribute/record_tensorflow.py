"""Records what TensorFlow's own topology, device assignment and resolvers do with random input.

    pip install tensorflow-cpu==2.21.0
    python3 tests/distribute/record_tensorflow.py > tests/distribute/tensorflow.json

tensorflow_test.cc compares ours with the table. Points of a mesh are written as their row-major
position, the core fastest; a name in place of a result is the exception that was raised. What
differs on purpose is left out: docs/distribute.md lists it.
"""

import json
import math
import os
import random
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.distribute.cluster_resolver import cluster_resolver
from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver as slurm
from tensorflow.python.distribute.cluster_resolver import tfconfig_cluster_resolver
from tensorflow.python.tpu import device_assignment
from tensorflow.python.tpu.topology import Topology
from tensorflow.python.training.server_lib import ClusterSpec

SEED = 20
RANDOM = random.Random(SEED)


def attempt(function):
    """What `function` returns, or the name of the exception that it raises."""
    try:
        return function()
    except Exception as error:  # pylint: disable=broad-except
        return type(error).__name__


def point(position, mesh):
    return [int(n) for n in np.unravel_index(position, mesh)]


def positions(points, mesh):
    return [int(np.ravel_multi_index([int(n) for n in at], mesh)) for at in points]


def random_mesh(most):
    while True:
        mesh = [RANDOM.choice([1, 1, 2, 2, 3, 4, 4, 5, 6, 8]) for _ in range(3)]
        mesh.append(RANDOM.choice([1, 1, 2, 2, 4, 8]))
        if math.prod(mesh) <= most:
            return mesh


def random_devices(mesh):
    """Positions by task: every point of the mesh, or, one time in five, some of them."""
    points = list(range(math.prod(mesh)))
    if RANDOM.random() < 0.3:
        RANDOM.shuffle(points)
    if RANDOM.random() < 0.2 and len(points) > 1:
        points = points[:RANDOM.randrange(1, len(points))]
    tasks = RANDOM.choice([n for n in range(1, len(points) + 1) if len(points) % n == 0])
    size = len(points) // tasks
    return [points[i:i + size] for i in range(0, len(points), size)]


def topology_of(mesh, devices):
    return Topology(mesh_shape=mesh, device_coordinates=[[point(at, mesh) for at in task]
                                                         for task in devices])


def sizes_for(mesh, odds):
    """Numbers that mostly fit in the mesh, or None for the default."""
    if RANDOM.random() < odds:
        return None
    if RANDOM.random() < 0.06:
        return RANDOM.choice([[1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1], [1, 1, -1, 1], []])
    return [RANDOM.choice([n for n in range(1, size + 1) if size % n == 0 or RANDOM.random() < 0.2])
            for size in mesh]


def replicas_for(mesh, shape, stride):
    if len(shape or mesh) != 4 or len(stride or mesh) != 4 or 0 in (shape or []) + (stride or []):
        return 1
    blocks = [(a or 1) * (b or 1) for a, b in zip(shape or [1] * 4, stride or [1] * 4)]
    most = math.prod(max(size // abs(block), 1) * (step or 1)
                     for size, block, step in zip(mesh, blocks, stride or [1] * 4))
    draw = RANDOM.random()
    if draw < 0.45:
        return most
    return most + 1 if draw < 0.5 else RANDOM.randint(1, most)


def record_assignment():
    mesh = random_mesh(48)
    devices = random_devices(mesh)
    shape, stride = sizes_for(mesh, 0.2), sizes_for(mesh, 0.6)
    if shape and len(shape) == 4 and RANDOM.random() < 0.3:
        shape[3] = mesh[3]
    replicas, mode = replicas_for(mesh, shape, stride), RANDOM.choice([0, 0, 0, 1, 2])

    def build():
        made = device_assignment.DeviceAssignment.build(
            topology_of(mesh, devices), shape, stride, replicas,
            device_assignment.DeviceOrderMode(mode))
        return [positions(replica, mesh) for replica in made.core_assignment]

    return {"mesh": mesh, "devices": devices, "shape": shape, "stride": stride,
            "replicas": replicas, "mode": mode, "cores": attempt(build)}


def record_topology():
    mesh = random_mesh(24)
    devices = random_devices(mesh)
    topology = topology_of(mesh, devices)
    last = len(devices) - 1
    at = point(devices[last][0], mesh)
    assignment = device_assignment.DeviceAssignment(
        topology, [[point(RANDOM.choice(task), mesh)] for task in devices for _ in range(2)])
    return {"mesh": mesh, "devices": devices,
            "missing": positions(topology.missing_devices, mesh),
            "names": [topology.tpu_device_name_at_coordinates(at, "worker"),
                      topology.cpu_device_name_at_coordinates(at)],
            "cores": [positions(replica, mesh) for replica in assignment.core_assignment],
            "lookup": assignment.lookup_replicas(last, 0),
            "ordinals": [int(assignment.tpu_ordinal(i)) for i in range(assignment.num_replicas)]}


def spoil(text):
    """Now and then a character more or less."""
    if not text or RANDOM.random() < 0.6:
        return text
    at = RANDOM.randrange(len(text))
    return RANDOM.choice([text[:at] + text[at + 1:],
                          text[:at] + RANDOM.choice("[],-()x0a") + text[at:]])


def number_of_width(most):
    return str(RANDOM.randint(0, most)).zfill(RANDOM.choice([0, 0, 2, 3]))


def random_range():
    low = RANDOM.randint(0, 120)
    width = RANDOM.choice([0, 0, 2, 3])
    high = low + RANDOM.randint(0, 4)
    return RANDOM.choice([f"{low:0{width}}-{high:0{width}}", f"{low:0{width}}-{high}",
                          number_of_width(120)])


def random_hosts():
    name = RANDOM.choice(["n", "node-", "gpu.a", "c1-", ""])
    if name and RANDOM.random() < 0.4:
        return name + number_of_width(30)
    return f"{name}[{','.join(random_range() for _ in range(RANDOM.randint(1, 3)))}]"


def descends(text):
    parts = [part.split("-") for part in text.replace("[", ",").replace("]", ",").split(",")]
    return any(len(part) == 2 and part[0].isdigit() and part[1].isdigit() and
               int(part[0]) > int(part[1]) for part in parts)


def record_hostlist():
    while True:
        text = spoil(",".join(random_hosts() for _ in range(RANDOM.randint(1, 3))))
        if not descends(text):
            return [text, attempt(lambda: slurm.expand_hostlist(text))]


def record_tasks_per_node():
    parts = [RANDOM.choice(["{}", "{}(x{})"]).format(RANDOM.randint(0, 12), RANDOM.randint(1, 5))
             for _ in range(RANDOM.randint(1, 4))]
    text = spoil(",".join(parts))
    return [text, attempt(lambda: slurm.expand_tasks_per_node(text))]


def record_slurm():
    hosts = RANDOM.sample(["n1", "n2", "n10", "m[1-3]", "a5", "k[08-11]"], RANDOM.randint(1, 4))
    nodes = len(slurm.expand_hostlist(",".join(hosts)))
    tasks = [RANDOM.randint(1, 4) for _ in range(nodes)]
    total = sum(tasks)
    jobs = RANDOM.choice([None, {"worker": total}, {"ps": 1, "worker": total - 1},
                          {"worker": total + 1}])
    case = {"variables": {"SLURM_PROCID": str(RANDOM.randrange(total)),
                          "SLURM_STEP_NUM_TASKS": str(total),
                          "SLURM_STEP_NODELIST": ",".join(hosts),
                          "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, tasks))},
            "jobs": jobs, "port": RANDOM.choice([8888, 1000]),
            "gpus": max(tasks) * RANDOM.randint(1, 2),
            "gpus_per_task": RANDOM.choice([None, None, 1, 2])}
    if RANDOM.random() < 0.15:
        del case["variables"][RANDOM.choice(sorted(case["variables"]))]
    case["result"] = attempt(lambda: resolve_slurm(case))
    return case


def resolve_slurm(case):
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        del os.environ[name]
    os.environ.update(case["variables"])
    resolver = slurm.SlurmClusterResolver(jobs=case["jobs"], port_base=case["port"],
                                          gpus_per_node=case["gpus"],
                                          gpus_per_task=case["gpus_per_task"])
    cluster = resolver.cluster_spec().as_dict()
    return {"cluster": cluster, "task": list(resolver.get_task_info()),
            "gpus": resolver.num_accelerators()["GPU"], "master": resolver.master(),
            "visible": os.environ["CUDA_VISIBLE_DEVICES"]}


def addresses(job, most):
    return [f"{job}{i}:1" for i in range(RANDOM.randint(0 if most > 2 else 1, most))]


def random_cluster():
    jobs = [job for job, odds in [("chief", 0.5), ("worker", 0.85), ("evaluator", 0.3), ("ps", 0.3),
                                  ("boss", 0.04)] if RANDOM.random() < odds]
    return {job: addresses(job, 4 if job in ("worker", "ps") else RANDOM.choice([1, 1, 1, 1, 2]))
            for job in jobs}


def record_multi_worker():
    cluster = random_cluster()
    kind = RANDOM.choice(["worker"] * 4 + ["chief"] * 2 + ["evaluator", "ps", "boss"])
    number = 0 if kind == "evaluator" and kind not in cluster else RANDOM.randint(0, 4)
    if RANDOM.random() < 0.4 and cluster.get(kind):
        number = RANDOM.randrange(len(cluster[kind]))
    task = (cluster, kind, number)
    return {"cluster": cluster, "task": [kind, number],
            "is_chief": attempt(lambda: multi_worker_util.is_chief(*task)),
            "worker_count": attempt(lambda: multi_worker_util.worker_count(cluster, kind)),
            "id_in_cluster": attempt(lambda: multi_worker_util.id_in_cluster(*task)),
            "leader": attempt(lambda: multi_worker_util.collective_leader(*task))}


def record_tf_config():
    config = {}
    if RANDOM.random() < 0.9:
        config["cluster"] = random_cluster()
    if RANDOM.random() < 0.8:
        config["task"] = {"type": RANDOM.choice(["worker", "chief"]),
                          "index": RANDOM.choice([0, 1, 2, "1"])}
    for key, odds in (("rpc_layer", 0.4), ("session_master", 0.1)):
        if RANDOM.random() < odds:
            config[key] = RANDOM.choice(["grpc", "x:1"])
    text = json.dumps(config)
    text = text[:-1] if RANDOM.random() < 0.1 else text
    os.environ["TF_CONFIG"] = text
    resolver = tfconfig_cluster_resolver.TFConfigClusterResolver()
    return {"text": text, "cluster": attempt(lambda: resolver.cluster_spec().as_dict()),
            "task": attempt(lambda: [resolver.task_type, resolver.task_id]),
            "rpc_layer": attempt(lambda: resolver.rpc_layer),
            "master": attempt(resolver.master)}


def record_union():
    def tasks():
        if RANDOM.random() < 0.5:
            return [f"a{RANDOM.randint(0, 9)}:1" for _ in range(RANDOM.randint(1, 3))]
        return {i: f"b{i}:1" for i in RANDOM.sample(range(8), RANDOM.randint(1, 3))}

    names = ["worker", "ps", "chief"]
    specs = [{job: tasks() for job in RANDOM.sample(names, RANDOM.randint(1, 2))}
             for _ in range(RANDOM.randint(1, 3))]
    resolvers = [cluster_resolver.SimpleClusterResolver(ClusterSpec(spec)) for spec in specs]
    union = cluster_resolver.UnionClusterResolver(*resolvers)
    return {"specs": specs, "cluster": attempt(lambda: union.cluster_spec().as_dict())}


SECTIONS = (("assignments", record_assignment, 700), ("topologies", record_topology, 80),
            ("hostlists", record_hostlist, 250), ("tasks_per_node", record_tasks_per_node, 120),
            ("slurm", record_slurm, 60), ("multi_worker", record_multi_worker, 200),
            ("tf_config", record_tf_config, 100), ("unions", record_union, 80))


def main():
    table = {name: [record() for _ in range(count)] for name, record, count in SECTIONS}
    sections = []
    for name, cases in table.items():
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        sections.append(f'"{name}": [\n{lines}\n]')
    sys.stdout.write("{\n" + ",\n".join(sections) + "\n}\n")


if __name__ == "__main__":
    main()
