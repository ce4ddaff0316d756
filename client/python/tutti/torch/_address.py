"""Addresses at which private agents find each other."""

import ipaddress
import os
import socket

from tutti._error import Error

_LOOPBACK = "127.0.0.1"
_DISCARD = 9  # A port for probes that send nothing.


def toward_store(store):
    """This host's address towards that of torch's store; None where it cannot be found."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    server = getattr(store, "host", None) or os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        return _toward(server)
    except OSError:
        return None


def to_listen_at(places, rank):
    """The address at which the rank's host listens for those of the other places, in brackets if
    it is of IPv6."""
    address = places[rank]["address"]
    if len({place["host"] for place in places}) == 1:
        address = _LOOPBACK
    elif not _is_seen_by_others(address):
        several = len({_network(place) for place in places}) > 1
        address = _toward_others(places, rank) if several else _LOOPBACK
    return f"[{address}]" if ":" in address else address


def _toward_others(places, rank):
    """This host's address towards one that another host has told."""
    for place in places:
        if _network(place) != _network(places[rank]) and _is_seen_by_others(place["address"]):
            return _toward(place["address"])
    raise Error("FAILED_PRECONDITION",
                f"the hosts cannot reach each other: of rank {rank}'s the address is "
                f"{places[rank]['address']}; set MASTER_ADDR to an address of rank 0's host")


def _network(place):
    """What tells machines apart, and network namespaces: hostnames do not."""
    return place["host"].partition("/")[2]


def _toward(server):
    """This host's address towards another; one that others see, if there is one."""
    addresses = []
    for family, kind, protocol, _, target in socket.getaddrinfo(server, _DISCARD,
                                                                type=socket.SOCK_DGRAM):
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(target)
            except OSError:
                continue
            addresses.append(probe.getsockname()[0])
    if not addresses:
        raise OSError(f"no way to {server}")
    return next(filter(_is_seen_by_others, addresses), addresses[0])


def _is_seen_by_others(address):
    return address is not None and not ipaddress.ip_address(address).is_loopback
