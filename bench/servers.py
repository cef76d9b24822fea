"""The servers that a bench measures against, started for it and ended with it."""

import os
import platform
import re
import socket
import subprocess
import time

SERVER_CPU = "0"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, what):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit(f"bench: {what} does not answer on port {port}")


class Nginx:
    """One worker, 612 bytes a reply, no access log, connections kept without limit, TLS beside."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "nginx")
        port, tls_port, http2_port = free_port(), free_port(), free_port()
        self.port = port
        self.url, self.tls_url = f"http://127.0.0.1:{port}/", f"https://127.0.0.1:{tls_port}/"
        # Replies over HTTP/2 come from memory: with sendfile, nginx sends head and body in separate segments.
        self.http2_url = f"http://127.0.0.1:{http2_port}/"
        os.makedirs(os.path.join(self.folder, "html"))
        # nginx's worker gives up root, and must still read its page.
        os.chmod(folder, 0o755)
        with open(os.path.join(self.folder, "html/index.html"), "w", encoding="ascii") as page:
            page.write("x" * 612)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
            + ["-keyout", f"{self.folder}/key.pem", "-out", f"{self.folder}/cert.pem"],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        with open(os.path.join(self.folder, "nginx.conf"), "w", encoding="ascii") as config:
            config.write(f"""
                daemon off; worker_processes 1; pid {self.folder}/pid; error_log {self.folder}/error.log;
                worker_rlimit_nofile 8192; events {{ worker_connections 4096; }}
                http {{ access_log off; keepalive_requests 1000000000; root {self.folder}/html;
                    client_body_temp_path {self.folder}/b; proxy_temp_path {self.folder}/p;
                    fastcgi_temp_path {self.folder}/f; uwsgi_temp_path {self.folder}/u; scgi_temp_path {self.folder}/s;
                    ssl_certificate {self.folder}/cert.pem; ssl_certificate_key {self.folder}/key.pem;
                    ssl_protocols TLSv1.3; ssl_session_cache shared:s:10m;
                    server {{ listen 127.0.0.1:{port}; }} server {{ listen 127.0.0.1:{tls_port} ssl; }}
                    server {{ listen 127.0.0.1:{http2_port} http2; location / {{ return 200 "{'x' * 612}"; }} }} }}
            """)

    def __enter__(self):
        command = ["taskset", "-c", SERVER_CPU, "nginx", "-p", self.folder, "-c", f"{self.folder}/nginx.conf"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(self.port, "nginx")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)


class Target:
    """tare's own server of known truth."""

    def __init__(self, tare, *flags):
        self.command = ["taskset", "-c", SERVER_CPU, tare, "target", "--listen", "127.0.0.1:0", *flags]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    with open("/proc/meminfo", encoding="utf-8") as info:
        memory_gib = int(info.readline().split()[1]) / 2**20
    nginx = subprocess.run(["nginx", "-v"], stderr=subprocess.PIPE, text=True).stderr.strip()
    return (
        f"Machine: {os.cpu_count()} × {model.group(1) if model else 'CPU'}, {memory_gib:.0f} GiB, "
        f"Linux {platform.release()}, {nginx}. It is a shared virtual machine: ratios mean something, "
        f"absolute figures little."
    )
