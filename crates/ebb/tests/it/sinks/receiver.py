"""A receiver that checks webhooks with the standard's own Python library. Prints its port, ends with its standard input.

usage: receiver.py SECRET [CERTIFICATE_AND_KEY]
"""
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            payload = Webhook(sys.argv[1]).verify(body, dict(self.headers))
            status, said = 200, "verified " + payload["id"]
        except Exception as error:
            status, said = 401, f"{type(error).__name__}: {error}"
        self.send_response(status)
        self.send_header("content-length", str(len(said.encode())))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
