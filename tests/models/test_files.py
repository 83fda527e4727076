"""From a name to a folder: what is found, what is refused, and that every refusal names what it is about."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tinput.errors import BadFile, NotAllowed, NotFound, Unknown, Unreachable
from tinput.models.files import allowed, find, listed, named, read_config

CONFIG = {"model_type": "bert", "hidden_size": 8}


def model(folder: Path, config: object = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def test_a_folder(tmp_path):
    found = find(str(model(tmp_path / "m")))
    assert (found.folder, found.config, found.bundled, found.revision) == (tmp_path / "m", CONFIG, False, None)
    assert found.name == str(tmp_path / "m")
    assert find(tmp_path / "m").folder == found.folder
    assert find(f"  {tmp_path}/m/  ").folder == found.folder


def test_a_relative_folder_and_a_home(tmp_path, monkeypatch):
    model(tmp_path / "owner" / "name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for asked in ("owner/name", "./owner/name", "~/owner/name", "owner/../owner/name"):
        assert find(asked).folder == tmp_path / "owner" / "name"


def test_bundled_names():
    from tinput import twins

    for name in twins.NAMES:
        if not twins.folder(name).is_dir():
            pytest.skip(f"{name} is not trained yet")
        found = find(name)
        assert found.bundled
        assert (found.name, found.folder) == (name, twins.folder(name))
        assert find(name.removeprefix("tinput/")).name == name
        assert find(name, typed=True, loopback=False).folder == found.folder
    with pytest.raises(NotFound, match="no revision 'v2'"):
        find(twins.NAMES[0], "v2")


def test_a_revision_of_a_folder(tmp_path):
    with pytest.raises(NotFound, match="no revision 'main'"):
        find(model(tmp_path), "main")


def test_a_hub_id_is_looked_for_in_the_cache_alone_when_offline(tmp_path, monkeypatch, offline):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unreachable, match=r"openai-community/gpt2 is not in huggingface_hub's cache"):
        find("openai-community/gpt2")
    with pytest.raises(Unreachable, match="HF_HUB_OFFLINE is set"):
        find("openai-community/gpt2", "v1")
    assert offline == []


@pytest.mark.parametrize(("asked", "nearest"), [("gpt2", ""), ("ropes", " (the nearest is tinput/rope)")])
def test_a_name_without_an_owner_is_an_id_on_the_hub_too(tmp_path, monkeypatch, offline, asked, nearest):
    monkeypatch.chdir(tmp_path)
    not_cached = re.escape(
        f"bundled model{nearest}, and it is not in huggingface_hub's cache, and HF_HUB_OFFLINE is set"
    )
    with pytest.raises(NotFound, match=f"^{asked} is no folder and no {not_cached}"):
        find(asked)
    with pytest.raises(NotFound, match=f"^{asked} is no {not_cached}"):  # nothing is told of the server's disk
        find(asked, typed=True, loopback=False)
    with pytest.raises(NotFound, match="There is no folder"):
        find(Path(asked))
    assert offline == []
    model(tmp_path / asked)
    assert find(asked).folder == tmp_path / asked


@pytest.mark.parametrize(
    ("typed", "name", "revision"),
    [
        ("gpt2", "gpt2", None),
        ("gpt2@v1", "gpt2", "v1"),
        ("owner/name@refs/pr/3", "owner/name", "refs/pr/3"),
        ("https://huggingface.co/gpt2", "gpt2", None),
        ("https://huggingface.co/owner/name/", "owner/name", None),
        ("http://hf.co/owner/name?library=transformers", "owner/name", None),
        ("https://huggingface.co/owner/name/tree/v1", "owner/name", "v1"),
        ("https://huggingface.co/owner/name/blob/v1/config.json#L3", "owner/name", "v1"),
        ("https://huggingface.co/datasets/owner/name", "https://huggingface.co/datasets/owner/name", None),
        ("https://elsewhere.example/gpt2", "https://elsewhere.example/gpt2", None),
        ("/home/me@work/model", "/home/me@work/model", None),
        ("gpt2@", "gpt2@", None),
    ],
)
def test_what_a_model_is_called_and_at_which_revision(typed, name, revision):
    assert named(typed) == (name, revision)


def test_a_name_with_its_revision_and_a_folder_of_that_name(tmp_path, monkeypatch, offline):
    monkeypatch.chdir(tmp_path)
    for asked in ("gpt2@v1", "https://huggingface.co/gpt2/tree/v1"):
        with pytest.raises(Unreachable, match=r"^gpt2 is not in huggingface_hub's cache"):
            find(asked)
    with pytest.raises(NotFound, match="tinput/rope comes with tinput and has no revision 'v1'"):
        find("rope@v1")
    assert find(str(model(tmp_path / "gpt2@v1").relative_to(tmp_path))).folder == tmp_path / "gpt2@v1"
    with pytest.raises(Unreachable, match=r"^gpt2 is not in"):
        find("gpt2@v1", typed=True, loopback=False)
    assert offline == []


def test_a_name_of_tinputs_own_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match="no bundled model tinput/ropes: choose one of tinput/sinusoidal"):
        find("tinput/ropes")


@pytest.mark.parametrize(
    "asked", ["", "  ", "nowhere", "/nowhere/at/all", "a\0b", "x" * 5000, "~nobody-here/x", "\ud800", "a/b/c"]
)
def test_what_is_nowhere(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound) as caught:
        find(asked)
    message = str(caught.value)
    assert message.endswith(".")
    assert message.isprintable()
    assert len(message) < 300


def test_a_file_in_place_of_a_folder(tmp_path):
    file = model(tmp_path) / "config.json"
    with pytest.raises(NotFound, match="is a file; give the folder") as caught:
        find(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("\xff\xfe", "no JSON"),
        ("[]", "no JSON object"),
        ("3", "no JSON object"),
        ({}, "names no model_type"),
        ({"model_type": 3}, "names no model_type"),
        ({"model_type": ""}, "names no model_type"),
    ],
)
def test_a_bad_configuration(tmp_path, config, message):
    model(tmp_path, config)
    if config == "\xff\xfe":
        (tmp_path / "config.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(BadFile, match=message) as caught:
        find(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_no_configuration_and_what_is_there_instead(tmp_path):
    with pytest.raises(BadFile, match=r"has no config\.json, so it is no model that transformers can describe\."):
        find(tmp_path)
    model(tmp_path / "inside")
    with pytest.raises(BadFile, match="a folder inside it has one: inside"):
        find(tmp_path)
    (tmp_path / "model.gguf").touch()
    with pytest.raises(BadFile, match="GGUF"):
        find(tmp_path)
    (tmp_path / "adapter_config.json").touch()
    with pytest.raises(BadFile, match="adapter"):
        find(tmp_path)


def test_an_unknown_architecture(tmp_path):
    model(tmp_path, {"model_type": "megamind"})
    with pytest.raises(Unknown, match=r"model_type 'megamind', which transformers .* does not have") as caught:
        find(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_code_of_a_folder_is_not_run(tmp_path):
    auto = {"AutoConfig": "configuration_mega.MegaConfig", "AutoModel": "modeling_mega.Mega"}
    model(tmp_path, {"model_type": "megamind", "auto_map": auto})
    (tmp_path / "configuration_mega.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(Unknown, match="never runs code from a checkpoint"):
        find(tmp_path)
    model(tmp_path, CONFIG | {"auto_map": auto})  # an architecture that transformers has by itself
    assert find(tmp_path).config["model_type"] == "bert"
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_may_not_be_read(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    model(tmp_path / "closed").chmod(0)
    try:
        with pytest.raises(NotFound, match="permission"):
            find(tmp_path / "closed")
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_the_stamp_changes_with_the_files(tmp_path):
    found = find(model(tmp_path))
    before = found.stamp
    assert before == find(tmp_path).stamp
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"hidden_size": 16}))
    assert found.stamp != before


# ---- what a visitor of the app may name -----------------------------------------------------------------------------


@pytest.fixture
def house(tmp_path, monkeypatch):
    """TINPUT_MODELS names `open`; a model lies in it, one outside, and a link leads out."""
    for name in ("open/good", "secret/model", "opened/model"):
        model(tmp_path / name)
    (tmp_path / "open" / "link").symlink_to(tmp_path / "secret" / "model")
    (tmp_path / "open" / "inner").symlink_to(tmp_path / "open" / "good")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setenv("TINPUT_MODELS", f"{tmp_path / 'open'}{os.pathsep}{os.pathsep} ")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_on_loopback_any_folder(house):
    assert find(str(house / "secret/model"), typed=True, loopback=True).config == CONFIG


@pytest.mark.parametrize("asked", ["open/good", "open/inner", "open/../open/good", "open/link/../good"])
def test_inside_a_named_folder(house, asked):
    assert find(str(house / asked), typed=True, loopback=False).config == CONFIG


@pytest.mark.parametrize(
    "asked",
    [
        "secret/model",
        "open/../secret/model",
        "open/link",
        "opened/model",
        "loop",
        "nowhere",
        "open/../nowhere",
        ".",
        "/etc",
    ],
)
def test_outside_is_refused_alike_whether_it_exists_or_not(house, asked):
    path = str(house / asked)
    assert not allowed(path, loopback=False)
    with pytest.raises(NotAllowed, match="reads folders only inside those named by TINPUT_MODELS"):
        find(path, typed=True, loopback=False)


@pytest.mark.usefixtures("house")
def test_a_relative_path_that_looks_like_a_hub_id_is_no_way_out():
    with pytest.raises(Unreachable, match="secret/model is not in huggingface_hub's cache"):
        find("secret/model", typed=True, loopback=False)
    with pytest.raises(Unreachable, match="secret/other is not in huggingface_hub's cache"):
        find("secret/other", typed=True, loopback=False)


@pytest.mark.usefixtures("house")
@pytest.mark.parametrize("asked", ["a\0b", "~nobody-here/x", "\ud800", "x" * 5000])
def test_what_is_no_path_is_not_allowed_either(asked):
    assert not allowed(asked, loopback=False)
    with pytest.raises((NotAllowed, NotFound)):
        find(asked, typed=True, loopback=False)


def test_without_the_variable_nothing_is_allowed(house, monkeypatch):
    monkeypatch.delenv("TINPUT_MODELS")
    assert not allowed(house / "open/good", loopback=False)
    assert listed() == []


def test_the_list(house):
    model(house / "open/owner/deep")
    model(house / "open/hub/models--a--b/snapshots/0123")
    model(house / "open/good/1_Pooling", {"word_embedding_dimension": 384})
    model(house / "open/other", {"no": "model"})
    model(house / "open/.hidden")
    names = [str(p.relative_to(house / "open")) for p in listed()]
    assert names == ["good", "hub/models--a--b/snapshots/0123", "owner/deep"]


def test_the_python_api_is_not_restricted(house):
    assert find(house / "secret/model").config == CONFIG


def test_read_config_reads_no_endless_file(tmp_path):
    with (model(tmp_path) / "config.json").open("w") as stream:
        stream.truncate(60_000_000)
    with pytest.raises(BadFile, match="more than 50,000,000 bytes"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("typed", "loopback", "token"), [(False, False, None), (True, True, None), (True, False, False)]
)
def test_the_owners_token_is_not_for_visitors(tmp_path, monkeypatch, typed, loopback, token):
    """Who types an id on the owner's own machine is the owner; on a server that others reach, anybody."""
    from tinput.models import files

    asked = []
    monkeypatch.chdir(tmp_path)
    for roots in ("", str(tmp_path)):  # the name may also be a path inside a folder that is offered
        monkeypatch.setenv("TINPUT_MODELS", roots)
        monkeypatch.setattr(files, "fetch", lambda *given: asked.append(given))
        find("owner/name", typed=typed, loopback=loopback)
    assert asked == [("owner/name", None, token)] * 2
