# One image for coordinators and sites: docker build --build-arg TORCH_INDEX=ADDRESS --tag fedpub .
# The pins are those of constraints.txt. ADDRESS is what PyTorch's instructions name for pip, Linux and CPU; without it
# pip's usual index is used, whose PyTorch for x86 brings gigabytes of libraries for GPUs.
FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/fedpub
WORKDIR /build
COPY constraints.txt ./
ARG TORCH_INDEX=
# In a layer of its own, since it is large and rarely changes; what it needs comes with fedpub below.
RUN /opt/fedpub/bin/pip install --constraint constraints.txt ${TORCH_INDEX:+--no-deps --index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/fedpub/bin/pip install --constraint constraints.txt '.[deploy]'

FROM python:3.11-slim-bookworm
ENV PATH=/opt/fedpub/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp MPLCONFIGDIR=/tmp FLWR_HOME=/tmp/flwr FEDPUB_CACHE=/tmp/fedpub \
    FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
# A fixed number, so that owners of volumes are known. A new volume takes the owner of the folder it is mounted on.
RUN groupadd --gid 10001 fedpub \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin fedpub \
 && install --directory --owner 10001 --group 10001 --mode 0700 \
    /data /data/coordinator /data/hospital-a /data/hospital-b /data/hospital-c
COPY --from=build /opt/fedpub /opt/fedpub
USER 10001:10001
WORKDIR /data
EXPOSE 9443
# For containers that run with --monitor 9464; http.client takes no proxy from the environment.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "from http.client import HTTPConnection; c = HTTPConnection('127.0.0.1', 9464, timeout=4); \
c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["fedpub"]
CMD ["--help"]
