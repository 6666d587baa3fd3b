"""Image and manifests say what the code says: paths, ports, variables, users, times. No container engine is needed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.app import create_app
from api.security.scopes import required_access
from api.settings import Settings, variable_of

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMAGE = f"replan:{PROJECT['project']['version']}"
DOCKERFILE = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()))
SETTINGS = {variable_of(name): name for name in Settings.model_fields}
OF_POSTGRESQL = {"PGPASSWORD", "PGDATA", "POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}
SERVERS = ("server-1", "server-2")


def instructions(name: str) -> list[str]:
    """Arguments of each instruction of the Dockerfile with this name, in order."""
    return re.findall(rf"^{name} +(.*?) *$", DOCKERFILE, re.MULTILINE)


def image_environment() -> dict[str, str]:
    """Variables that the image sets."""
    return dict(word.split("=", 1) for line in instructions("ENV") for word in line.split())


def named(kind: str, name: str) -> dict[str, Any]:
    """One object of the Kubernetes manifest."""
    (found,) = [item for item in KUBERNETES if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def pod(kind: str, name: str) -> dict[str, Any]:
    """Pod of a workload of the manifest."""
    spec: dict[str, Any] = named(kind, name)["spec"]["template"]["spec"]
    return spec


def server() -> dict[str, Any]:
    """The server's container in the manifest."""
    (container,) = pod("Deployment", "replan")["containers"]
    found: dict[str, Any] = container
    return found


def checked_settings(variables: dict[str, str]) -> Settings:
    """Settings that variables make; every variable has to be one that something reads."""
    assert set(variables) <= set(SETTINGS) | OF_POSTGRESQL | {
        "NUMBA_CACHE_DIR",
        "MPLCONFIGDIR",
        "PATH",
        "PYTHONUNBUFFERED",
    } | {
        "PIP_DISABLE_PIP_VERSION_CHECK",
        "PIP_NO_CACHE_DIR",
    }
    return Settings(**{SETTINGS[name]: value for name, value in variables.items() if name in SETTINGS})


def check_probe(command: list[str]) -> None:
    """Check that a command is the probe, run so that no file of the working folder takes its place, of a real route."""
    assert command[:4] == ["python", "-P", "-m", "api.probe"]
    check_path(command[4])


def check_path(path: str) -> None:
    """Check that a path is a route of the service that can be asked without a key from this machine."""
    assert "get" in create_app(Settings()).openapi()["paths"][path]
    access = required_access("GET", path)
    assert access.scope is None or access.is_open_on_loopback


def test_the_image_holds_what_the_wheel_is_made_of() -> None:
    """Every package is copied, nothing that is missing is, and .dockerignore lets all of it through."""
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert set(packages) | {"pyproject.toml", PROJECT["project"]["readme"], "examples"} == set(copied)
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_runs_as_nobody_special() -> None:
    """Its user is made without rights and login, is set before anything is started, and owns what it writes."""
    assert instructions("USER") == ["10001:10001"]
    assert "--uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin replan" in DOCKERFILE
    assert "install -d -o replan -g replan /data /var/cache/replan" in DOCKERFILE
    assert DOCKERFILE.index("\nUSER ") < DOCKERFILE.index("\nENTRYPOINT ")
    assert len(instructions("FROM")) == 2


def test_the_image_starts_and_is_probed_as_the_code_says() -> None:
    """It serves with its own variables on the port it names, keeps its data in its volume, and asks itself how it is."""
    settings = checked_settings(image_environment())
    assert (settings.host, str(settings.port)) == ("0.0.0.0", instructions("EXPOSE")[0])
    assert settings.store.startswith(instructions("VOLUME")[0] + "/")
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["tini", "--", "replan"]
    assert json.loads(instructions("CMD")[0]) == ["serve"]
    (health,) = instructions("HEALTHCHECK")
    check_probe(json.loads(health.partition(" CMD ")[2]))
    assert image_environment()["NUMBA_CACHE_DIR"].startswith("/var/cache/replan/")
    assert instructions("STOPSIGNAL") == ["SIGTERM"]


@pytest.mark.parametrize("name", SERVERS)
def test_servers_of_the_compose_file(name: str) -> None:
    """Each runs our image with known variables, locked down, with a probe, limits, and time to end."""
    service = COMPOSE["services"][name]
    assert service["image"] == IMAGE
    settings = checked_settings(service["environment"])
    assert settings.store.startswith("postgresql://")
    assert settings.solver_processes < float(service["deploy"]["resources"]["limits"]["cpus"])
    assert settings.admin_key_file == Path("/run/secrets") / service["secrets"][0]
    assert set(service["secrets"]) <= set(COMPOSE["secrets"])
    check_probe(service["healthcheck"]["test"][1:])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["stop_grace_period"] == "30s"
    assert settings.drain_delay_s + settings.shutdown_grace_s < 30
    assert [volume.split(":")[0] for volume in service["volumes"]] == [f"cache-{name[-1]}"]
    writable = {volume.split(":")[1] for volume in service["volumes"]} | {
        place.split(":")[0] for place in service["tmpfs"]
    }
    assert writable == {"/tmp", "/data", "/var/cache/replan"}
    (port,) = service["ports"]
    assert re.fullmatch(rf"127\.0\.0\.1:\d+:{instructions('EXPOSE')[0]}", port)


def test_the_compose_file_as_a_whole() -> None:
    """Two servers on different ports, one database with the same name and password, every volume declared."""
    services = COMPOSE["services"]
    assert set(services) == {*SERVERS, "db"}
    assert services["server-1"]["ports"] != services["server-2"]["ports"]
    database = services["db"]["environment"]
    assert services["server-1"]["environment"]["PGPASSWORD"] == database["POSTGRES_PASSWORD"]
    store = services["server-1"]["environment"]["REPLAN_STORE"]
    assert store == f"postgresql://{database['POSTGRES_USER']}@db/{database['POSTGRES_DB']}"
    used = {volume.split(":")[0] for service in services.values() for volume in service["volumes"]}
    assert used == set(COMPOSE["volumes"])


def test_servers_of_the_kubernetes_manifest() -> None:
    """They run our image with known variables, and end in the time they are given."""
    spec, container = pod("Deployment", "replan"), server()
    assert named("Deployment", "replan")["spec"]["replicas"] == 2
    assert {container["image"], *(init["image"] for init in spec["initContainers"])} == {IMAGE}
    settings = checked_settings({entry["name"]: entry["value"] for entry in container["env"] if "value" in entry})
    assert {entry["name"] for entry in container["env"]} <= set(SETTINGS) | OF_POSTGRESQL
    assert settings.solver_processes < int(container["resources"]["limits"]["cpu"])
    # A solver process, and the searches that it starts, take up to some 2 GiB at 98,304 operations.
    assert int(container["resources"]["limits"]["memory"].removesuffix("Gi")) > 2 * settings.solver_processes
    assert settings.drain_delay_s + settings.shutdown_grace_s < spec["terminationGracePeriodSeconds"]
    # The readiness probe has failed, and endpoints are gone, before the server stops listening.
    assert settings.drain_delay_s > 0
    assert spec["enableServiceLinks"] is False
    assert settings.store == "postgresql://replan@replan-db/replan"
    assert {
        entry["name"]: entry.get("value") for entry in pod("StatefulSet", "replan-db")["containers"][0]["env"]
    }.items() >= {
        "POSTGRES_USER": "replan",
        "POSTGRES_DB": "replan",
    }.items()


def test_probes_of_the_kubernetes_manifest() -> None:
    """Whether it lives is asked from outside without a key, whether it is ready from inside, where none is needed."""
    container = server()
    (port,) = container["ports"]
    assert str(port["containerPort"]) == instructions("EXPOSE")[0]
    for kind in ("startupProbe", "livenessProbe"):
        request = container[kind]["httpGet"]
        assert request["port"] == port["name"]
        assert required_access("GET", request["path"]).scope is None
        check_path(request["path"])
    check_probe(container["readinessProbe"]["exec"]["command"])


@pytest.mark.parametrize(("kind", "name"), [("Deployment", "replan"), ("StatefulSet", "replan-db")])
def test_pods_are_locked_down(kind: str, name: str) -> None:
    """No root, no rights, no token, a root file system that is read only, limits on memory; every mount has its volume."""
    spec = pod(kind, name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    volumes |= {claim["metadata"]["name"] for claim in named(kind, name)["spec"].get("volumeClaimTemplates", ())}
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    labels = named(kind, name)["spec"]["template"]["metadata"]["labels"]
    assert named(kind, name)["spec"]["selector"]["matchLabels"] == labels


def test_what_the_server_writes_can_be_written() -> None:
    """The folders of the image's variables lie in volumes, and the compiled code is put into one first."""
    mounts = {mount["mountPath"]: mount for mount in server()["volumeMounts"]}
    assert {"/tmp", "/data", "/var/cache/replan", "/etc/replan"} == set(mounts)
    (init,) = pod("Deployment", "replan")["initContainers"]
    assert init["command"] == ["cp", "-R", "/var/cache/replan/.", "/cache/"]
    assert init["volumeMounts"] == [{"name": mounts["/var/cache/replan"]["name"], "mountPath": "/cache"}]


def test_the_manifest_holds_together() -> None:
    """Services, the budget and the policy select pods that there are, by ports that these have."""
    labels = {"replan": {"app": "replan"}, "replan-db": {"app": "replan-db"}}
    for name, kind in (("replan", "Deployment"), ("replan-db", "StatefulSet")):
        service = named("Service", name)["spec"]
        assert service["selector"] == labels[name]
        (container,) = pod(kind, name)["containers"]
        assert {port["targetPort"] for port in service["ports"]} == {port["name"] for port in container["ports"]}
    assert named("PodDisruptionBudget", "replan")["spec"]["selector"]["matchLabels"] == labels["replan"]
    policy = named("NetworkPolicy", "replan-db")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels["replan-db"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": labels["replan"]}}]
    secrets = {entry["valueFrom"]["secretKeyRef"]["key"] for entry in server()["env"] if "valueFrom" in entry}
    assert secrets == {"db-password"}
    assert "admin-key" in {
        item["key"]
        for volume in pod("Deployment", "replan")["volumes"]
        for item in volume.get("secret", {}).get("items", ())
    }
