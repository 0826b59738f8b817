"""What the pages name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from support.pages import NOTES, PAGES, blocks, code, sections
from support.reference import created
from support.sources import ROOT


def named_paths(text: str) -> set[str]:
    """Paths in backticks: what has a slash, and begins with a folder of the repository."""
    folders = "|".join(re.escape(path.name) for path in ROOT.iterdir() if path.is_dir())
    return set(re.findall(rf"`((?:{folders})/[\w./-]*)`", text))


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{page.name}: {link}"


def test_paths_that_pages_name_exist() -> None:
    paths = {(page.name, path) for page in PAGES for path in named_paths(page.read_text())}
    assert len(paths) > 40
    assert [
        named for named in sorted(paths) if "--X" not in named[1] and not (ROOT / named[1]).exists()
    ] == []


def test_links_lead_to_pages_and_headings() -> None:
    assert [link for page in PAGES for link in broken_links(page)] == []


def test_pages_beside_sql_files_describe_objects_of_these_files() -> None:
    assert NOTES
    assert {
        f"{page.parent.name}/{page.name}: {heading}"
        for page in NOTES
        for heading in sections(page)
        if heading not in created(page.with_suffix(".sql"))
    } == set()


def test_make_has_the_targets_that_pages_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page.name, target)
        for page in PAGES
        for part in code(page)
        for line in re.findall(r"(?:^|[$&] |\n)make((?: [a-z][a-z-]+)+)", part)
        for target in line.split()
    }
    assert len(named) > 20
    assert [f"{page}: make {target}" for page, target in sorted(named) if target not in targets] == []


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in index] == ["README.md"]


def test_readme_and_tour_can_be_followed_in_one_database() -> None:
    readme, tour = (
        set(re.findall(r"CREATE \w+ (?:public\.)?(\w+)", "\n".join(blocks(ROOT / page, "sql"))))
        for page in ("README.md", "docs/tour.md")
    )
    assert "ticket" in readme
    assert readme & tour == set()
