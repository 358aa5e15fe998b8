"""Changes of the manifests for the chart: places that values fill, and conditions of files."""

from extender import __version__

Change = tuple[str, str]

# Folders of manifests/jobs/ that an install has only if its user requests them.
FURTHER_JOBS = ("jobset", "kubeflow", "ray", "spark", "trainer")
JOB_KINDS = ("batch", *FURTHER_JOBS)
GATES_OF_THE_API_SERVER = 'semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version'
WHEN = {
    ".": "",
    "crds": ".Values.crds.install",
    "sidecar": 'eq .Values.install "sidecar"',
    "gates": 'and (eq .Values.install "sidecar") (not .Values.view.enabled)',
    "adoption": f'and (eq .Values.install "sidecar") ({GATES_OF_THE_API_SERVER})',
    "default-scheduler": 'eq .Values.install "default-scheduler"',
    "monitoring": ".Values.monitoring.enabled",
    "webhooks": "",
    "older-kubernetes": 'semverCompare "<1.36-0" .Capabilities.KubeVersion.Version',
    "cert-manager": ".Values.certManager.enabled",
    "provisioning": ".Values.provisioning.enabled",
    "overruling": ".Values.overruling.enabled",
    **{f"jobs/{kinds}": f'has "{kinds}" .Values.jobs.kinds' for kinds in JOB_KINDS},
    "dashboard": ".Values.dashboard.enabled",
    "history": 'and .Values.history.enabled (eq .Values.install "sidecar")',
    "quota": ".Values.quota.enabled",
    "volcano-jobs": ".Values.volcanoJobs.enabled",
    "volcano-jobs-ssh": "and .Values.volcanoJobs.enabled .Values.volcanoJobs.ssh",
    "quota-marks": 'and .Values.quota.enabled (eq .Values.install "default-scheduler")',
}
# Files that have a condition in addition to the condition of their folder.
ALSO_WHEN = {
    "gates/admission-policy.yaml": GATES_OF_THE_API_SERVER,
    "default-scheduler/admission-policy.yaml": GATES_OF_THE_API_SERVER,
    "quota-marks/admission-policy.yaml": GATES_OF_THE_API_SERVER,
    "quota/crd.yaml": ".Values.quota.crd",
    **{f"volcano-jobs/crd-{kinds}.yaml": ".Values.volcanoJobs.crds" for kinds in ("jobs", "cron-jobs")},
}

# Changes of all files.
EVERYWHERE: tuple[Change, ...] = (
    ("namespace: kube-muster", "namespace: {{ .Release.Namespace }}"),
    ("[kube-system, kube-muster]", "[kube-system, {{ .Release.Namespace }}]"),
    (
        "    app.kubernetes.io/part-of: kube-muster\n",
        "    app.kubernetes.io/part-of: kube-muster\n"
        "    app.kubernetes.io/managed-by: {{ .Release.Service }}\n",
    ),
)

SCHEDULER_NAMES = (
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
PULL_SECRETS = (
    "      enableServiceLinks: false\n",
    "      enableServiceLinks: false\n"
    "      {{- with .Values.imagePullSecrets }}\n"
    "      imagePullSecrets: {{- toYaml . | nindent 8 }}\n"
    "      {{- end }}\n",
)
RESOURCES = (
    "            requests: {cpu: 500m, memory: 512Mi}\n            limits: {memory: 2Gi}\n",
    "            {{- toYaml .Values.resources | nindent 12 }}\n",
)
OWN_SCHEDULERS = (
    "object.spec.schedulerName in ['muster', 'volcano']",
    "object.spec.schedulerName in ['{{ join \"', '\" .Values.schedulerNames }}']",
)
OWN_SCHEDULERS_ANYWHERE = (
    "in ['muster', 'volcano']",
    "in ['{{ join \"', '\" .Values.schedulerNames }}']",
)
WEBHOOKS = (
    "            - --webhook-name=muster-webhook.kube-muster.svc\n"
    "            - --webhook-secret=kube-muster/muster-webhook-certificate\n",
    "            - --webhook-name=muster-webhook.{{ .Release.Namespace }}.svc\n"
    "            - --webhook-secret={{ .Release.Namespace }}/muster-webhook-certificate\n",
)
ACCOUNT = ("serviceaccount:kube-muster:muster", "serviceaccount:{{ .Release.Namespace }}:muster")
CERTIFICATES = (
    "MUSTER_WEBHOOK_CERTIFICATES, value: self-signed}",
    "MUSTER_WEBHOOK_CERTIFICATES, "
    "value: {{ if .Values.certManager.enabled }}files{{ else }}self-signed{{ end }}}",
)
VOLCANO_JOBS = (
    "          ports:\n            - {name: health, containerPort: 8282}\n",
    "            {{- if .Values.volcanoJobs.enabled }}\n"
    '            - {name: MUSTER_VOLCANO_JOBS, value: "on"}\n'
    "            {{- end }}\n"
    "          ports:\n            - {name: health, containerPort: 8282}\n",
)
DASHBOARD_SETTINGS = (
    "          ports:\n            - {name: health, containerPort: 8282}\n",
    "            {{- if .Values.dashboard.enabled }}\n"
    '            - {name: MUSTER_DASHBOARD_LISTEN, value: ":8285"}\n'
    "            - {name: MUSTER_DASHBOARD_TLS_FOLDER, value: /etc/kube-muster/dashboard}\n"
    "            {{- end }}\n"
    "          ports:\n            - {name: health, containerPort: 8282}\n"
    "            {{- if .Values.dashboard.enabled }}\n"
    "            - {name: dashboard, containerPort: 8285}\n"
    "            {{- end }}\n",
)
MOUNT = (
    "            - {name: tmp, mountPath: /tmp}\n",
    "            - {name: tmp, mountPath: /tmp}\n"
    "            {{- if .Values.certManager.enabled }}\n"
    "            - {name: webhook-certificate, mountPath: /etc/kube-muster/webhook, readOnly: true}\n"
    "            {{- end }}\n"
    "            {{- if .Values.dashboard.enabled }}\n"
    "            - {name: dashboard-certificate, mountPath: /etc/kube-muster/dashboard, readOnly: true}\n"
    "            {{- end }}\n",
)
VOLUME = (
    "          emptyDir: {medium: Memory, sizeLimit: 64Mi}\n",
    "          emptyDir: {medium: Memory, sizeLimit: 64Mi}\n"
    "        {{- if .Values.certManager.enabled }}\n"
    "        - name: webhook-certificate\n"
    "          secret: {secretName: muster-webhook-cert-manager}\n"
    "        {{- end }}\n"
    "        {{- if .Values.dashboard.enabled }}\n"
    "        - name: dashboard-certificate\n"
    "          secret: {secretName: {{ .Values.dashboard.secretName }}, optional: true}\n"
    "        {{- end }}\n",
)
CA_INJECTION = (
    "metadata:\n  name: kube-muster",
    "metadata:\n"
    "  {{- if .Values.certManager.enabled }}\n"
    "  annotations:\n"
    "    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/muster-webhook\n"
    "  {{- end }}\n"
    "  name: kube-muster",
)
# With certificates in files, Muster needs no Secret: its Role and RoleBinding, last in the file, are removed.
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
POD_CHANGES = (
    SCHEDULER_NAMES,
    WEBHOOKS,
    FLAGS,
    IMAGE,
    PULL_SECRETS,
    RESOURCES,
    CERTIFICATES,
    VOLCANO_JOBS,
    DASHBOARD_SETTINGS,
    MOUNT,
    VOLUME,
)
# A Prometheus can be configured to select only objects with certain labels.
MONITORING_LABELS = (
    "    app.kubernetes.io/part-of: kube-muster\n",
    "    app.kubernetes.io/part-of: kube-muster\n"
    "    {{- with .Values.monitoring.labels }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}\n",
)
# Mutual TLS between the scheduler and Muster in the host's network.
TLS_FOLDER = (
    "            - {name: MUSTER_TLS_FOLDER, value: /etc/kube-muster/tls}\n",
    "            {{- if .Values.tls.enabled }}\n"
    "            - {name: MUSTER_TLS_FOLDER, value: /etc/kube-muster/tls}\n"
    "            {{- end }}\n",
)
TLS_MOUNT = (
    "            - {name: tls, mountPath: /etc/kube-muster/tls, readOnly: true}\n",
    "            {{- if .Values.tls.enabled }}\n"
    "            - {name: tls, mountPath: /etc/kube-muster/tls, readOnly: true}\n"
    "            {{- end }}\n",
)
TLS_VOLUME = (
    "        - name: tls\n          secret: {secretName: muster-tls, defaultMode: 0440}\n",
    "        {{- if .Values.tls.enabled }}\n"
    "        - name: tls\n          secret: {secretName: {{ .Values.tls.secretName }}, defaultMode: 0440}\n"
    "        {{- end }}\n",
)
# In the host's network, the metrics port listens on loopback, unless Prometheus scrapes it.
METRICS_ADDRESS = (
    'value: "127.0.0.1:8282"',
    'value: "{{ if .Values.monitoring.enabled }}0.0.0.0{{ else }}127.0.0.1{{ end }}:8282"',
)

# The clients that may call the webhooks and scrape the metrics.
CALLERS = (
    "    - ports:\n        - {protocol: TCP, port: 8443}\n    # Metrics",
    "    - ports:\n        - {protocol: TCP, port: 8443}\n"
    "      {{- with .Values.apiServerAddresses }}\n"
    "      from:\n"
    "        {{- range . }}\n        - ipBlock: {cidr: {{ . | quote }}}\n        {{- end }}\n"
    "      {{- end }}\n    # Metrics",
)
SCRAPERS = (
    "{kubernetes.io/metadata.name: monitoring}",
    "{kubernetes.io/metadata.name: {{ .Values.monitoring.namespace }}}",
)


# The scheduler reads pods through Muster's proxy, unless pending pods have gates.
def _with_view(lines: str, *, column: int) -> Change:
    indent = " " * column
    return lines, f"{indent}{{{{- if .Values.view.enabled }}}}\n{lines}{indent}{{{{- end }}}}\n"


VIEW_SETTINGS = _with_view(
    "            # The scheduler reads through this, with the kubeconfig that Muster writes.\n"
    '            - {name: MUSTER_VIEW_LISTEN, value: "127.0.0.1:8284"}\n'
    "            - {name: MUSTER_VIEW_FOLDER, value: /run/kube-muster}\n",
    column=12,
)
VIEW_MOUNT = _with_view("            - {name: view, mountPath: /run/kube-muster}\n", column=12)
VIEW_CONFIG = (
    "            - --config=/etc/kubernetes/muster/sidecar.yaml\n",
    "            - --config=/etc/kubernetes/muster/"
    "{{ if .Values.view.enabled }}sidecar{{ else }}sidecar-gates{{ end }}.yaml\n",
)
VIEW_READ = _with_view("            - {name: view, mountPath: /run/kube-muster, readOnly: true}\n", column=12)
VIEW_VOLUME = _with_view(
    "        # The kubeconfig of the scheduler, which is never on a disk.\n"
    "        - name: view\n"
    "          emptyDir: {medium: Memory, sizeLimit: 1Mi}\n",
    column=8,
)

# The history is a file on a volume, which only one replica can mount.
HISTORY = (
    (
        "  replicas: 2\n",
        "  replicas: {{ if .Values.history.enabled }}1{{ else }}{{ .Values.replicas }}{{ end }}\n"
        "  {{- if .Values.history.enabled }}\n  strategy: {type: Recreate}\n  {{- end }}\n",
    ),
    (
        "        runAsGroup: 65532\n",
        "        runAsGroup: 65532\n"
        "        {{- if .Values.history.enabled }}\n        fsGroup: 65532\n        {{- end }}\n",
    ),
    (
        "          ports:\n            - {name: health, containerPort: 8282}\n",
        "            {{- if .Values.history.enabled }}\n"
        "            - {name: MUSTER_HISTORY, value: /var/lib/kube-muster/history.db}\n"
        "            {{- end }}\n"
        "          ports:\n            - {name: health, containerPort: 8282}\n",
    ),
    (
        "            - {name: tmp, mountPath: /tmp}\n",
        "            - {name: tmp, mountPath: /tmp}\n"
        "            {{- if .Values.history.enabled }}\n"
        "            - {name: history, mountPath: /var/lib/kube-muster}\n"
        "            {{- end }}\n",
    ),
    (
        "          emptyDir: {medium: Memory, sizeLimit: 64Mi}\n",
        "          emptyDir: {medium: Memory, sizeLimit: 64Mi}\n"
        "        {{- if .Values.history.enabled }}\n"
        "        - name: history\n"
        "          persistentVolumeClaim: {claimName: muster-history}\n"
        "        {{- end }}\n",
    ),
)
HISTORY_VOLUME = (
    "    requests: {storage: 2Gi}\n",
    "    requests: {storage: {{ .Values.history.size }}}\n"
    "  {{- with .Values.history.storageClassName }}\n  storageClassName: {{ . }}\n  {{- end }}\n",
)

# Changes of files, by path below manifests/. Each replaced text must be in its file.
CHANGES: dict[str, tuple[Change, ...]] = {
    "adoption/admission-policy.yaml": (
        ("schedulerName: 'muster'", "schedulerName: '{{ first .Values.schedulerNames }}'"),
    ),
    "gates/admission-policy.yaml": (OWN_SCHEDULERS,),
    "default-scheduler/admission-policy.yaml": (OWN_SCHEDULERS,),
    "default-scheduler/daemonset.yaml": (*POD_CHANGES, METRICS_ADDRESS, TLS_FOLDER, TLS_MOUNT, TLS_VOLUME),
    "validation-policy.yaml": (OWN_SCHEDULERS_ANYWHERE,),
    "account.yaml": (ACCOUNT,),
    "quota/policy.yaml": (ACCOUNT,),
    "sidecar/network-policy.yaml": (CALLERS, SCRAPERS),
    "webhooks/mutating.yaml": (CA_INJECTION,),
    "webhooks/rbac.yaml": (OWN_SECRET, OWN_SECRET_END),
    "webhooks/validating.yaml": (CA_INJECTION, OWN_SCHEDULERS_ANYWHERE),
    "older-kubernetes/pod-webhook.yaml": (CA_INJECTION, OWN_SCHEDULERS_ANYWHERE),
    "cert-manager/certificate.yaml": (
        ("muster-webhook.kube-muster.svc", "muster-webhook.{{ .Release.Namespace }}.svc"),
    ),
    "history/volume.yaml": (HISTORY_VOLUME,),
    "monitoring/alerts.yaml": (MONITORING_LABELS,),
    "monitoring/service-monitor.yaml": (MONITORING_LABELS,),
    "sidecar/deployment.yaml": (
        *POD_CHANGES,
        *(VIEW_SETTINGS, VIEW_MOUNT, VIEW_CONFIG, VIEW_READ, VIEW_VOLUME),
        *HISTORY,
        (
            "        kubectl.kubernetes.io/default-container: muster\n",
            "        kubectl.kubernetes.io/default-container: muster\n"
            "        checksum/config: {{ include "
            '(print $.Template.BasePath "/manifests/sidecar/scheduler-config.yaml") . | sha256sum }}\n',
        ),
        (
            "image: registry.k8s.io/kube-scheduler:v1.36.3\n",
            'image: "{{ .Values.scheduler.image.repository }}:{{ .Values.scheduler.image.tag | default '
            '(regexFind "^v[0-9]+.[0-9]+.[0-9]+" .Capabilities.KubeVersion.Version) }}"\n',
        ),
        (
            "            requests: {cpu: 200m, memory: 256Mi}\n            limits: {memory: 4Gi}\n",
            "            {{- toYaml .Values.scheduler.resources | nindent 12 }}\n",
        ),
    ),
}

# The ConfigMaps that kustomize generates: values change the file of one, the file of the other stays.
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
# Body of each profile in the files of the ConfigMap.
PROFILE_BODIES = {
    "sidecar-gates.yaml": "    percentageOfNodesToScore: 100\n",
    "sidecar.yaml": "    plugins: {multiPoint: {disabled: [{name: DefaultPreemption}]}}\n",
}
PROFILES = (
    "  {{{{- range .Values.schedulerNames }}}}\n  - schedulerName: {{{{ . }}}}\n{body}  {{{{- end }}}}\n"
)
