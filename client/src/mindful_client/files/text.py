"""The text of files: plain, Markdown, HTML, PDF."""

from __future__ import annotations

import codecs
import io
import logging
from dataclasses import dataclass
from pathlib import PurePath

from mindful_client.files import UnreadableError

_HTML = (".html", ".htm", ".xhtml")
_HIDDEN = ("script", "style", "template", "noscript", "nav", "svg")
"""Elements of HTML without text of the document."""
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True)
class Text:
    """The text of a file, and its format for document_insert."""

    content: str
    title: str | None = None
    format: str = "auto"


def read_text(name: str, data: bytes) -> Text:
    """Read a file's text. The ending of its name decides how. Raises UnreadableError."""
    ending = PurePath(name).suffix.lower()
    if ending == ".pdf" or data.startswith(b"%PDF-"):
        text = _pdf(data)
    elif ending in _HTML:
        text = _html(data)
    else:
        text = Text(decode(data))
    if not text.content.strip():
        raise UnreadableError("holds no text" + (" (is it scanned?)" if text.format == "prose" else ""))
    return text


def decode(data: bytes) -> str:
    """Decode plain text by its byte order mark, as UTF-8, or in the most likely encoding. Raises UnreadableError."""
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    if encoding in ("utf-8", "utf-8-sig") and b"\0" in data:
        raise UnreadableError("is no text: it holds zero bytes")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

        found = from_bytes(data).best()
        if found is None:
            raise UnreadableError("is no text in an encoding that is known") from None
        return str(found)


def _html(data: bytes) -> Text:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    page = BeautifulSoup(data, "html.parser")
    title = page.title.get_text(" ", strip=True) if page.title else None
    for element in page.find_all([*_HIDDEN, "title"]):
        element.decompose()
    content = MarkdownConverter(heading_style="ATX").convert_soup(page)
    return Text(content.replace("\0", ""), title or None, "markdown")


def _pdf(data: bytes) -> Text:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    # Without a handler of the application, Python prints pypdf's warnings to standard error.
    logging.getLogger("pypdf").addHandler(logging.NullHandler())
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableError("is encrypted")
        pages = [page.extract_text() for page in reader.pages]
        title = reader.metadata.title if reader.metadata else None
    except UnreadableError:
        raise
    except DependencyError:
        raise UnreadableError("is encrypted") from None
    except Exception as error:  # pypdf meets damaged files with errors of many kinds
        raise UnreadableError(f"is no PDF that can be read: {error}") from error
    content = "\f".join(pages).replace("\0", "").encode(errors="replace").decode()
    return Text(content, title or None, "prose")
