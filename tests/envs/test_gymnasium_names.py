"""Environments that another package registers with Gymnasium: their names hold the module, also in files."""

import re
import subprocess
import sys

import gymnasium
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.envs.registry import imports_only_known, list_environments, resolve
from tests.cli.running import said

REGISTERING = """
import gymnasium
from tests.gymnasium_toys import Film

gymnasium.register("Toys/Film-v3", "tests.gymnasium_toys:Film", kwargs={"length": 4})
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that registers Toys/Film-v3; the name is forgotten afterwards."""
    (tmp_path / "toys_package.py").write_text(REGISTERING)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget()


def forget():
    """Leave a process that has not imported the package."""
    gymnasium.registry.pop("Toys/Film-v3", None)
    sys.modules.pop("toys_package", None)


def run(folder, *arguments):
    """The output of the command line in another process."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from marltrain.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_name_keeps_its_module(package):
    source = resolve("gymnasium/toys_package:Toys/Film-v3")
    assert source.name == "gymnasium/toys_package:Toys/Film-v3"
    assert len(mt.make_agents("random", source.name)) == 1 and not imports_only_known(source.name)


def test_another_process_finds_the_environment_of_a_run(package, tmp_path, capsys):
    name, folder = "gymnasium/toys_package:Toys/Film-v3", str(tmp_path / "run")
    out = said(
        capsys, "train", name, "--algo", "ppo", "--steps-per-train", "32", "--update-freq", "32",
        "--num-train-envs", "2", "--episodes-per-test", "2", "--num-test-envs", "1", "--run-dir", folder,
        "--no-progress",
    )  # fmt: skip
    proposed = re.search(r"^ *marltrain test (.*)$", out, flags=re.MULTILINE)
    assert proposed is not None and proposed[1] == f"{folder} --env {name}", out
    assert "return" in run(package, "test", *proposed[1].split(), "--episodes", "2")
    forget()
    assert mt.load(f"{folder}/last")


def test_a_known_package_needs_no_import_before(monkeypatch):
    name = "gymnasium/ale_py:ALE/Pong-v5"
    assert resolve(name).name == name and imports_only_known(name)
    assert resolve("gymnasium/ALE/Pong-v5").name == name  # as registered in this process
    assert not imports_only_known("gymnasium/os:ALE/Pong-v5")
    assert not imports_only_known("gymnasium/ale_py:GymV26Environment-v0")
    for other in [one for one in gymnasium.registry if one.startswith("ALE/")]:
        monkeypatch.delitem(gymnasium.registry, other)
    with pytest.raises(
        ConfigError, match=r"Did you mean 'gymnasium/ale_py:ALE/Pong-v5'\? The import of ale_py registers"
    ):
        resolve("gymnasium/ALE/Pong-v5")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ALE/Breakout-v5", "Did you mean 'gymnasium/ale_py:ALE/Breakout-v5'"),
        ("ale_py:ALE/Breakout-v5", "Did you mean 'gymnasium/ale_py:ALE/Breakout-v5'"),
        ("MiniGrid-Empty-5x5-v0", "Did you mean 'gymnasium/minigrid:MiniGrid-Empty-5x5-v0'"),
        (
            "rware-tiny-2ag-v2",
            "shipped: 'marltrain/rware_v2'. Did you mean 'gymnasium/rware:rware-tiny-2ag-v2'",
        ),
        ("gymnasium/highway-fast-v0", "Did you mean 'gymnasium/highway_env:highway-fast-v0'"),
        ("MultiGrid-Empty-8x8-v0", "Did you mean 'gymnasium/multigrid.envs:MultiGrid-Empty-8x8-v0'"),
        ("FetchReach-v4", "Did you mean 'gymnasium/gymnasium_robotics:FetchReach-v4'"),
        (
            "Foraging-8x8-2p-1f-v3",
            "shipped: 'marltrain/foraging_v3'. Did you mean 'gymnasium/lbforaging:Foraging-8x8-2p",
        ),
        ("Strange/Thing-v0", "is named with its module: gymnasium/MODULE:Strange/Thing-v0"),
        ("toys_package:Toys/Film-v3", "Did you mean 'gymnasium/toys_package:Toys/Film-v3'"),
        ("gymnasium/toys_package:Toys/Flim-v3", "unknown environment 'gymnasium/toys_package:Toys/Flim-v3'"),
        ("gymnasium/no_such_package:X-v0", "cannot be imported: No module named 'no_such_package'"),
    ],
)
def test_a_name_without_its_module_is_completed(package, name, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        resolve(name)


def test_names_of_gymnasium_itself_stay_as_they_are():
    for name in ("gymnasium/CartPole-v1", "gymnasium/Pendulum-v1"):
        assert name in list_environments() and resolve(name).name == name
