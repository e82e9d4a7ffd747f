"""
Images written by hand are what the OCI layout asks for: everything is named by the digest of its content.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.lab.real.oci import Image, Layer, cached_layer, tar, tar_of


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Layer, Layer]:
    """Two, with a file each."""
    below = cached_layer(tmp_path / "below-1.tar", lambda into: into.write_bytes(tar({"a": b"1"})))
    above = cached_layer(tmp_path / "above-1.tar", lambda into: into.write_bytes(tar({"b": b"2"})))
    return below, above


def an_image(layers: tuple[Layer, Layer]) -> Image:
    """With both layers."""
    return Image(name="localhost/it:1", layers=layers, config={"User": "1:1"})


def files(archive: bytes) -> dict[str, bytes]:
    """What is in a tar."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {each.name: found.read() for each in opened if (found := opened.extractfile(each))}


def blob(archive: dict[str, bytes], described: dict[str, Any]) -> Any:
    """What a descriptor leads to, which has to be as long as it says."""
    content = archive[f"blobs/{described['digest'].replace(':', '/')}"]
    assert len(content) == described["size"]
    return json.loads(content)


def test_the_index_leads_to_manifest_config_and_layers(layers: tuple[Layer, Layer]) -> None:
    archive = files(an_image(layers).archive())
    entry = json.loads(archive["index.json"])["manifests"][0]
    manifest = blob(archive, entry)
    config = blob(archive, manifest["config"])

    assert entry["annotations"] == {"io.containerd.image.name": "localhost/it:1"}
    assert config["config"] == {"User": "1:1"}
    assert config["rootfs"]["diff_ids"] == [each["digest"] for each in manifest["layers"]]
    assert [each["digest"] for each in manifest["layers"]] == [f"sha256:{layer.digest}" for layer in layers]


def test_every_blob_is_named_by_its_content(layers: tuple[Layer, Layer]) -> None:
    blobs = {name: content for name, content in files(an_image(layers).archive()).items() if name.startswith("blobs/")}

    assert len(blobs) == 4
    assert list(blobs) == [f"blobs/sha256/{hashlib.sha256(content).hexdigest()}" for content in blobs.values()]


def test_layers_that_the_receiver_has_are_named_and_left_out(layers: tuple[Layer, Layer]) -> None:
    whole, thin = files(an_image(layers).archive()), files(an_image(layers).archive(without=layers[:1]))

    assert whole.keys() - thin.keys() == {f"blobs/sha256/{layers[0].digest}"}
    assert whole["index.json"] == thin["index.json"]


def test_a_layer_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "it-1.tar"
    first = cached_layer(path, lambda into: into.write_bytes(b"first"))
    again = cached_layer(path, lambda into: into.write_bytes(b"second"))

    assert first == again
    assert path.read_bytes() == b"first"


def test_old_layers_of_a_kind_are_forgotten(tmp_path: Path) -> None:
    for number in range(6):
        cached_layer(tmp_path / f"it-{number}.tar", lambda into: into.write_bytes(b""))
    cached_layer(tmp_path / "other-0.tar", lambda into: into.write_bytes(b""))

    assert (tmp_path / "it-5.tar").exists()
    assert len(list(tmp_path.glob("it-*.tar"))) == 4
    assert len(list(tmp_path.glob("*.sha256"))) == 5


def test_the_same_files_make_the_same_tar(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kept").write_text("kept")
        (tmp_path / name / "dropped").mkdir()
        (tmp_path / name / "dropped" / "inside").write_text(name)
        tar_of(tmp_path / name, tmp_path / f"{name}.tar", leave_out=["dropped"])

    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    assert files((tmp_path / "one.tar").read_bytes()) == {"kept": b"kept"}
