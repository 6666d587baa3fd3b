# RePlan's service and command line. Everything is kept in the volume /data, or in PostgreSQL (see deploy/):
#
#   docker build -t replan .
#   docker run --rm -v replan-data:/data replan keys create --name admin --scope admin
#   docker run --rm -p 127.0.0.1:8080:8080 -v replan-data:/data replan
#   docker run --rm -v "$PWD:/jobs:ro" replan plan /jobs/job.yaml --fail worker:1/2
#
# In a container the service listens beyond loopback, so it starts only where there is an API key; the second command makes one.

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
COPY simulation simulation
# The environment's own pip is of no use later.
RUN /opt/replan/bin/pip install . && /opt/replan/bin/pip uninstall --yes setuptools pip


FROM python:3.11-slim

ENV PATH=/opt/replan/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/cache/replan/numba \
    MPLCONFIGDIR=/var/cache/replan/matplotlib \
    REPLAN_HOST=0.0.0.0 \
    REPLAN_PORT=8080 \
    REPLAN_STORE=/data/replan.db
# tini collects what processes a killed solver leaves, which the first process of a container has to. Debian keeps only the
# newest version of a package, so that a pinned one would soon break the build.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin replan \
    && install -d -o replan -g replan /data /var/cache/replan
COPY --from=build /opt/replan /opt/replan
COPY examples /usr/share/replan/examples

# By number: only so can Kubernetes see that it is not root.
USER 10001:10001
WORKDIR /data
# Compiles the planner's loops into the cache, so that the first start is as fast as the later ones; a container on another
# kind of CPU compiles once more. It also shows that the image works.
RUN replan plan /usr/share/replan/examples/recycle-worked-example.yaml --fail worker:1/2 \
    && python -c "from api.planning import warm_up; warm_up()"

VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-P", "-m", "api.probe", "/healthz"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["tini", "--", "replan"]
CMD ["serve"]
