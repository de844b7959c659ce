"""Versions of marltrain and of libraries, installed or not."""

import importlib.metadata
import sys
import types

import numpy as np

import marltrain as mt
from marltrain.core.version import version_of


def absent(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


def test_version_of_an_installed_library():
    assert version_of("numpy") == importlib.metadata.version("numpy") == np.__version__


def test_marltrain_need_not_be_installed(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert version_of("marltrain") == mt.__version__


def test_a_library_installed_under_another_name_tells_its_own_version(monkeypatch):
    """As `tensorflow` from the package tensorflow-cpu."""
    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setitem(sys.modules, "telling", types.SimpleNamespace(__version__="2.5.1"))
    monkeypatch.setitem(sys.modules, "silent", types.SimpleNamespace())
    assert (version_of("telling"), version_of("silent")) == ("2.5.1", "unknown")
