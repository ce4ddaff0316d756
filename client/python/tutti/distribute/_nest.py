"""Nested structures: dicts, lists, tuples, None within them, dataclasses, and what a program has
registered with the pytrees of JAX or torch. All other values are leaves, and so is None alone."""

import copy
import dataclasses
import enum
import functools
import hashlib
import numbers
import operator
import sys
import types

from tutti import _foreign
from tutti._error import invalid
from tutti.cross_device import Mirrored, PerReplica

_LEAVES = (str, bytes, numbers.Number, type, PerReplica, Mirrored)
_STATIC_MAX = 80  # Characters of static parts in a description; longer ones become a checksum.


@dataclasses.dataclass
class _Node:
    """One level of a structure. keys: what distinguishes the parts, or None for their places.
    build(parts): such a level with other parts."""
    opening: str
    closing: str
    parts: list
    build: object
    keys: list | None = None
    static: object = None  # What a registered class keeps beside its parts.

    def beginning(self):
        """The class, and the texts and numbers that it keeps beside its parts, such as their keys;
        other objects, such as devices, differ between ranks."""
        text = ",".join(_texts_in(self.static))
        if len(text) > _STATIC_MAX:
            text = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{self.opening}<{text}>" if text else self.opening

    def made_of(self, tree, parts):
        """`tree` itself, which may be a program's own object, unless a part is another one."""
        return tree if all(map(operator.is_, parts, self.parts)) else self.build(parts)


def _node(tree):
    """The uppermost level of a structure, or None for a leaf."""
    if tree is None:
        return _Node("-", "", [], lambda parts: None)
    if isinstance(tree, dict):
        return _dict_node(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _Node(type(tree).__name__ + "(", ")", list(tree), type(tree)._make, tree._fields)
    if isinstance(tree, list):
        return _Node("[", "]", list(tree), type(tree))
    if isinstance(tree, tuple):
        return _Node("(", ")", list(tree), _tuple_maker(type(tree)))
    if isinstance(tree, _LEAVES) or _foreign.is_value(tree):
        return None
    return _registered_node(tree) or _dataclass_node(tree)


def _tuple_maker(kind):
    """What makes a tuple of this class of its items, whatever its own constructor takes."""
    of_c = isinstance(kind.__new__, types.BuiltinFunctionType) and kind.__new__ is not tuple.__new__
    return kind if of_c else functools.partial(tuple.__new__, kind)  # As torch.Size.


def _dict_node(tree):
    keys = _ordered(tree)

    def build(parts):
        built = copy.copy(tree)  # Keeps the class and the order.
        for key, part in zip(keys, parts):
            built[key] = part
        return built

    return _Node("{", "}", [tree[key] for key in keys], build, keys)


def _ordered(keys):
    """The keys in an order that is the same on all ranks, where _name_of() takes them."""
    try:
        return sorted(keys)
    except TypeError:  # The types differ, or have no order.
        return sorted(keys, key=lambda key: (type(key).__name__, _rank_of(key)))


def _rank_of(key):
    """A text that sorts a key among those of its type."""
    return key.name if isinstance(key, enum.Enum) else repr(key)


def _name_of(key):
    """A key as all ranks write it."""
    if isinstance(key, tuple):
        return f"({','.join(map(_name_of, key))})"
    if key is None or isinstance(key, (str, bytes, numbers.Real, enum.Enum)):
        return str(key) if isinstance(key, enum.Enum) else repr(key)
    raise invalid(f"a dict has the key {key!r}, a {type(key).__name__}, whose place may differ "
                  "between ranks; use texts, numbers, enumerations or tuples of them")


def _registered_node(tree):
    """One level of what the pytrees of JAX or torch know."""
    jax, torch = sys.modules.get("jax.tree_util"), sys.modules.get("torch.utils._pytree")

    def is_part(x):
        return x is not tree

    if jax is not None:
        parts, structure = jax.tree_flatten(tree, is_leaf=is_part)
        if not _is_leaf(tree, parts):
            return _Node(type(tree).__name__ + "(", ")", parts, structure.unflatten,
                         static=structure.node_data()[1])
    if torch is not None:
        parts, structure = torch.tree_flatten(tree, is_leaf=is_part)
        if not _is_leaf(tree, parts):
            return _Node(type(tree).__name__ + "(", ")", parts,
                         lambda parts: torch.tree_unflatten(parts, structure),
                         static=structure.context)
    return None


def _is_leaf(tree, parts):
    return len(parts) == 1 and parts[0] is tree


def _texts_in(static):
    """The texts and numbers in nested tuples, lists, sets and dicts, as all ranks write them."""
    if isinstance(static, (str, bytes, numbers.Real)):
        return [repr(static)]
    if isinstance(static, dict):
        static = list(static.items())
    if isinstance(static, (set, frozenset)):
        return sorted(text for one in static for text in _texts_in(one))
    if isinstance(static, (tuple, list)):
        return [text for one in static for text in _texts_in(one)]
    return []


def _dataclass_node(tree):
    if not dataclasses.is_dataclass(tree):
        return None
    names = [field.name for field in dataclasses.fields(tree) if hasattr(tree, field.name)]

    def build(parts):
        built = copy.copy(tree)
        for name in list(getattr(built, "__dict__", ())):
            if isinstance(getattr(type(built), name, None), functools.cached_property):
                del built.__dict__[name]  # It is of the old parts.
        for name, part in zip(names, parts):
            object.__setattr__(built, name, part)  # Also of frozen ones.
        return built

    return _Node(type(tree).__name__ + "(", ")", [getattr(tree, name) for name in names], build,
                 names)


def flatten(tree):
    """The leaves; those of dicts by ascending key. Raises InvalidArgument for a structure that
    contains itself."""
    try:
        return [tree] if tree is None else _flatten(tree)
    except RecursionError:
        raise invalid(f"a {type(tree).__name__} contains itself, or is nested too deeply; pass its "
                      "values alone") from None


def _flatten(tree):
    node = _node(tree)
    return [tree] if node is None else [leaf for part in node.parts for leaf in _flatten(part)]


def pack(tree, leaves):
    """A structure like `tree` with other leaves, from an iterator."""
    return next(leaves) if tree is None else _pack(tree, leaves)


def _pack(tree, leaves):
    node = _node(tree)
    if node is None:
        return next(leaves)
    return node.made_of(tree, [_pack(part, leaves) for part in node.parts])


def map_leaves(function, tree):
    """A structure like `tree` with function(leaf) for each leaf; one that contains itself stays."""
    try:
        leaves = _flatten(tree)
    except RecursionError:
        return tree
    return function(tree) if tree is None else _pack(tree, map(function, leaves))


def describe(tree):
    """How the leaves are nested, such as "{'a':*,'b':[*,*]}". Raises InvalidArgument for keys whose
    order may differ between ranks."""
    return "*" if tree is None else _describe(tree)


def _describe(tree):
    node = _node(tree)
    if node is None:
        return "*"
    names = [""] * len(node.parts) if node.keys is None else [f"{_name_of(k)}:" for k in node.keys]
    parts = ",".join(name + _describe(part) for name, part in zip(names, node.parts))
    return node.beginning() + parts + node.closing


def regroup(trees, join):
    """One structure whose leaves are join([leaf of each tree]). Where the structures differ, the
    parts that differ are leaves; so are structures that contain themselves."""
    try:
        return _regroup(trees, join)
    except RecursionError:
        return join(trees)


def _regroup(trees, join):
    nodes = [_node(tree) for tree in trees]
    first = nodes[0]
    if first is None or any(type(tree) is not type(trees[0]) for tree in trees) or any(
            node is None or (node.beginning(), node.keys, len(node.parts))
            != (first.beginning(), first.keys, len(first.parts))
            for node in nodes):
        return join(trees)
    return first.made_of(trees[0], [_regroup(list(parts), join)
                                    for parts in zip(*(node.parts for node in nodes))])
