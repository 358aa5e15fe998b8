"""JSON answers, with data or with faults."""

from typing import Any

import msgspec
from flask import Flask, Response
from werkzeug.exceptions import HTTPException


def as_json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, mimetype="application/json")


def readable(data: object) -> bytes:
    """`data` as JSON for a person with curl."""
    return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"


def show_faults_as_json(app: Flask) -> None:
    """Answer 404, 405 and their like as {"error": …} instead of as a page of HTML."""
    app.register_error_handler(HTTPException, fault_as_json)


def fault_as_json(fault: HTTPException) -> Response:
    answer = fault.get_response()
    headers = [
        (name, value) for name, value in answer.headers if name not in ("Content-Type", "Content-Length")
    ]
    body: dict[str, Any] = {"error": fault.description or fault.name}
    return Response(readable(body), answer.status_code, headers, mimetype="application/json")
