"""Actors and critics in memory that is watched, as in the arguments of compiled updates; and gradients in float64."""

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from marltrain.core.layout import Layout
from marltrain.jit.compiling import program
from marltrain.jit.views import address_of
from marltrain.policies.compiled.network import largest, write_network
from marltrain.policies.compiled.optimizers import ADAM, LANES, SGD
from marltrain.policies.compiled.ppo_kernel import (
    ACTOR_LOSS,
    BLOCK,
    CLIP_SHARE,
    CRITIC_LOSS,
    ENTROPY,
    KL,
    LOSS,
    METRICS,
    PART,
    PPO_UPDATE,
    WORK,
    apply_gradients,
    gradient,
    update,
)
from marltrain.policies.learner.compiled.ppo_update import give_way
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition, Plan
from tests.policies.compiled.test_network import UNTOUCHED, Place, given, leaf_of, outputs_of, room

ACTOR, CRITIC = range(2)
NAMES = ("actor", "critic")
WEIGHTS = ("weights", "first", "second", "count", "gradient")


class Agents:
    """K agents that see two numbers, with an actor of three choices and a critic; all memory around is watched.

    Whatever is not given of their R rows is 0; every pass is of all rows, in equal shares; nothing limits a gradient.
    cut: [(start, stop)] of an epoch's minibatches.  of: columns, settings, and the weights of "actor" and "critic".
    """

    def __init__(self, agents=1, rows=1, *, hidden=(), rule=SGD, threads=1, cut=None, normalize=False, **of):
        self.agents, self.hidden = agents, hidden
        index = np.array(of.pop("index", np.tile(np.arange(rows), (1, agents, 1))), np.int64)
        epochs, _, columns = index.shape
        cut = cut or [(0, columns)]
        self.passes = epochs * len(cut)
        starts, stops = np.array(cut).T
        self.plans = [plan_of(hidden, 3), plan_of(hidden, 1)]
        self.written: dict[str, Any] = {"metrics": room(self.passes, METRICS, agents)}
        self.read: dict[str, Any] = {}
        self.parts = self._parts(of, rows)
        self.work = self._work(threads, max(min(BLOCK, int(size)) for size in stops - starts))
        zeros = np.zeros((agents, rows))
        columns_of: dict[str, Any] = {
            "share": np.full(index.shape, 1 / columns), "obs": np.zeros((agents, rows, 2)), "log_prob": zeros,
            "advantage": zeros, "target": zeros, "limit": [np.inf] * agents, "clip": [0.25] * agents,
            "entropy_coef": [0] * agents, "value_coef": [1] * agents,
        }  # fmt: skip
        columns_of |= {name: of[name] for name in ("value", "value_clip") if name in of}
        self.read |= {name: given(of.pop(name, default)) for name, default in columns_of.items()}
        whole = {
            "index": index, "action": of.pop("action", zeros), "start": np.tile(starts, epochs),
            "stop": np.tile(stops, epochs), "epoch": np.repeat(np.arange(epochs), len(cut)),
        }  # fmt: skip
        self.read |= {name: Place(values, 0, np.int64) for name, values in whole.items()}
        flags = {
            "due": np.ones((self.passes, agents)),
            **{name: of.pop(name) for name in ("due", "legal") if name in of},
        }
        self.read |= {name: Place(values, True, np.bool_) for name, values in flags.items()}
        counts = {"tickets": 1, "done": agents, "moved": agents}
        self.written |= {name: Place(np.zeros(size), 77, np.int64) for name, size in counts.items()}
        assert not of
        self.all = np.zeros(1, PPO_UPDATE)
        record = self.record = self.all[0]
        record["agents"], record["of"], record["rule"], record["normalize"] = agents, rows, rule, normalize
        record["clipped"], record["passes"], record["columns"] = "value_clip" in self.read, self.passes, columns
        record["parts"], record["work"], record["give_way"] = (
            address_of(self.parts),
            address_of(self.work),
            give_way(),
        )
        self.parts["obs"], self.parts["obs_width"] = self.read["obs"].at, 2
        for name in {*record.dtype.names} & {*self.read, *self.written}:
            record[name] = (self.read | self.written)[name].at

    def _parts(self, of, rows):
        """Tell of both networks: places "actor/weights" and so on."""
        parts = np.zeros(2, PART)
        for name, part, plan in zip(NAMES, parts, self.plans, strict=True):
            write_network(part, plan)
            shape = self.agents, int(part["size"])
            result: dict[str, Any] = dict.fromkeys(("first", "second"), np.zeros(shape)) | {
                "count": np.zeros(self.agents)
            }
            result["weights"] = np.broadcast_to(of.pop(name, 0), shape)
            own = {each: Place(values, UNTOUCHED) for each, values in result.items()} | {"gradient": room(*shape)}
            self.written |= {f"{name}/{each}": place for each, place in own.items()}
            rate = self.read[f"{name}/rate"] = given(of.pop(f"{name}_rate", [0.5] * self.agents))
            epsilon = self.read[f"{name}/epsilon"] = Place([1e-8], np.nan, np.float64)
            none = self.read[f"{name}/none"] = given([0.0] * self.agents)
            numbers = {"rate": rate, "weight_decay": none, "momentum": none, "epsilon": epsilon}
            for each, place in {**own, **numbers}.items():
                part[each] = place.at
        return parts

    def _work(self, threads, rows):
        """Room for exactly so many rows."""
        work = np.zeros(threads, WORK)
        widths = [2, *self.hidden, 3]
        for t, one in enumerate(work):
            most = max(largest(rows, *pair) for pair in pairwise(widths))
            self.read[f"zeros/{t}"] = given(np.zeros(max(widths)))
            sizes = {"x": rows * 2, "activations": rows * sum(widths[1:]), "transposed": int(self.parts[ACTOR]["size"]),
                     "scratch": max(LANES, most)}  # fmt: skip
            self.written |= {f"{name}/{t}": room(size) for name, size in sizes.items()}
            one["zeros"] = self.read[f"zeros/{t}"].at
            for name in sizes:
                one[name] = self.written[f"{name}/{t}"].at
        return work

    def __getitem__(self, name):
        """The array at the address in the arguments."""
        return (self.read | self.written)[name].numbers

    def watch(self):
        for place in self.read.values():
            place.assert_unchanged()
        for place in self.written.values():
            place.assert_kept()

    def gradient(self, k, which, made=0):
        """The gradient [size] of one network of one agent in a pass."""
        gradient(self.record, self.work[0], made, k, which)
        self.watch()
        return self[f"{NAMES[which]}/gradient"][k].copy()

    def apply_gradients(self, k, actor, critic, losses):
        """Move one agent by gradients of both networks, where the parts of the loss are 0 or given; return metrics."""
        self["actor/gradient"][k], self["critic/gradient"][k] = actor, critic
        for place in (ACTOR_LOSS, CRITIC_LOSS, ENTROPY):
            self["metrics"][0, place, k] = losses.get(place, 0)
        apply_gradients(self.record, 0, k, self.work[0]["scratch"])
        self.watch()
        return self["metrics"][0, :, k]

    def run(self, *threads):
        """Make all passes, in a thread each; `threads` are their numbers."""
        several = [threading.Thread(target=_update, args=(address_of(self.all), thread)) for thread in threads]
        for one in several:
            one.start()
        for one in several:
            one.join()
        self.watch()
        assert self["tickets"].tolist() == [2 * self.passes * self.agents + len(threads)]
        assert self["done"].tolist() == [2 * self.passes] * self.agents
        assert self["moved"].tolist() == [self.passes] * self.agents

    def result(self):
        """All that an update makes: metrics, weights, moments and counts."""
        return {"metrics": self["metrics"], **{f"{n}/{each}": self[f"{n}/{each}"] for n in NAMES for each in WEIGHTS}}


_update = program(update, PPO_UPDATE, PART, WORK)


def plan_of(hidden, outputs):
    return Plan(NetworkDefinition(MLP(hidden, "tanh"), [Head(outputs)], Layout(spaces.Box(-9, 9, (2,), np.float32))))


def some(rng, agents=2, rows=11, hidden=(5,), epochs=1, columns=None, *, masked=False, clipped=False, **of):
    """Agents with random numbers everywhere, and shares that are not even; the last column of an epoch is padding."""
    columns = columns or rows
    sizes = [sum(a * b + b for a, b in pairwise([2, *hidden, outputs])) for outputs in (3, 1)]
    share = rng.uniform(0.5, 1.5, (epochs, agents, columns))
    share[..., -1] = 0
    action = rng.integers(3, size=(agents, rows))
    legal = (rng.random((agents, rows, 3)) < 0.5) | (action[..., None] == np.arange(3))
    optional = {"legal": legal} if masked else {}
    if clipped:
        optional |= {"value": rng.normal(size=(agents, rows)), "value_clip": rng.uniform(0.3, 0.6, agents)}
    return Agents(
        agents, rows, hidden=hidden, index=rng.integers(rows, size=share.shape),
        share=share / share.sum(-1, keepdims=True), obs=rng.normal(size=(agents, rows, 2)), action=action,
        log_prob=0.3 * rng.normal(size=(agents, rows)) - 1.1, advantage=1 + 3 * rng.normal(size=(agents, rows)),
        target=rng.normal(size=(agents, rows)), actor=rng.normal(scale=0.7, size=(agents, sizes[0])),
        critic=rng.normal(scale=0.7, size=(agents, sizes[1])), entropy_coef=rng.uniform(0.1, 0.5, agents),
        value_coef=rng.uniform(0.5, 1, agents), clip=rng.uniform(0.1, 0.3, agents), **optional, **of,
    )  # fmt: skip


def exact(of, k, index, share):
    """Gradients of the loss by autograd in float64, and metrics; all rows at once."""
    index, share = np.array(index), torch.tensor(np.array(share, np.float64))
    column = {n: torch.tensor(of[n][k, index]) for n in ("log_prob", "advantage", "target", "action")}
    clip, coefs = float(of["clip"][k]), (float(of["value_coef"][k]), float(of["entropy_coef"][k]))
    leaves = [leaf_of(of[f"{name}/weights"][k]) for name in NAMES]
    x = of["obs"][k, index]
    logits, value = (outputs_of(plan, leaf, x) for plan, leaf in zip(of.plans, leaves, strict=True))
    if "legal" in of.read:
        logits = torch.where(torch.tensor(of["legal"][k, index]), logits, -1e9)
    policy = torch.distributions.Categorical(logits=logits)
    log_ratio = policy.log_prob(column["action"]) - column["log_prob"]
    ratio, advantage = log_ratio.exp(), column["advantage"].double()
    if of.record["normalize"]:
        for _ in range(2):  # the mean is taken twice; the shares of a part of an epoch do not add up to 1
            advantage = advantage - (share * advantage).sum()
        advantage = advantage / ((share * advantage**2).sum().sqrt() + 1e-8)
    won = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
    errors = (value[:, 0] - column["target"]) ** 2
    if "value" in of.read:
        old, far = torch.tensor(of["value"][k, index]), float(of["value_clip"][k])
        errors = torch.maximum(errors, (old + (value[:, 0] - old).clamp(-far, far) - column["target"]) ** 2)
    actor, critic, entropy = -(share * won).sum(), (share * errors).sum() / 2, (share * policy.entropy()).sum()
    loss = actor + coefs[0] * critic - coefs[1] * entropy
    metrics = {
        ACTOR_LOSS: actor, CRITIC_LOSS: critic, LOSS: loss, ENTROPY: entropy,
        KL: (share * (ratio - 1 - log_ratio)).sum(), CLIP_SHARE: (share * ((ratio - 1).abs() > clip)).sum(),
    }  # fmt: skip
    return [g.numpy() for g in torch.autograd.grad(loss, leaves)], {n: float(v.detach()) for n, v in metrics.items()}


def three(seed=0, *, columns=11, rule=ADAM, threads=1, **of):
    """Three agents, three epochs of two minibatches of 5 and 6 rows, rates of their own."""
    rng = np.random.default_rng(seed)
    cut = [(0, columns // 2), (columns // 2, columns)]
    return some(rng, 3, 40, epochs=3, columns=columns, cut=cut, rule=rule, threads=threads, masked=True, clipped=True,
                normalize=True, limit=[0.1, np.inf, 1], actor_rate=[0.01, 0.02, 0.03], critic_rate=[0.03, 0.02, 0.01],
                **of)  # fmt: skip
