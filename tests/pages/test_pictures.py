"""Pictures of the pages show what the commands show. `python -m tests.pages.pictures` draws them again."""

from tests.pages.fences import PAGES
from tests.pages.pictures import FOLDER, PICTURES
from tests.rows import each_of


@each_of(*PICTURES)
def test_each_picture_is_drawn_as_stored(name: str) -> None:
    assert PICTURES[name]() == (FOLDER / f"{name}.svg").read_text(encoding="utf-8")


def test_all_stored_pictures_are_drawn_by_a_test() -> None:
    """Ignore pictures of the dashboard, which tests/browser makes."""
    assert {path.stem for path in FOLDER.glob("*.svg")} == set(PICTURES)
    others = {path.name for path in FOLDER.iterdir() if path.suffix != ".svg"}
    assert all(
        name.startswith("dashboard-") and any(name in page.read_text() for page in PAGES) for name in others
    )


@each_of(*PICTURES)
def test_a_page_shows_it(name: str) -> None:
    assert any(f"pictures/{name}.svg)" in page.read_text() for page in PAGES)
