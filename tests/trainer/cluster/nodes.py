"""A Ray cluster of two nodes on one machine: network namespaces, joined by a bridge.

`python -m tests.trainer.cluster.nodes` needs root and the command `ip`. It trains over both nodes, cuts the second node
off in the middle of a rollout, of an update and of a checkpoint, freezes it, and compares each run with one process.
In the last run ("fewer") the first node has no room for a second runner, and the run goes on with one.
The addresses exist on this machine only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import marltrain as mt
from tests.trainer.cluster.training import agents_of, assert_equal, trainer_of

BRIDGE = "mtbridge"
NODES = {"mtnear": "10.213.7.1", "mtfar": "10.213.7.2"}
"""Network namespace -> its address."""
NEAR, FAR = NODES
PORT = 6399
ADDRESS = f"{NODES[NEAR]}:{PORT}"
SYSTEM = {
    "worker_niceness": 0, "health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000, "health_check_failure_threshold": 3,
}  # fmt: skip
"""Actors have the priority of other processes; Ray gives a node up after seconds, by default after most of a minute."""
HOSTS = ",".join(["127.0.0.1", "localhost", *NODES.values()])
VARIABLES = {**os.environ, "RAY_AUTH_MODE": "disabled", "no_proxy": HOSTS, "NO_PROXY": HOSTS}
"""Environment variables of all processes: without a token of this user, and without a proxy of this machine."""
WITHIN = 60.0
"""Seconds that a node may take to start."""
CUTS = ("nothing", "rollout", "update", "checkpoint", "frozen", "fewer")
FEWER: dict[str, Any] = {"min_runners": 1, "resources": {"num_cpus": 2}}
"""Settings of a run whose runners each occupy a whole node."""


def ip(*words: str) -> str:
    """Run the command `ip`; raise CalledProcessError if it fails."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def pids(node: str) -> list[int]:
    """Return the processes of a node."""
    return [int(word) for word in ip("netns", "pids", node).split()]


def take_down() -> None:
    """End all processes of the nodes, and delete namespaces and bridge."""
    there = [line.split()[0] for line in ip("netns", "list").splitlines()]
    for node in NODES:
        if node in there:
            for pid in pids(node):
                if pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
            ip("netns", "del", node)
    for link in (BRIDGE, *(f"{node}-b" for node in NODES)):
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)  # some are gone with a namespace


def network() -> None:
    """Make a namespace for each node, and join them by a bridge."""
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("link", "set", BRIDGE, "up")
    for node, address in NODES.items():
        ip("netns", "add", node)
        ip("link", "add", f"{node}-b", "type", "veth", "peer", "name", "eth0", "netns", node)
        ip("link", "set", f"{node}-b", "master", BRIDGE, "up")
        ip("-n", node, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", node, "link", "set", "eth0", "up")
        ip("-n", node, "link", "set", "lo", "up")


@contextmanager
def two_nodes() -> Iterator[None]:
    """Start a Ray node in each namespace; end everything afterwards."""
    take_down()
    network()
    folder = tempfile.mkdtemp(prefix="mtray", dir="/tmp")
    common = ["--num-cpus", "2", "--object-store-memory", str(100 * 2**20), "--disable-usage-stats", "--block"]
    head = ["--head", "--port", str(PORT), "--include-dashboard", "false", "--temp-dir", folder,
            "--system-config", json.dumps(SYSTEM)]  # fmt: skip
    try:
        for node, more in ((NEAR, head), (FAR, ["--address", ADDRESS])):
            script = Path(sys.executable).with_name("ray")
            command = ["ip", "netns", "exec", node, str(script), "start", "--node-ip-address", NODES[node]]
            with open(f"{folder}/{node}.txt", "w") as output:
                subprocess.Popen([*command, *common, *more], stdout=output, stderr=output, start_new_session=True,
                                 env=VARIABLES)  # fmt: skip
            until = time.monotonic() + WITHIN
            while "Ray runtime started" not in Path(f"{folder}/{node}.txt").read_text():
                if time.monotonic() > until:
                    raise SystemExit(f"node {node} has not started:\n{Path(f'{folder}/{node}.txt').read_text()}")
                time.sleep(0.2)
        yield
    finally:
        take_down()
        shutil.rmtree(folder, ignore_errors=True)


class Cut(mt.Callback):
    """Cuts the second node off in the middle of a rollout, an update or a checkpoint, or freezes its processes."""

    def __init__(self, where: str) -> None:
        """`where`: one of CUTS."""
        self.where, self.done = where, where == "nothing"
        self.runners: list[str] = []

    def on_step(self, moment: mt.Moment) -> None:
        """Begin a fault that comes while runners collect: some time after a batch step."""
        trainer: Any = moment.trainer
        self.runners = self.runners or [actor.name for actor in trainer.run.context.envs.pool._actors]
        envs = trainer.run.context.envs
        if self.where == "checkpoint" and "state" not in vars(envs):
            envs.state = partial(self._cut_in, envs.state, trainer.run)
        if moment.env_steps >= 150 and self.where in ("rollout", "frozen", "fewer"):
            self._once(lambda: threading.Timer(0.02, freeze if self.where == "frozen" else cut).start())

    def on_update_start(self, moment: mt.Moment) -> None:
        """Cut in an update."""
        if self.where == "update" and moment.env_steps >= 150:
            self._once(cut)

    def _cut_in(self, state: Callable[[], Any], run: Any) -> Any:
        """Cut in a checkpoint, before the state of the environments is taken."""
        if run.counters.env_steps >= 150:
            self._once(cut)
        return state()

    def _once(self, act: Callable[[], Any]) -> None:
        if not self.done:
            self.done = True
            act()


def cut() -> None:
    """Take the link of the second node down."""
    ip("-n", FAR, "link", "set", "eth0", "down")


def freeze() -> None:
    """Stop all processes of the second node."""
    for pid in pids(FAR):
        os.kill(pid, signal.SIGSTOP)


def trained(where: str, folder: Path, **settings: Any) -> tuple[Any, Any, list[str]]:
    """Return the result of a run with one fault, the states of its agents, and the names of its runners."""
    agents, fault = agents_of("dqn"), Cut(where)
    callbacks: list[mt.Callback] = [mt.Checkpoint(every_steps=100), *([fault] if "runners" in settings else [])]
    trainer = trainer_of("dqn", callbacks=callbacks, run_dir=folder, timeout=30.0, **settings)
    result = trainer.train(agents, [1], plot=False)
    return result, [agent.state() for agent in agents], fault.runners


def drive(where: str) -> None:
    """Train on the near node with runners on both; compare with one process."""
    folder = Path(tempfile.mkdtemp())
    *expected, _ = trained("nothing", folder / "alone")
    started = time.monotonic()
    elastic = FEWER if where == "fewer" else {}
    *found, runners = trained(where, folder / "both", runners=2, address=ADDRESS, **elastic)
    seconds = time.monotonic() - started
    nodes = {node for node, address in NODES.items() for name in runners if address in name}
    assert nodes == set(NODES), f"runners on both nodes are expected, got {runners}"
    assert_equal(expected, found, tolerance=0.0)
    kinds = found[0]["faults"]["kind"].tolist()
    assert bool(kinds) == (where != "nothing"), kinds
    assert found[0]["fewest_runners"] == (1 if elastic else 2)
    shutil.rmtree(folder)
    print(
        f"{where}: equal to one process after {seconds:.0f} s; runners lost: {', '.join(kinds) or 'none'}", flush=True
    )


def main() -> None:
    """Run each fault in a cluster of its own; the driver is a process on the near node."""
    if os.geteuid() or shutil.which("ip") is None:
        raise SystemExit("two nodes need root and the command ip (package iproute2)")
    for where in sys.argv[1:] or CUTS:
        with two_nodes():
            command = [
                "ip",
                "netns",
                "exec",
                NEAR,
                sys.executable,
                "-m",
                "tests.trainer.cluster.nodes",
                "--drive",
                where,
            ]
            done = subprocess.run(command, check=False, timeout=400, env=VARIABLES)
        if done.returncode:
            raise SystemExit(f"{where}: the run failed")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        drive(sys.argv[2])
    else:
        main()
