"""The scheduler's patches of the status of pods.

They end here for pods of ours: what the scheduler has to say of them is read, and PodScheduled is written by
Muster (PatchPodStatus in pkg/scheduler/util/utils.go; the scheduler makes no use of the answer's body).
"""

import msgspec
from aiohttp import hdrs, web

from extender.domain.model.records import Uid
from extender.domain.view.appearance import Appearances
from extender.view.body import Upload, read_body
from extender.view.passing import send_on
from extender.view.target import ViewTarget
from extender.view.upstream import Upstream


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []


class _Patch(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_read_patch = msgspec.json.Decoder(_Patch).decode


class StatusPatches:
    """The handler."""

    def __init__(self, upstream: Upstream, appearances: Appearances) -> None:
        self._upstream, self._appearances = upstream, appearances

    async def __call__(self, request: web.BaseRequest, target: ViewTarget) -> web.StreamResponse:
        """Raises what `pass_on` raises."""
        body = await read_body(request)
        if isinstance(body, Upload):
            body = b"".join([piece async for piece in body])
        message = _refusal(body)
        if message is not None:
            _, _, _, _, namespace, _, name, _ = target.path.rstrip("/").split("/")
            if uid := self._appearances.note_status(namespace, name, message):
                return _unchanged(namespace, name, uid)
        return await send_on(self._upstream, request, target, body)


def _refusal(body: bytes) -> str | None:
    """The scheduler's words if it has found no node, else empty. None: this is no patch, and to answer it is
    the API server's matter."""
    try:
        conditions = _read_patch(body).status.conditions
    except (ValueError, RecursionError):
        return None
    refusals = (each for each in conditions if (each.type, each.status) == ("PodScheduled", "False"))
    return next((each.message for each in refusals if each.reason == "Unschedulable"), "")


def _unchanged(namespace: str, name: str, uid: Uid) -> web.Response:
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "spec": {"containers": None},
        "status": {},
    }
    headers = {hdrs.CONTENT_TYPE: "application/json", hdrs.SERVER: "muster"}
    return web.Response(headers=headers, body=msgspec.json.encode(pod))
