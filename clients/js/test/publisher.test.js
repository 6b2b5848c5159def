// A test with a real publisher on loopback. It is skipped unless EDGEWARD names the edgeward program.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { FilterClient } from "../src/index.js";
import { edgeward } from "../testing/common.js";

const TIMEOUT_MS = 180_000;
const skip = edgeward === null ? "EDGEWARD names no program" : false;

test("a client follows `edgeward filter serve`", { skip, timeout: 2 * TIMEOUT_MS }, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "edgeward-js-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const [ids, key, token] = ["ids.txt", "key", "token"].map((name) => join(folder, name));
  writeFileSync(ids, Array.from({ length: 5000 }, (_, n) => `${n}\n`).join(""));
  writeFileSync(token, "a-token-that-is-long-enough\n");
  execFileSync(edgeward, ["filter", "keygen", "-o", key]);
  const publisher = spawn(
    edgeward,
    [
      "filter", "serve", "--set", "resource", "--source", ids, "--ids", "integer", "--key", key,
      "--token", token, "--covered-by", "posts", "--state", join(folder, "state"), "--listen",
      "127.0.0.1:0", "--json",
    ],
    { stdio: ["ignore", "pipe", "ignore"] },
  );
  t.after(() => publisher.kill());
  const started = await new Promise((resolve, reject) => {
    let text = "";
    publisher.once("exit", () => reject(new Error("the publisher ended")));
    publisher.stdout.on("data", (piece) => {
      text += piece;
      if (text.includes("\n")) resolve(JSON.parse(text.split("\n")[0]));
    });
  });
  const client = FilterClient.start({
    url: started.listening,
    keys: [started.public_key],
    maxStalenessMs: 20_000,
  });
  t.after(() => client.stop());
  assert.ok(await client.waitFresh(TIMEOUT_MS), String(client.status().lastError));
  for (let id = 0; id < 5000; id++) assert.ok(client.mayExist(id), `${id} is reported as absent`);
  const absent = Array.from({ length: 1000 }, (_, n) => 1_000_000 + n).filter((id) => !client.mayExist(id));
  assert.ok(
    absent.length > 950,
    `the answer is absent for only ${absent.length} of 1000 absent ids (expected: about 990)`,
  );

  const fresh = absent[0];
  const posted = await fetch(`${started.listening}/ids`, {
    method: "POST",
    headers: { authorization: "Bearer a-token-that-is-long-enough" },
    body: `${fresh}\n`,
  });
  assert.equal(posted.status, 200, await posted.text());
  assert.ok(
    await client.waitUntil(TIMEOUT_MS, () => client.mayExist(fresh)),
    "a posted id is not absent",
  );
  assert.ok(client.status().counts.deltas > 0, "the id is in a delta");

  publisher.kill("SIGKILL");
  assert.ok(
    await client.waitUntil(TIMEOUT_MS, (status) => !status.fresh),
    "without a publisher the filter becomes stale",
  );
  // The answer "ask" means: send the request, because the filter is stale.
  assert.equal(client.answer(absent[1]), "ask");
});
