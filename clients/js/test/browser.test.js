// The same modules in a browser: Chromium over loopback, skipped where there is none.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { FakePublisher } from "../testing/publisher.js";

const checkout = fileURLToPath(new URL("../../../", import.meta.url));
const types = { ".js": "text/javascript", ".html": "text/html" };

// Follows the set that this server publishes, with the machine's own clocks, and writes down what it sees.
const page = (key) => `<!doctype html><title>ids</title><p id="out">nothing yet</p><script type="module">
  import { FilterClient, Filter } from "/clients/js/src/index.js";
  const told = [];
  try {
    const file = await (await fetch("/vectors/filter/static-three-shards.ewf")).arrayBuffer();
    told.push(Filter.open(new Uint8Array(file)).facts.ids);
    const client = FilterClient.start({ url: "/sets/resource", keys: ["${key}"], maxStalenessMs: 60_000 });
    told.push(await client.waitFresh(180_000), client.answer(7), client.answer(1001), client.status().counts.deltas);
    client.stop();
  } catch (error) {
    told.push(String(error));
  }
  await fetch("/told", { method: "POST", body: JSON.stringify(told) });
</script>`;

function chromium() {
  try {
    execFileSync("chromium", ["--version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

// Under EDGEWARD_REQUIRE_TOOLS a missing browser fails.
const skip = chromium() || process.env.EDGEWARD_REQUIRE_TOOLS === "1" ? false : "no chromium here";

test("a browser follows a set", { skip, timeout: 300_000 }, async (t) => {
  const publisher = new FakePublisher();
  let tell;
  const told = new Promise((resolve) => (tell = resolve));
  const answer = async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    if (pathname === "/") {
      response.setHeader("content-type", types[".html"]).end(page(publisher.key));
    } else if (pathname === "/told") {
      let body = "";
      for await (const piece of request) body += piece;
      response.end();
      tell(body);
    } else if (pathname.startsWith("/sets/")) {
      const made = await publisher.answer(`http://localhost${request.url}`, { headers: request.headers });
      response.writeHead(made.status, Object.fromEntries(made.headers));
      response.end(new Uint8Array(await made.arrayBuffer()));
    } else {
      const path = normalize(pathname);
      response.setHeader("content-type", types[extname(path)] ?? "application/octet-stream");
      response.end(await readFile(join(checkout, path)));
    }
  };
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.writeHead(404).end());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const profile = mkdtempSync(join(tmpdir(), "edgeward-chromium-"));
  const browser = execFile("chromium", [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", `--user-data-dir=${profile}`,
    "--remote-debugging-port=0", `http://127.0.0.1:${server.address().port}/`,
  ]);
  t.after(async () => {
    const ended = new Promise((resolve) => browser.once("exit", resolve));
    browser.kill("SIGKILL");
    await ended;
    server.closeAllConnections();
    server.close();
    // Its helpers may write for a moment longer.
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  });
  browser.once("exit", () => tell("the browser ended"));
  assert.equal(await told, JSON.stringify([300, true, "maybe", "maybe", 1]));
});
