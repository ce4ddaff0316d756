"""Blocking calls end with Ctrl-C, and raise what they raise."""

import gc
import os
import signal
import threading
import time
import unittest
import weakref
from unittest import mock

from tutti import _waiting
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
        _waiting._idle.clear()
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("at shutdown")):
            self.assertEqual(interruptible(threading.get_ident), threading.get_ident())

    def test_one_thread_makes_calls_one_after_the_other(self):
        first = interruptible(threading.get_ident)
        with self.assertRaises(ZeroDivisionError):
            interruptible(lambda: 1 / 0)
        self.assertEqual(interruptible(threading.get_ident), first)

    def test_a_call_that_goes_on_keeps_its_thread(self):
        """After Ctrl-C another thread makes the next call."""
        goes_on, idents = threading.Event(), []

        def call():
            idents.append(threading.get_ident())
            os.kill(os.getpid(), signal.SIGINT)
            goes_on.wait(60)

        with self.assertRaises(KeyboardInterrupt):
            interruptible(call)
        self.assertNotIn(interruptible(threading.get_ident), idents)
        goes_on.set()

    def test_a_thread_without_calls_ends(self):
        with mock.patch.object(_waiting, "_IDLE_SECONDS", 0.01):
            _waiting._idle.clear()
            helper = interruptible(threading.current_thread)
            helper.join(60)
        self.assertFalse(helper.is_alive())
        self.assertFalse(_waiting._idle)
        self.assertEqual(interruptible(lambda: 7), 7)

    def test_a_call_keeps_nothing(self):
        """Without the garbage collector."""
        class Argument:
            pass

        argument = Argument()
        seen = weakref.ref(argument)
        gc.disable()
        self.addCleanup(gc.enable)
        _waiting._idle.clear()
        with mock.patch.object(_waiting, "_IDLE_SECONDS", 600):
            try:
                interruptible(lambda kept=argument: int("x"))
            except ValueError:
                pass
        del argument
        never, deadline = threading.Event(), time.monotonic() + 60
        while seen() is not None and time.monotonic() < deadline:
            never.wait(0.001)  # The other thread comes to its end.
        self.assertIsNone(seen())

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_a_forked_process_has_threads_of_its_own(self):
        interruptible(threading.get_ident)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if interruptible(lambda: 7) == 7 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

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
