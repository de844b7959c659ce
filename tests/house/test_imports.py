"""Imports follow one direction, and heavy libraries are loaded only when used."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.house.repository import PACKAGE, ROOT, parsed, place, python_files

BASE = {"core", "storage", "jit", "processes"}
MAY_IMPORT = {
    "core": {"core"},
    "storage": {"core", "storage"},
    "jit": {"core", "jit"},
    "processes": {"core", "processes"},
    "envs": {*BASE, "envs"},
    "policies": {*BASE, "policies"},
    "trainer": {*BASE, "envs", "policies", "trainer"},
    "tools": {*BASE, "envs", "policies", "trainer", "tools"},
    "rivals": {*BASE, "envs", "policies", "trainer", "tools", "rivals"},
    "cli": {*BASE, "envs", "policies", "trainer", "tools", "rivals", "cli", "marltrain"},
    "marltrain": {*BASE, "envs", "policies", "trainer", "tools", "rivals", "cli", "marltrain"},
}
FRAMEWORKS = {"torch", "tensorflow", "keras", "tianshou"}
ORDER = {
    "policies": [
        "ops", "optimizers", "batches", "networks", "distributions", "backends", "hyperparameters", "memory",
        "exploration", "interface", "compiled", "tape", "learner", "agents", "demonstrations", "algorithms",
    ],
    "trainer": [
        "settings", "seats", "updating", "collecting", "evaluating", "events", "reporting", "saving", "adapting",
        "playing", "cluster", "jobs", "training", "preparing", "text_values", "tuned", "make_agents", "decentralized",
    ],
}  # fmt: skip
"""Folders and modules of a part of the package; each imports only itself and those before it."""
WITHOUT_FRAMEWORK = (
    "envs", "policies/algorithms", "policies/batches", "policies/demonstrations", "policies/distributions",
    "policies/exploration", "policies/hyperparameters", "policies/interface", "policies/memory", "policies/networks",
)  # fmt: skip


def package_part(module: str) -> str:
    """Return the part of the package that a module belongs to; "marltrain" is the package itself."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] == "__main__":
        return "marltrain"
    return parts[1]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.Module, package: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield every import of a module, also inside functions, as absolute dotted names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            if source == "marltrain":  # `from marltrain import errors` names a module, not a name inside one
                yield from ((node, f"marltrain.{alias.name}") for alias in node.names if alias.name != "__version__")
            else:
                yield node, source


def wrong_way(tree: ast.Module, module: str, is_package: bool) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the imports that `module` may not make."""
    package = module if is_package else module.rpartition(".")[0]
    for node, imported in imports(tree, package):
        if imported.split(".")[0] == "marltrain" and package_part(imported) not in MAY_IMPORT[package_part(module)]:
            yield node, imported


def test_imports_follow_the_allowed_direction() -> None:
    found = [
        f"{place(path, node)} imports {imported}"
        for path in python_files("marltrain")
        for node, imported in wrong_way(parsed(path), module_of(path), path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "line", "wrong"),
    [
        ("marltrain.envs.python.turns", "from marltrain.policies.batches.batch import Batch", True),
        ("marltrain.envs.python.turns", "def f():\n    import marltrain.policies", True),
        ("marltrain.envs.python.turns", "from ...policies import batches", True),
        ("marltrain.envs.python.turns", "from . import chunk", False),
        ("marltrain.policies.agents.agent", "from marltrain import envs", True),
        ("marltrain.policies.agents.agent", "import marltrain", True),
        ("marltrain.policies.agents.agent", "from marltrain import __version__", False),
        ("marltrain.core.spec", "from marltrain.envs import DummyVectorEnv", True),
        ("marltrain.core.spec", "from marltrain.core.layout import Layout", False),
        ("marltrain.trainer.collecting.rollout", "from marltrain.envs import DummyVectorEnv", False),
        ("marltrain.trainer.collecting.rollout", "from marltrain.cli import main", True),
        ("marltrain.trainer.training.loop", "from marltrain.tools import comparing", True),
        (
            "marltrain.tools.comparing.compare",
            "from marltrain.trainer.decentralized import DecentralizedTrainer",
            False,
        ),
        ("marltrain.tools.comparing.compare", "import marltrain", True),
        ("marltrain.tools.watch", "from marltrain.rivals import exploitability", True),
        ("marltrain.rivals.exploitability", "from marltrain.trainer.seats.seats import Seating", False),
        ("marltrain.rivals.exploitability", "from marltrain.tools.watch import watch", False),
        ("marltrain.cli", "import marltrain", False),
    ],
)
def test_forbidden_import_is_detected(module: str, line: str, wrong: bool) -> None:
    assert bool(list(wrong_way(ast.parse(line), module, is_package=False))) is wrong


def runs_back(tree: ast.Module, module: str, is_package: bool, part: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the imports of a module of `part` that `ORDER` forbids; also those that name no folder of the part."""
    own, prefix = module.split(".")[2], f"marltrain.{part}"
    for node, imported in imports(tree, module if is_package else module.rpartition(".")[0]):
        if imported == prefix:
            yield node, imported
        elif imported.startswith(f"{prefix}."):
            other = imported.split(".")[2]
            if other != own and (other not in ORDER[part] or ORDER[part].index(other) > ORDER[part].index(own)):
                yield node, imported


@pytest.mark.parametrize("part", ORDER)
def test_folders_of_a_part_are_ordered(part: str) -> None:
    modules = {
        path: module for path in python_files(f"marltrain/{part}") if (module := module_of(path)) != f"marltrain.{part}"
    }
    assert sorted({module.split(".")[2] for module in modules.values()}) == sorted(ORDER[part])
    found = [
        f"{place(path, node)} imports {imported}"
        for path, module in modules.items()
        for node, imported in runs_back(parsed(path), module, path.name == "__init__.py", part)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "line", "wrong"),
    [
        ("marltrain.policies.memory.ring", "from marltrain.policies.learner.learner import Learner", True),
        ("marltrain.policies.memory.ring", "def f():\n    import marltrain.policies.compiled.acting", True),
        ("marltrain.policies.memory.ring", "from marltrain.policies import batches", True),
        ("marltrain.policies.memory.ring", "from marltrain.policies.memory.needs import Needs", False),
        ("marltrain.policies.memory.ring", "from marltrain.policies.batches.batch import Batch", False),
        ("marltrain.policies.memory.ring", "from marltrain.core.layout import Array", False),
        ("marltrain.policies.learner.learner", "from marltrain.policies.memory.ring import Ring", False),
    ],
)
def test_import_against_the_order_is_detected(module: str, line: str, wrong: bool) -> None:
    assert bool(list(runs_back(ast.parse(line), module, is_package=False, part="policies"))) is wrong


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or indirectly."""
    reached = {module: graph[module] & graph.keys() for module in graph}
    for middle in graph:
        for module in graph:
            if middle in reached[module]:
                reached[module] |= reached[middle]
    return [
        circle
        for module in graph
        if module in reached[module]
        and (circle := {other for other in reached[module] if module in reached[other]})
        and module == min(circle)
    ]


def test_no_circular_imports() -> None:
    """Imports inside functions and for type hints count; imports of the package `marltrain` itself do not."""
    graph: dict[str, set[str]] = {}
    for path in python_files("marltrain"):
        module, is_package = module_of(path), path.name == "__init__.py"
        if module != "marltrain" and not is_package:
            graph[module] = {name for _, name in imports(parsed(path), module.rpartition(".")[0])}
    assert not circles(graph)


def test_circular_import_is_detected() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"a"}, "g": {"h"}, "h": {"g"}}
    assert circles(graph) == [{"a", "b", "c"}, {"g", "h"}]


def test_every_module_belongs_to_a_part_of_the_package() -> None:
    packages = {package_part(module_of(path)) for path in python_files("marltrain")}
    assert packages <= set(MAY_IMPORT), (
        f"say what {packages - set(MAY_IMPORT)} may import, in docs/architecture.md and here"
    )


def test_algorithms_and_environments_import_no_framework() -> None:
    files = [path for folder in WITHOUT_FRAMEWORK for path in (PACKAGE / folder).rglob("*.py")]
    assert len(files) > len(WITHOUT_FRAMEWORK)
    found = [
        f"{place(path, node)} imports {imported}"
        for path in files
        for node, imported in imports(parsed(path), module_of(path))
        if imported.split(".")[0] in FRAMEWORKS
    ]
    assert not found, "\n".join(found)


HEAVY = {
    "torch", "tensorflow", "keras", "tianshou", "ray", "pandas", "matplotlib.pyplot", "numba", "rliable", "optuna",
    "onnx", "onnxruntime", "wandb", "mlflow", "pyspiel",
}  # fmt: skip
SLOW = HEAVY | {"numpy", "gymnasium", "pettingzoo"}  # without these an import takes milliseconds
TRAINING = """
import marltrain as mt
from tests.toys import Identity
settings = {{"ppo": {{"minibatches": 1, "epochs": 2}}, "dqn": {{"learning_starts": 100, "batch_size": 32}}}}
rivals = [mt.make_agents(algo, Identity, seed=0, backend="{backend}", **own) for algo, own in settings.items()]
agents = [rivals[0][0], rivals[1][1]]
agents[1].hyper.epsilon = 0.5
trainer = mt.DecentralizedTrainer(
    Identity, num_train_envs=2, num_test_envs=1, update_freq=100, episodes_per_test=1, steps_per_train=120,
    progress=False, seed=0, run_dir="run",
)
assert trainer.train(agents, [1, 1])["num_gradient_steps"] > 2  # those of PPO
mt.save("agents", agents)
mt.load("agents")
"""
UNASKED = (
    ("import marltrain", SLOW),
    ("dir(marltrain); marltrain.SpecError; marltrain.EnvSpec", HEAVY),
    ("import marltrain.envs", FRAMEWORKS | {"ray", "pandas", "matplotlib.pyplot"}),
    ("import marltrain.policies.backends", FRAMEWORKS | {"ray"}),
    ("marltrain.DecentralizedTrainer; marltrain.PPO", FRAMEWORKS | {"ray"}),
)
"""Pieces of a program, and the modules that must not be loaded after each."""


def loaded_after(codes: Sequence[str], folder: Path) -> list[set[str]]:
    """Run pieces of code one after another in a new interpreter; return the modules loaded after each."""
    program = "\n".join(["import json, sys", "def tell(): print(json.dumps(sorted(sys.modules)))"])
    program += "".join(f"\n{code}\ntell()" for code in codes)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=540, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def assert_trained_on(backend: str, loaded: set[str], folder: Path) -> None:
    """Check the modules that a run on one framework loaded, and that config.json names only this framework."""
    assert backend in loaded
    config = json.loads((folder / "run" / "config.json").read_text())
    assert list(config["threads"]) == [backend]
    assert set(config["versions"]) & FRAMEWORKS == loaded & FRAMEWORKS


def test_torch_training_loads_no_other_framework_and_imports_are_lazy(tmp_path: Path) -> None:
    codes, banned = zip(*UNASKED, (TRAINING.format(backend="torch"), {"tensorflow", "keras"}), strict=True)
    found = loaded_after(codes, tmp_path)
    for code, loaded, unwanted in zip(codes, found, banned, strict=True):
        assert not unwanted & loaded, code
    assert_trained_on("torch", found[-1], tmp_path)


def test_tensorflow_training_loads_no_other_framework(tmp_path: Path) -> None:
    (loaded,) = loaded_after([TRAINING.format(backend="tensorflow")], tmp_path)
    assert not {"torch", "tianshou"} & loaded
    assert_trained_on("tensorflow", loaded, tmp_path)
