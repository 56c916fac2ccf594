"""Bodies apart from reviews: how their room is counted when several things happen at once."""

import asyncio
import socket
import time

from aiohttp import web

from webhooks.bodies import Bodies, BodyError
from webhooks.door import Door


async def test_one_whose_time_is_up_just_as_its_room_is_needed_is_given_up_once() -> None:
    bodies = Bodies(largest=100, most=100)
    loop = asyncio.get_running_loop()
    codes: dict[str, int] = {}

    async def handle(call: web.BaseRequest) -> web.Response:
        try:
            body = await bodies.read(call, loop.time() + (0.1 if call.path == "/first" else 60))
        except BodyError as error:
            codes[call.path] = error.code
        else:
            bodies.release(body)
            codes[call.path] = 200
        return web.Response(status=codes[call.path])

    server = web.Server(handle)
    door = Door(server)
    port = await door.open("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port)) as first, socket.create_connection(("127.0.0.1", port)) as other:
        first.send(b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 61\r\n\r\n" + b"." * 60)
        other.send(b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\n")
        async with asyncio.timeout(5):
            while len(bodies._coming) < 2 or bodies._held < 60:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

        other.send(b"." * 60)
        time.sleep(0.2)  # noqa: ASYNC251 - so that the loop finds that time is up and that the body came at once
        async with asyncio.timeout(5):
            while len(codes) < 2:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

    assert codes == {"/first": 408, "/other": 200}
    assert (bodies._held, dict(bodies._coming)) == (0, {})
    door.close()
    await server.shutdown(1)
