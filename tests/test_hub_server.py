"""The Hub on loopback does what the real one does, told by the real client, and fails as it is told."""

from __future__ import annotations

import email
import http.client
import json
import socket
import time
from urllib.parse import urlsplit

import pytest

from tests.hub import TOKEN, Hub, Outcome, client
from tests.hub_repos import LLAMA_405B, llama_405b, row
from tinput import twins

TINY = twins.folder("tinput/rope")
WEIGHTS = (TINY / "model.safetensors").read_bytes()


# --- jobs, run in the client's process


def download(name: str, file: str, revision: str | None = None) -> bytes:
    from pathlib import Path

    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(name, file, revision=revision)).read_bytes()


def describe(name: str) -> dict:
    from huggingface_hub import HfApi

    api = HfApi()
    info = api.model_info(name, files_metadata=True)
    assert info.siblings
    return {
        "commit": info.sha,
        "gated": info.gated,
        "sizes": {s.rfilename: s.size for s in info.siblings},
        "tree": sorted(e.path for e in api.list_repo_tree(name, recursive=True)),
        "branches": [ref.name for ref in api.list_repo_refs(name).branches],
        "requests": [(d.git_reference, d.title, d.author) for d in api.get_repo_discussions(name)],
        "commits": [c.commit_id for c in api.list_repo_commits(name)],
        "parameters": api.get_safetensors_metadata(name).parameter_count,
    }


def look_outside() -> None:
    import logging
    import urllib.request

    logging.getLogger("someone").info("a line for the log")
    print("a line on the screen")
    urllib.request.urlopen("http://192.0.2.1/", timeout=1)  # an address that is nobody's


@pytest.fixture(scope="module")
def run():
    with Hub() as hub, client(hub) as running:
        yield hub, running


@pytest.fixture
def hub():
    with Hub() as running:
        running.add("owner/tiny", TINY)
        yield running


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own, redirects not followed."""
    split = urlsplit(url)
    connection = http.client.HTTPConnection(split.netloc, timeout=10)
    try:
        connection.request(method, url.removeprefix(f"http://{split.netloc}"), headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def shard(hub: Hub) -> str:
    """The CDN's address of the weights."""
    status, headers, _ = get(f"{hub.url}/owner/tiny/resolve/main/model.safetensors")
    assert status == 302
    return headers["Location"]


# --- the real client's view


def test_the_real_client_downloads_a_file_and_the_cdn_sees_no_token(run):
    hub, client = run
    hub.add("real/files", TINY)
    assert client(download, "real/files", "model.safetensors") == WEIGHTS
    assert client(download, "real/files", "config.json") == (TINY / "config.json").read_bytes()
    mine = [request for request in hub.requests if "real/files" in request.path]
    assert {(request.host, request.token) for request in mine} == {("hub", True), ("cdn", False)}
    assert sum(request.sent for request in mine) == len(WEIGHTS) + (TINY / "config.json").stat().st_size
    assert not any("Signature" in request.path for request in mine)


def test_the_real_client_reads_the_api(run):
    hub, client = run
    repo = hub.add("real/api", TINY, gated=True, readers=(TOKEN,))
    repo.push(TINY, "refs/pr/1", title="Adding `safetensors` variant of this model")
    found = client(describe, "real/api")
    assert found["commit"] == repo.commit == found["commits"][0]
    assert found["gated"] == "manual"
    assert found["sizes"] == {path.name: path.stat().st_size for path in TINY.iterdir()}
    assert found["tree"] == sorted(found["sizes"])
    assert found["branches"] == ["main"]
    assert found["requests"] == [("refs/pr/1", "Adding `safetensors` variant of this model", "SFconvertbot")]
    assert found["parameters"] == {"F16": 919_808}


@pytest.mark.parametrize(
    ("name", "file", "revision", "kind"),
    [
        ("no/such", "config.json", None, "RepositoryNotFoundError"),
        ("real/private", "config.json", None, "RepositoryNotFoundError"),
        ("real/gated", "config.json", None, "GatedRepoError"),
        ("real/open", "nothing.json", None, "RemoteEntryNotFoundError"),
        ("real/open", "config.json", "v9", "RevisionNotFoundError"),
    ],
)
def test_the_real_client_tells_the_refusals_apart(run, name, file, revision, kind):
    hub, client = run
    hub.add("real/private", TINY, private=True)
    hub.add("real/gated", TINY, gated=True)
    hub.add("real/open", TINY)
    assert client.outcome(download, name, file, revision).kinds[0] == kind


def test_the_real_client_follows_a_renamed_repo_and_the_redirect_of_small_files(run):
    hub, client = run
    hub.add("new/name", TINY)
    hub.moved["former"] = "new/name"
    hub.resolve_cache = hub.compress = True
    try:
        assert client(download, "former", "tokenizer.json") == (TINY / "tokenizer.json").read_bytes()
    finally:
        hub.resolve_cache = hub.compress = False
    small = hub.requests[-1]
    assert small.path.startswith("/api/resolve-cache/models/new/name/")
    assert 0 < small.sent < (TINY / "tokenizer.json").stat().st_size  # compressed


def test_a_job_is_told_with_what_it_logged_and_kept_from_other_machines(run):
    _, client = run
    outcome: Outcome = client.outcome(look_outside)
    assert "offline" in outcome.said
    assert outcome.kinds[0] == "URLError"
    assert outcome.connections == 1
    assert "a line on the screen" in outcome.printed
    assert "a line for the log" not in outcome.printed
    assert "a line for the log" in outcome.shown


# --- the wire


@pytest.mark.parametrize(
    ("asked", "expected", "told"),
    [
        ("bytes=0-7", WEIGHTS[:8], f"bytes 0-7/{len(WEIGHTS)}"),
        ("bytes=100-", WEIGHTS[100:], f"bytes 100-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"),
        ("bytes=-10", WEIGHTS[-10:], f"bytes {len(WEIGHTS) - 10}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"),
        (f"bytes=0-{10**12}", WEIGHTS, f"bytes 0-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"),
    ],
    ids=["first", "from", "last", "too far"],
)
def test_a_range_is_that_range(hub, asked, expected, told):
    status, headers, body = get(shard(hub), Range=asked)
    assert (status, headers["Content-Range"], body) == (206, told, expected)
    assert (hub.requests[-1].host, hub.requests[-1].range, hub.requests[-1].sent) == ("cdn", asked, len(expected))


def test_several_ranges_come_as_parts_or_as_the_whole_file(hub):
    url, asked = shard(hub), "bytes=0-7,100-103,-2"
    status, headers, body = get(url, Range=asked)
    message = email.message_from_bytes(f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + body)
    parts = [part for part in message.walk() if not part.is_multipart()]
    size = len(WEIGHTS)
    told = ["bytes 0-7", "bytes 100-103", f"bytes {size - 2}-{size - 1}"]
    assert status == 206
    assert [part["Content-Range"] for part in parts] == [f"{one}/{size}" for one in told]
    for raw in (WEIGHTS[:8], WEIGHTS[100:104], WEIGHTS[-2:]):
        assert b"\r\n\r\n" + raw + b"\r\n--" in body
    hub.multipart = False
    assert get(url, Range=asked)[::2] == (200, WEIGHTS)


def test_a_range_past_the_end_is_refused(hub):
    status, headers, _ = get(shard(hub), Range=f"bytes={len(WEIGHTS)}-")
    assert (status, headers["Content-Range"]) == (416, f"bytes */{len(WEIGHTS)}")


def test_metadata_is_on_the_first_answer(hub):
    status, headers, body = get(f"{hub.url}/owner/tiny/resolve/main/model.safetensors", "HEAD")
    assert (status, body) == (302, b"")
    assert headers["X-Repo-Commit"] == hub.repos["owner/tiny"].commit
    assert headers["X-Linked-Size"] == str(len(WEIGHTS))
    assert len(headers["X-Linked-Etag"]) == 66  # a sha256 in quotes


def test_a_new_commit_leaves_the_old_one_where_it_was(hub, tmp_path):
    old = hub.repos["owner/tiny"].commit
    (tmp_path / "config.json").write_text("{}")
    hub.repos["owner/tiny"].push(tmp_path)
    assert get(f"{hub.url}/owner/tiny/resolve/main/config.json")[2] == b"{}"
    assert get(f"{hub.url}/owner/tiny/resolve/{old}/config.json")[2] == (TINY / "config.json").read_bytes()


def test_an_unknown_token_opens_nothing(hub):
    status, headers, _ = get(f"{hub.url}/owner/tiny/resolve/main/config.json", Authorization="Bearer other")
    assert (status, headers["X-Error-Message"]) == (401, "Invalid credentials in Authorization header")


def test_the_agent_registry_is_refused_and_not_counted(hub):
    assert get(f"{hub.url}/api/agent-harnesses")[0] == 404
    assert not hub.requests


# --- failures


def test_a_fault_falls_on_what_it_fits_as_often_as_it_is_told(hub):
    fault = hub.fail("config.json", status=429, headers={"Retry-After": "7"}, times=2, skip=1)
    url = f"{hub.url}/owner/tiny/resolve/main/config.json"
    assert [get(url)[0] for _ in range(4)] == [200, 429, 429, 200]
    assert fault.met == 4
    assert get(f"{hub.url}/owner/tiny/resolve/main/tokenizer.json")[0] == 200
    hub.heal()
    hub.fail("config.json", status=429, headers={"Retry-After": "7"})
    assert get(url)[1]["Retry-After"] == "7"


def test_a_cut_range_ends_early(hub):
    url = shard(hub)
    hub.fail("model.safetensors", cut=1_000, ranged=True)
    with pytest.raises(http.client.IncompleteRead) as cut:
        get(url, Range="bytes=0-9999")
    assert cut.value.partial == WEIGHTS[:1_000]
    assert hub.requests[-1].sent == 1_000


def test_a_server_that_ignores_ranges_tells_how_much_was_taken(tmp_path):
    (tmp_path / "big.safetensors").write_bytes(b"\0")
    with (tmp_path / "big.safetensors").open("r+b") as stream:
        stream.truncate(1 << 30)
    with Hub() as hub:
        hub.add("owner/big", tmp_path)
        hub.fail("big.safetensors", whole=True, host="cdn")
        location = get(f"{hub.url}/owner/big/resolve/main/big.safetensors")[1]["Location"]
        split = urlsplit(location)
        with socket.create_connection((split.hostname or "", split.port or 0)) as connection:
            asked = f"GET {split.path}?{split.query} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-7\r\n\r\n"
            connection.sendall(asked.encode())
            assert connection.recv(12) == b"HTTP/1.1 200"
            time.sleep(0.2)  # a client that reads no further
        assert hub.requests[-1].sent < 8_000_000


def test_a_wrong_content_range_and_bytes_from_elsewhere(hub):
    url = shard(hub)
    hub.fail("model.safetensors", content_range="bytes 8-15/99", times=1)
    assert get(url, Range="bytes=0-7")[1]["Content-Range"] == "bytes 8-15/99"
    hub.faults.clear()
    hub.fail("model.safetensors", shift=4)
    assert get(url, Range="bytes=0-7")[2] == WEIGHTS[4:12]


def test_a_server_that_reads_ranges_in_its_own_way(hub):
    url = shard(hub)
    hub.fail("model.safetensors", many=True, reads=lambda header: header.split(",")[0])
    assert get(url, Range="bytes=0-7,100-103")[2] == WEIGHTS[:8]
    assert get(url, Range="bytes=8-15")[2] == WEIGHTS[8:16]


def test_headers_left_out_delays_and_what_is_done_after(hub, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    repo = hub.repos["owner/tiny"]
    hub.fail("config.json", drop=("X-Repo-Commit", "ETag"), after=lambda: repo.push(tmp_path), delay=0.1, times=1)
    start = time.perf_counter()
    _, headers, body = get(f"{hub.url}/owner/tiny/resolve/main/config.json")
    assert time.perf_counter() - start >= 0.1
    assert not {"X-Repo-Commit", "ETag"} & set(headers)
    assert body == (TINY / "config.json").read_bytes()
    assert get(f"{hub.url}/owner/tiny/resolve/main/config.json")[2] == b"{}"


def test_addresses_of_the_cdn_expire(hub):
    url = shard(hub)
    hub.expire()
    assert get(url, Range="bytes=0-7")[0] == 403
    assert get(shard(hub), Range="bytes=0-7")[0] == 206


def test_the_cdn_moves(hub):
    url = shard(hub)
    hub.move_cdn()
    with pytest.raises(ConnectionRefusedError):
        get(url)
    assert get(shard(hub), Range="bytes=0-7")[2] == WEIGHTS[:8]


def test_it_hangs_refuses_and_comes_back_on_the_same_address(hub):
    url = f"{hub.url}/owner/tiny/resolve/main/config.json"
    hub.fail("config.json", hang=True, times=1)
    split = urlsplit(url)
    connection = http.client.HTTPConnection(split.netloc, timeout=0.3)
    connection.request("GET", split.path)
    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()
    hub.stop()
    with pytest.raises(ConnectionRefusedError):
        get(url)
    hub.start()
    assert get(url)[0] == 200


# --- the largest repo


def test_the_405b_is_true_in_its_headers_and_small_on_disk(tmp_path):
    folder = llama_405b(tmp_path / "405b", rows=[5])
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) == 191
    assert sum(path.stat().st_size for path in shards) > 811e9
    assert sum(path.stat().st_blocks * 512 for path in folder.iterdir()) < 20e6
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2 * 405_853_388_800  # bytes of the parameters, as published
    with shards[0].open("rb") as stream:
        begin = 8 + int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(begin - 8))["model.embed_tokens.weight"]
        assert entry["shape"] == [LLAMA_405B["vocab_size"], LLAMA_405B["hidden_size"]]
        stream.seek(begin + entry["data_offsets"][0] + 5 * 2 * LLAMA_405B["hidden_size"])
        import torch

        read = torch.frombuffer(bytearray(stream.read(2 * LLAMA_405B["hidden_size"])), dtype=torch.bfloat16)
    assert torch.equal(read, row(5))
