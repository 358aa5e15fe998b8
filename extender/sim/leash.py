"""Runs a program that ends with the process that asked for it: `leash.py PROGRAM ARGUMENT...`.

That process holds the other end of our standard input and never writes to it. When it ends, however it ends,
we read the end of the file: the program, and all that it started, is asked to go and soon made to. It is the
leader of a session of its own, so that a Ctrl-C at the terminal is not heard here: the parent says when.
"""

import os
import signal
import subprocess
import sys
import threading

GRACE = 1.0  # seconds from the request to go to the end


def main(command: list[str]) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is sent to our whole session, and we go last
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_obedient)
    threading.Thread(target=_end_with_parent, args=[child], daemon=True).start()
    code = child.wait()
    if code < 0:  # it had no time to end what it started
        _signal_all(signal.SIGKILL)
    return code


def _obedient() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with_parent(child: "subprocess.Popen[bytes]") -> None:
    sys.stdin.buffer.read()
    _signal_all(signal.SIGTERM)
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        _signal_all(signal.SIGKILL)


def _signal_all(number: int) -> None:
    os.killpg(0, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
