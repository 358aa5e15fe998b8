"""Users of the API server, with the token file and a kubeconfig for each user."""

import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from extender.webhooks.certificates import make_mutual, make_pair
from tests.e2e.harness import loopback
from tests.e2e.harness.client import Access, Client


@dataclass(frozen=True)
class User:
    """User with a line in the token file. The user's rights come from RBAC."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def token(self) -> str:
        return f"token-of-{self.name}"

    def line(self, number: int) -> str:
        """Return the user's line in the token file. `number` is the user's uid."""
        return f'{self.token},{self.name},{number},"{",".join(self.groups)}"'


def service_account(namespace: str, name: str) -> User:
    """Return a user with the name and groups of a service account, to which RBAC bindings apply."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


@dataclass(frozen=True)
class IssuedUser(User):
    """Service account whose token was issued by the API server, as in pods."""

    issued: str = ""

    @property
    def token(self) -> str:
        return self.issued


def issued(client: Client, namespace: str, name: str, until_gone: str = "") -> IssuedUser:
    """Return a user whose token the API server issues now.

    `until_gone` names a Secret of the namespace that the token is bound to. Ten seconds after the deletion of
    the Secret, the token is invalid.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    spec = (
        {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": until_gone}} if until_gone else {}
    )
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return IssuedUser(f"{namespace}-{name}", issued=client.request("POST", path, review)["status"]["token"])


def signed(client: Client, key: Path, account: User, seconds: int) -> IssuedUser:
    """Return a user whose token is valid for a shorter time than the API server would issue.

    The test signs the token with the server's own key. The API server accepts a token for a minute after the
    token has expired. The expiry is therefore a minute early, so that the server accepts the token for
    `seconds`.
    """
    namespace, name = account.name.split(":")[2:]
    uid = client.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")["metadata"]["uid"]
    issuer, now = "https://kubernetes.default.svc", int(time.time())
    claims = {
        "iss": issuer,
        "aud": [issuer],
        "sub": account.name,
        "nbf": now - 60,
        "exp": now - 60 + seconds,
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
    }
    parts = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    private_key = load_pem_private_key(key.read_bytes(), None)
    assert isinstance(private_key, rsa.RSAPrivateKey)
    signature = private_key.sign(parts.encode(), padding.PKCS1v15(), hashes.SHA256())
    return IssuedUser(f"{namespace}-{name}", issued=f"{parts}.{_base64(signature)}")


def _base64(data: bytes) -> str:
    """Return URL-safe Base64 without padding, as in JSON Web Tokens."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


ADMIN = User("admin", ("system:masters",))
SCHEDULER = User("system:kube-scheduler")
CONTROLLER_MANAGER = User("system:kube-controller-manager", ("system:masters",))
NO_RIGHTS = User("nobody")
SUBMITTER = User("submitter")


def write_tokens(path: Path, users: list[User]) -> None:
    path.write_text("\n".join(user.line(number) for number, user in enumerate(users, start=1)) + "\n")
    path.chmod(0o600)


def write_certificate(folder: Path) -> Path:
    """Write a certificate for the address of all servers, and return the folder.

    The files are `cert.pem`, which includes the authority, and `key.pem`.
    """
    pair = make_pair([loopback.host(), "localhost"], 24 * 3600.0, time.time())
    (folder / "cert.pem").write_bytes(pair.certificate + pair.authority)
    (folder / "key.pem").write_bytes(pair.key)
    return folder


CALLERS_CA = "callers-ca.crt"  # CA of the client certificate with which the API server calls webhooks


def write_webhook_client(folder: Path) -> None:
    """Write the client certificate with which the API server calls webhooks, and the configuration for it."""
    _, client = make_mutual([], 24 * 3600.0, time.time())
    files = {"caller.crt": client.certificate, "caller.key": client.key, CALLERS_CA: client.authority}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    suffixes = {"client-certificate": "crt", "client-key": "key"}
    credentials = {name: str(folder / f"caller.{suffix}") for name, suffix in suffixes.items()}
    users = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": credentials}]}
    (folder / "caller.kubeconfig").write_text(json.dumps(users))
    version, config = "apiserver.config.k8s.io/v1", str(folder / "caller.kubeconfig")
    webhooks = {"apiVersion": version, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": config}
    plugins = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
    configurations = [{"name": name, "configuration": webhooks} for name in plugins]
    document = {"apiVersion": version, "kind": "AdmissionConfiguration", "plugins": configurations}
    (folder / "admission.json").write_text(json.dumps(document))


def write_kubeconfig(path: Path, user: User, access: Access) -> Path:
    """Write a kubeconfig, and return its path. The file is JSON, which is valid YAML."""
    cluster = {"server": access.server}
    if access.server.startswith("https"):
        cluster["certificate-authority"] = str(access.authority)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": user.name, "user": {"token": access.token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user.name}}],
        "current-context": "e2e",
    }
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
    return path


def proxied(kubeconfig: Path, port: int) -> Path:
    """Write a copy of a kubeconfig whose requests go through the proxy on this loopback port.

    Return its path.
    """
    config = yaml.safe_load(kubeconfig.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["proxy-url"] = f"http://{loopback.at(port)}"
    path = kubeconfig.with_name(f"kubeconfig-{port}")
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
    return path
