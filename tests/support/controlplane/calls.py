"""The few calls that are made before there is a loop."""

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from controlplane.errors import APIError


def answers(url: str, *, token: str = "", tls: ssl.SSLContext | None = None) -> bool:
    """Whether a GET of it is answered with 200."""
    try:
        return _call("GET", url, None, token=token, tls=tls)[0] == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def call(method: str, url: str, body: object = None, *, token: str, tls: ssl.SSLContext) -> dict[str, Any]:
    """The object that the API server answers with. Raises APIError."""
    code, answer = _call(method, url, body, token=token, tls=tls)
    obj: dict[str, Any] = json.loads(answer)
    if code >= http.HTTPStatus.BAD_REQUEST:
        raise APIError(obj)
    return obj


def _call(method: str, url: str, body: object, *, token: str, tls: ssl.SSLContext | None) -> tuple[int, bytes]:
    to = urlsplit(url)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    connection: http.client.HTTPConnection
    if to.scheme == "https":
        connection = http.client.HTTPSConnection(to.netloc, context=tls, timeout=10)
    else:
        connection = http.client.HTTPConnection(to.netloc, timeout=10)
    try:
        connection.request(method, to.path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
