# One image for the web server and for every worker; docker-compose.yml shows how they stand together.
#
#   docker build -t fedarena .
#
# Which torch: the pin is the same everywhere, the index decides the build. PyPI's Linux build carries CUDA and also runs
# on a CPU, but weighs several GB. For a small CPU image give the address of PyTorch's index of CPU builds:
#   docker build --build-arg TORCH_INDEX=<index> -t fedarena .
# For GPUs leave it empty, or name the index of the CUDA version the hosts' drivers support. Without a GPU reservation and
# FEDARENA_DEVICE=cuda… everything runs on the CPU, whatever build it is.

FROM python:3.11-slim AS build
ARG TORCH_INDEX=""
RUN python -m venv /opt/fedarena
ENV PATH=/opt/fedarena/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The large part first, alone in its layer: it changes only with the pins. A build with a local label (+cpu, +cu…) counts
# as newer than the plain one, so pip prefers the named index for these two and takes the rest from its ordinary one.
RUN pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch==2.13.0 torchvision==0.28.0
COPY . /src
RUN pip install "/src[postgres]"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/fedarena --shell /usr/sbin/nologin fedarena \
    && install --directory --owner fedarena --group fedarena --mode 0700 /var/lib/fedarena
COPY --from=build /opt/fedarena /opt/fedarena
ENV PATH=/opt/fedarena/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    FEDARENA_HOME=/var/lib/fedarena
USER fedarena
WORKDIR /var/lib/fedarena
VOLUME /var/lib/fedarena
# The web server's; workers switch it off, since a silent worker is noticed by its lease.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
CMD ["fedarena", "serve"]
