"""The manifests: valid by Kubernetes' own schemas, and consistent with each other, the image and the daemon."""

import copy
import re

import pytest
import yaml

from compactor.daemon import daemon
from compactor.settings import load_settings
from tests.deploy.service import DEPLOY, PROJECT
from tests.needs import missing

pytestmark = pytest.mark.deploy
FOLDER = DEPLOY / "kubernetes"
LABELS = {"app.kubernetes.io/name": "compactor"}
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS = {name: yaml.safe_load((FOLDER / name).read_text()) for name in KUSTOMIZATION["resources"]}
FOREIGN = {"servicemonitor.yaml"}
"""Of the Prometheus operator: not among Kubernetes' own schemas."""


def validate(manifest, version="1.30"):
    try:
        import kubernetes_validate
    except ImportError:
        missing("kubernetes-validate isn't installed (deploy/setup deploy)")
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", ["1.27", "1.30", "1.35"])
@pytest.mark.parametrize("name", sorted(set(MANIFESTS) - FOREIGN))
def test_kubernetes_knows_every_field(name, version):
    """Strictly: a field that the schema doesn't have is a mistake."""
    validate(MANIFESTS[name], version)


def test_a_field_that_kubernetes_does_not_know_is_found():
    """The test above can fail."""
    wrong = copy.deepcopy(MANIFESTS["statefulset.yaml"])
    wrong["spec"]["template"]["spec"]["terminationGraceSeconds"] = 1
    with pytest.raises(Exception, match="terminationGraceSeconds"):
        validate(wrong)


def test_what_is_commented_out_is_valid_too(tmp_path):
    """
    ZooKeeper in the settings, Hadoop's and Kerberos' files in the pod: with the comments taken away they are known
    settings and known fields.
    """
    settings = tmp_path / "compactor.yaml"
    settings.write_text(
        re.sub(r"^# (?=(zookeeper|hdfs):$|  \w)", "", (FOLDER / "compactor.yaml").read_text(), flags=re.MULTILINE)
    )
    loaded = load_settings(settings, {})
    assert loaded.zookeeper.hosts
    text = re.sub(
        r"^( +)# (?=- ?(?:\{|name:)|  (?:configMap|secret):)",
        r"\1",
        (FOLDER / "statefulset.yaml").read_text(),
        flags=re.MULTILINE,
    )
    manifest = yaml.safe_load(text)
    validate(manifest)
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert len(pod["volumes"]) == len(MANIFESTS["statefulset.yaml"]["spec"]["template"]["spec"]["volumes"]) + 3
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    places = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(loaded.hdfs.conf_dir), str(loaded.hdfs.keytab and loaded.hdfs.keytab.parent)} <= places


def test_every_file_is_applied():
    """No manifest lies there that nobody applies."""
    there = {path.name for path in FOLDER.glob("*.yaml")}
    assert there == {*MANIFESTS, "kustomization.yaml", *KUSTOMIZATION["configMapGenerator"][0]["files"]}


def test_they_select_the_same_pods():
    """Service, budget, network policy, monitor, anti-affinity and StatefulSet mean the same pods."""
    stateful = MANIFESTS["statefulset.yaml"]["spec"]
    assert stateful["template"]["metadata"]["labels"] == LABELS
    affinity = stateful["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ][0]
    selectors = [
        stateful["selector"]["matchLabels"],
        MANIFESTS["service.yaml"]["spec"]["selector"],
        MANIFESTS["poddisruptionbudget.yaml"]["spec"]["selector"]["matchLabels"],
        MANIFESTS["networkpolicy.yaml"]["spec"]["podSelector"]["matchLabels"],
        MANIFESTS["servicemonitor.yaml"]["spec"]["selector"]["matchLabels"],
        affinity["podAffinityTerm"]["labelSelector"]["matchLabels"],
        MANIFESTS["service.yaml"]["metadata"]["labels"],
    ]
    assert all(selector == LABELS for selector in selectors)
    assert stateful["replicas"] > MANIFESTS["poddisruptionbudget.yaml"]["spec"]["maxUnavailable"]


def test_the_pod_fits_the_daemon_and_the_image():
    """Ports, paths, user and patience are those of the daemon, its settings and the Dockerfile."""
    pod = MANIFESTS["statefulset.yaml"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    settings = load_settings(FOLDER / "compactor.yaml", {})
    assert settings.members.expected == MANIFESTS["statefulset.yaml"]["spec"]["replicas"]
    assert [port["containerPort"] for port in container["ports"]] == [settings.http.port]
    assert MANIFESTS["service.yaml"]["spec"]["ports"][0]["port"] == settings.http.port
    assert MANIFESTS["networkpolicy.yaml"]["spec"]["ingress"][0]["ports"][0]["port"] == settings.http.port
    assert (
        MANIFESTS["servicemonitor.yaml"]["spec"]["endpoints"][0]["port"]
        == MANIFESTS["service.yaml"]["spec"]["ports"][0]["name"]
    )
    assert {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness")} == {"/-/healthy"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert (
        pod["terminationGracePeriodSeconds"]
        > settings.drain.timeout_seconds + daemon._CANCEL_SECONDS + daemon._CLOSE_SECONDS
    )
    recipe = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" in recipe
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert "TMPDIR=/var/lib/compactor/tmp" in recipe
    assert "/var/lib/compactor/tmp" in mounts
    assert "COMPACTOR_CONFIG=/etc/compactor/compactor.yaml" in recipe
    assert "/etc/compactor" in mounts
    assert str(settings.database.password_file).startswith("/run/secrets/compactor/")
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_the_image_has_the_version_of_the_package():
    """A release changes both."""
    assert f'version = "{KUSTOMIZATION["images"][0]["newTag"]}"' in (PROJECT / "pyproject.toml").read_text()
