"""Refusals: each has a status, a code for programs, the field that is wrong, and a sentence that helps."""

import math
from typing import Any

from pydantic import BaseModel, Field

# Every code with its status; documentation and tests read this table.
STATUSES = {
    "invalid_http": 400,
    "invalid_json": 400,
    "unknown_host": 400,
    "missing_key": 401,
    "wrong_key": 401,
    "not_found": 404,
    "unknown_model": 404,
    "unknown_job": 404,
    "method_not_allowed": 405,
    "body_timeout": 408,
    "job_unfinished": 409,
    "body_too_large": 413,
    "encoded_body": 415,
    "wrong_content_type": 415,
    "invalid_request": 422,
    "language_not_read": 422,
    "row_too_large": 422,
    "threshold_not_supported": 422,
    "too_many_rows": 422,
    "rate_limited": 429,
    "internal_error": 500,
    "no_verdict": 502,
    "jobs_off": 403,
    "job_host": 403,
    "draining": 503,
    "loading": 503,
    "queue_full": 503,
    "disk_full": 507,
    "timeout": 504,
}


class ErrorBody(BaseModel):
    """What is wrong with a request."""

    code: str = Field(description="For programs.", examples=["invalid_request"])
    message: str = Field(description="What is wrong.")
    field: str | None = Field(default=None, description="Where it is, such as rows.3.response.")
    help: str = Field(description="What to do.")
    request_id: str | None = None


class ErrorReply(BaseModel):
    """The body of every refusal."""

    error: ErrorBody


class Problem(Exception):
    """Refuses a request.

    Args:
        code: A key of `STATUSES`.
        message: What is wrong, in one sentence.
        help: What to do, in one sentence.
        field: The part of the request.
        retry_seconds: When to try again.
    """

    def __init__(
        self, code: str, message: str, help: str, *, field: str | None = None, retry_seconds: float | None = None
    ):
        super().__init__(message)
        self.code, self.status = code, STATUSES[code]
        self.message, self.help, self.field, self.retry_seconds = message, help, field, retry_seconds

    def body(self, request_id: str | None = None) -> dict[str, Any]:
        """Returns the JSON body."""
        error = ErrorBody(code=self.code, message=self.message, field=self.field, help=self.help, request_id=request_id)
        return {"error": error.model_dump()}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the reply."""
        found = {} if self.retry_seconds is None else {"Retry-After": str(max(1, math.ceil(self.retry_seconds)))}
        return found | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def document_refusals(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Documents refusals for OpenAPI, by their status; those that every route has are added."""
    every = (
        *("invalid_json", "missing_key", "body_timeout", "body_too_large", "encoded_body", "invalid_request"),
        *("rate_limited", "internal_error", "draining"),
        *codes,
    )
    by_status: dict[int | str, list[str]] = {}
    for code in every:
        by_status.setdefault(STATUSES[code], []).append(code)
    return {status: {"model": ErrorReply, "description": ", ".join(found)} for status, found in by_status.items()}
