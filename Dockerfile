# Both stages have Python 3.13 on Debian 13: what is compiled for one runs on the other. To pin them for good, write
# NAME:TAG@sha256:DIGEST (docs/image.md tells how to find the digest) and let a bot keep it fresh.

# Stage 1 installs what the locks say. Only wheels are taken, each checked against its hash: a source distribution would
# need a compiler, and would fetch what it is built with unchecked.
FROM python:3.13-slim-trixie AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements.txt requirements-build.txt ./
RUN python -m pip install --no-deps --require-hashes --only-binary :all: --no-compile --target /app -r requirements.txt
RUN python -m pip install --no-deps --require-hashes --only-binary :all: --target /backend -r requirements-build.txt
COPY . .
RUN PYTHONPATH=/backend python -m pip install --no-deps --no-index --no-build-isolation --no-compile --target /app .
# Scripts start by the interpreter of this stage. What is compiled here is never checked against times, nor made again.
RUN rm -rf /app/bin && python -m compileall -q --invalidation-mode unchecked-hash /app

# Stage 2 has Python, the C library and nothing to build, install or log in with.
FROM gcr.io/distroless/python3-debian13:nonroot
LABEL org.opencontainers.image.title="gpu-webhooks" \
      org.opencontainers.image.description="GPU-aware admission webhooks for KubeVirt" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /app /app
# Modules come from /app and the standard library, never from the working directory, and nothing is written.
ENV PYTHONPATH=/app PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ENV GPU_WEBHOOKS_HOST=0.0.0.0
USER 65532:65532
EXPOSE 9443 8080
ENTRYPOINT ["/usr/bin/python3", "-m", "webhooks"]
CMD ["serve"]
