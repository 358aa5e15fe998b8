#!/bin/sh
# A stand-in for the Dockerfile's base image, python:3.13.5-slim-trixie, where Debian's packages are available and an image registry
# is not: Debian's own Python 3.13 and pip, under the names that the official image gives them, and this machine's CAs.
# For trying the Dockerfile; what you ship should be built on the official image or on your own. The root file system
# goes to stdout as a tar. Needs mmdebstrap, as root or with user namespaces:
#
#   tools/base-image.sh | podman import --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' - docker.io/library/python:3.13.5-slim-trixie
set -eu
trusted=/etc/ssl/certs/ca-certificates.crt
exec timeout 900 mmdebstrap --variant=minbase --include=ca-certificates,netbase,python3-pip,python3-venv \
  --aptopt='APT::Install-Recommends "false"' \
  --customize-hook="copy-in $trusted ${trusted%/*}" \
  --customize-hook='ln -s ../../bin/python3 "$1/usr/local/bin/python" && ln -s ../../bin/pip3 "$1/usr/local/bin/pip"' \
  trixie - "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
