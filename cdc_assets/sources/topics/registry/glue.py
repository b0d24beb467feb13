"""AWS Glue's registry: messages name a version of a schema by its UUID.

    glue: {region: eu-central-1, access_key: …, secret_access_key: …, token: …, endpoint: …}

Without keys boto3 finds a login as all clients of AWS do. TiCDC has the same under
`[sink.kafka-config.glue-schema-registry-config]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cdc_assets.errors import BadSettings, BucketMissing, StorageUnavailable

_NAMES = {
    "region": "region_name",
    "access_key": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "token": "aws_session_token",
    "endpoint": "endpoint_url",
}
_NOT_FOUND = frozenset({"EntityNotFoundException", "InvalidInputException"})
_REFUSED = frozenset(
    ("AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException")
)


@dataclass
class GlueRegistry:
    """The registry of a region. `given` are boto3's options of the client."""

    client_options: Mapping[str, str] = field(repr=False)
    _client: Any = field(default=None, repr=False)

    def schema(self, schema_id: str) -> str | None:
        """Return the text of a version of a schema, None where there is none of this id."""
        if schema_id.isdigit():
            return None  # a number is of a registry with Confluent's API
        try:
            if self._client is None:
                settings = Config(connect_timeout=3, read_timeout=10, retries={"max_attempts": 2})
                self._client = boto3.client("glue", config=settings, **self.client_options)
            return str(self._client.get_schema_version(SchemaVersionId=schema_id)["SchemaDefinition"])
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _NOT_FOUND:
                return None
            if code in _REFUSED:
                raise BucketMissing(
                    f"AWS Glue refused the question for schema {schema_id} ({code}). Give the login the right "
                    "glue:GetSchemaVersion, or look at glue under schema_registry."
                ) from None
            raise StorageUnavailable(
                f"AWS Glue does not return schema {schema_id} ({code}). Try again later."
            ) from None
        except BotoCoreError as error:
            raise StorageUnavailable(
                f"AWS Glue does not return schema {schema_id} ({type(error).__name__}). Check the region and the login "
                "of glue under schema_registry, and try again."
            ) from None


def connect(options: Mapping[str, Any]) -> GlueRegistry:
    """Return the registry of the options `glue`; raises BadSettings for those that it does not have."""
    glue = options["glue"]
    if not isinstance(glue, Mapping) or set(glue) - set(_NAMES) or "region" not in glue:
        raise BadSettings(
            f"schema_registry: glue takes region and {', '.join(sorted(set(_NAMES) - {'region'}))}. Correct it."
        )
    return GlueRegistry({_NAMES[name]: str(value) for name, value in glue.items() if value})
