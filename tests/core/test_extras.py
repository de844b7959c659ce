"""Extras: the errors of missing packages name the command that installs them."""

import sys

import pytest

from marltrain.core.errors import ConfigError
from marltrain.core.extras import EXTRAS, extra_of, imported, install, is_installed, missing, required


def test_the_command_is_in_double_quotes():
    """The command prompt of Windows does not know single quotes; every shell knows double ones."""
    assert install("tune") == 'pip install "marltrain[tune]"'


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("optuna", "tune"), ("optuna.samplers", "tune"), ("mpe2.simple_tag_v3", "mpe"), ("imageio_ffmpeg", "mp4"),
        ("onnxscript", "export"), ("rliable.library", "compare"), ("numpy", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_the_extra_of_a_module(module, extra):
    assert extra_of(module) == extra


def test_missing_modules_of_an_extra(monkeypatch):
    import onnx  # noqa: F401 - without the extra, the short tier leaves this test out

    assert missing("export") == ()
    for module in ("onnx", "onnxscript"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were absent
    assert missing("export") == ("onnx", "onnxscript") and is_installed("onnxruntime") and not is_installed("onnx")


def test_imported_returns_the_module_or_names_the_extra(monkeypatch):
    import optuna

    assert imported("optuna", "tune", "A search") is optuna
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r'A search needs optuna, which cannot be .*pip install "marltrain\[tune\]"'):
        imported("optuna", "tune", "A search")


def test_a_package_that_fails_when_it_is_imported_is_told_with_its_error(monkeypatch, tmp_path):
    (tmp_path / "half_installed.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ConfigError, match=r"needs half_installed, which cannot be imported: libGL.so.1: .*`marltrain doctor`"
    ):
        imported("half_installed", "tune", "A search")


def test_required_does_not_import(monkeypatch):
    monkeypatch.delitem(sys.modules, "imageio_ffmpeg", raising=False)
    required("imageio_ffmpeg", "mp4", "a film")
    assert "imageio_ffmpeg" not in sys.modules
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ConfigError, match=r'a film needs imageio_ffmpeg, .*: pip install "marltrain\[mp4\]"'):
        required("imageio_ffmpeg", "mp4", "a film")


def test_every_extra_says_what_it_brings():
    assert all(extra.modules and extra.brings for extra in EXTRAS.values())
