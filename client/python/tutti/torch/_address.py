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
        several = not all(is_one_network(place, places[rank]) for place in places)
        address = _toward_others(places, rank) if several else _LOOPBACK
    return f"[{address}]" if ":" in address else address


def _toward_others(places, rank):
    """This host's address towards one that another host has told."""
    for place in places:
        if (not is_one_network(place, places[rank])
                and _is_seen_by_others(place["address"])):
            return _toward(place["address"])
    raise Error("FAILED_PRECONDITION",
                f"the hosts cannot reach each other: of rank {rank}'s the address is "
                f"{places[rank]['address']}; set MASTER_ADDR to an address of rank 0's host")


def is_one_network(one, other):
    """Whether two places are in one network namespace of one machine. Hostnames do not tell, but
    where one of them does not know its machine's number of this boot."""
    (name, boot, network), (others, boot_of_other, network_of_other) = (
        place["host"].split("/") for place in (one, other))
    if boot and boot_of_other:
        return (boot, network) == (boot_of_other, network_of_other)
    return (name, network) == (others, network_of_other)


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
