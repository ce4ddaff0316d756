"""Blocking calls end with Ctrl-C, and raise what they raise."""

import threading
import unittest
from unittest import mock

from tutti._waiting import interruptible


class Interruptible(unittest.TestCase):
    def test_every_exception_is_raised(self):
        for error in (ZeroDivisionError("by zero"), SystemExit(3), KeyboardInterrupt()):
            def fail():
                raise error

            with self.assertRaises(type(error)) as caught:
                interruptible(fail)
            self.assertIs(caught.exception, error)

    def test_the_main_thread_waits_for_another(self):
        self.assertNotEqual(interruptible(threading.get_ident), threading.get_ident())

    def test_where_no_thread_starts(self):
        """As in functions of atexit."""
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("at shutdown")):
            self.assertEqual(interruptible(threading.get_ident), threading.get_ident())

    def test_another_thread_makes_the_call_itself(self):
        same = []

        def body():
            same.append(interruptible(threading.get_ident) == threading.get_ident())

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        self.assertEqual(same, [True])


if __name__ == "__main__":
    unittest.main()
