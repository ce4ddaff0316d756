"""py.typed is shipped: what users call has types for all of its parameters and for its result."""

import inspect
import unittest

from tutti import burn, distribute
from tutti.distribute import cluster_resolver

_TENSORFLOW = ("PerReplica", "CommunicationOptions", "ReduceOp")  # Of tutti.cross_device.


def callables(module, names):
    """(name, function) of the module's functions and of its classes' own methods."""
    for name in names:
        value = getattr(module, name)
        if inspect.isfunction(value) or inspect.ismethod(value):
            yield name, value
        if not inspect.isclass(value):
            continue
        for attribute, member in vars(value).items():
            member = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(member) and (attribute == "__init__" or attribute[0] != "_"):
                yield f"{name}.{attribute}", member


class Annotations(unittest.TestCase):
    def expect_types(self, module, names):
        for name, function in callables(module, names):
            signature = inspect.signature(function)
            untyped = [parameter.name for parameter in signature.parameters.values()
                       if parameter.annotation is parameter.empty
                       and parameter.name not in ("self", "cls")]
            if signature.return_annotation is signature.empty:
                untyped.append("the result")
            with self.subTest(name):
                self.assertEqual(untyped, [])

    def test_burn(self):
        self.expect_types(burn, burn.__all__)

    def test_distribute(self):
        names = [name for name in distribute.__all__ if name not in _TENSORFLOW]
        self.expect_types(distribute, [name for name in names if name != "cluster_resolver"])

    def test_cluster_resolvers(self):
        self.expect_types(cluster_resolver, [name for name in vars(cluster_resolver)
                                             if name.startswith("Cluster") or "Resolver" in name])


if __name__ == "__main__":
    unittest.main()
