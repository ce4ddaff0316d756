"""libtutti_frameworks.so is found beside libtutti.so, and failures have the right type."""

import copy
import pathlib
import pickle
import re
import subprocess
import sys
import threading
import unittest

import tutti
from tutti import _frameworks, _library, burn

_CALL_ALL = """
import ctypes, faulthandler
from tutti import _frameworks, _library, average_gradients, burn, cross_device, distribute
faulthandler.enable()
libraries = _frameworks.library, _library.library
functions = [value for library in libraries for value in vars(library).values()
             if isinstance(value, ctypes._CFuncPtr) and value.argtypes]
for function in functions:
    is_number = [not kind.__name__.startswith(("LP_", "c_void_p", "c_char_p", "CFunctionType"))
                 for kind in function.argtypes]
    callback = [isinstance(kind, type) and issubclass(kind, ctypes._CFuncPtr)
                for kind in function.argtypes]
    function(*(kind() if null else 0 if number else None for number, null, kind
               in zip(is_number, callback, function.argtypes)))
print(len(functions))
"""


class Frameworks(unittest.TestCase):
    def test_lies_beside_the_library(self):
        own, tutti_own = map(pathlib.Path, (_frameworks.library._name, _library.library_path()))
        self.assertEqual(own.parent, tutti_own.parent)

    def test_has_a_version(self):
        version = _frameworks.library.tutti_frameworks_version().decode()
        self.assertTrue(re.fullmatch(r"\d+\.\d+\.\d+", version), version)

    def test_a_thread_starts_without_a_failure(self):
        codes = []
        thread = threading.Thread(target=lambda: codes.append(_frameworks.last_error().code))
        thread.start()
        thread.join()
        self.assertEqual(codes, ["OK"])

    def test_a_wrong_argument_is_a_value_error_too(self):
        error = _frameworks.error_of("INVALID_ARGUMENT", "no", 3)
        self.assertIsInstance(error, ValueError)
        self.assertIsInstance(error, tutti.Error)
        self.assertEqual((error.code, error.message, error.rank), ("INVALID_ARGUMENT", "no", 3))
        self.assertNotIsInstance(_frameworks.error_of("UNAVAILABLE", "gone"), ValueError)

    def test_an_error_keeps_its_class_in_a_pickle(self):
        for error in (_frameworks.error_of("INVALID_ARGUMENT", "no", 3, "a"),
                      _frameworks.error_of("ALREADY_EXISTS", "twice"),
                      _frameworks.error_of("UNAVAILABLE", "gone", 1),
                      burn.InvalidConfig("INVALID_ARGUMENT", "InvalidConfig: no")):
            for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
                self.assertIs(type(other), type(error))
                self.assertEqual(vars(other), vars(error))
                self.assertEqual(str(other), str(error))

    def test_no_function_crashes_over_null(self):
        """Every function of the library, of libtutti too, with nothing but NULL and 0."""
        done = subprocess.run([sys.executable, "-c", _CALL_ALL], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreater(int(done.stdout), 80)


if __name__ == "__main__":
    unittest.main()
