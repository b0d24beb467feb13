"""Schemas in a local file: `{"schemas_by_id": {"1": "…"}}`, each as the registry has its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.io.storage_uri import display, location


@dataclass(frozen=True, slots=True)
class FileRegistry:
    """The schemas of a file, by their ids."""

    path: str
    by_id: Mapping[str, str] = field(repr=False)

    def schema(self, schema_id: str) -> str | None:
        """Return the text of a schema, None where the file does not have it."""
        return self.by_id.get(schema_id)


def connect(options: Mapping[str, Any]) -> FileRegistry:
    """Read the file that `file` names, a path or a file:// URI; raises BadSettings for one that holds no schemas."""
    store, path = location(str(options["file"]), "schema_registry")
    if store != "file":
        raise BadSettings(
            f"schema_registry: {display(str(options['file']))} is no local file. Fetch it, and give its path."
        )
    try:
        schemas = json.loads(Path(path).read_text(encoding="utf-8-sig"))["schemas_by_id"]
        by_id = {str(name): text if isinstance(text, str) else json.dumps(text) for name, text in schemas.items()}
    except OSError as error:
        raise BadSettings(f"schema_registry: {path} cannot be read ({error.strerror}). Correct the path.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadSettings(
            f"schema_registry: {path} holds no schemas ({type(error).__name__}: {error}); expected JSON such as "
            '{"schemas_by_id": {"1": "…"}}, with the ids that messages name.'
        ) from None
    return FileRegistry(path, by_id)
