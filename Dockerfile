# The scaler as an image: one stage builds, the other only runs.
#
# Every RUN works on paths relative to its WORKDIR, so that scripts/image.py can run the same lines
# where there is no container engine. The last stage has no RUN and an exec-form entry point: nothing
# in it needs a shell, and RUNTIME may be any image with the same Python on its PATH that has none.
# In production pin both by digest: --build-arg PYTHON=python:3.13-slim-bookworm@sha256:…
ARG PYTHON=python:3.13-slim-bookworm
ARG RUNTIME=${PYTHON}

FROM ${PYTHON} AS build
WORKDIR /build
COPY requirements/run.txt requirements/build.txt requirements/
RUN python -m pip install --no-cache-dir --no-compile --require-hashes --target app --requirement requirements/run.txt
RUN python -m pip install --no-cache-dir --no-compile --require-hashes --target tools --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY scaler scaler
RUN PYTHONPATH=tools python -m hatchling build --target wheel --directory dist
# Launchers in app/bin would point at this stage's interpreter: the entry point is `python3 -m scaler`.
RUN rm -r app/bin && python -m pip install --no-cache-dir --no-compile --no-deps --no-index --target app dist/*.whl && rm -r app/bin
# The root is read-only at run time, so the bytecode is made here; nobody edits it, so nobody stats it.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash app

FROM ${RUNTIME}
LABEL org.opencontainers.image.title="vllm-scaler" \
      org.opencontainers.image.description="KEDA external scaler and Prometheus exporter for fleets of vLLM servers" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /build/app /app
ENV PYTHONPATH=/app \
    PYTHONSAFEPATH=1 \
    PYTHONNOUSERSITE=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Any UID works, with group 0 too: nothing is owned, nothing is written.
USER 65532:65532
# gRPC for KEDA; /metrics and health. The page stays on loopback (8081): kubectl port-forward reaches it.
EXPOSE 6000 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["python3", "-m", "scaler"]
CMD ["serve"]
