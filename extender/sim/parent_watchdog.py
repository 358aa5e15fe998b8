"""Watchdog that ends a program together with its parent process: `parent_watchdog.py PROGRAM ARGUMENT...`.

The parent holds the other end of the watchdog's standard input, and never writes to it. When the parent ends,
the watchdog reads the end of the file. It terminates the program and its children, after a short time by
force. The watchdog ends last, so that a parent that waits for it knows that no process is left. It runs in a
session of its own, which Ctrl-C does not reach.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE_SECONDS = 0.5  # seconds between SIGTERM and SIGKILL


def main(command: list[str]) -> int:
    # Orphaned descendants of the program become children of this process, which can then wait for them.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        _signal(child.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
        _signal(child.pid, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    code = child.wait()
    _signal(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return abs(code)


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
