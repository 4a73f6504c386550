"""A current ClickHouse engine behind HTTP: what is posted is run, as ClickHouse's own interface does. Prints its port."""
import re
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from chdb import session

engine = session.Session(sys.argv[1])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        sql = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            status, body = 200, bytes(engine.query(sql, "TabSeparated").bytes())
        except Exception as error:
            status, body = 500, str(error).encode()
            code = re.search(rb"Code: (\d+)", body)
            if code and code.group(1) == b"60":
                status = 404
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
