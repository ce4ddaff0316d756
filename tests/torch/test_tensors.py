"""Tensors of torch that a collective or a face of Tutti takes, or refuses by name."""

import copy
import importlib.util
import pickle
import subprocess
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("torch is not installed; run tests/run --with torch")

import numpy
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from tutti import burn, cross_device, distribute
from tutti.average_gradients import average_gradients
from tutti.torch._backend import TuttiBackend
from tutti.torch._work import Handle, TuttiWork


def calls(x):
    """A call of each face with x, whose result is x, or twice x."""
    strategy = distribute.Strategy(local_replicas=2)
    value = cross_device.PerReplica([x, x])
    collective = burn.Collective()
    collective.register(0, "cpu", burn.CollectiveConfig())

    def variable():
        with strategy.scope():
            return distribute.Variable(x).value()

    return [lambda: strategy.reduce("SUM", value), lambda: collective.all_reduce(0, x),
            lambda: cross_device.ReductionToOneDevice().reduce("SUM", value, "/device:CPU:0"),
            variable]


class Tensors(unittest.TestCase):
    def assert_refused(self, words, x):
        for call in calls(x):
            with self.assertRaisesRegex(RuntimeError, words):
                call()

    def test_bfloat16(self):
        x = torch.tensor([1, 3], dtype=torch.bfloat16)
        for call in calls(x):
            result = call()
            self.assertIs(result.dtype, torch.bfloat16)
            self.assertIn(result.tolist(), ([1, 3], [2, 6]))
        mean, = average_gradients([[x], [x]])
        self.assertEqual((mean.dtype, mean.tolist()), (torch.bfloat16, [1, 3]))
        strategy = distribute.Strategy()
        for dtype in (torch.bfloat16, torch.float32, torch.int64):
            with strategy.scope():
                variable = distribute.Variable(x.to(dtype))
                for name in (dtype, str(dtype), str(dtype).removeprefix("torch.")):
                    for initial in (x, x.to(torch.bfloat16)):
                        given = distribute.Variable(initial, dtype=name).value()
                        self.assertIs(given.dtype, dtype)
                        self.assertTrue(torch.equal(given, initial.to(dtype)))
            self.assertEqual(variable.assign([2, 5]).value().tolist(), [2, 5])
            self.assertIs(variable.value().dtype, dtype)

    def test_a_gradient_is_not_lost(self):
        x = torch.ones(2, requires_grad=True)
        for tensor in (x, x * 2, torch.nn.Parameter(torch.ones(2))):
            self.assert_refused("gradient of this .* would be lost.*no_grad", tensor)
            with torch.no_grad():
                for call in calls(tensor):
                    self.assertFalse(call().requires_grad)
            for call in calls(tensor.detach()):
                call()
        x.sum().backward()
        for gradient in (x.grad, torch.autograd.grad((x * x).sum(), x, create_graph=True)[0]):
            mean, = average_gradients([[gradient], [gradient]])
            self.assertEqual(mean.tolist(), gradient.tolist())

    def test_means_are_not_derived_again(self):
        x = torch.ones(2, requires_grad=True)
        gradient = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)[0]
        slices = cross_device.IndexedSlices(gradient.view(1, 2), numpy.array([0]), (1, 2))
        for towers in ([[gradient], [gradient]], [[gradient]], [[(gradient, "x")], [(None, "x")]],
                       [[slices], [slices]]):
            mean = average_gradients(towers, none="skip")[0]
            mean = mean[0] if isinstance(mean, tuple) else mean
            mean = mean.values if isinstance(mean, cross_device.IndexedSlices) else mean
            self.assertEqual(mean.reshape(-1).tolist(), [3, 3])
            with self.assertRaisesRegex(RuntimeError, "cannot be derived a second time; pass x."):
                (mean.square() + x).sum().backward()
        with torch.no_grad():
            self.assertFalse(average_gradients([[gradient]])[0].requires_grad)
        self.assertFalse(average_gradients([[gradient.detach()]])[0].requires_grad)
        parameter = torch.nn.Parameter(torch.ones(2))
        parameter.grad = average_gradients([[gradient], [gradient]])[0]
        torch.optim.SGD([parameter], 1.0).step()
        self.assertEqual(parameter.tolist(), [-2, -2])

    def test_parameters_are_broadcast(self):
        layer = torch.nn.Linear(2, 2)
        strategy = distribute.Strategy()
        given = list(layer.parameters())
        self.assertIs(strategy.broadcast_parameters(given), given)
        self.assertTrue(layer.weight.requires_grad)

    def test_values_without_data(self):
        with FakeTensorMode():
            fake = torch.ones(2)
        proxy = torch.fx.Proxy(torch.fx.Graph().placeholder("x"))
        for x in (fake, torch.ones(2, device="meta"), torch.nn.LazyLinear(2).weight, proxy):
            with self.subTest(type(x)):
                self.assert_refused("has no data yet", x)

    def test_transformations(self):
        strategy = distribute.Strategy()
        for transform in (torch.func.vmap, torch.func.grad):
            with self.assertRaisesRegex(RuntimeError, "has no data yet; .*torch.func"):
                transform(lambda x: strategy.reduce("SUM", x))(torch.ones(2))
        with self.assertRaisesRegex(RuntimeError, "outside of the function that torch.jit traces"):
            torch.jit.trace(lambda x: strategy.reduce("SUM", x), torch.ones(2))

    def test_compiled_functions(self):
        """A call ends a graph, and runs each time; in whatever order the libraries are loaded."""
        strategy = distribute.Strategy(local_replicas=2)

        def tripled(x):
            return strategy.reduce("SUM", cross_device.PerReplica([x * 2, x])) + 1

        for compiled in (torch.compile(tripled, backend="eager"),
                         torch.compile(lambda x: [call() for call in calls(x)], backend="eager")):
            for value in (1.0, 2.0):
                told = compiled(torch.full((2,), value))
                for result in told if isinstance(told, list) else [told]:
                    self.assertIn(result.tolist(), ([n * value] * 2 for n in (1, 2))
                                  if isinstance(told, list) else [[3 * value + 1] * 2])
        with self.assertRaisesRegex(RuntimeError, "gradient of this .* would be lost"):
            torch.compile(tripled, backend="eager")(torch.ones(2, requires_grad=True))
        program = ("import {}, {}\nimport torch, tutti.distribute\n"
                   "s = tutti.distribute.Strategy()\n"
                   "print(torch.compile(lambda x: s.reduce('SUM', x), backend='eager')("
                   "torch.ones(1)))")
        for order in (("tutti", "torch"), ("torch", "tutti"), ("torch._dynamo", "tutti")):
            run = subprocess.run([sys.executable, "-c", program.format(*order)], text=True,
                                 capture_output=True, check=False)
            self.assertEqual(run.stdout, "tensor([1.])\n", run.stderr)

    def test_handles_are_not_copied(self):
        for kind in (Handle, TuttiWork, TuttiBackend):
            thing = Handle(None) if kind is Handle else kind.__new__(kind)
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, f"{kind.__name__} can be neither copied"):
                    duplicate(thing)


if __name__ == "__main__":
    unittest.main()
