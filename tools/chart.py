"""Makes the templates of the Helm chart from manifests/, so that both ways to install stay one.

A template is the text of its manifest, comments included, with the places marked that a value fills.
`CHANGES` lists those places; one that is not found in its file is an error, so a manifest cannot outgrow the
chart unnoticed. Every file of manifests/ becomes a template; its folder says when it is rendered.

    python -m tools.chart            writes install/chart/templates/manifests and install/chart/files
    python -m tools.chart --check    says which of them differ, and ends with 1 if any do
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from extender import __version__

ROOT = Path(__file__).parents[1]
MANIFESTS = ROOT / "manifests"
CHART = ROOT / "install" / "chart"
MADE = ("templates/manifests", "files")
# Namespaces are Helm's business, and kustomize's own files say nothing to it.
LEFT_OUT = ("namespace.yaml", "kustomization.yaml")

Files = Mapping[Path, str]  # text by path inside the chart
Change = tuple[str, str]

WHEN = {
    ".": "",
    "crds": ".Values.crds.install",
    "sidecar": 'eq .Values.install "sidecar"',
    "default-scheduler": 'eq .Values.install "default-scheduler"',
    "monitoring": ".Values.monitoring.enabled",
    "webhooks": "",
    "older-kubernetes": 'semverCompare "<1.36-0" .Capabilities.KubeVersion.Version',
    "cert-manager": ".Values.certManager.enabled",
}
# Files that are rendered under a condition more than their folder's.
ALSO_WHEN = {
    "sidecar/admission-policy.yaml": 'semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version',
    "default-scheduler/admission-policy.yaml": 'semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version',
}

# What is put everywhere where it occurs.
EVERYWHERE: tuple[Change, ...] = (
    ("namespace: kube-muster", "namespace: {{ .Release.Namespace }}"),
    ("[kube-system, kube-muster]", "[kube-system, {{ .Release.Namespace }}]"),
    (
        "    app.kubernetes.io/part-of: kube-muster\n",
        "    app.kubernetes.io/part-of: kube-muster\n"
        "    app.kubernetes.io/managed-by: {{ .Release.Service }}\n",
    ),
)

NAMES = (
    "            - --scheduler-name=muster\n            - --scheduler-name=volcano\n",
    "            {{- range .Values.schedulerNames }}\n"
    "            - --scheduler-name={{ . }}\n"
    "            {{- end }}\n",
)
FLAGS = (
    "            - --log-format=json\n",
    "            - --log-format=json\n"
    "            {{- range .Values.extraArgs }}\n            - {{ . | quote }}\n            {{- end }}\n",
)
IMAGE = (
    f"image: kube-muster:{__version__}\n",
    'image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"\n'
    "          imagePullPolicy: {{ .Values.image.pullPolicy }}\n",
)
PULLING = (
    "      enableServiceLinks: false\n",
    "      enableServiceLinks: false\n"
    "      {{- with .Values.imagePullSecrets }}\n"
    "      imagePullSecrets: {{- toYaml . | nindent 8 }}\n"
    "      {{- end }}\n",
)
ROOM = (
    "            requests: {cpu: 500m, memory: 512Mi}\n            limits: {memory: 2Gi}\n",
    "            {{- toYaml .Values.resources | nindent 12 }}\n",
)
OURS = (
    "object.spec.schedulerName in ['muster', 'volcano']",
    "object.spec.schedulerName in ['{{ join \"', '\" .Values.schedulerNames }}']",
)
OURS_ANYWHERE = (
    "in ['muster', 'volcano']",
    "in ['{{ join \"', '\" .Values.schedulerNames }}']",
)
WEBHOOKS = (
    "            - --webhook-name=muster-webhook.kube-muster.svc\n"
    "            - --webhook-secret=kube-muster/muster-webhook-certificate\n",
    "            - --webhook-name=muster-webhook.{{ .Release.Namespace }}.svc\n"
    "            - --webhook-secret={{ .Release.Namespace }}/muster-webhook-certificate\n",
)
CERTIFICATES = (
    "MUSTER_WEBHOOK_CERTIFICATES, value: self-signed}",
    "MUSTER_WEBHOOK_CERTIFICATES, "
    "value: {{ if .Values.certManager.enabled }}files{{ else }}self-signed{{ end }}}",
)
MOUNT = (
    "            - {name: tmp, mountPath: /tmp}\n",
    "            - {name: tmp, mountPath: /tmp}\n"
    "            {{- if .Values.certManager.enabled }}\n"
    "            - {name: webhook-certificate, mountPath: /etc/kube-muster/webhook, readOnly: true}\n"
    "            {{- end }}\n",
)
VOLUME = (
    "          emptyDir: {medium: Memory, sizeLimit: 64Mi}\n",
    "          emptyDir: {medium: Memory, sizeLimit: 64Mi}\n"
    "        {{- if .Values.certManager.enabled }}\n"
    "        - name: webhook-certificate\n"
    "          secret: {secretName: muster-webhook-cert-manager}\n"
    "        {{- end }}\n",
)
INJECTED = (
    "metadata:\n  name: kube-muster",
    "metadata:\n"
    "  {{- if .Values.certManager.enabled }}\n"
    "  annotations:\n"
    "    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/muster-webhook\n"
    "  {{- end }}\n"
    "  name: kube-muster",
)
# With files, Muster keeps no certificate: the Role for its Secret and its binding, last in their file, go.
OWN_SECRET = (
    "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n",
    "{{- if not .Values.certManager.enabled }}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n",
)
OWN_SECRET_END = (
    "  name: kube-muster-webhook-certificate\nsubjects:\n"
    "  - {kind: ServiceAccount, name: muster, namespace: kube-muster}\n",
    "  name: kube-muster-webhook-certificate\nsubjects:\n"
    "  - {kind: ServiceAccount, name: muster, namespace: kube-muster}\n{{- end }}\n",
)
POD = (NAMES, WEBHOOKS, FLAGS, IMAGE, PULLING, ROOM, CERTIFICATES, MOUNT, VOLUME)
# Prometheus may look for labels of its own.
LABELLED = (
    "    app.kubernetes.io/part-of: kube-muster\n",
    "    app.kubernetes.io/part-of: kube-muster\n"
    "    {{- with .Values.monitoring.labels }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n",
)
# In the host's network the port is on loopback, unless somebody is to scrape it.
REACHED = (
    'value: "127.0.0.1:8282"',
    'value: "{{ if .Values.monitoring.enabled }}0.0.0.0{{ else }}127.0.0.1{{ end }}:8282"',
)

# What must be found in its file, by path below manifests/.
CHANGES: dict[str, tuple[Change, ...]] = {
    "sidecar/admission-policy.yaml": (OURS,),
    "default-scheduler/admission-policy.yaml": (OURS,),
    "default-scheduler/daemonset.yaml": (*POD, REACHED),
    "webhooks/mutating.yaml": (INJECTED,),
    "webhooks/rbac.yaml": (OWN_SECRET, OWN_SECRET_END),
    "webhooks/validating.yaml": (INJECTED, OURS_ANYWHERE),
    "older-kubernetes/pod-webhook.yaml": (INJECTED, OURS_ANYWHERE),
    "cert-manager/certificate.yaml": (
        ("muster-webhook.kube-muster.svc", "muster-webhook.{{ .Release.Namespace }}.svc"),
    ),
    "monitoring/alerts.yaml": (LABELLED,),
    "monitoring/service-monitor.yaml": (LABELLED,),
    "sidecar/deployment.yaml": (
        *POD,
        ("  replicas: 2\n", "  replicas: {{ .Values.replicas }}\n"),
        (
            "        kubectl.kubernetes.io/default-container: muster\n",
            "        kubectl.kubernetes.io/default-container: muster\n"
            "        checksum/config: {{ include "
            '(print $.Template.BasePath "/manifests/sidecar/scheduler-config.yaml") . | sha256sum }}\n',
        ),
        (
            "image: registry.k8s.io/kube-scheduler:v1.36.3\n",
            'image: "{{ .Values.scheduler.image.repository }}:{{ .Values.scheduler.image.tag }}"\n',
        ),
        (
            "            requests: {cpu: 200m, memory: 256Mi}\n            limits: {memory: 4Gi}\n",
            "            {{- toYaml .Values.scheduler.resources | nindent 12 }}\n",
        ),
    ),
}

# The ConfigMaps that kustomize generates: one of a file that values change, one of a file as it is.
SCHEDULER_CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: muster-scheduler-config
  namespace: kube-muster
  labels:
    app.kubernetes.io/name: muster
    app.kubernetes.io/component: scheduler
    app.kubernetes.io/part-of: kube-muster
data:
  sidecar.yaml: |
"""
DASHBOARD = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: muster-dashboard
  namespace: kube-muster
  labels:
    grafana_dashboard: "1"
    app.kubernetes.io/name: muster
    app.kubernetes.io/component: monitoring
    app.kubernetes.io/part-of: kube-muster
data:
  dashboard.json: {{ .Files.Get "files/dashboard.json" | quote }}
"""
PROFILES = (
    "  {{- range .Values.schedulerNames }}\n"
    "  - schedulerName: {{ . }}\n"
    "    percentageOfNodesToScore: 100\n"
    "  {{- end }}\n"
)


class OutOfStep(Exception):
    """A manifest does not have what the chart changes in it."""


def made() -> Files:
    """All files of the chart that are made, as they should be."""
    return dict(_made())


def _made() -> Iterator[tuple[Path, str]]:
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        if path.name not in LEFT_OUT:
            source = path.relative_to(MANIFESTS)
            yield Path(MADE[0]) / source, template(str(source), path.read_text())
    yield Path(MADE[0]) / "sidecar" / "scheduler-config.yaml", _scheduler_config()
    dashboard = "monitoring/dashboard.json"
    yield Path(MADE[1]) / "dashboard.json", (MANIFESTS / dashboard).read_text()
    yield (
        Path(MADE[0]) / "monitoring" / "dashboard.yaml",
        _guarded(f"manifests/{dashboard}", WHEN["monitoring"], _anywhere(DASHBOARD)),
    )


def template(source: str, text: str) -> str:
    """The template that a manifest becomes. `source` is its path below manifests/."""
    text = text.replace("{{", '{{ "{{" }}')  # those of Prometheus, not ours
    for old, new in CHANGES.get(source, ()):
        if old not in text:
            raise OutOfStep(f"manifests/{source}: lacks {old.strip()!r}, which tools/chart.py changes")
        text = text.replace(old, new)
    text = _anywhere(text)
    if source.startswith("crds/"):
        text = _kept(text)
    return _guarded(f"manifests/{source}", _condition(source), text)


def _anywhere(text: str) -> str:
    for old, new in EVERYWHERE:
        text = text.replace(old, new)
    return text


def _condition(source: str) -> str:
    folder = str(Path(source).parent)
    if folder not in WHEN:
        raise OutOfStep(f"manifests/{folder}: WHEN in tools/chart.py does not say when it is rendered")
    both = [each for each in (WHEN[folder], ALSO_WHEN.get(source)) if each]
    return f"and ({both[0]}) ({both[1]})" if len(both) == 2 else "".join(both)


def _kept(text: str) -> str:
    """`helm uninstall` leaves the kind, and so everybody's queues and groups."""
    return text.replace("metadata:\n", "metadata:\n  annotations:\n    helm.sh/resource-policy: keep\n", 1)


def _guarded(source: str, condition: str, text: str) -> str:
    head = f'{{{{- /* Made from {source} by "make chart". */ -}}}}\n'
    return head + (f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text)


def _scheduler_config() -> str:
    source = "scheduler-config/sidecar.yaml"
    head, _, rest = (ROOT / source).read_text().partition("  - schedulerName: muster\n")
    _, found, tail = rest.partition("  - schedulerName: volcano\n    percentageOfNodesToScore: 100\n")
    if not found:
        raise OutOfStep(f"{source}: lacks the profiles that tools/chart.py changes")
    lines = f"{head}{PROFILES}{tail}".splitlines()
    text = SCHEDULER_CONFIG + "".join(f"    {line}\n" if line else "\n" for line in lines)
    return _guarded(source, WHEN["sidecar"], _anywhere(text))


def written() -> Files:
    """Those files as they are."""
    found = (path for folder in MADE for path in (CHART / folder).rglob("*") if path.is_file())
    return {path.relative_to(CHART): path.read_text() for path in found}


def differing() -> list[Path]:
    wanted, there = made(), written()
    return sorted(path for path in wanted.keys() | there.keys() if wanted.get(path) != there.get(path))


def write() -> None:
    wanted = made()
    for path in written().keys() - wanted.keys():
        (CHART / path).unlink()
    for path, text in wanted.items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        (CHART / path).write_text(text)


def check() -> int:
    for path in differing():
        sys.stderr.write(f"install/chart/{path} is not what its manifest makes it; run: make chart\n")
    return 1 if differing() else 0


COMMANDS: dict[tuple[str, ...], Callable[[], int | None]] = {(): write, ("--check",): check}

if __name__ == "__main__":
    command = COMMANDS.get(tuple(sys.argv[1:]))
    if command is None:
        sys.exit("usage: python -m tools.chart [--check]")
    try:
        sys.exit(command())
    except OutOfStep as fault:
        sys.exit(str(fault))
