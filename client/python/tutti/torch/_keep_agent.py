"""Keeps an agent for a process: python3 _keep_agent.py PROCESS DIRECTORY PROGRAM [ARGUMENT...]

Starts the program, and ends it and removes the directory when the process has ended, however it
did, or when a byte or the end of the standard input is there. Ends when the program does. Its own
process must outlive any thread of the trainer, which is why the trainer does not start the agent
itself.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

_PR_SET_PDEATHSIG = 1
_END_SECONDS = 30


def _die_with_keeper():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(process, agent):
    """Returns when the process or the agent has ended, or the standard input says so."""
    poll = select.poll()
    for descriptor in (process, os.pidfd_open(agent.pid), sys.stdin.fileno()):
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    poll.poll()


def main():
    process, directory, *command = sys.argv[1:]
    try:
        kept = os.pidfd_open(int(process))
        if os.getppid() == int(process):  # Otherwise it ended before, and the number may be reused.
            agent = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                     preexec_fn=_die_with_keeper)
            _wait(kept, agent)
            agent.terminate()
            try:
                agent.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                agent.kill()
    except ProcessLookupError:
        pass
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
