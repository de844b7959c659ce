"""The version of marltrain, and those of the libraries that it uses."""

__version__ = "0.1.0"
_INSTALLED: dict[str, str] = {}
"""Versions in the metadata of packages, which are read once."""


def version_of(package: str) -> str:
    """Return the version of marltrain or of a library, which may be installed under another name or not at all.

    TensorFlow may come from the package tensorflow-cpu, and marltrain from a folder of sources. The version is then the
    attribute `__version__` of the imported package.
    """
    from importlib import import_module, metadata  # `import marltrain` imports no module that a working folder may hold

    if package == "marltrain":
        return __version__
    try:
        if package not in _INSTALLED:
            _INSTALLED[package] = metadata.version(package)
        return _INSTALLED[package]
    except metadata.PackageNotFoundError:
        return str(getattr(import_module(package), "__version__", "unknown"))
