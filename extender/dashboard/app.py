"""The dashboard's application: who looks is found out first, and every answer says what a browser may do with
it."""

from collections.abc import Callable

from flask import Flask, Request, Response, g, request
from werkzeug.exceptions import Unauthorized

from extender.dashboard.pages import pages
from extender.dashboard.source import Source, Viewer

_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"  # noqa: E501

Identify = Callable[[Request], Viewer | None]  # None: nobody whom the API server knows


def create_dashboard_app(source: Source, identify: Identify) -> Flask:
    app = Flask(__name__)

    @app.before_request
    def who() -> None:
        viewer = identify(request)
        if viewer is None:
            raise Unauthorized
        g.viewer = viewer

    @app.after_request
    def guarded(answer: Response) -> Response:
        answer.headers["Content-Security-Policy"] = _POLICY
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Referrer-Policy"] = "same-origin"
        return answer

    app.register_blueprint(pages(source))
    return app
