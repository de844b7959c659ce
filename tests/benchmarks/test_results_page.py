from benchmarks.results_page import HEAD, put


def test_sections_are_replaced_in_place_and_new_ones_follow(tmp_path):
    page = tmp_path / "results.md"
    page.write_text("# Old\n\nhead\n\n## a\n\none\n\n### inner\n\n## b\n\ntwo\n", encoding="utf-8")
    put({"b": "three", "c": "four"}, page)
    assert page.read_text(encoding="utf-8") == f"{HEAD}\n\n## a\n\none\n\n### inner\n\n## b\n\nthree\n\n## c\n\nfour\n"
    put({"c": "five", "d": "six"}, page, first=True)
    titles = [part.splitlines()[0] for part in page.read_text(encoding="utf-8").split("\n## ")[1:]]
    assert titles == ["c", "d", "a", "b"]
