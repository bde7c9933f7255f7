"""The manifests say what the command line takes, name only what there is, and give a pod no more than it needs."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import pytest
import typer

from spark_queue.cli.app import app
from spark_queue.protocol import user_files
from tests.docs import pages
from tests.kubernetes import Container, containers, expanded, objects, secrets_made
from tests.source_tree import ROOT

PAGE = pages.page("docs/platforms/kubernetes.md").text
IMAGE = (ROOT / "conf" / "Containerfile").read_text(encoding="utf-8")

ALL = list(containers())
RUNNING = [each for each in ALL if "ports" in each.spec]
PODS = [*objects("StatefulSet"), *objects("Deployment")]

of_each_container = pytest.mark.parametrize("container", ALL, ids=lambda each: each.name)
of_each_running = pytest.mark.parametrize("container", RUNNING, ids=lambda each: each.name)
of_each_pod = pytest.mark.parametrize("pod", PODS, ids=lambda each: each["metadata"]["name"])


def options(container: Container) -> dict[str, str]:
    """Return the options that stand in its arguments."""
    return dict(each.split("=", 1) for each in container.spec["args"] if each.startswith("--"))


def given_ports(container: Container) -> set[int]:
    """Return the ports that its arguments name."""
    return {
        int(value.rpartition(":")[2]) for name, value in options(container).items() if name in ("--bind", "--metrics", "--port")
    }


def pod_spec(pod: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = pod["spec"]["template"]["spec"]
    return spec


@of_each_running
def test_the_command_line_takes_the_arguments(container: Container) -> None:
    program, verb, *arguments = container.command
    assert program == "sparkq"
    group: Any = typer.main.get_command(app)
    # What does not parse raises.
    context = group.commands[verb].make_context(verb, [expanded(each, container.environment()) for each in arguments])
    assert {"s3://bucket/shop"} <= {str(value).strip("[']") for value in context.params.values()}


@of_each_running
def test_every_variable_of_an_argument_is_there(container: Container) -> None:
    used = set(re.findall(r"\$\((\w+)\)", " ".join(container.command)))
    assert used
    assert used <= container.environment().keys()
    ours = {name for name in container.environment() if name.startswith("SPARKQ_")}
    assert ours <= {user_files.TOKEN_FILE_VARIABLE, user_files.TOKEN_VARIABLE}


@of_each_running
def test_ports_are_those_that_are_listened_on(container: Container) -> None:
    named = {each["name"]: each["containerPort"] for each in container.spec["ports"]}
    assert set(named.values()) == given_ports(container)
    probes = [container.spec[f"{name}Probe"] for name in ("startup", "readiness", "liveness")]
    assert {(each.get("tcpSocket") or each.get("httpGet"))["port"] for each in probes} <= named.keys()
    for port in named.values():
        assert f"`{port}`" in PAGE


def test_services_and_policies_lead_to_ports_of_the_pods_that_they_select() -> None:
    listened = {each.pod["spec"]["template"]["metadata"]["labels"]["app"]: each for each in RUNNING}
    led = [(each["spec"]["selector"], each["spec"]["ports"]) for each in objects("Service")]
    led += [
        (each["spec"]["podSelector"]["matchLabels"], [port for rule in each["spec"]["ingress"] for port in rule["ports"]])
        for each in objects("NetworkPolicy")
    ]
    assert {selector["app"] for selector, _ in led} == listened.keys()
    for selector, ports in led:
        assert {each["port"] for each in ports} == given_ports(listened[selector["app"]])
    [budget] = objects("PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"]["app"] in listened


def test_the_two_are_called_by_names_that_their_service_gives() -> None:
    [pod] = objects("StatefulSet")
    [coordinator] = [each for each in RUNNING if each.pod["kind"] == "StatefulSet"]
    service = pod["spec"]["serviceName"]
    assert pod["spec"]["replicas"] == 2
    assert service in [each["metadata"]["name"] for each in objects("Service") if each["spec"].get("clusterIP") == "None"]
    found = coordinator.environment(**{"metadata.name": f"{pod['metadata']['name']}-1", "metadata.namespace": "queues"})
    bound = expanded(options(coordinator)["--bind"], found)
    assert bound == f"sparkq-1.{service}.queues.svc.cluster.local:7337"
    assert bound in PAGE


def test_the_page_is_asked_by_a_name_that_it_answers_to() -> None:
    [dashboard] = [each for each in RUNNING if each.pod["kind"] == "Deployment"]
    for probe in ("startupProbe", "readinessProbe"):
        [header] = dashboard.spec[probe]["httpGet"]["httpHeaders"]
        given = options(dashboard)
        assert header == {"name": "Host", "value": f"{given['--allowed-host']}:{given['--port']}"}


@of_each_container
def test_what_is_mounted_is_there_and_files_are_below_it(container: Container) -> None:
    spec = pod_spec(container.pod)
    mounts = {each["mountPath"]: each["name"] for each in container.spec["volumeMounts"]}
    assert set(mounts.values()) <= {each["name"] for each in spec["volumes"]}
    files = re.findall(r"(?:^|=)(/[\w./-]+)", "\n".join([*container.command, *container.environment().values()]), re.MULTILINE)
    assert files
    assert [each for each in files if not {each, str(PurePosixPath(each).parent)} & mounts.keys()] == []


def test_secrets_are_those_that_the_page_makes() -> None:
    made = secrets_made(PAGE)
    for container in ALL:
        volumes = {each["name"]: each["secret"]["secretName"] for each in pod_spec(container.pod)["volumes"] if "secret" in each}
        for mount in container.spec["volumeMounts"]:
            used = {PurePosixPath(each).name for each in re.findall(rf"{mount['mountPath']}/[\w.-]+", " ".join(container.command))}
            if mount["name"] in volumes:
                assert used
                assert used <= made[volumes[mount["name"]]]
        references = [each["secretRef"] for each in container.spec.get("envFrom", ()) if "secretRef" in each]
        assert {each["name"] for each in references} <= made.keys()


@of_each_pod
def test_accounts_and_labels_are_there(pod: dict[str, Any]) -> None:
    assert pod_spec(pod)["serviceAccountName"] in [each["metadata"]["name"] for each in objects("ServiceAccount")]
    labels = pod["spec"]["template"]["metadata"]["labels"]
    assert pod["spec"]["selector"]["matchLabels"].items() <= labels.items()
    spread = [each["labelSelector"]["matchLabels"] for each in pod_spec(pod).get("topologySpreadConstraints", ())]
    assert spread == ([labels] if pod["kind"] == "StatefulSet" else [])


@of_each_pod
def test_a_pod_runs_as_the_user_of_the_image_and_has_no_token_of_the_cluster(pod: dict[str, Any]) -> None:
    (user,) = re.findall(r"(?m)^USER (\d+)$", IMAGE)
    assert f"useradd --uid {user} " in IMAGE
    spec = pod_spec(pod)
    locked = spec["securityContext"]
    assert locked == {
        "runAsNonRoot": True,
        "runAsUser": int(user),
        "runAsGroup": int(user),
        "fsGroup": int(user),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)


@of_each_container
def test_a_container_may_do_nothing_that_it_need_not(container: Container) -> None:
    """The strictest of Kubernetes' own standards, and a root file system that nobody writes."""
    assert container.spec["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    resources = container.spec["resources"]
    assert (resources["requests"].keys(), resources["limits"].keys()) == ({"cpu", "memory"}, {"memory"})
    assert re.fullmatch(r"sparkq:\d+\.\d+\.\d+", container.spec["image"])


def test_the_image_has_the_packages_of_its_commands() -> None:
    (extras,) = re.findall(r"'/build\[([\w,]+)\]'", IMAGE)
    assert set(extras.split(",")) == {"dashboard", "metrics"}
