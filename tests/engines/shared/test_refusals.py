"""What only a cluster has is refused elsewhere, at the key it stands under."""

from __future__ import annotations

from penstock.dialects.documents import read_documents
from penstock.dialects.manifest.read import ManifestWorkload
from penstock.engines.docker import refusals as docker
from penstock.engines.local import refusals as local
from penstock.settings import Settings
from tests.dialects.test_manifest_write import SECRETS


def test_secrets_of_a_cluster_are_refused_where_there_is_none() -> None:
    (document,) = read_documents(SECRETS, "m.yaml")
    assert isinstance(document, ManifestWorkload)
    spec = document.task.spec
    for found in (docker.refusals(spec), local.refusals(spec, Settings(), "bwrap")):
        said = {document.task.field(*refusal.keys): refusal.message for refusal in found}
        assert set(said) == {
            "spec.template.spec.containers[0].env[0]",
            "spec.template.spec.imagePullSecrets",
        }
        assert set(said.values()) == {
            "names a Secret of a Kubernetes cluster, and this server does not run jobs in one"
        }
