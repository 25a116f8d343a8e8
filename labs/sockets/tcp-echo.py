"""Echoes connections. It knows nothing of where its sockets are."""

import asyncio


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 7001)
    async with server:
        await server.serve_forever()


asyncio.run(main())
