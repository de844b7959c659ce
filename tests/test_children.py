"""What child processes have in common."""

import sys

import pytest

from marltrain.children import fate, without_main


@pytest.mark.parametrize(
    ("code", "said"),
    [(None, "stopped answering"), (-9, "was killed by signal 9 (SIGKILL)"), (3, "ended with exit code 3")],
)
def test_the_end_of_a_process_in_words(code, said):
    assert fate(code) == said


def test_a_child_does_not_see_the_script_and_the_parent_has_it_back():
    script = sys.modules["__main__"]
    with pytest.raises(OSError), without_main():
        assert not hasattr(sys.modules["__main__"], "__file__")
        raise OSError
    assert sys.modules["__main__"] is script
