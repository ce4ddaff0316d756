"""Tutti as a backend of torch.distributed: torch 2.9 or newer.

    import tutti.torch                             # Needed before torch 2.14, or uninstalled.
    torch.distributed.init_process_group("tutti")  # Under torchrun, or tutti run.

Everything that the ranks must know of each other travels through torch's store. Where an agent
serves the node's socket on every host, the job runs there. Otherwise the lowest rank of each host
starts a private agent, which ends with that rank's process.

Tensors are in CPU memory. Failures are torch.distributed.DistBackendError and tutti.Error in one,
and name the rank and the host to blame.
"""

import torch as _torch

if tuple(map(int, _torch.__version__.split(".")[:2])) < (2, 9):
    raise ImportError(f"tutti.torch needs torch 2.9 or newer, but this is {_torch.__version__}")

from tutti.torch._backend import TuttiBackend, create, register
from tutti.torch._options import Options
from tutti.torch._work import BackendError

__all__ = ["BackendError", "Options", "TuttiBackend", "create", "register"]

register()
