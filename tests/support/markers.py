"""Tables in a page of docs, between markers that name them."""

from pathlib import Path


def put(file: Path, name: str, text: str) -> None:
    """Put a text between the markers of its name, in place of what stands there."""
    before, _, rest = file.read_text().partition(f"<!-- {name} -->\n")
    after = rest.partition(f"<!-- /{name} -->")[2]
    file.write_text(f"{before}<!-- {name} -->\n{text}<!-- /{name} -->{after}")
