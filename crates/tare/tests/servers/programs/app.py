"""The same reply by ASGI and by WSGI."""

BODY = b"hello\n"


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = [(b"content-length", b"6"), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


def wsgi(environ, start_response):
    start_response("200 OK", [("Content-Length", "6"), ("Content-Type", "text/plain")])
    return [BODY]
