"""A stream of bytes as lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Each with its newline; what comes last may lack it, if the stream ends well."""
    parts: list[bytes] = []
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield b"".join([*parts, end, b"\n"])
            parts.clear()
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)
