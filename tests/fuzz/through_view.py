"""Requests of a scheduler to the scheduler proxy, with random errors.

Each request is the last of its connection. All follow from the seed, except the secret of the proxy.
"""

from random import Random

_METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"CONNECT", b"get", b"PURGE")
_METHOD_WEIGHTS = (24, 3, 5, 3, 5, 2, 1, 1, 1, 1)
_PODS = b"/api/v1/namespaces/default/pods"
_PATHS = (
    b"",
    b"/",
    b"/version",
    b"/api",
    b"/apis/nothing/v1/here",
    b"/api/v1/pods",
    b"/api/v1/pods/",
    b"/api/v1//pods",
    b"/api/v1/./pods",
    b"/api/v1/../v1/secrets",
    b"/api/v1/%70ods",
    b"/api/v1/nodes",
    b"/api/v1/secrets",
    b"/api/v1/watch/pods",
    b"/api/v1/namespaces/default/events",
    b"/api/v1/namespaces/kube-system/secrets/x",
    b"/apis/coordination.k8s.io/v1/namespaces/default/leases/fuzz",
    b"/apis/authorization.k8s.io/v1/subjectaccessreviews",
    b"/openapi/v3",
    b"/metrics",
    b"/proxy",
    b"/api/v1/namespaces/" + b"n" * 5000 + b"/pods",
    b"/" + b"a/" * 2000,
    _PODS,
    _PODS + b"/a",
    _PODS + b"/a/status",
    _PODS + b"/a/binding",
    _PODS + b"/a/exec?command=sh",
    _PODS + b"/a/status/b/c/d",
    _PODS + b"/%00/status",
    _PODS + b"/\xff",
)
_SELECTORS = (
    b"fieldSelector=spec.nodeName%3D",
    b"fieldSelector=spec.nodeName%3Dnode-1",
    b"fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed",
    b"fieldSelector=no.such.field%3D1",
    b"fieldSelector=%3D%3D%3D",
    b"fieldSelector=%zz",
    b"fieldSelector=" + b"a%2C" * 3000,
    b"labelSelector=a+in+%28b%2Cc%29",
    b"labelSelector=%21%21",
    b"labelSelector=\xc3\x28",
    b"resourceVersion=0",
    b"resourceVersion=-1",
    b"resourceVersion=99999999999999999999999",
    b"resourceVersion=x",
    b"resourceVersion=1&resourceVersionMatch=Exact",
    b"resourceVersionMatch=NotOlderThan",
    b"sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan",
    b"sendInitialEvents=perhaps",
    b"limit=1",
    b"limit=-5",
    b"limit=1e9",
    b"continue=nonsense",
    b"pretty=true",
    b"dryRun=All",
    b"&&&=&",
    b"?",
    b"#",
)
_WATCHES = (b"watch=1", b"watch=true", b"watch", b"watch=yes&watch=false")
_SHORT_WATCH = b"timeoutSeconds=1"
_FIELDS = (
    b"Accept: application/json",
    b"Accept: application/vnd.kubernetes.protobuf",
    b"Accept: application/json;as=Table;v=v1;g=meta.k8s.io",
    b"Accept: ;;;q=x,",
    b"Accept: \xff",
    b"Accept-Encoding: gzip",
    b"Authorization: Bearer mine",
    b"Impersonate-User: admin",
    b"Impersonate-Group: system:masters",
    b"X-Remote-User: admin",
    b"Content-Type: application/strategic-merge-patch+json",
    b"Content-Type: application/vnd.kubernetes.protobuf",
    b"Content-Type: \xff",
    b"Content-Encoding: gzip",
    b"Expect: 100-continue",
    b"Upgrade: SPDY/3.1",
    b"User-Agent: " + b"u" * 3000,
    b"Cookie: " + b"a=b; " * 1500,
    b"X-Large: " + b"x" * 15_000,
    b"X-Larger: " + b"x" * 70_000,
    b"No colon",
    b": nameless",
    b" folded: x",
    b"X\x00: y",
    b"Host: evil.example",
)
_BODIES = (
    b"{}",
    b"[" * 100_000,
    b'{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}',
    b'{"status":{"conditions":{}}}',
    b'{"kind":"Event","metadata":{"name":"fuzz"},"reason":"x"}',
    b"k8s\x00\x0a\xff\xff\xff\xff\x0f",
    b"\x00" * 70_000,
    b"x" * 500_000,
)
_EVENTS = b"/api/v1/namespaces/default/events"
_EVENT_PATHS = (
    _EVENTS,
    _EVENTS,
    _EVENTS + b"/x",
    _EVENTS + b"/",
    b"/apis/events.k8s.io/v1/namespaces/default/events",
)
_LENGTHS = (b"%d", b"%d", b"%d", b"%d", b"0%d", b"+%d", b"-%d", b"%d0000", b"\xb2%d")


def request(rng: Random, secret: str) -> bytes:
    """Return all bytes that one connection sends."""
    method = rng.choices(_METHODS, _METHOD_WEIGHTS)[0]
    target = b"/" + _secret_segment(rng, secret.encode()) + rng.choice(_PATHS) + _query(rng)
    if rng.random() < 0.1:
        target = rng.choice((b"http://kube-apiserver.muster", b"https://", b"*", b"//")) + target
    fields = [b"Connection: close", *(rng.choice(_FIELDS) for _ in range(rng.choice((0, 1, 1, 2, 90))))]
    if not any(field.startswith(b"Host:") for field in fields):
        fields.append(b"Host: kube-apiserver.muster")
    return b"\r\n".join((method + b" " + target + b" HTTP/1.1", *fields)) + b"\r\n" + _end(rng)


def event(rng: Random, secret: str) -> bytes:
    """Return a POST of an Event, with random errors, and a request that ends the connection."""
    body = rng.choice(_BODIES[:6])
    fields = [
        b"Host: kube-apiserver.muster",
        b"User-Agent: kube-scheduler/v1.37.2",
        b"Content-Length: " + rng.choice(_LENGTHS) % len(body),
        b"Accept: application/json",
        b"Content-Type: application/json",
        b"Accept-Encoding: gzip",
    ]
    if rng.random() < 0.3:
        fields.insert(rng.randrange(len(fields)), rng.choice(_FIELDS))
    if rng.random() < 0.2:
        fields.pop(rng.randrange(len(fields)))
    target = (
        b"http://kube-apiserver.muster/" + _secret_segment(rng, secret.encode()) + rng.choice(_EVENT_PATHS)
    )
    request_line = rng.choice((b"POST", b"POST", b"POST", b"PUT", b"PATCH")) + b" " + target + _query(rng)
    end = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    return b"\r\n".join((request_line + b" HTTP/1.1", *fields)) + b"\r\n\r\n" + body + end


def _secret_segment(rng: Random, secret: bytes) -> bytes:
    """Return the secret, sometimes with an error."""
    wrong_secrets = (
        b"",
        b"x",
        secret[:-1],
        secret + b"x",
        secret.swapcase(),
        secret + b"%00",
        b"..",
        b"\xff" * 43,
    )
    wrong_secret = rng.choice(wrong_secrets)
    return secret if rng.random() < 0.85 else wrong_secret


def _query(rng: Random) -> bytes:
    parameters = [rng.choice(_SELECTORS) for _ in range(rng.choice((0, 0, 1, 2, 3)))]
    if rng.random() < 0.03:
        parameters += [rng.choice(_WATCHES), _SHORT_WATCH]
    rng.shuffle(parameters)
    return b"?" + b"&".join(parameters) if parameters else b""


def _end(rng: Random) -> bytes:
    """Return the end of the head, and the body."""
    chance = rng.random()
    if chance < 0.5:
        return b"\r\n"
    body = rng.choice(_BODIES)
    if chance < 0.8:
        return b"Content-Length: %d\r\n\r\n" % len(body) + body
    if chance < 0.95:
        return b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return rng.choice(
        (
            b"Content-Length: 17000000\r\n\r\n" + b" " * 200_000,
            b"Content-Length: -5\r\n\r\n",
            b"Content-Length: 3, 3\r\n\r\nabc",
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        )
    )
