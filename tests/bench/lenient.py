"""The yardstick of a create through the API server: a bare aiohttp handler that lets every review in."""

import asyncio
import ssl
import sys

import orjson
import uvloop
from aiohttp import web


async def _let_in(request: web.Request) -> web.Response:
    review = orjson.loads(await request.read())
    response = {"uid": review["request"]["uid"], "allowed": True}
    answer = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def _serve(certificate: str, key: str) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.add_routes([web.post("/mutate", _let_in), web.post("/validate", _let_in)])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=120.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:]))
