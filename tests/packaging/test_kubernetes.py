"""Test the manifests for Kubernetes: by its own schemas, by the broker's settings, and by what the broker promises."""

import tomllib
from itertools import chain

import pytest
import yaml
from kubernetes_validate import validate

import txbroker
from tests.support.repository import ROOT
from txbroker.broker.sessions.settings import SECOND
from txbroker.server.settings import config
from txbroker.server.systemd import STOP_RESERVE

MANIFEST = ROOT / "packaging/kubernetes/txbroker.yaml"
VERSIONS = ("1.29", "1.37")
"""The oldest one in which ReadWriteOncePod is for everybody, and the newest whose schemas there are."""
DOCUMENTS = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}
POD = DOCUMENTS["StatefulSet"]["spec"]["template"]["spec"]
[BROKER], [INIT] = POD["containers"], POD["initContainers"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_each_object_is_one_by_the_schema_of_its_kind(kind, version):
    validate(DOCUMENTS[kind], version, strict=True)


def test_the_settings_in_it_are_settings():
    written = DOCUMENTS["ConfigMap"]["data"]["txbroker.toml"]
    made = config.merged(tomllib.loads(written))
    assert all(endpoint.startswith("tls:") for endpoint in (*made.service.listen, *made.service.http))
    assert made.service.http_token_file


def test_every_file_that_is_named_is_mounted_and_every_volume_is_there():
    written = DOCUMENTS["ConfigMap"]["data"]["txbroker.toml"]
    claims = DOCUMENTS["StatefulSet"]["spec"]["volumeClaimTemplates"]
    volumes = {each["name"] for each in POD["volumes"]} | {each["metadata"]["name"] for each in claims}
    for container in (BROKER, INIT):
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert set(mounts) == volumes
        named = [
            word for word in chain(container["args"], written.replace('"', ":").split(":")) if word[:1] == "/"
        ]
        named += [word for part in written.split("=") for word in part.split(":") if word.startswith("/run")]
        assert len(named) >= 4
        assert all(path.startswith(tuple(mounts.values())) for path in named), named


def test_a_stop_has_the_time_that_the_broker_wants():
    assert POD["terminationGracePeriodSeconds"] > config.defaults()["stop_timeout"] / SECOND + STOP_RESERVE


def test_nothing_runs_as_root_or_writes_but_to_the_data():
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (BROKER, INIT):
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"]
        assert not confined["allowPrivilegeEscalation"]
        assert confined["capabilities"] == {"drop": ["ALL"]}
        written = [each["name"] for each in container["volumeMounts"] if not each.get("readOnly")]
        assert written == ["data"]


def test_the_user_and_the_version_are_those_of_the_image():
    dockerfile = (ROOT / "packaging/image/Dockerfile").read_text()
    assert f"USER {POD['securityContext']['runAsUser']}:{POD['securityContext']['runAsGroup']}" in dockerfile
    assert BROKER["image"] == INIT["image"] == f"txbroker:{txbroker.__version__}"


def test_there_is_one_broker_whose_recovery_has_no_limit_and_whose_hang_has_one():
    assert DOCUMENTS["StatefulSet"]["spec"]["replicas"] == 1
    assert DOCUMENTS["StatefulSet"]["spec"]["volumeClaimTemplates"][0]["spec"]["accessModes"] == [
        "ReadWriteOncePod"
    ]
    paths = {name: BROKER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    liveness = BROKER["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] == 60
