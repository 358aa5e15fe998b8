"""Program that runs another program until the parent process ends: `leash.py PARENT PROGRAM ARGUMENT...`.

A hook between fork and exec could do the same. But such a hook runs Python code in the fork of a process with
many threads, which can hang. The kernel sends the signal when the parent's *thread* ends. A component must
therefore be started from a thread that lives until the tests end, in practice the main thread.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:  # A different parent means that the parent ended before the signal was set up.
        os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
