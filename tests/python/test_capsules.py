"""DLPack capsules that are none, were used before, or say what cannot be."""

import ctypes
import unittest

import numpy as np
from ranks import Dlpack, _new_capsule
from refused_calls import Capsule

import tutti
from tutti._tensor import Tensor


class Lies(Dlpack):
    """Its capsules have these fields."""

    def __init__(self, **fields):
        super().__init__(np.ones(4, np.float32))
        for name, value in fields.items():
            setattr(self._tensor, name, value)
            setattr(self._with_version.tensor, name, value)


class Capsules(unittest.TestCase):
    def refuse(self, words, x):
        with self.assertRaisesRegex(tutti.Error, f"INVALID_ARGUMENT: .*{words}"):
            Tensor(x)

    def test_what_is_no_capsule(self):
        for thing in (None, 3, "dltensor", object()):
            self.refuse(f"gives a {type(thing).__name__}, no capsule", Capsule(thing))

    def test_what_is_no_device(self):
        for device in (None, (), 1, (None, 0)):
            self.refuse("names no device", Capsule(None, device))

    def test_what_has_no_numbers_is_not_asked_for_its_memory(self):
        class Asked(Capsule):
            dtype = "string"

            def __dlpack__(self, **_):
                raise AssertionError

        self.refuse("dtype 'string' is none of", Asked(None))

    def test_capsules_of_other_names(self):
        memory = ctypes.addressof(Dlpack(np.ones(4))._tensor)
        for name in (b"used_dltensor", b"used_dltensor_versioned", b"other", None):
            self.refuse("must give a new one", Capsule(_new_capsule(memory, name, None)))

    def test_versions(self):
        x = Dlpack(np.ones(4))
        x._with_version.minor = 7
        self.assertEqual(Tensor(x).count, 4)
        x._with_version.major = 2
        self.refuse("of version 2, but must", x)

    def test_tensors_that_cannot_be(self):
        for fields in ({"ndim": -1}, {"ndim": 65}, {"ndim": 10**6}, {"shape": None}, {"data": None},
                       {"shape": (ctypes.c_int64 * 1)(-4)}, {"data": None, "byte_offset": 64}):
            for x in (Lies(**fields), Lies(**fields)):
                x.versioned = not x.versioned
                self.refuse("without memory, or of a wrong shape", x)
        self.assertEqual(Tensor(Lies(data=None, shape=(ctypes.c_int64 * 1)(0))).count, 0)


if __name__ == "__main__":
    unittest.main()
