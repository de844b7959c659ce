"""No wrong configuration reaches training: each is refused by name, or works; `make config-test` tries many more."""

from tests.tiers import rounds
from tests.whole.attempts import tried


def test_every_configuration_is_refused_by_name_or_works():
    count = rounds(100, 300)
    tally = tried(count)
    assert not tally.faults, str(tally)
    assert tally.refused > count // 2
    assert tally.worked > count // 20
