"""The files of `deploy/` agree with each other and with the code; containers and Kubernetes are not to be had here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._cli import create_dagster_cli
from dagster._daemon.cli import create_dagster_daemon_cli
from dagster_webserver.cli import dagster_webserver

from cdc_assets.cli import commands
from cdc_assets.settings.config import load, settings_of

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def environment(service: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a service of the compose file where nobody set a variable of his own."""
    return {name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in service["environment"].items()}


@pytest.fixture
def services() -> dict[str, Any]:
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services: dict[str, Any] = document["services"]
    volumes = {mount.partition(":")[0] for service in services.values() for mount in service.get("volumes", ())}
    assert {name for name in volumes if not name.startswith("./")} == set(document["volumes"])
    assert [name for name in volumes if name.startswith("./") and not (DEPLOY / name).is_file()] == []
    return services


def test_every_process_of_dagster_has_the_variables_that_its_files_name(services: dict[str, Any]) -> None:
    for name in ("code", "daemon", "webserver"):
        service = services[name]
        mounted = {Path(parts[1]): DEPLOY / parts[0] for parts in (mount.split(":") for mount in service["volumes"])}
        variables = environment(service)
        home, settings = Path(variables["DAGSTER_HOME"]), mounted[Path(variables["CDC_ASSETS_CONFIG"])]
        instance = mounted[home / "dagster.yaml"]
        wanted = re.findall(r"\{env: (\w+)\}", settings.read_text() + instance.read_text())
        assert [variable for variable in wanted if variable not in variables] == []
        assert set(service["depends_on"]) <= set(services)


def test_processes_of_dagster_are_started_by_commands_that_are_there(services: dict[str, Any]) -> None:
    programs: dict[str, Any] = {
        "dagster": create_dagster_cli(),  # type: ignore[no-untyped-call]
        "dagster-daemon": create_dagster_daemon_cli(),
        "dagster-webserver": dagster_webserver,
    }
    assert set(programs) <= {script.name for script in entry_points(group="console_scripts")}
    for name in ("code", "daemon", "webserver"):
        for line in (services[name]["command"], services[name].get("healthcheck", {}).get("test")):
            if line is not None:
                program, *arguments = shlex.split(line)
                command = programs[program]
                while hasattr(command, "commands"):
                    command = command.commands[arguments.pop(0)]
                command.make_context(program, arguments)


def test_addresses_of_settings_and_workspace_are_services(
    services: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(services["code"]).items():
        monkeypatch.setenv(name, value)
    settings = load(DEPLOY / "changefeeds.yaml")
    lake, sink_uri = settings.needed_lake(), settings.changefeeds[0].sink_uri.get_secret_value()
    catalog_properties = lake.pyiceberg_properties()
    postgres, store, catalog = (environment(services[name]) for name in ("postgres", "store", "catalog"))
    addresses = re.findall(r"(?:http://|@)(\w+):\d+", f"{catalog_properties} {lake.ledger} {sink_uri}")
    assert set(addresses) == {"postgres", "store", "catalog"}
    user, password = postgres["POSTGRES_USER"], postgres["POSTGRES_PASSWORD"]
    assert lake.ledger == f"postgresql+psycopg2://{user}:{password}@postgres:5432/{postgres['POSTGRES_DB']}"
    assert catalog_properties["s3.access-key-id"] == store["AWS_ACCESS_KEY_ID"] == catalog["AWS_ACCESS_KEY_ID"]
    assert (
        catalog_properties["s3.secret-access-key"] == store["AWS_SECRET_ACCESS_KEY"] == catalog["AWS_SECRET_ACCESS_KEY"]
    )
    assert lake.warehouse == catalog["CATALOG_WAREHOUSE"]
    (buckets,) = re.findall(r"-bucket=(\S+)", services["store"]["entrypoint"])
    assert {uri.split("/")[2] for uri in (lake.warehouse, sink_uri)} == set(buckets.split(","))
    (workspace,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())["load_from"]
    arguments = shlex.split(services[workspace["grpc_server"]["host"]]["command"])
    assert arguments[arguments.index("-p") + 1] == str(workspace["grpc_server"]["port"])


def test_the_image_is_built_from_files_and_commands_that_are_there() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    sources = [source for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for source in line.split()]
    assert "cdc_assets" in sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    for line in re.findall(r"\bcdc-assets ((?:[\w-]+ ?)+)", re.sub(r"^#.*$", "", text, flags=re.MULTILINE)):
        name, *arguments = line.split()
        commands.commands[name].make_context(name, arguments)
    (ours,) = re.findall(r'"pyspark>=(\d+\.\d+)', (ROOT / "pyproject.toml").read_text())
    assert re.findall(r"^FROM apache/spark:(\d+\.\d+)", text, re.MULTILINE) == [ours]


def test_the_manifest_runs_a_driver_that_executors_find() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    kinds = {document["kind"]: document for document in documents}
    defaults = dict(line.split() for line in kinds["ConfigMap"]["data"]["spark-defaults.conf"].splitlines())
    service, pod = kinds["Service"], kinds["Job"]["spec"]["template"]
    (driver,) = pod["spec"]["containers"]
    named = {variable["name"]: variable["value"] for variable in driver["env"]}
    assert defaults["spark.driver.host"] == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    assert {defaults["spark.driver.port"], defaults["spark.blockManager.port"]} == ports
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert defaults["spark.kubernetes.container.image"] == driver["image"]
    assert named["CDC_ASSETS_SPARK_MASTER"].startswith("k8s://")
    mounted = {mount["mountPath"] for mount in driver["volumeMounts"]}
    assert {named["SPARK_CONF_DIR"], str(Path(driver["command"][-1]).parent)} == mounted
    settings = yaml.safe_load(kinds["ConfigMap"]["data"][Path(driver["command"][-1]).name])
    assert {document["metadata"]["namespace"] for document in documents} == {defaults["spark.kubernetes.namespace"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEDGER", kinds["Secret"]["stringData"]["LEDGER"])
        assert settings_of(settings, Path("/")).needed_lake().ledger == kinds["Secret"]["stringData"]["LEDGER"]
