from marltrain.tools.text_table import number, text_table


def test_numbers_have_three_digits_or_all():
    assert [number(x) for x in (9534.6, -76.62, 2.984, -0.5, 154.0)] == ["9,535", "-76.6", "2.98", "-0.50", "154.0"]


def test_columns_are_aligned():
    assert text_table(("name", "n"), [("a", "10"), ("bcdef", "7")], 1) == "name    n\na      10\nbcdef   7"
