# RePlan's service and command line. Plans are kept in the volume /data:
#
#   docker build -t replan .
#   docker run --rm -p 127.0.0.1:8080:8080 -v replan-data:/data replan
#   docker run --rm -v "$PWD:/jobs:ro" replan plan /jobs/job.yaml --fail worker:1/2
#
# There is no login: publish the port on closed networks only.

FROM python:3.11-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/replan
WORKDIR /src
COPY pyproject.toml README.md ./
COPY planner planner
COPY solver_models solver_models
COPY api api
COPY cli cli
COPY benchmarks benchmarks
RUN /opt/replan/bin/pip install .


FROM python:3.11-slim

ENV PATH=/opt/replan/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/cache/replan/numba \
    MPLCONFIGDIR=/var/cache/replan/matplotlib
RUN useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin replan \
    && install -d -o replan -g replan /data /var/cache/replan
COPY --from=build /opt/replan /opt/replan
COPY examples /usr/share/replan/examples

USER replan
# Compiles the planner's loops into the cache, so that the first start is as fast as the later ones; a container on another
# kind of CPU compiles once more. It also shows that the image works.
RUN replan plan /usr/share/replan/examples/recycle-worked-example.yaml --fail worker:1/2

WORKDIR /data
VOLUME /data
EXPOSE 8080
# The path is not asked for through a proxy that the container's environment may name.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8080, timeout=4); c.request('GET', '/healthz'); exit(c.getresponse().status != 200)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["replan"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080", "--store", "/data/replan.db"]
