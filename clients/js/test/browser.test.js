// Tests the client in a browser: Chromium over loopback. The test is skipped if Chromium is not installed.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import test from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { FakePublisher } from "../testing/publisher.js";

const checkout = fileURLToPath(new URL("../../../", import.meta.url));
const types = { ".js": "text/javascript", ".html": "text/html" };

// Returns the page that the browser loads. The script of the page starts a filter client, which downloads the set of
// ids that this test's server publishes. The script then sends its results to the server. The client uses the
// browser's clocks; other tests use the clocks of the fake publisher.
const page = (key) => `<!doctype html><title>ids</title><p id="out">nothing yet</p><script type="module">
  import { FilterClient, Filter } from "/clients/js/src/index.js";
  const results = [];
  try {
    const file = await (await fetch("/vectors/filter/static-three-shards.ewf")).arrayBuffer();
    results.push(Filter.open(new Uint8Array(file)).facts.ids);
    const client = FilterClient.start({ url: "/sets/resource", keys: ["${key}"], maxStalenessMs: 60_000 });
    results.push(await client.waitFresh(180_000), client.answer(7), client.answer(1001), client.status().counts.deltas);
    client.stop();
  } catch (error) {
    results.push(String(error));
  }
  await fetch("/results", { method: "POST", body: JSON.stringify(results) });
</script>`;

function hasChromium() {
  try {
    execFileSync("chromium", ["--version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

// Kills the process group of a child process, and waits until the group has no process left that could write files.
async function killAll(child) {
  for (let tries = 0; tries < 500; tries++) {
    try {
      process.kill(-child.pid, "SIGKILL");
    } catch {
      return;
    }
    await pause(20);
  }
}

// With EDGEWARD_REQUIRE_TOOLS=1 the test runs, and fails, also without a browser.
const skip = hasChromium() || process.env.EDGEWARD_REQUIRE_TOOLS === "1" ? false : "chromium is not installed";

test("a client in a browser downloads the set of a publisher", { skip, timeout: 300_000 }, async (t) => {
  const publisher = new FakePublisher();
  let report;
  const reported = new Promise((resolve) => (report = resolve));
  const answer = async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    if (pathname === "/") {
      response.setHeader("content-type", types[".html"]).end(page(publisher.key));
    } else if (pathname === "/results") {
      let body = "";
      for await (const piece of request) body += piece;
      response.end();
      report(body);
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
  const browser = spawn("chromium", [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", `--user-data-dir=${profile}`,
    "--remote-debugging-port=0", `http://127.0.0.1:${server.address().port}/`,
  ], { detached: true, stdio: "ignore" });
  t.after(async () => {
    await killAll(browser);
    server.closeAllConnections();
    server.close();
    // A helper process that left the group may still write files, so the removal may fail. The system then removes the
    // profile with its other temporary files.
    const removed = rm(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 20 });
    await removed.catch((error) => t.diagnostic(`the browser profile was not removed: ${error.message}`));
  });
  browser.once("error", (error) => report(String(error)));
  browser.once("exit", () => report("the browser ended"));
  // The static file has 300 ids. The client becomes fresh. Id 7 is in the snapshot and id 1001 is in the only delta.
  assert.equal(await reported, JSON.stringify([300, true, "maybe", "maybe", 1]));
});
