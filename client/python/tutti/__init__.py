"""Tutti: collective communication through the node's daemon.

    import tutti
    group = tutti.join(job="demo", rank=0, world_size=4)  # or all from TUTTI_* in the environment
    group.all_reduce(x, op="mean")                        # NumPy, torch, anything with DLPack
    group.leave()

Every failure raises tutti.Error. Groups and works may be used from several threads at once; all
ranks must start the operations of a group in the same order.
"""

import tutti._library as _library
from tutti._checksum import checksum
from tutti._error import Error
from tutti._group import Group, join
from tutti._reference import reference
from tutti._work import Work

__all__ = ["Error", "Group", "Work", "checksum", "join", "reference"]
__version__: str = _library.library.tutti_version().decode()
