"""JSON as the server gives it: jsonb holds numbers and depths that Python refuses to read."""

from __future__ import annotations

import json
from typing import Any

from mindful.core.errors import InvalidParameterError


class UnreadableJSONError(InvalidParameterError, ValueError):
    """A number of too many digits, or too many levels."""


def loads(text: str, **options: Any) -> Any:
    """Read JSON, as json.loads does.

    Errors: ValueError; one of them is 22023, for an integer of more than 4300 digits or some thousand levels.
    """
    try:
        return json.loads(text, **options)
    except json.JSONDecodeError:
        raise
    except ValueError:
        raise UnreadableJSONError(
            "a number in JSON has more than 4300 digits", "Pass a smaller number, or a string."
        ) from None
    except RecursionError:
        raise UnreadableJSONError("JSON has too many levels", "Flatten it.") from None
