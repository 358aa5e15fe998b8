# docker build --tag kube-muster:0.1.0 .
# Another base image needs a Python with venv, and pip: --build-arg BASE=registry.example/python:3.13-slim-trixie
ARG BASE=docker.io/library/python:3.13-slim-trixie
FROM ${BASE} AS build
WORKDIR /src
# Dependencies first: they change less often than the code, and their layer is kept.
COPY constraints.txt pyproject.toml ./
# No pip in what is shipped: the build stage's own installs into it. Only wheels, so that no compiler is needed.
RUN python -m venv --without-pip /opt/muster \
 && python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > requirements.txt \
 && pip --python /opt/muster/bin/python install --no-cache-dir --only-binary=:all: --constraint constraints.txt --requirement requirements.txt
COPY README.md LICENSE ./
# extender/shipped links to the other files.
COPY examples/first-gang.yaml examples/
COPY manifests/rbac.yaml manifests/
COPY manifests/webhooks/rbac.yaml manifests/webhooks/
COPY extender extender
# pip compiles what it installs, which could not be done later: the root filesystem is read-only when it runs.
RUN pip --python /opt/muster/bin/python install --no-cache-dir --no-deps .

FROM ${BASE}
LABEL org.opencontainers.image.title="kube-muster" \
      org.opencontainers.image.description="Queues and whole-gang starts for the stock kube-scheduler, as its HTTP extender." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/muster /opt/muster
ENV PATH=/opt/muster/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that runAsNonRoot can be checked. Writes nothing but /tmp, which may be a small tmpfs.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["muster"]
CMD ["serve"]
