"""Single pods, read from the API server for calls that cannot be answered without: in a few threads, and not
for long.

The verbs are answered in an event loop, where nothing may block. However many callers ask while the API
server is slow, only these threads are blocked.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from extender.api.objects.pods import Pod
from extender.kube.calls import ApiClient
from extender.kube.errors import Unreachable

_THREADS = 8
_REQUEST = 1.0  # seconds; for preempt, the scheduler waits three seconds for the answer
_ALTOGETHER = 2.0  # the same, with the wait for a thread


class Lookups:
    def __init__(self, cluster: ApiClient) -> None:
        self._cluster = cluster
        self._threads = ThreadPoolExecutor(_THREADS, "lookup")

    async def pod(self, namespace: str, name: str) -> Pod:
        """The pod as the API server has it. Raises ApiError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_ALTOGETHER):
                return await loop.run_in_executor(self._threads, self._cluster.pod, namespace, name, _REQUEST)
        except TimeoutError:
            raise Unreachable from None
