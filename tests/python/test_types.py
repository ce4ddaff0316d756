"""The stub _group.pyi: its functions have the parameters of those of the package. Other modules
state their types themselves."""

import ast
import inspect
import pathlib
import typing
import unittest

import tutti
from tutti import _group, average_gradients, cross_device

_STUB = pathlib.Path(_group.__file__).with_suffix(".pyi")


def functions(tree):
    """(name with its class, node) of every function of the stub."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    yield f"{node.name}.{item.name}", item


class Stub(unittest.TestCase):
    def setUp(self):
        self.functions = list(functions(ast.parse(_STUB.read_text(encoding="utf-8"))))

    def test_parameters(self):
        for name, node in self.functions:
            if "__" in name:
                continue
            function = tutti
            for part in name.split("."):
                function = getattr(function, part)
            stated = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
            self.assertEqual(stated, list(inspect.signature(function).parameters), name)

    def test_collectives_have_a_type_for_each_way_to_call_them(self):
        names = [name for name, node in self.functions
                 if "blocking" in [a.arg for a in node.args.args + node.args.kwonlyargs]]
        self.assertGreater(len(names), 10)
        for name in names:
            self.assertEqual(names.count(name), 2, name)


def public_functions(module):
    """(name with its class, function) of what a module lets others call."""
    for name in module.__all__:
        item = getattr(module, name)
        if inspect.isfunction(item):
            yield name, item
            continue
        for part, member in inspect.getmembers(item):
            member = member.fget if isinstance(member, property) else member
            if inspect.isfunction(member) and (part == "__init__" or not part.startswith("_")):
                yield f"{name}.{part}", member


class Annotations(unittest.TestCase):
    def test_every_parameter_and_result_has_a_type(self):
        for module in (average_gradients, cross_device):
            functions = list(public_functions(module))
            self.assertGreater(len(functions), 1)
            for name, function in functions:
                hints = typing.get_type_hints(function)
                parameters = [part for part in inspect.signature(function).parameters
                              if part not in ("self", "cls")]
                self.assertEqual(list(hints), [*parameters, "return"], name)


if __name__ == "__main__":
    unittest.main()
