// An origin that routes by the path of each request. Argument: raw (as Express) or url (as code with `new URL`).
const http = require("http");
const server = http.createServer((request, response) => {
  const raw = request.url.split("?")[0];
  const path = process.argv[2] === "raw" ? raw : new URL(request.url, "http://origin").pathname;
  const page = path.startsWith("/admin/") ? "ADMIN" : path.startsWith("/account/") ? "PRIVATE" : "OTHER";
  response.end(page);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
