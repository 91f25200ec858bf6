"""Models on the Hugging Face hub, against a stand-in of its library: uploaded, found and read again."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import yaml
from huggingface_hub import constants

from axial_transformers import AxialTransformer
from axial_transformers.compression import fingerprint
from tests.conftest import Axial
from tests.hub_stand_in import TOKEN, Hub
from tests.small_models import small_model


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The stand-in, whose token is known."""
    server = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", server)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", server.snapshot_download)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
    return server


def test_what_was_pushed_is_read_again_by_its_revision(hub: Hub, tmp_path: Path):
    first, second = small_model((3, 5), 2), small_model((3, 5), 2, inner="lstm")
    assert first.push_to_hub("alice/small").startswith(f"{constants.ENDPOINT}/alice/small/commit/")
    second.push_to_hub("alice/small", revision="lstm")
    assert fingerprint(AxialTransformer.from_pretrained("alice/small")) == fingerprint(first)
    for name, revision in (("alice/small", "lstm"), ("alice/small@lstm", None)):
        assert fingerprint(AxialTransformer.from_pretrained(name, revision=revision)) == fingerprint(second)
    assert AxialTransformer.read_config("alice/small@lstm") == second.config
    assert hub.repositories["alice/small"].branches["main"].keys() == {"README.md", "config.json", "model.safetensors"}
    first.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="v2"):
        AxialTransformer.from_pretrained(tmp_path / "model", revision="v2")


def test_a_new_repository_is_private_if_asked_and_its_card_reads_the_model(hub: Hub):
    model = small_model((4, 4))
    model.push_to_hub("alice/small", private=True)
    assert hub.repositories["alice/small"].private
    card = hub.repositories["alice/small"].branches["main"]["README.md"].decode()
    (example,) = re.findall(r"```python\n(.*?\n\n.*?)\n", card, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(example, names)
    read = names["model"]
    assert isinstance(read, AxialTransformer)
    assert fingerprint(read) == fingerprint(model)


def test_the_verb_pushes_a_run_with_a_card_of_its_facts(hub: Hub, axial: Axial, trained: Path):
    status, out, err = axial("push", trained, "alice/digits", "--licence", "cc-by-4.0", "--revision", "v2")
    assert (status, out.startswith(f"{constants.ENDPOINT}/alice/digits/commit/")) == (0, True), err
    assert hub.repositories["alice/digits"].branches["main"] == {}
    files = hub.repositories["alice/digits"].branches["v2"]
    assert files["model.safetensors"] == (trained / "model.safetensors").read_bytes()
    facts = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    assert (facts["license"], facts["library_name"]) == ("cc-by-4.0", "axial-transformers")
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    best = min(line["validation_bits_per_dim"] for line in lines if "validation_bits_per_dim" in line)
    (result,) = facts["model-index"][0]["results"]
    assert (result["dataset"]["name"], result["metrics"][0]["value"]) == ("digits", round(best, 4))


def test_a_dry_run_sends_nothing_and_its_card_can_be_edited_and_pushed(hub: Hub, axial: Axial, tmp_path: Path):
    folder = tmp_path / "model"
    model = small_model((2, 3))
    model.save_pretrained(folder)
    (folder / "README.md").touch()  # as the shell does, before the verb writes
    status, card, err = axial("push", folder, "alice/small", "--dry-run")
    assert (status, hub.calls) == (0, [])
    assert "would upload config.json" in err
    (folder / "README.md").write_text(card + "Drawn by hand.\n")
    assert axial("push", folder, "alice/small").status == 0
    assert hub.repositories["alice/small"].branches["main"]["README.md"].decode() == card + "Drawn by hand.\n"
    assert axial("push", folder, "alice/small", "--licence", "mit").status == 2


def test_a_card_tells_neither_the_data_nor_the_command(hub: Hub, axial: Axial, trained: Path, tmp_path: Path):
    folder = tmp_path / "run"
    folder.mkdir()
    for file in ("config.json", "model.safetensors"):
        (folder / file).write_bytes((trained / file).read_bytes())
    record = json.loads((trained / "train.json").read_text())
    record["run"] |= {"source": "/home/alice/secret/photos", "start_from": "/home/alice/secret/x|y"}
    record["facts"]["command"] = ["train", "/home/alice/secret/photos"]
    (folder / "train.json").write_text(json.dumps(record))
    _, card, _ = axial("push", folder, "alice/small", "--dry-run")
    assert "secret" not in card
    assert card.count("`x\\|y`") == 1


def test_what_is_not_there_is_one_line(hub: Hub, axial: Axial, trained: Path, monkeypatch: pytest.MonkeyPatch):
    small_model((2, 3)).push_to_hub("alice/public", card="---\n---\n")
    del hub.repositories["alice/public"].branches["main"]["config.json"]
    token = ": log in by the command `hf auth login`, or set HF_TOKEN"
    for words, known, line in [
        (["push", trained, "digits"], TOKEN, "'digits' is no repository of the hub: these are called owner/name"),
        (["push", trained / "nothing", "alice/x"], TOKEN, f"{trained}/nothing: no model folder there"),
        (["push", trained, "alice/public", "--private"], TOKEN, "alice/public is there, and public: nothing was uplo"),
        (["sample", "alice/missing"], TOKEN, "no folder alice/missing here; alice/missing: no such model on the hub"),
        (["sample", "alice/public@v9"], TOKEN, "no folder alice/public@v9 here; alice/public has no revision v9"),
        (["sample", "alice/public"], TOKEN, "alice/public: no model of this package on the hub (it has no config.json"),
        (["push", trained, "alice/x"], "hf_wrong", f"alice/x: the hub does not allow that with this token{token}"),
        (["sample", "alice/x"], "hf_wrong", f"alice/x: the hub does not allow that with this token{token}"),
        (["push", trained, "alice/x"], "", f"alice/x was not uploaded, since no token of the hub is known{token}"),
    ]:
        monkeypatch.setenv("HF_TOKEN", known)
        status, out, err = axial(*words, *(["--out", "x.png"] if words[0] == "sample" else []))
        assert (status, out) == (2, "")
        assert err.splitlines()[-1].startswith(f"axial {words[0]}: {line}")
    assert hub.repositories.keys() == {"alice/public"}


def test_without_a_network_the_last_copy_is_read_and_all_else_is_one_line(
    axial: Axial, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By huggingface_hub itself, at an address where nobody listens."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    copy, commit = tmp_path / "hub" / "models--alice--digits", "0" * 40
    shutil.copytree(trained, copy / "snapshots" / commit)
    (copy / "refs").mkdir()
    (copy / "refs" / "main").write_text(commit)
    expected = fingerprint(AxialTransformer.from_pretrained(trained))
    assert fingerprint(AxialTransformer.from_pretrained("alice/digits")) == expected
    for words in (["push", trained, "alice/x"], ["sample", "alice/x", "--out", "x.png"]):
        status, _, err = axial(*words)
        assert status == 2
        here = "no folder alice/x here; " * (words[0] == "sample")
        reason = r"alice/x: the hub cannot be reached \(Connect\w+\): check the network and HF_ENDPOINT"
        assert re.fullmatch(f"axial {words[0]}: {here}{reason}", err.splitlines()[-1])


def test_the_address_needs_no_import_before_it():
    code = "from axial_transformers.storage.hub import address; print(address('a/b'))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith("/a/b")
