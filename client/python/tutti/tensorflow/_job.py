"""The group that calls without group= use."""

import tutti
from tutti._error import Error
from tutti._group import Group

_joined: list[Group] = []  # At most one.


def init(group: Group | None = None, **options: object) -> Group:
    """Joins the job with the options of tutti.join(), or takes a Group that has joined; returns the
    Group. Does nothing but that where this process has joined already."""
    if group is not None and (options or not isinstance(group, Group)):
        raise TypeError(f"group {group!r} must be a tutti.Group, without the options of join()")
    if _joined and _joined[0]._left:  # By its own leave().
        _joined.clear()
    if not _joined:
        _joined.append(group if group is not None else tutti.join(**options))
    elif options or group not in (None, _joined[0]):
        raise Error("FAILED_PRECONDITION", "this process has joined already; call shutdown() first")
    return _joined[0]


def shutdown() -> None:
    """Leaves the job. Does nothing where this process has not joined."""
    while _joined:
        with _joined.pop():  # Leaves, unless that is done.
            pass


def group_of(group: Group | None) -> Group:
    """The group to use: that of init() for None."""
    if group is not None:
        return group
    if not _joined:
        raise Error("FAILED_PRECONDITION", "this process has not joined; call "
                    "tutti.tensorflow.init() first, or pass group=")
    return _joined[0]


def rank() -> int:
    """This process's rank."""
    return group_of(None).rank


def size() -> int:
    """The number of ranks."""
    return group_of(None).world_size


def local_rank() -> int:
    """This process's rank among those of its host."""
    group = group_of(None)
    return group.hosts[:group.rank].count(group.hosts[group.rank])


def local_size() -> int:
    """The number of ranks on this host."""
    group = group_of(None)
    return group.hosts.count(group.hosts[group.rank])
