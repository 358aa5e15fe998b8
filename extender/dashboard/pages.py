"""The pages: queues, groups, nodes."""

from flask import Blueprint, Response

from extender.dashboard.source import Source


def pages(source: Source) -> Blueprint:
    made = Blueprint("pages", __name__)

    @made.get("/")
    def home() -> Response:
        return Response(source.overview().at, mimetype="text/plain")

    return made
