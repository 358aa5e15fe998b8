"""Program that runs another one until the parent process ends: `leash.py PARENT PROGRAM ARGUMENT...`.

It is no hook between fork and exec, since such a hook runs Python in the fork of a process with many threads,
which can hang. The kernel sends the signal when the parent's *thread* ends, so components have to be started
from threads that live until the tests end, in practice the main thread.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:  # else the parent ended before the signal was set up
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
