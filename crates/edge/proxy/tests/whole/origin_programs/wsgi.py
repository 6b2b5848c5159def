"""An origin that routes by PATH_INFO, as Flask and Django do."""
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Handler(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass


def application(environment, start_response):
    path = environment["PATH_INFO"]
    page = b"ADMIN" if path.startswith("/admin/") else b"PRIVATE" if path.startswith("/account/") else b"OTHER"
    start_response("200 OK", [("Content-Length", str(len(page)))])
    return [page]


server = make_server("127.0.0.1", 0, application, handler_class=Handler)
print(server.server_port, flush=True)
server.serve_forever()
