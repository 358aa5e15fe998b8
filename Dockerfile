# docker build --tag kube-muster:0.1.0 .
# Another base image needs Python with venv and pip: --build-arg BASE=registry.example/python:3.13.5-slim-trixie
# Releases are built on a base image by digest (make publish and make image RELEASE=1 insist on it), since a tag can be moved:
# --build-arg BASE=docker.io/library/python@sha256:...
ARG BASE=docker.io/library/python:3.13.5-slim-trixie
FROM ${BASE} AS build
WORKDIR /src
# Dependencies first: they change less often than the code, and their layer is kept.
COPY image/requirements.txt image/build-requirements.txt ./
# The final image has no pip: that of the build stage installs into it. Only wheels, so that no compiler is needed, and only those
# whose hashes are known (make hashes).
RUN python -m venv --without-pip /opt/muster \
 && python -m venv --without-pip /opt/build \
 && pip --python /opt/muster/bin/python install --no-cache-dir --only-binary=:all: --require-hashes --requirement requirements.txt \
 && pip --python /opt/build/bin/python install --no-cache-dir --only-binary=:all: --require-hashes --requirement build-requirements.txt
COPY pyproject.toml README.md LICENSE ./
# extender/shipped links to the other files.
COPY examples/first-gang.yaml examples/
COPY manifests/rbac.yaml manifests/
COPY manifests/crds/commands.yaml manifests/crds/
COPY manifests/crds/local-queues.yaml manifests/crds/
COPY manifests/crds/podgroups.yaml manifests/crds/
COPY manifests/crds/queues.yaml manifests/crds/
COPY manifests/crds/resource-flavors.yaml manifests/crds/
COPY manifests/crds/topologies.yaml manifests/crds/
COPY manifests/quota/crd.yaml manifests/quota/
COPY manifests/volcano-jobs/crd-cron-jobs.yaml manifests/volcano-jobs/
COPY manifests/volcano-jobs/crd-jobs.yaml manifests/volcano-jobs/
COPY manifests/webhooks/rbac.yaml manifests/webhooks/
COPY extender extender
# pip compiles what it installs, which could not be done later: the root filesystem is read-only when it runs.
RUN pip --python /opt/build/bin/python wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && pip --python /opt/muster/bin/python install --no-cache-dir --no-deps --no-index /wheels/*.whl

FROM ${BASE}
LABEL org.opencontainers.image.title="kube-muster" \
      org.opencontainers.image.description="Queues and whole-gang starts for the stock kube-scheduler, as its HTTP extender." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/muster /opt/muster
ENV PATH=/opt/muster/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that runAsNonRoot can be checked. Muster writes only to /tmp, which may be a small tmpfs.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["muster"]
CMD ["serve"]
