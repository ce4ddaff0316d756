"""Nested structures: dicts, lists and tuples, whose leaves are all other values."""


def _children(tree):
    """The parts of a structure in the order of its leaves, or None for a leaf."""
    if isinstance(tree, dict):
        return [tree[key] for key in sorted(tree)]
    return list(tree) if isinstance(tree, (list, tuple)) else None


def flatten(tree):
    """The leaves; those of dicts by ascending key."""
    parts = _children(tree)
    return [tree] if parts is None else [leaf for part in parts for leaf in flatten(part)]


def pack(tree, leaves):
    """A structure like `tree` with other leaves, from an iterator."""
    if isinstance(tree, dict):
        packed = {key: pack(tree[key], leaves) for key in sorted(tree)}
        return type(tree)((key, packed[key]) for key in tree)
    if not isinstance(tree, (list, tuple)):
        return next(leaves)
    parts = [pack(part, leaves) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def map_leaves(function, tree):
    """A structure like `tree` with function(leaf) for each leaf."""
    return pack(tree, map(function, flatten(tree)))


def describe(tree):
    """How the leaves are nested, such as "{'a':*,'b':[*,*]}"."""
    if isinstance(tree, dict):
        return "{" + ",".join(f"{key!r}:{describe(tree[key])}" for key in sorted(tree)) + "}"
    if isinstance(tree, (list, tuple)):
        brackets = "[]" if isinstance(tree, list) else "()"
        return brackets[0] + ",".join(map(describe, tree)) + brackets[1]
    return "*"


def regroup(trees, join):
    """One structure whose leaves are join([leaf of each tree]). Where the structures differ, the
    parts that differ are leaves."""
    first = trees[0]
    same = all(type(tree) is type(first) for tree in trees)
    if same and isinstance(first, dict) and all(tree.keys() == first.keys() for tree in trees):
        return type(first)((key, regroup([tree[key] for tree in trees], join)) for key in first)
    if same and isinstance(first, (list, tuple)) and len({len(tree) for tree in trees}) == 1:
        parts = [regroup(list(parts), join) for parts in zip(*trees)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return join(trees)
