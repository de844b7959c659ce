"""What somebody else wrote to do harm: pickles under our names, ways out of the folder, sizes that nothing has.

Every checksum is right: whoever writes the file writes that too. Nothing may run, and nothing large be taken.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import marltrain as mt
from marltrain.cli import main
from marltrain.core.errors import SaveError
from marltrain.storage.files import sha256, with_checksum
from marltrain.trainer.reporting.plots import plot_runs
from marltrain.trainer.saving.checkpoint import FILES, MANIFEST, find
from tests.tiers import LONG
from tests.trainer.running import dqn, trainer


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run with two checkpoints."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    trainer(steps_per_train=60, run_dir=folder, callbacks=[mt.Checkpoint(every_steps=30)]).train(
        dqn(), [1, 1], plot=False
    )
    return folder


@pytest.fixture
def run(whole, tmp_path) -> Path:
    """A copy to do harm with."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture(autouse=True)
def _little_memory() -> Iterator[None]:
    """Whatever takes 4 GiB more than is taken fails: what is refused in time does not."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 2**22
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 4 * 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def sign(folder: Path) -> None:
    """Make every checksum of a checkpoint, or of saved agents, right."""
    manifest = folder / (MANIFEST if (folder / MANIFEST).exists() else "agents.json")
    data = json.loads(manifest.read_text())
    data["files"] = {name: sha256(folder / name) for name in data["files"]}
    manifest.write_text(json.dumps(with_checksum(data)))


def agents(run: Path) -> Any:
    return mt.load(run / "best")


def command(run: Path) -> None:
    """Raise what the command line prints."""
    if main(["test", str(run)]):
        raise SaveError(str(run / "config.json"))


READERS: dict[str, Callable[[Path], Any]] = {
    **{f"checkpoints/60/{name}": find for name in (MANIFEST, *FILES.files)},
    "best/agents.json": agents,
    "best/agents.safetensors": agents,
    "config.json": command,
    "history.parquet": lambda run: plot_runs([run]),
}
EVERY = pytest.mark.parametrize("name", READERS)


class Payload:
    """What leaves a mark when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def refused(run: Path, name: str, message: str = ".") -> None:
    with pytest.raises(SaveError, match=message) as data:
        READERS[name](run)
    assert name.rsplit("/", 1)[-1] in str(data.value)
    assert not Path("ran").exists()


@EVERY
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_under_our_name_is_never_opened(run, name, protocol):
    pickle.loads(pickle.dumps(Payload()))
    Path("ran").rmdir()  # it would have
    file = run / name
    file.write_bytes(pickle.dumps(Payload(), protocol))
    if name.endswith("safetensors") or name.endswith("state.json"):
        sign(file.parent)
    refused(run, name)


@pytest.mark.parametrize("name", [name for name in READERS if name != "history.parquet"])
def test_no_link_leads_out_of_the_folder(run, tmp_path, name):
    """Though what it leads to is what belongs there. A table of numbers, read for a picture, may be anywhere."""
    file = run / name
    file.rename(tmp_path / "outside")
    file.symlink_to(tmp_path / "outside")
    refused(run, name, "." if name == "config.json" else "out of its folder")


@EVERY
def test_a_pipe_does_not_make_us_wait(run, name):
    file = run / name
    file.unlink()
    os.mkfifo(file)
    refused(run, name)


def test_a_checkpoint_elsewhere_is_refused(run, tmp_path):
    newest = run / "checkpoints" / "60"
    newest.rename(tmp_path / "60")
    newest.symlink_to(tmp_path / "60")
    with pytest.raises(SaveError, match=r"checkpoints/60: is a link to .*/60, out of its folder"):
        find(run)


@pytest.mark.parametrize("name", ["../../config.json", "/etc/passwd", "state.json/../../../config.json", ""])
def test_no_name_in_a_file_leads_out_of_the_folder(run, name):
    for folder, manifest in ((run / "checkpoints" / "60", MANIFEST), (run / "best", "agents.json")):
        data = json.loads((folder / manifest).read_text())
        data["files"] = {**data["files"], name: "0"}
        (folder / manifest).write_text(json.dumps(with_checksum(data)))
    refused(run, f"checkpoints/60/{MANIFEST}")
    refused(run, "best/agents.json", '"files" must name')


HOSTILE_JSON = {
    "deep lists": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a key twice": '{"format": "a", "format": "b"}',
    "nan": '{"format": NaN}',
    "infinity": '{"format": -Infinity}',
    "overflow": '{"format": 1e999}',
    "digits": '{"format": ' + "9" * 100_000 + "}",
    "a list": "[]",
    "nothing": "null",
    "not utf-8": "\udcff",
}


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".json")])
@pytest.mark.parametrize("text", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_json_made_to_do_harm_is_refused(run, name, text):
    (run / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    if name.endswith("state.json"):
        sign(run / "checkpoints" / "60")
    refused(run, name)


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".json")])
def test_a_file_of_a_terabyte_is_not_read(run, name):
    """It has no blocks on the disk, and would be zeros."""
    with open(run / name, "ab") as file:
        file.truncate(10**12)
    refused(run, name)


def claimed(dtype: str, shape: list[int], end: int) -> bytes:
    header = json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}).encode()
    return struct.pack("<Q", len(header)) + header


HOSTILE_ARRAYS = {
    "a header of 2^60 bytes": struct.pack("<Q", 2**60) + b"{}",
    "a terabyte": claimed("F32", [250_000_000_000], 10**12),
    "a terabyte that is not there": claimed("F32", [250_000_000_000], 0),
    "more than there are numbers for": claimed("U8", [2**40, 2**40], 0),
    "nothing of a great width": claimed("F32", [0, 2**62], 0),
    "a dtype of another library": claimed("F8_E5M2", [0], 0),
}


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".safetensors")])
@pytest.mark.parametrize("data", HOSTILE_ARRAYS.values(), ids=HOSTILE_ARRAYS)
def test_arrays_made_to_do_harm_are_refused(run, name, data):
    (run / name).write_bytes(data)
    sign((run / name).parent)
    refused(run, name)


@pytest.mark.parametrize("name", [name for name in READERS if name.endswith(".safetensors")])
def test_an_array_that_is_as_large_as_it_claims_is_not_read(run, name):
    """Twice this machine's memory, without blocks on the disk: not even its checksum is computed."""
    size = 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with open(run / name, "wb") as file:
        header = claimed("U8", [size], size)
        file.write(header)
        file.truncate(len(header) + size)
    refused(run, name, "this machine's memory has")


def test_a_table_of_text_is_refused(run):
    table = pd.read_parquet(run / "history.parquet")
    table.assign(metric="much").to_parquet(run / "history.parquet")
    refused(run, "history.parquet", "not a table of tests, or damaged")


@pytest.mark.parametrize("error", [TypeError("data type 'fjoat64' not understood"), NotImplementedError("65 bits")])
def test_a_table_that_its_reader_stumbles_over_is_refused(run, monkeypatch, error):
    """What a flipped bit in such a file was seen to raise."""

    def stumble(*_, **__):
        raise error

    monkeypatch.setattr(pd, "read_parquet", stumble)
    refused(run, "history.parquet", "not a table of tests, or damaged")


def description(run: Path) -> tuple[Path, Any]:
    file = run / "best" / "agents.json"
    return file, json.loads(file.read_text())


@pytest.mark.parametrize(
    ("hidden", "shape"), [([10**6, 10**6], None), ([50_000, 50_000], None), ([4, 4], [10**12]), ([4], [10**5, 10**5])]
)
def test_agents_that_claim_to_be_huge_are_not_built(run, hidden, shape):
    file, data = description(run)
    info = data["agents"][0]["info"]
    info["settings"]["network"]["network"]["hidden"] = hidden
    if shape is not None:
        info["observation_space"] = {"type": "Box", "shape": shape, "dtype": "uint8", "low": [0], "high": [255]}
    file.write_text(json.dumps(with_checksum(data)))
    refused(run, "best/agents.json", "a layer of .* weights is described|an observation or action of")


@pytest.mark.parametrize("kind", ["os:system", "os.system", "marltrain.cli:main", "builtins.eval", "__main__", "sys"])
def test_no_class_is_looked_up(run, kind):
    file, data = description(run)
    data["agents"][0]["info"]["type"] = kind
    file.write_text(json.dumps(with_checksum(data)))
    refused(run, "best/agents.json", "which is none of marltrain's: give its class with custom_objects=")
    file, data = description(run)
    data["agents"][0]["info"].update({"type": "dqn", "backend": kind})
    file.write_text(json.dumps(with_checksum(data)))
    refused(run, "best/agents.json", "cannot be restored")


@pytest.mark.parametrize(
    ("capacity", "now", "oldest", "said"),
    [
        (2**50, 20, 0, "this machine's memory has"),
        (60, 10**12, 0, "cannot hold those from 0 to 1000000000000"),
        (60, 20, -5, "memory/0/oldest must be from 0 to"),
        (60.0, 20, 0, "capacity must be of type int"),
    ],
)
def test_a_memory_that_claims_to_be_huge_is_not_made(run, capacity, now, oldest, said):
    folder = run / "checkpoints" / "60"
    info = json.loads((folder / "state.json").read_text())
    ring = next(part for part in info["memory"].values() if "capacity" in part)
    ring.update(capacity=capacity, now=now, oldest=oldest)
    (folder / "state.json").write_text(json.dumps(info))
    sign(folder)
    with pytest.raises(SaveError, match=rf"60 cannot be resumed: .*{said}"):
        trainer(steps_per_train=90, run_dir=None).train(dqn(), [1, 1], plot=False, resume=run)


@pytest.fixture(scope="module")
def cards(tmp_path_factory) -> Path:
    """A run of a native game, with a checkpoint."""
    folder = tmp_path_factory.mktemp("cards") / "run"
    leduc(folder).train(dqn("marltrain/leduc_poker_v1"), [1, 1], plot=False)
    return folder


def leduc(folder: Path | None, **settings: Any) -> mt.DecentralizedTrainer:
    checkpoints = [mt.Checkpoint(every_steps=30)]
    return trainer(
        "marltrain/leduc_poker_v1",
        {},
        **{"steps_per_train": 60, "run_dir": folder, "callbacks": checkpoints, **settings},
    )


@pytest.mark.parametrize("vector", ["dummy", *LONG * ["subproc"]])
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("card", 10**12, r"environment 2, field 'card', entry \[1\], must be a number from 0 to 5, got 10{12}"),
        ("folded", 1, "environment 2: fields that do not fit together"),
        ("turn", 0, "environment 2: fields that do not fit together"),
    ],
)
def test_numbers_that_would_reach_compiled_code_are_refused(cards, tmp_path, vector, field, value, said):
    run = Path(shutil.copytree(cards, tmp_path / "run"))
    folder = run / "checkpoints" / "60"
    arrays = load_file(folder / "run.safetensors")
    (name,) = [name for name in arrays if name.endswith(f"envs/envs/{field}")]
    arrays[name][2, :] = value if field != "card" else [arrays[name][2, 0], value]
    save_file(arrays, folder / "run.safetensors")
    sign(folder)
    with pytest.raises(SaveError, match=rf"60 cannot be resumed: .*leduc_poker_v1, {said}"):
        leduc(None, steps_per_train=90, vector=vector).train(
            dqn("marltrain/leduc_poker_v1"), [1, 1], plot=False, resume=run
        )
