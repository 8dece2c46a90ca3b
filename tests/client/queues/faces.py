"""What one coroutine needs to use each face of the clients."""

import inspect


async def given(result):
    """Return a result that is awaited, unless it is there at once, as those of the blocking client are."""
    return await result if inspect.isawaitable(result) else result
