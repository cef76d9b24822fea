"""Servers that people have: nginx, Node.js, a JVM, gunicorn and uvicorn, and what makes them do more for each request."""

import os
import shutil
import subprocess

NODE = """
const list = JSON.stringify(Array.from({ length: 200 }, (_, id) => ({ id, name: 'x' + id })));
const times = Number(process.argv[3] || 0);
require('http').createServer((request, reply) => {
    for (let i = 0; i < times; i++) JSON.parse(list);
    reply.end('hello');
}).listen(+process.argv[2], '127.0.0.1');
"""
JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
public class Pair {
    public static void main(String[] words) throws Exception {
        long busy = words.length > 1 ? Long.parseLong(words[1]) * 1000 : 0;
        byte[] body = "hello".getBytes();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])), 0);
        server.createContext("/", exchange -> {
            for (long end = System.nanoTime() + busy; System.nanoTime() < end;) { }
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
"""
PYTHON = """
def wsgi(environ, start):
    start("200 OK", [("Content-Length", "5")])
    return [b"hello"]


async def asgi(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello"})
"""


def keep(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def node(folder):
    """A command that takes the number of times that it parses JSON as its last word; None without Node.js."""
    return f"node {keep(folder, 'server.js', NODE)} {{port}}" if shutil.which("node") else None


def java(folder):
    """A command that takes the microseconds that it burns as its last word; None without a JDK."""
    if not shutil.which("javac"):
        return None
    subprocess.run(["javac", "-d", folder, keep(folder, "Pair.java", JAVA)], check=True)
    # Without nodelay, its server answers 40 ms late on kept connections.
    return f"java -Dsun.net.httpserver.nodelay=true -cp {folder} Pair {{port}}"


def gunicorn(folder, how="-k gthread --threads 2"):
    """None unless `PYTHON_SERVERS` names a folder with the program."""
    programs = os.environ.get("PYTHON_SERVERS")
    keep(folder, "application.py", PYTHON)
    return programs and f"{programs}/gunicorn --chdir {folder} {how} --log-level error -b 127.0.0.1:{{port}} application:wsgi"


def uvicorn(folder):
    programs = os.environ.get("PYTHON_SERVERS")
    keep(folder, "application.py", PYTHON)
    return programs and f"{programs}/uvicorn --app-dir {folder} --log-level error --port {{port}} application:asgi"
