"""Runs a program that dies with the process that asked for it: `leash.py PARENT PROGRAM ARGUMENT...`.

This is a program and not a hook between fork and exec: such a hook runs Python in the fork of a process
with many threads, which can hang. The kernel's signal follows the parent's *thread*, so components are to be
started from threads that live until the tests end, in practice the main one.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:  # else the parent died before the leash was on
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
