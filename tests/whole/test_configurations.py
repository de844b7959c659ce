"""No wrong configuration reaches training: each is refused by name, or works; `make config-test` tries many more."""

from tests.whole.attempts import tried


def test_every_configuration_is_refused_by_name_or_works():
    tally = tried(300)
    assert not tally.faults, str(tally)
    assert tally.refused > 150
    assert tally.worked > 15
