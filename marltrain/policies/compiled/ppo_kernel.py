"""A PPO update of K agents (actor and critic) in compiled code: the equivalent of `PPOAlgorithm` and `GradientStep`.

Agents are independent of each other. The two networks of an agent interact only when their gradients are clipped by
their joint norm. Threads therefore compute the gradients of separate networks in parallel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32

from marltrain.jit.compiling import compiled
from marltrain.jit.views import add_at, bools, call, copy, f32, f64, i64, record_at, value_at
from marltrain.policies.batches.normalization import SAME
from marltrain.policies.compiled.network import NETWORK, backward, forward, transpose_weights
from marltrain.policies.compiled.optimizers import norm, optimizer_step, products_of_part

METRICS = 10
ACTOR_LOSS, CRITIC_LOSS, LOSS, ENTROPY, KL, CLIP_SHARE, NORM = range(7)
"""Rows of the metrics of a gradient step. NORM and NORM + 1: the actor's gradient norm before and after clipping;
NORM + 2 and NORM + 3: the critic's.
"""
BLOCK = 128
"""Rows per forward and backward pass: the outputs of the layers for a block fit into the processor's L2 cache."""
HALF_LOG_TWO_PI = np.float32(0.5 * math.log(2 * math.pi))
ILLEGAL = np.float32(-1e9)
"""Logit of illegal actions, equal to `distributions.ILLEGAL`."""

_NETWORK_INPUTS = ("obs", "obs_width", "state", "state_width")
_NETWORK_TRAINED = ("weights", "first", "second", "count", "gradient", "rate", "weight_decay", "momentum", "epsilon",
                    "part", "products")  # fmt: skip
PART = np.dtype(NETWORK + [(name, np.int64) for name in (*_NETWORK_INPUTS, *_NETWORK_TRAINED)])
"""Arguments of a gradient step for one network.

obs, state: the rollout's columns [K, R, ...] that the network reads, side by side, and their widths; 0: not read.
weights, first, second, gradient: [K, size].  count: steps so far, [K].  rate, weight_decay, momentum: [K].
epsilon: one float64.
part: gradients of every second row, [K, size].  products: see `products_of_part`, float64 [P, 2, K]. Both 0: not
measured.
"""
WORK = np.dtype([(name, np.int64) for name in ("x", "activations", "transposed", "zeros", "scratch")])
"""Work arrays of a thread: for one network and one block of rows."""
_ONE = (
    "agents", "of", "rule", "normalize", "clipped", "gaussian",  # K agents, R rows each; optimizer rule; three flags
    "parts", "work",  # [2] PART, actor and critic; [threads] WORK
    "passes", "start", "stop", "epoch", "due",  # P gradient steps: columns [P], epoch [P]; due agents [P, K]
    "columns", "index", "share",  # N per epoch; row index and weight of each: [epochs, K, N]
    "legal", "action", "log_prob", "advantage", "trace", "target", "value",  # [K, R, ...]; legal, trace, value: or 0;
    # action: [K, R] int64 or, if gaussian, [K, R, choices] float32
    "limit", "clip", "value_clip", "entropy_coef", "value_coef",  # [K]
    "metrics",  # [P, METRICS, K]
    "tickets", "done", "moved", "give_way",  # tasks taken; tasks and gradient steps done, [K]; see `update`
)  # fmt: skip
_PART_SIZE, _WORK_SIZE = PART.itemsize, WORK.itemsize
PPO_UPDATE = np.dtype([(name, np.int64) for name in _ONE])
"""Arguments of an update: numbers and addresses."""


@compiled
def update_at(address: int) -> Any:
    """Return the PPO_UPDATE record at an address."""
    return record_at(address, PPO_UPDATE)


@compiled
def part_of(u: Any, which: int) -> Any:
    """Return the PART record of the actor (0) or the critic (1)."""
    return record_at(u.parts + which * _PART_SIZE, PART)


@compiled
def update(address: int, thread: int) -> int:
    """Make the gradient steps of an update together with other threads that run this function; return 0.

    Each gradient step has two tasks per agent: the gradients of its two networks. A thread takes the next free task,
    then waits until the agent's previous gradient step is complete. The thread that completes an agent's second task
    updates its weights. No thread waits for a thread that has not started yet. Results do not depend on the assignment
    of tasks to threads.
    """
    u = update_at(address)
    work = record_at(u.work + thread * _WORK_SIZE, WORK)
    while True:
        ticket = add_at(u.tickets, 1)
        if ticket >= u.passes * u.agents * 2:
            return 0
        result, part = ticket // (u.agents * 2), ticket % (u.agents * 2)
        k, which = part // 2, part % 2
        while value_at(u.moved + 8 * k) < result:
            if u.give_way:
                call(u.give_way, ())
        due = bools(u.due, u.passes * u.agents)[result * u.agents + k]
        if due:
            gradient(u, work, result, k, which)
        if add_at(u.done + 8 * k, 1) == 2 * result + 1:
            if due:
                apply_gradients(u, result, k, work.scratch)
            add_at(u.moved + 8 * k, 1)


@compiled
def metrics_of(u: Any, made: int) -> Any:
    """Return the metrics of gradient step number `made`, [METRICS * K]."""
    return f32(u.metrics + 4 * made * METRICS * u.agents, METRICS * u.agents)


@compiled
def gradient(u: Any, work: Any, made: int, k: int, which: int) -> None:
    """Write the gradient of the loss with respect to the weights of one network of agent k, and the loss's metrics."""
    n = part_of(u, which)
    weights, grad = n.weights + 4 * k * n.size, n.gradient + 4 * k * n.size
    f32(grad, n.size)[:] = float32(0.0)
    transpose_weights(n, weights, work.transposed)
    first, last = i64(u.start, u.passes)[made], i64(u.stop, u.passes)[made]
    place = (i64(u.epoch, u.passes)[made] * u.agents + k) * u.columns + first
    index, share = i64(u.index + 8 * place, last - first), f32(u.share + 4 * place, last - first)
    center, scale = (0.0, 1.0) if which else advantages(u, k, index, share)
    sums = (0.0, 0.0, 0.0, 0.0)
    step = 2 if n.part else 1
    for part in range(step):
        for start in range(part, len(index), step * BLOCK):
            chosen, weighed = index[start : start + step * BLOCK : step], share[start : start + step * BLOCK : step]
            rows = len(chosen)
            gather(n, k * u.of, chosen, work.x)
            out = forward(n, work.x, rows, weights, work.activations)
            if which:
                sums = value_gradient(u, k, chosen, weighed, out, sums)
            elif u.gaussian:
                free = 4 * (n.size - n.choices)
                sums = gaussian_gradient(
                    u, k, chosen, weighed, out, n.choices, weights + free, grad + free, center, scale, sums
                )
            else:
                sums = policy_gradient(u, k, chosen, weighed, out, n.choices, center, scale, sums)
            backward(n, work.x, rows, work.transposed, work.activations, grad, work.zeros, work.scratch)
        if n.part and part == 0:
            copy(grad, n.part + 4 * k * n.size, 4 * n.size)
    metrics = metrics_of(u, made)
    if which:
        metrics[CRITIC_LOSS * u.agents + k] = sums[0]
    else:
        for i, row in enumerate((ACTOR_LOSS, ENTROPY, KL, CLIP_SHARE)):
            metrics[row * u.agents + k] = sums[i]


@compiled
def gather(n: Any, first: int, index: Any, x: int) -> None:
    """Copy a network's inputs in the rows `index`, counted from row `first`, to x [rows, width]."""
    for i in range(len(index)):
        row, written = first + index[i], f32(x + 4 * i * n.width, n.width)
        seen = f32(n.obs + 4 * row * n.obs_width, n.obs_width)
        for j in range(n.obs_width):
            written[j] = seen[j]
        known = f32(n.state + 4 * row * n.state_width, n.state_width)
        for j in range(n.state_width):
            written[n.obs_width + j] = known[j]


@compiled
def advantages(u: Any, k: int, index: Any, share: Any) -> Any:
    """Return the shift and the scale of the advantages: to mean 0 and deviation 1, or (0, 1) without normalization.

    The mean is taken twice, so that its rounding does not count as a deviation. Equal advantages have the scale 1.
    """
    if not u.normalize:
        return 0.0, 1.0
    given = f32(u.advantage + 4 * k * u.of, u.of)
    mean = rest = spread = 0.0
    for i in range(len(index)):
        mean += share[i] * given[index[i]]
    for i in range(len(index)):
        rest += share[i] * (given[index[i]] - mean)
    center = mean + rest
    for i in range(len(index)):
        spread += share[i] * (given[index[i]] - center) ** 2
    deviation = math.sqrt(spread)
    return center, 1.0 if deviation <= SAME * abs(mean) else 1.0 / (deviation + 1e-8)


@compiled
def policy_gradient(
    u: Any, k: int, index: Any, share: Any, out: int, choices: int, center: float, scale: float, sums: Any
) -> Any:
    """Overwrite logits [B, choices] with the gradient of the actor's part of the loss; return the increased sums.

    sums: of the actor's loss, the entropy, the estimated KL and the share of clipped ratios, weighted by row.
    """
    first = k * u.of
    clip, coef = f32(u.clip, u.agents)[k], f32(u.entropy_coef, u.agents)[k]
    action, before = i64(u.action + 8 * first, u.of), f32(u.log_prob + 4 * first, u.of)
    given = f32(u.advantage + 4 * first, u.of)
    for i in range(len(index)):
        row, logits = index[i], f32(out + 4 * i * choices, choices)
        legal = u.legal and u.legal + (first + row) * choices
        entropy = log_softmax(logits, legal)
        taken, advantage = action[row], weighed(u, first + row, (given[row] - center) * scale)
        log_ratio = logits[taken] - before[row]
        pull, sums = add_row(log_ratio, advantage, clip, entropy, share[i], sums)
        for j in range(choices):
            chance = math.exp(logits[j])
            slope = chance * (pull + share[i] * coef * (logits[j] + entropy))
            logits[j] = slope - pull if j == taken else slope
        zero_illegal(logits, legal)
    return sums


@compiled
def gaussian_gradient(
    u: Any, k: int, index: Any, share: Any, out: int, choices: int, log_stds: int, grads: int, center: float,
    scale: float, sums: Any,
) -> Any:  # fmt: skip
    """Do the same as `policy_gradient` for means [B, choices] of normal distributions.

    The gradient with respect to the log standard deviations at `log_stds` is added to `grads`.
    """
    first = k * u.of
    clip, coef = f32(u.clip, u.agents)[k], f32(u.entropy_coef, u.agents)[k]
    before, given = f32(u.log_prob + 4 * first, u.of), f32(u.advantage + 4 * first, u.of)
    log_std, log_std_grads = f32(log_stds, choices), f32(grads, choices)
    entropy = float32(0.0)
    for j in range(choices):
        entropy += log_std[j] + float32(0.5) + HALF_LOG_TWO_PI
    for i in range(len(index)):
        row, means = index[i], f32(out + 4 * i * choices, choices)
        action = f32(u.action + 4 * (first + row) * choices, choices)
        log_ratio, advantage = -before[row], weighed(u, first + row, (given[row] - center) * scale)
        for j in range(choices):
            z = (action[j] - means[j]) * math.exp(-log_std[j])
            log_ratio -= float32(0.5) * z * z + log_std[j] + HALF_LOG_TWO_PI
        pull, sums = add_row(log_ratio, advantage, clip, entropy, share[i], sums)
        for j in range(choices):
            shrink = math.exp(-log_std[j])
            z = (action[j] - means[j]) * shrink
            means[j] = -pull * z * shrink
            log_std_grads[j] -= pull * (z * z - float32(1.0)) + coef * share[i]
    return sums


@compiled
def weighed(u: Any, row: int, advantage: Any) -> Any:
    """Return the normalized advantage of a row [K * R], multiplied by its trace if there are traces."""
    return float32(advantage) * f32(u.trace + 4 * row, 1)[0] if u.trace else float32(advantage)


@compiled
def add_row(log_ratio: Any, advantage: Any, clip: Any, entropy: Any, share: Any, sums: Any) -> Any:
    """Add a row to the sums of `policy_gradient`.

    Returns (derivative of the row's clipped objective with respect to the log of the ratio, increased sums).
    """
    loss, entropies, kl, clipped = sums
    ratio = math.exp(log_ratio)
    bounded = min(max(ratio, float32(1.0) - clip), float32(1.0) + clip)
    free = ratio == bounded or ratio * advantage < bounded * advantage
    loss -= share * min(ratio * advantage, bounded * advantage)
    entropies += share * entropy
    kl += share * (ratio - float32(1.0) - log_ratio)
    clipped += share if abs(ratio - float32(1.0)) > clip else float32(0.0)
    return share * ratio * advantage if free else float32(0.0), (loss, entropies, kl, clipped)


@compiled
def log_softmax(logits: Any, legal: int) -> Any:
    """Overwrite logits with log-probabilities, illegal actions masked; return the entropy."""
    if legal:
        allowed = bools(legal, len(logits))
        for j in range(len(logits)):
            if not allowed[j]:
                logits[j] = ILLEGAL
    top = logits[0]
    for j in range(1, len(logits)):
        top = max(top, logits[j])
    total = float32(0.0)
    for j in range(len(logits)):
        total += math.exp(logits[j] - top)
    shift, entropy = top + math.log(total), float32(0.0)
    for j in range(len(logits)):
        logits[j] -= shift
        entropy -= math.exp(logits[j]) * logits[j]
    return entropy


@compiled
def zero_illegal(grads: Any, legal: int) -> None:
    """Set the gradients of illegal actions to 0: their logits were replaced by a constant."""
    if legal:
        allowed = bools(legal, len(grads))
        for j in range(len(grads)):
            if not allowed[j]:
                grads[j] = float32(0.0)


@compiled
def value_gradient(u: Any, k: int, index: Any, share: Any, out: int, sums: Any) -> Any:
    """Overwrite values [B] with the gradient of the critic's part of the loss; return the sum of half its squares."""
    values, targets = f32(out, len(index)), f32(u.target + 4 * k * u.of, u.of)
    coef, loss = f32(u.value_coef, u.agents)[k], sums[0]
    for i in range(len(index)):
        row = index[i]
        error = values[i] - targets[row]
        slope = error
        if u.clipped:
            old, clip = f32(u.value + 4 * k * u.of, u.of)[row], f32(u.value_clip, u.agents)[k]
            step = values[i] - old
            other = old + min(max(step, -clip), clip) - targets[row]
            if other * other > error * error:
                error, slope = other, other if abs(step) < clip else float32(0.0)
        loss += float32(0.5) * share[i] * error * error
        values[i] = coef * share[i] * slope
    return loss, 0.0, 0.0, 0.0


@compiled
def apply_gradients(u: Any, made: int, k: int, scratch: int) -> None:
    """Update both networks of agent k by gradients clipped by their joint norm.

    If the loss or a gradient is not finite, the weights do not change; see `optimizer_step`.
    """
    each, metrics = u.agents, metrics_of(u, made)
    coefs = f32(u.value_coef, each)[k], f32(u.entropy_coef, each)[k]
    loss = metrics[ACTOR_LOSS * each + k] + coefs[0] * metrics[CRITIC_LOSS * each + k]
    loss -= coefs[1] * metrics[ENTROPY * each + k]
    metrics[LOSS * each + k] = loss
    actor, critic = part_of(u, 0), part_of(u, 1)
    lengths = (
        norm(actor.gradient + 4 * k * actor.size, actor.size, scratch),
        norm(critic.gradient + 4 * k * critic.size, critic.size, scratch),
    )
    for which in range(2):
        n = part_of(u, which)
        if n.part:
            place, products = 4 * k * n.size, f64(n.products + 16 * made * each, 2 * each)
            products_of_part(n.part + place, n.gradient + place, n.size, products, each, k)
    both = math.sqrt(lengths[0] * lengths[0] + lengths[1] * lengths[1])
    factor = min(f32(u.limit, each)[k] / (both + float32(1e-6)), float32(1.0))
    fine = math.isfinite(loss + lengths[0] + lengths[1])
    for which in range(2):
        metrics[(NORM + 2 * which) * each + k] = lengths[which] if fine else float32(np.nan)
        metrics[(NORM + 2 * which + 1) * each + k] = lengths[which] * factor
        n = part_of(u, which)
        optimizer_step(n, u.rule, u.agents, k, n.gradient + 4 * k * n.size, factor, fine)


@compiled
def evaluate(n: Any, work: Any, k: int, x: int, rows: int, made: int) -> None:
    """Write the outputs of agent k's network for x [rows, width] to `made` [rows, choices]."""
    for start in range(0, rows, BLOCK):
        some = min(BLOCK, rows - start)
        out = forward(n, x + 4 * start * n.width, some, n.weights + 4 * k * n.size, work.activations)
        copy(out, made + 4 * start * n.choices, 4 * some * n.choices)
