"""What users of torch.distributed train with. Each feature trains three steps and returns the
values of all parameters; features() runs all of them."""

import contextlib
import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.nn.parallel import DistributedDataParallel

from training import Half, batch, model, sgd, train, values


def ddp(module=None, hook=None, state=None, **options):
    module = module or model()
    wrapped = DistributedDataParallel(module, **options)
    if hook is not None:
        wrapped.register_comm_hook(state, hook)
    train(wrapped, sgd(module.parameters()))
    return values(module.parameters())


def ddp_power_sgd():
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2,
                                        min_compression_rate=0.5)
    return ddp(hook=powerSGD_hook.powerSGD_hook, state=state)


def ddp_no_sync():
    """Gradients of two batches are summed before they are reduced."""
    module = model()
    wrapped, optimizer = DistributedDataParallel(module), sgd(module.parameters())
    for step in range(6):
        with wrapped.no_sync() if step % 2 == 0 else contextlib.nullcontext():
            wrapped(batch(step)).square().mean().backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    return values(module.parameters())


def ddp_join():
    """Rank r has 3 + r batches."""
    module = model()
    wrapped, optimizer = DistributedDataParallel(module), sgd(module.parameters())
    with Join([wrapped]):
        train(wrapped, optimizer, 3 + dist.get_rank())
    return values(module.parameters())


def zero():
    module = model()
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, lr=0.01)
    train(DistributedDataParallel(module), optimizer)
    optimizer.consolidate_state_dict(to=0)
    return values(module.parameters())


def fsdp1():
    module = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    train(module, sgd(module.parameters()))
    with FullyShardedDataParallel.summon_full_params(module):
        return values(module.parameters())


def sharded(mesh=None):
    module = model()
    for layer in (module[3], module[5]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def fsdp2(allocate=False, factor=None, rate=0.1):
    module = sharded()
    for part in module.modules():
        if allocate and hasattr(part, "set_allocate_memory_from_process_group_for_comm"):
            part.set_allocate_memory_from_process_group_for_comm(True)
        if factor and hasattr(part, "set_gradient_divide_factor"):
            part.set_gradient_divide_factor(factor)
    train(module, sgd(module.parameters(), rate))
    return values(p.full_tensor() for p in module.parameters())


def fsdp2_divide_factor():
    """Halved gradients at twice the rate: the values of fsdp2(), by PREMUL_SUM."""
    return fsdp2(factor=2.0 * dist.get_world_size(), rate=0.2)


def hsdp():
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    module = sharded(mesh)
    train(module, sgd(module.parameters()))
    return values(p.full_tensor() for p in module.parameters())


def saved(save):
    """What is loaded of a model after it was saved; `save` saves."""
    module = sharded()
    train(module, sgd(module.parameters()))
    path = os.environ["TUTTI_TEST_FILE"] + f".{save.__name__}"
    save({"model": module.state_dict()}, path)
    other = sharded()
    state = {"model": other.state_dict()}
    checkpoint.load(state, checkpoint_id=path)
    other.load_state_dict(state["model"])
    return values(p.full_tensor() for p in other.parameters())


def save_now(state, path):
    checkpoint.save(state, checkpoint_id=path)


def save_meanwhile(state, path):
    checkpoint.async_save(state, checkpoint_id=path).result()


def dtensor():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(3)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    rows = distribute_tensor(x, mesh, [Shard(0)])
    columns = distribute_tensor(y, mesh, [Shard(1)])
    parts = [rows @ rows.redistribute(mesh, [Replicate()]),
             columns.redistribute(mesh, [Shard(0)]), rows.sum(), columns.t() @ columns]
    return values(part.full_tensor() for part in parts)


def tensor_parallel():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
    parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = sgd(module.parameters())
    for step in range(3):
        torch.manual_seed(step)  # The same batch on all ranks.
        module(torch.randn(5, 12)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return values(p.full_tensor() for p in module.parameters())


def functional():
    group = dist.group.WORLD
    x = batch(0)[:, 0, 0].contiguous()
    results = [funcol.all_reduce(x, "sum", group), funcol.broadcast(x, 1, group),
               funcol.all_gather_tensor(x, 0, group),
               funcol.reduce_scatter_tensor(x, "sum", 1, group),
               funcol.all_to_all_single(x, None, None, group),
               *funcol.all_reduce_coalesced([x, 2 * x], "max", group),
               *funcol.all_gather_into_tensor_coalesced([x, 3 * x], group),
               *funcol.reduce_scatter_tensor_coalesced([x, x.t().contiguous()], "sum",
                                                       [0, 0], group)]
    return values(funcol.wait_tensor(result) for result in results)


FEATURES = {
    "ddp": ddp,
    "ddp_many_buckets": lambda: ddp(bucket_cap_mb=0.001),
    "ddp_find_unused": lambda: ddp(Half(), find_unused_parameters=True),
    "ddp_static_graph": lambda: ddp(Half(), static_graph=True),
    "ddp_bucket_view": lambda: ddp(gradient_as_bucket_view=True),
    "ddp_fp16_hook": lambda: ddp(hook=default_hooks.fp16_compress_hook),
    "ddp_bf16_hook": lambda: ddp(hook=default_hooks.bf16_compress_hook),
    "ddp_power_sgd": ddp_power_sgd,
    "ddp_no_sync": ddp_no_sync,
    "ddp_join": ddp_join,
    "zero": zero,
    "fsdp1": fsdp1,
    "fsdp2": fsdp2,
    "fsdp2_allocate": lambda: fsdp2(allocate=True),
    "fsdp2_divide_factor": fsdp2_divide_factor,
    "hsdp": hsdp,
    "checkpoint": lambda: saved(save_now),
    "checkpoint_async": lambda: saved(save_meanwhile),
    "dtensor": dtensor,
    "tensor_parallel": tensor_parallel,
    "functional": functional,
}


def features():
    """The values of every feature, by name; of one that fails its error as a text."""
    told = {}
    for name, feature in FEATURES.items():
        try:
            told[name] = feature()
        except Exception as error:  # noqa: BLE001: compared with the other backend's.
            told[name] = f"{type(error).__name__}: {error}"
    return told
