"""Values and calls that Tutti refuses, because their results would be wrong without a word: values
that have no data yet, calls while a function is traced, and calls through which no gradient passes.

Libraries are asked only where a program has loaded them.
"""

import functools
import importlib.abc
import importlib.util
import sys

from tutti._error import Error, invalid

# Classes of values without data: the package, the name, what to do.
_JIT = "call it outside of jax.jit, grad and vmap, or that of tutti.jax"
_FUNCTION = "call it outside of tf.function, or that of tutti.tensorflow"
_FX = "call it outside of the function that torch traces"
_WITHOUT_DATA = {
    ("jax", "Tracer"): _JIT,
    ("jax", "ShapeDtypeStruct"): "pass an array of this shape and dtype",
    ("tensorflow", "SymbolicTensor"): _FUNCTION,
    ("tensorflow", "TensorSpec"): "pass a tensor of this shape and dtype",
    ("keras", "KerasTensor"): "pass what the layer makes of data",
    ("tf_keras", "KerasTensor"): "pass what the layer makes of data",
    ("torch", "Proxy"): _FX,
    ("torch", "FakeTensor"): _FX,
    ("torch", "FunctionalTensor"): _FX,
    ("torch", "UninitializedTensorMixin"): "let its module run once, which gives it a shape",
}


def by_class(table):
    """A function of a class: what a table by package and name has for it or a base; else None."""
    @functools.lru_cache(256)
    def find(kind):
        names = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
        return next((table[name] for name in names if name in table), None)

    return find


_remedy = by_class(_WITHOUT_DATA)


def refuse_value(x):
    """Raises for a value that has no data yet."""
    remedy = _remedy(type(x)) or _remedy_in_torch(x)
    if remedy is not None:
        raise Error("UNIMPLEMENTED", f"this {type(x).__name__} has no data yet; {remedy}")


def _tensor_of_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, getattr(torch, "Tensor", ()))


def _remedy_in_torch(x):
    """For tensors whose class does not tell."""
    if not _tensor_of_torch(x):
        return None
    torch = sys.modules["torch"]
    if x.is_meta:
        return "make it on the CPU: it is on torch's device meta"
    functorch = getattr(torch._C, "_functorch", None)
    is_wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    return _FX + ", by torch.func too" if is_wrapped is not None and is_wrapped(x) else None


def refuse_call(call):
    """Raises while a function is traced on this thread: the call would run now alone, and what it
    returns would be a constant of each later run. call: what would run, for the message."""
    for name, is_tracing, remedy in _TRACERS:
        module = sys.modules.get(name)
        if module is not None and is_tracing(module):
            raise Error("UNIMPLEMENTED", f"{call} would run once, while the function is traced, "
                        f"and leave its result in the graph as a constant; {remedy}")


def _in_tensorflow(ops):
    inside = getattr(ops, "inside_function", None)
    return inside is not None and inside()


def _in_jax(core):
    """Whether a trace of jax.jit and the like is under way, also within grad or vmap."""
    trace = getattr(getattr(core, "trace_ctx", None), "trace", None)
    while trace is not None:
        if type(trace).__name__ == "DynamicJaxprTrace":
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


def _in_torch_jit(torch):
    return getattr(torch, "_is_tracing", bool)()


def _in_make_fx(proxy_tensor):
    mode = getattr(proxy_tensor, "get_proxy_mode", None)
    return mode is not None and mode() is not None


_TRACERS = (("tensorflow.python.framework.ops", _in_tensorflow, _FUNCTION),
            ("jax._src.core", _in_jax, _JIT),
            ("torch._C", _in_torch_jit, "call it outside of the function that torch.jit traces"),
            ("torch.fx.experimental.proxy_tensor", _in_make_fx, _FX))


class _OutsideOfGraphs(importlib.abc.MetaPathFinder):
    """Has torch.compile leave this package's functions alone, so that a call ends one graph, runs,
    and the next graph begins: it would look into them, and fail in its own words. Its rules are
    set once they are loaded, which a program may do much later."""

    _RULES = "torch._dynamo.trace_rules"

    @classmethod
    def begin(cls):
        rules = sys.modules.get(cls._RULES)
        if rules is None:
            sys.meta_path.insert(0, cls())
        else:
            cls._tell(rules)

    @staticmethod
    def _tell(rules):
        add = getattr(rules, "add", None)  # It is private: later versions may have others.
        if add is not None:
            add(__package__)

    def find_spec(self, name, path, target=None):
        if name != self._RULES or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (run(module), self._tell(module))
        return spec


_OutsideOfGraphs.begin()


def without_gradient(x, wanted=True):
    """x, or what shares its memory and can be read: a tensor of torch that requires a gradient
    cannot. Raises if a gradient is to pass through x, and is `wanted`: it would end here."""
    if _tensor_of_torch(x):
        if not x.requires_grad:
            return x
        if wanted and sys.modules["torch"].is_grad_enabled():
            raise _lost(x, "call it under torch.no_grad(), or pass x.detach()")
        return x.detach()
    if wanted:
        refuse_recorded(x)
    return x


def refuse_recorded(x):
    """Raises for a tensor that a tape watches."""
    if _is_recorded(x):
        raise _lost(x, "call it outside of the GradientTape, or pass tf.stop_gradient(x)")


def ended_gradient(result, sources):
    """The result of a call that gives no gradients to its sources: where one of torch's needs one,
    a result through which backward() raises."""
    needing = [x for x in sources if _tensor_of_torch(x) and x.requires_grad]
    if not needing or not _tensor_of_torch(result) or not sys.modules["torch"].is_grad_enabled():
        return result
    end, torch = _function_without_gradient().apply, sys.modules["torch"]
    if result.layout is not torch.sparse_coo:
        return end(result, *needing)
    return torch.sparse_coo_tensor(result._indices(), end(result._values(), *needing), result.shape,
                                   device=result.device, check_invariants=False)


@functools.cache
def _function_without_gradient():
    class Ended(sys.modules["torch"].autograd.Function):
        """Hands a result on."""

        @staticmethod
        def forward(_, result, *sources):
            return result

        @staticmethod
        def backward(_, *gradients):
            raise invalid("no gradient passes through a mean of gradients, so it cannot be derived "
                          "a second time; pass x.detach(), or derive before it is computed")

    return Ended


def _is_recorded(x):
    """Whether a tape or an accumulator of TensorFlow watches x."""
    record = sys.modules.get("tensorflow.python.eager.record")
    tensor = sys.modules.get("tensorflow.python.framework.tensor")
    if record is None or not isinstance(x, getattr(tensor, "Tensor", ())):
        return False
    return record.pywrap_tfe.TFE_Py_TapeSetPossibleGradientTypes((x,)) != 0


def _lost(x, remedy):
    return invalid(f"the gradient of this {type(x).__name__} would be lost, because none passes "
                   f"through Tutti; {remedy}")
