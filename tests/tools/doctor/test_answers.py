"""Facts of packages that this process imports itself, and a training for a moment."""

import imageio_ffmpeg
import numba
import pytest
import torch

from marltrain.policies.compiled import gemm
from marltrain.tools.doctor import answers


def test_a_native_game_is_trained(tmp_path):
    """Two rollouts of 32 env steps, with 4 passes of 2 minibatches of 16 each; the working folder stays empty."""
    found = answers.trained()
    assert found | {"seconds": 0} == {
        "game": "marltrain/CartPole-v1", "env_steps": 64, "gradient_steps": 16, "seconds": 0,
    }  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_versions_and_threads():
    before = torch.get_num_threads()
    found = answers.imported("torch")
    assert (found["version"], found["threads"]) == (torch.__version__, torch.get_num_threads())
    assert (found["gpus"], found["cuda"]) == ([], torch.version.cuda)  # tests see no GPU
    found = answers.imported("numba")
    assert (found["version"], found["threads"]) == (numba.__version__, vars(numba.config)["NUMBA_NUM_THREADS"])
    assert torch.get_num_threads() == before  # numba.get_num_threads() would change it
    assert found["vector"] == gemm.WIDEST == (16 if "avx512f" in found["features"] else 8)


def test_gpus_are_told_with_their_memory(monkeypatch):
    """Two of them, which this machine need not have."""
    cuda = type("Cuda", (), {
        "is_available": staticmethod(lambda: True), "device_count": staticmethod(lambda: 2),
        "get_device_name": staticmethod(lambda i: f"GPU {i}"),
        "get_device_properties": staticmethod(lambda i: type("Properties", (), {"total_memory": 2**30 * (i + 1)})),
    })  # fmt: skip
    monkeypatch.setattr(torch, "cuda", cuda)
    assert answers.imported("torch")["gpus"] == [
        {"name": "cuda:0", "device": "GPU 0", "memory": 2**30}, {"name": "cuda:1", "device": "GPU 1", "memory": 2**31},
    ]  # fmt: skip


def test_the_program_of_films():
    found = answers.imported("imageio_ffmpeg")
    assert (found["program"], found["ffmpeg"]) == (
        imageio_ffmpeg.get_ffmpeg_exe(),
        imageio_ffmpeg.get_ffmpeg_version(),
    )


def test_memory_that_processes_share():
    assert answers.shared() == {"bytes": 2**20}


def test_a_cause_that_the_error_tells_is_told_once():
    with pytest.raises(ImportError) as raised:
        try:
            raise OSError("libc")
        except OSError as error:
            raise ImportError("no torch: OSError: libc") from error
    assert answers._reason(raised.value) == "ImportError: no torch: OSError: libc"
