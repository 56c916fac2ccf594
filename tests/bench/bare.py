"""The yardstick: a bare aiohttp handler that reads the body and answers a constant, of each size that it is given."""

import asyncio
import ssl
import sys

import uvloop
from aiohttp import web


def _constant(size: int) -> web.RouteDef:
    body = b"x" * size

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, content_type="application/json")

    return web.post(f"/const/{size}", answer)


async def _serve(certificate: str, key: str, *sizes: str) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.add_routes([_constant(int(size)) for size in sizes])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=120.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:]))
