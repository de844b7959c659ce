"""Small Gymnasium environments of several players, whose every number can be worked out by hand."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SEEN = spaces.Box(0, 9, (2,), np.float32)


class Team(gymnasium.Env):
    """Two players, `length` steps. Player i sees [step, i], and its reward is (i + 1) x its action, 0 to 2.

    keys: None for Tuples, or the keys of Dicts.  rewards: "list", "array", "mapping" (by key), or "number": 5 for all.
    leaves: step after which player 0 is over, if the flags are by player; its later rewards are 1000.
    flags: "bool", "list", "array", "mapping" or "every" (a mapping with "__all__"), of `terminated`.
    """

    def __init__(self, rewards="list", flags="bool", keys=None, leaves=None, length=4, render_mode=None):
        self.rewards, self.flags, self.keys, self.leaves, self.length = rewards, flags, keys, leaves, length
        self.observation_space, self.action_space = self.joined([SEEN] * 2), self.joined([spaces.Discrete(3)] * 2)
        self.render_mode, self.given = render_mode, []
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def joined(self, parts):
        return spaces.Tuple(parts) if self.keys is None else spaces.Dict(dict(zip(self.keys, parts, strict=True)))

    def by_key(self, values):
        return dict(zip(self.keys or range(2), values, strict=True))

    def seen(self):
        both = [np.array([self.t, i], np.float32) for i in range(2)]
        return tuple(both) if self.keys is None else self.by_key(both)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), {}

    def step(self, actions):
        self.given.append(actions)
        self.t += 1
        chosen = actions if self.keys is None else [actions[key] for key in self.keys]
        own = [(i + 1.0) * int(action) for i, action in enumerate(chosen)]
        if self.leaves is not None and self.t > self.leaves:
            own[0] = 1000.0
        return self.seen(), self.in_form(self.rewards, own, 5.0), self.ends(), False, {}

    def in_form(self, form, values, single):
        forms: dict[str, Any] = {"list": list, "array": np.array, "mapping": self.by_key}
        return forms[form](values) if form in forms else single

    def ends(self):
        over = self.t == self.length
        own = [over or (self.leaves is not None and self.t >= self.leaves), over]
        return {**self.by_key([False, False]), "__all__": over} if self.flags == "every" else self.in_form(
            self.flags, own, over
        )  # fmt: skip

    def render(self):
        return np.full((8, 8, 3), 10 * self.t, np.uint8)


class Various(gymnasium.Env):
    """Three players with different spaces; the episode is cut off after 2 steps. A reward is the sum of the action.

    ann sees a picture and chooses among 3 from 5 on; bob sees one number and has 2 choices; cat gives 2 numbers.
    """

    observation_space = spaces.Dict(
        ann=spaces.Box(0, 255, (4, 4, 1), np.uint8), bob=spaces.Discrete(3), cat=spaces.Box(-1, 9, (1,), np.float32)
    )
    action_space = spaces.Dict(
        ann=spaces.Discrete(3, start=5), bob=spaces.MultiDiscrete([2, 3]), cat=spaces.Box(-1, 1, (2,), np.float32)
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), {}

    def step(self, actions):
        self.t += 1
        paid = {name: float(np.sum(action)) for name, action in actions.items()}
        return self.seen(), paid, False, self.t == 2, {}

    def seen(self):
        picture = np.full((4, 4, 1), self.t, np.uint8)
        return {"ann": picture, "bob": self.t, "cat": np.array([self.t], np.float32)}


class Masked(Team):
    """`Team` with masks: player i may not take action (step + i) mod 3.

    masks: "list", "array" or "mapping" under info["action_mask"]; "infos": info of each player by name; "listed": a
    list of infos; "seen": in the observations.
    """

    def __init__(self, masks="list", **arguments):
        super().__init__(**arguments)
        self.masks = masks
        if masks == "seen":
            own = spaces.Dict({"observation": SEEN, "action_mask": spaces.Box(0, 1, (3,), np.int8)})
            self.observation_space = self.joined([own] * 2)

    def allowed(self):
        return [(np.arange(3) != (self.t + i) % 3).astype(np.int8) for i in range(2)]

    def seen(self):
        plain = super().seen()
        if self.masks != "seen":
            return plain
        values = plain if self.keys is None else plain.values()
        both = [{"observation": one, "action_mask": mask} for one, mask in zip(values, self.allowed(), strict=True)]
        return tuple(both) if self.keys is None else self.by_key(both)

    def info(self):
        if self.masks == "listed":
            return [{"action_mask": mask} for mask in self.allowed()]
        if self.masks == "infos":
            return {f"player_{i}": {"action_mask": mask} for i, mask in enumerate(self.allowed())}
        return {} if self.masks == "seen" else {"action_mask": self.in_form(self.masks, self.allowed(), None)}

    def reset(self, *, seed=None, options=None):
        seen, _ = super().reset(seed=seed)
        return seen, self.info()

    def step(self, actions):
        chosen = actions if self.keys is None else [actions[key] for key in self.keys]
        assert all(mask[action] for mask, action in zip(self.allowed(), chosen, strict=True))
        *rest, _ = super().step(actions)
        return *rest, self.info()


class Wheels(gymnasium.Env):
    """Two players turn two wheels each, of 2 and 3 places, for 6 steps; a reward is the sum of the places.

    Legal at step t for player i: of the first wheel place (t + i) mod 2, and of the second all but (t + i) mod 3. An
    illegal place is an error. Masks are in the info, side by side.
    """

    observation_space = spaces.Tuple([spaces.Box(0, 1, (6,), np.float32)] * 2)
    action_space = spaces.Tuple([spaces.MultiDiscrete([2, 3])] * 2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), self.info()

    def step(self, actions):
        for action, mask in zip(actions, self.info()["action_mask"], strict=True):
            assert mask[action[0]] and mask[2 + action[1]], f"{action} is illegal at {self.t}: {mask}"
        paid = [float(action.sum()) for action in actions]
        self.t += 1
        return self.seen(), paid, self.t == 6, False, self.info()

    def seen(self):
        return tuple(np.eye(6, dtype=np.float32)[(self.t + i) % 6] for i in range(2))

    def info(self):
        first, second = np.arange(2), np.arange(3)
        masks = [np.concatenate([first == (self.t + i) % 2, second != (self.t + i) % 3]) for i in range(2)]
        return {"action_mask": masks}
