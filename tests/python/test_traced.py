"""Values without data, and calls while a function is traced, are refused by name. The libraries are
stand-ins, which have their names; tests/tensorflow/ and tests/torch/ have the real ones."""

import sys
import types
import unittest
from unittest import mock

import numpy as np
from ranks import RanksTest

import tutti
from tutti import burn, cross_device, distribute
from tutti._traced import _OutsideOfGraphs
from tutti.average_gradients import average_gradients


def without_data(module, name):
    """A value of a class of this name, which answers everything, as torch.fx's do."""
    return type(name, (), {"__module__": module, "__getattr__": lambda self, _: self})()


_SYMBOLS = [without_data(*names) for names in (
    ("jax._src.core", "Tracer"), ("jax._src.api", "ShapeDtypeStruct"),
    ("tensorflow.python.framework.ops", "SymbolicTensor"),
    ("keras.src.backend.common.keras_tensor", "KerasTensor"), ("torch.fx.proxy", "Proxy"),
    ("torch._subclasses.fake_tensor", "FakeTensor"))]


def _jax(*names):
    """jax._src.core within these traces."""
    trace = None
    for name in names:
        trace = type(name, (), {"parent_trace": trace})()
    return types.SimpleNamespace(trace_ctx=types.SimpleNamespace(trace=trace))


_TRACERS = {
    "tf.function": ("tensorflow.python.framework.ops",
                    types.SimpleNamespace(inside_function=lambda: True)),
    "jax.jit": ("jax._src.core", _jax("EvalTrace", "DynamicJaxprTrace")),
    "jax.jit, grad": ("jax._src.core", _jax("EvalTrace", "DynamicJaxprTrace", "JVPTrace")),
    "torch.jit": ("torch._C", types.SimpleNamespace(_is_tracing=lambda: True)),
    "make_fx": ("torch.fx.experimental.proxy_tensor",
                types.SimpleNamespace(get_proxy_mode=lambda: "a mode"))}
_NO_TRACERS = {
    "tensorflow": ("tensorflow.python.framework.ops",
                   types.SimpleNamespace(inside_function=lambda: False)),
    "half imported": ("tensorflow.python.framework.ops", types.SimpleNamespace()),
    "jax": ("jax._src.core", _jax("EvalTrace")),
    "an old jax": ("jax._src.core", types.SimpleNamespace()),
    "a callback in jax.vmap": ("jax._src.core", _jax("EvalTrace", "BatchTrace"))}


class Traced(RanksTest):
    def calls_of_faces(self, x):
        """A call of each face with x."""
        strategy = distribute.Strategy(local_replicas=2)
        with strategy.scope():
            variable = distribute.Variable(np.ones(2))
        ops = cross_device.ReductionToOneDevice()
        value = cross_device.PerReplica([x] * 2)
        slices = cross_device.IndexedSlices(x, np.array([1, 2]))
        collective = burn.Collective()
        return [lambda: strategy.reduce("SUM", value), lambda: strategy.gather(value, axis=0),
                lambda: strategy.reduce("MEAN", x),
                lambda: strategy.broadcast_parameters({"w": x}), lambda: variable.assign(x),
                lambda: variable.assign_add(x), lambda: ops.reduce("SUM", value, "CPU:0"),
                lambda: ops.reduce("SUM", slices, "CPU:0"), lambda: ops.broadcast(x, "CPU:0"),
                lambda: ops.batch_reduce("SUM", [(value, "CPU:0")]),
                lambda: average_gradients([[(x, "w")]]), lambda: collective.all_reduce(0, x),
                lambda: collective.broadcast(0, x)]

    @staticmethod
    def calls_of_group(group, x):
        return [lambda: group.all_reduce(x), lambda: group.all_reduce(np.ones(2), out=x),
                lambda: group.all_reduce_many([x]), lambda: group.all_gather(x),
                lambda: group.reduce_scatter(x), lambda: group.broadcast(x),
                lambda: group.reduce(x), lambda: group.gather(x), lambda: group.all_to_all(x)]

    def assert_refused(self, words, calls):
        for call in calls:
            with self.assertRaises(tutti.Error) as caught:
                call()
            self.assertEqual(caught.exception.code, "UNIMPLEMENTED")
            self.assertRegex(caught.exception.message, words)

    def test_values_without_data(self):
        for x in _SYMBOLS:
            with self.subTest(type(x).__name__):
                self.assert_refused(type(x).__name__ + " has no data yet; ", self.calls_of_faces(x))

    def test_values_without_data_in_a_group(self):
        def body(group):
            for x in _SYMBOLS:
                self.assert_refused(" has no data yet; ", self.calls_of_group(group, x))

        self.on_ranks(body, world_size=1)

    def test_calls_while_a_function_is_traced(self):
        """Also of arrays that have data, and of functions without any."""
        strategy = distribute.Strategy(local_replicas=2)
        with strategy.scope():
            variable = distribute.Variable(np.ones(2))
        ran = []
        calls = self.calls_of_faces(np.ones(2)) + [
            lambda: strategy.run(lambda: ran.append(1)), variable.value, variable.numpy,
            lambda: variable.values, lambda: variable + 1, lambda: float(variable),
            lambda: next(iter(strategy.experimental_distribute_dataset([np.ones(2)])))]
        for name, module in _TRACERS.items():
            with self.subTest(name), mock.patch.dict(sys.modules, [module]):
                self.assert_refused("would run once.*call it outside of", calls)
        self.assertEqual(ran, [])
        for name, module in _NO_TRACERS.items():
            with self.subTest(name), mock.patch.dict(sys.modules, [module]):
                strategy.run(lambda: ran.append(1))
                self.assertEqual(variable.numpy().tolist(), [1, 1])
        self.assertEqual(len(ran), 2 * len(_NO_TRACERS))

    def test_a_torch_that_keeps_its_rules_elsewhere(self):
        _OutsideOfGraphs._tell(types.ModuleType(_OutsideOfGraphs._RULES))

    def test_calls_of_a_group_while_a_function_is_traced(self):
        def body(group):
            for module in _TRACERS.values():
                with mock.patch.dict(sys.modules, [module]):
                    self.assert_refused("would run once",
                                        self.calls_of_group(group, np.ones(2)) + [group.barrier])
            group.barrier()

        self.on_ranks(body, world_size=1)


if __name__ == "__main__":
    unittest.main()
