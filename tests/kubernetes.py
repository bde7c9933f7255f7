"""The manifests of conf/kubernetes/, as the tests that read them and the one that runs them need them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]  # It has no types.

from tests.source_tree import ROOT

FILES = sorted((ROOT / "conf" / "kubernetes").iterdir())

#: How `sparkq` is called by the image where a container has no command of its own.
ENTRYPOINT: list[str] = yaml.safe_load(re.findall(r"(?m)^ENTRYPOINT (.+)$", (ROOT / "conf" / "Containerfile").read_text())[0])

_VARIABLE = re.compile(r"\$\((\w+)\)")


def objects(kind: str) -> list[dict[str, Any]]:
    """Return every object of a kind."""
    loaded = (each for file in FILES for each in yaml.safe_load_all(file.read_text(encoding="utf-8")))
    return [each for each in loaded if each["kind"] == kind]


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container of a pod, also one that only prepares it."""

    #: Of the Deployment or StatefulSet.
    pod: dict[str, Any]
    spec: dict[str, Any]

    @property
    def name(self) -> str:
        """Name it as tests do."""
        return f"{self.pod['metadata']['name']}/{self.spec['name']}"

    @property
    def command(self) -> list[str]:
        """Return what it runs, with variables that are not known yet."""
        return [*self.spec.get("command", ENTRYPOINT), *self.spec.get("args", ())]

    def environment(self, **of_pod: str) -> dict[str, str]:
        """Return its variables; `of_pod` are the fields of the pod, such as ``metadata.name``."""
        taken = {name: value for source in self.spec.get("envFrom", ()) for name, value in _config_map(source).items()}
        for each in self.spec.get("env", ()):
            taken[each["name"]] = each.get("value") or of_pod.get(each["valueFrom"]["fieldRef"]["fieldPath"], "")
        return taken


def _config_map(source: Mapping[str, Any]) -> Mapping[str, str]:
    name = source.get("configMapRef", {}).get("name")
    return next((each["data"] for each in objects("ConfigMap") if each["metadata"]["name"] == name), {})


def containers() -> Iterator[Container]:
    """Yield every container, those that prepare a pod first."""
    for pod in (*objects("StatefulSet"), *objects("Deployment")):
        spec = pod["spec"]["template"]["spec"]
        yield from (Container(pod=pod, spec=each) for each in (*spec.get("initContainers", ()), *spec["containers"]))


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return an argument as Kubernetes gives it: a variable that is not there stays as it stands."""
    return _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), text)


def secrets_made(page: str) -> dict[str, set[str]]:
    """Return the keys of each Secret that the commands of a page make."""
    made: dict[str, set[str]] = {}
    for kind, name, rest in re.findall(r"(?m)^kubectl create secret (generic|tls) (\S+)(.*)$", page.replace("\\\n", " ")):
        given = {word.partition("=")[2].partition("=")[0] for word in shlex.split(rest, comments=True) if "--from" in word}
        made[name] = given if kind == "generic" else {"tls.crt", "tls.key"}
    return made
