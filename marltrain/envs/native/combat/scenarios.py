"""Scenarios: the units of both teams."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.layout import Array
from marltrain.envs.native.combat.units import SIGNS


class Scenario(NamedTuple):
    """Units of both teams, a sign of `SIGNS` for each.

    random: whether each episode draws the types of units, equal in both teams, and their places.
    """

    allies: str
    enemies: str
    random: bool = False

    @property
    def kinds(self) -> Array:
        """Types of all units [N], allies first."""
        return np.array([SIGNS.index(sign) for sign in self.allies + self.enemies])


SCENARIOS = {
    "3m": Scenario(3 * "m", 3 * "m"),
    "8m": Scenario(8 * "m", 8 * "m"),
    "25m": Scenario(25 * "m", 25 * "m"),
    "5m_vs_6m": Scenario(5 * "m", 6 * "m"),
    "10m_vs_11m": Scenario(10 * "m", 11 * "m"),
    "27m_vs_30m": Scenario(27 * "m", 30 * "m"),
    "2s3z": Scenario("ssZZZ", "ssZZZ"),
    "3s5z": Scenario("sssZZZZZ", "sssZZZZZ"),
    "3s5z_vs_3s6z": Scenario("sssZZZZZ", "sssZZZZZZ"),
    "3s_vs_5z": Scenario("sss", "ZZZZZ"),
    "6h_vs_8z": Scenario(6 * "h", 8 * "Z"),
    "smacv2_5_units": Scenario(5 * "m", 5 * "m", random=True),
    "smacv2_10_units": Scenario(10 * "m", 10 * "m", random=True),
    "smacv2_20_units": Scenario(20 * "m", 20 * "m", random=True),
}
"""JaxMARL's scenarios; in their names, z is a zealot."""


def scenario_of(name: Any) -> Scenario:
    """Return a scenario by its name; raises ConfigError."""
    if not isinstance(name, str) or name not in SCENARIOS:
        hint = did_you_mean(str(name), SCENARIOS)
        raise ConfigError(f"scenario must be one of {', '.join(SCENARIOS)}, got {shown(name)}.{hint}")
    return SCENARIOS[name]
