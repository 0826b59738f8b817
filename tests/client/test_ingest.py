"""mindful ingest: files of every kind, read, skipped, named where they cannot be."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest
from fpdf import FPDF
from mindful_client.files import UnreadableError
from mindful_client.files.text import read_text
from support.command import Command

PETS = """
openapi: 3.0.3
info: {title: Pets, version: "1.2"}
paths:
  /pets/{id}:
    parameters:
      - {$ref: "#/components/parameters/id"}
    get:
      operationId: getPet
      tags: [pets]
      summary: Find a pet.
      responses:
        "200": {description: The pet., content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}}
    delete:
      summary: Forget a pet.
      responses: {"204": {description: Gone.}}
components:
  parameters:
    id: {name: id, in: path, required: true, schema: {type: integer}, description: Number of the pet}
  schemas:
    Pet:
      type: object
      required: [name]
      properties:
        name: {type: string}
        kind: {enum: [cat, dog]}
        friends: {type: array, items: {$ref: "#/components/schemas/Pet"}}
"""
SWAGGER = {
    "swagger": "2.0",
    "info": {"title": "Old"},
    "paths": {
        "/login": {
            "post": {
                "parameters": [
                    {"name": "who", "in": "body", "schema": {"$ref": "#/definitions/Who"}},
                    {"name": "n", "in": "query", "type": "integer"},
                ],
                "responses": {"200": {"description": "OK", "schema": {"type": "string", "format": "uuid"}}},
            }
        }
    },
    "definitions": {"Who": {"properties": {"name": {"type": "string"}}}},
}


def pdf(path: Path, *pages: str, password: str | None = None) -> None:
    document = FPDF()
    document.set_font("Helvetica")
    for text in pages:
        document.add_page()
        document.write(text=text)
    if password:
        document.set_encryption(owner_password="o", user_password=password)
    document.output(str(path))


@pytest.fixture
def ingest(dsn_of: Mapping[str, str], quick: None) -> Command:
    return Command(dsn_of["ana"], "ingest")


def memories(connection: psycopg.Connection, path: Path) -> list[tuple[str, str, str | None]]:
    return connection.execute(
        """select content, metadata ->> 'title', metadata ->> 'heading' from memory where source = %s
           order by (metadata -> 'chunk')::int""",
        (str(path),),
    ).fetchall()


def test_every_kind_of_file_is_read(ingest: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Straße über alles.".encode("utf-16"))
    (tmp_path / "b.md").write_text("# One\n\nFirst.")
    (tmp_path / "c.html").write_text(
        "<html><head><title>Page</title><script>evil()</script></head><body><h1>Top</h1><p>Text &amp; more</p></body>"
    )
    pdf(tmp_path / "d.pdf", "Page one says hello.", "Page two says goodbye.")
    (tmp_path / "e.py").write_text("def run() -> int:\n    return 1\n")
    (tmp_path / "f.csv").write_bytes("Müller;Größe;Fußgänger;Äpfel;Öl\n".encode("cp1252") * 20)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "Makefile").write_text("all:\n\techo done\n")
    (tmp_path / ".hidden").write_text("secret")
    (tmp_path / "sub" / ".git").mkdir()
    (tmp_path / "sub" / ".git" / "config").write_text("secret")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0\0")
    (tmp_path / "empty.txt").write_text("")
    result = ingest(tmp_path)
    assert (result.exit_code, result.stderr.count("mindful:")) == (0, 0), result.output
    assert result.stdout == "Files: 7 new, 2 skipped. Chunks: 7 inserted.\n"
    assert memories(ana, tmp_path / "a.txt") == [("Straße über alles.", "a.txt", None)]
    assert memories(ana, tmp_path / "b.md") == [("# One\n\nFirst.", "b.md", "One")]
    assert memories(ana, tmp_path / "c.html") == [("# Top\n\nText & more", "Page", "Top")]
    assert memories(ana, tmp_path / "d.pdf") == [
        ("Page one says hello.\nPage two says goodbye.", "d.pdf", "Page 1")
    ]
    assert memories(ana, tmp_path / "e.py")[0][2] == "run"
    assert memories(ana, tmp_path / "f.csv")[0][0].startswith("Müller;Größe")
    assert ana.execute("select count(*) from memory where content like '%secret%'").fetchone() == (0,)


def test_only_what_changed_is_read_again(ingest: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    for name in ("a.md", "b.md", "c.txt"):
        (tmp_path / name).write_text(f"# {name}\n\nText of {name}.")
    assert ingest(tmp_path, "--glob", "*.md").stdout == "Files: 2 new. Chunks: 2 inserted.\n"
    assert ingest(tmp_path).stdout == "Files: 1 new, 2 unchanged. Chunks: 1 inserted.\n"
    (tmp_path / "a.md").write_text("# a.md\n\nAnother text.")
    (tmp_path / "b.md").unlink()
    ana.execute("select document_insert('of somebody else', 'elsewhere')")
    assert ingest(tmp_path, "--forget-missing").stdout == (
        "Files: 1 changed, 1 unchanged, 1 forgotten. Chunks: 1 inserted, 2 deleted.\n"
    )
    assert memories(ana, tmp_path / "b.md") == []
    assert ana.execute("select count(*) from document").fetchone() == (3,)
    assert ingest(tmp_path / "c.txt", "--max-tokens", "16").stdout.startswith("Files: 1 changed.")


def test_an_api_is_a_memory_an_operation(ingest: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "pets.yaml"
    path.write_text(PETS)
    assert ingest(path).stdout == "Files: 1 new. Chunks: 2 inserted.\n"
    assert memories(ana, path) == [
        (
            "GET /pets/{id}\nFind a pet.\nParameters:\n- id (path, integer, required): Number of the pet\nResponses:\n"
            '- 200 Pet {name: string, kind?: "cat" | "dog", friends?: [Pet]}: The pet.',
            "Pets 1.2",
            "pets",
        ),
        (
            "DELETE /pets/{id}\nForget a pet.\nParameters:\n- id (path, integer, required): Number of the pet\n"
            "Responses:\n- 204: Gone.",
            "Pets 1.2",
            None,
        ),
    ]
    keys = "select source_key, id from memory where source = %s order by 1"
    before: dict[str, int] = dict(ana.execute(keys, (str(path),)).fetchall())
    path.write_text(PETS.replace("Find a pet.", "Look a pet up.").replace("    delete:", "    put:"))
    assert ingest(path).stdout == "Files: 1 changed. Chunks: 1 inserted, 1 replaced, 1 deleted.\n"
    after: dict[str, int] = dict(ana.execute(keys, (str(path),)).fetchall())
    assert set(after) == {"GET /pets/{id}", "PUT /pets/{id}"}
    assert after["GET /pets/{id}"] == before["GET /pets/{id}"]


def test_swagger_2_is_read_too(ingest: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(SWAGGER))
    assert ingest(path).exit_code == 0
    assert [content for content, _, _ in memories(ana, path)] == [
        "POST /login\nParameters:\n- who (body, Who {name?: string})\n- n (query, integer)\nResponses:\n"
        "- 200 string (uuid): OK"
    ]


def test_a_bad_file_is_named_and_the_others_are_read(
    ingest: Command, ana: psycopg.Connection, tmp_path: Path
) -> None:
    bad = {
        "binary.bin": (b"\0\1\2", "is no text: it holds zero bytes"),
        "empty.txt": (b" \n", "holds no text"),
        "broken.pdf": (b"%PDF-1.7 nothing", "is no PDF that can be read"),
        "broken.yaml": (b"openapi: 3.0.0\npaths: [", "is broken YAML at line"),
        "broken.json": (b'{"openapi": "3.0.0", ', "is broken JSON"),
        "none.yaml": (b"openapi: 3.0.0\npaths: {}", "without operations"),
        "dangling.yaml": (PETS.replace("schemas:", "shapes:").encode(), "cannot be followed"),
        "remote.yaml": (PETS.replace("#/components/schemas", "http://x/y").encode(), "cannot be followed"),
        "large.txt": (b"word " * 4_000_000, "more than 16777216"),
    }
    for name, (data, _) in bad.items():
        (tmp_path / name).write_bytes(data)
    pdf(tmp_path / "secret.pdf", "Hidden.", password="x")
    pdf(tmp_path / "scan.pdf", "")
    (tmp_path / "good.txt").write_text("Good.")
    result = ingest(*(tmp_path / name for name in (*bad, "secret.pdf", "scan.pdf", "good.txt")))
    assert (result.exit_code, result.stdout) == (1, "Files: 1 new, 11 failed. Chunks: 1 inserted.\n")
    lines = [line for line in result.stderr.splitlines() if line.startswith("mindful: ")]
    assert len(lines) == 11
    expected = [
        *((name, words) for name, (_, words) in bad.items()),
        ("secret.pdf", "encrypted"),
        ("scan.pdf", "scanned"),
    ]
    for line, (name, words) in zip(lines, expected, strict=True):
        assert line.startswith(f"mindful: {tmp_path / name}: ")
        assert words in line
    assert ana.execute("select content from memory").fetchall() == [("Good.",)]


def test_a_broken_pdf_prints_no_warnings_of_its_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("pypdf")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with pytest.raises(UnreadableError, match="is no PDF"):
        read_text("broken.pdf", b"%PDF-1.7 nothing")
    assert capsys.readouterr() == ("", "")


def test_a_refused_option_comes_with_its_hint_once(ingest: Command, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("Good.")
    result = ingest("--max-tokens", "1", tmp_path)
    assert result.exit_code == 1
    *failures, hint = [line for line in result.stderr.splitlines() if line.startswith(("mindful", "Hint"))]
    assert len(failures) == 2
    assert hint.startswith("Hint: ")


def test_a_file_that_needs_a_package_is_named_and_the_others_are_read(
    ingest: Command, ana: psycopg.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pdf(tmp_path / "a.pdf", "A report.")
    (tmp_path / "b.txt").write_text("Good.")
    monkeypatch.setitem(sys.modules, "pypdf", None)
    result = ingest(tmp_path)
    assert (result.exit_code, result.stdout) == (1, "Files: 1 new, 1 failed. Chunks: 1 inserted.\n")
    told = (
        f"mindful: {tmp_path / 'a.pdf'}: needs the Python package pypdf: pip install 'pg-mindful[ingest]'\n"
    )
    assert told in result.stderr
    assert ana.execute("select content from memory").fetchall() == [("Good.",)]


def test_other_yaml_and_json_are_texts(ingest: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"compilerOptions": {}, // a comment\n}')
    (tmp_path / "b.yaml").write_text("kind: Service\n---\nkind: Pod\n")
    assert ingest(tmp_path).stdout == "Files: 2 new. Chunks: 2 inserted.\n"


def test_a_missing_path_is_an_error(ingest: Command, tmp_path: Path) -> None:
    assert ingest(tmp_path / "nothing").exit_code == 2
    assert ingest().exit_code == 2
