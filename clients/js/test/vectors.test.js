// Tests with the golden files, which the clients in all languages must read in the same way.

import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import test from "node:test";

import { Filter, FilterState, hash, importKeys, readManifest, readProof, sha256 } from "../src/index.js";
import { readDelta } from "../src/delta.js";
import { bytes, json, line, spelling, vector } from "../testing/common.js";

test("hashes of all lengths and spellings match the format", () => {
  for (const { form, seed, spelling: id, hash: expected } of json("hashes.json")) {
    const found = hash(id, form, BigInt(seed)).toString(16).padStart(16, "0");
    assert.equal(found, expected, `${form} ${seed} ${id}`);
    const asBytes = hash(new TextEncoder().encode(id), form, BigInt(seed)).toString(16);
    assert.equal(asBytes.padStart(16, "0"), expected, `${form} ${seed} ${id} as bytes`);
  }
});

test("filters of every construction answer as the format says", () => {
  for (const { file, form, ids, asked, maybe } of json("answers.json")) {
    const filter = Filter.open(vector(file));
    assert.equal(filter.facts.form, form);
    // An added id that an updatable filter already reported as present, a false positive, is not counted.
    assert.ok(filter.facts.ids <= ids && filter.facts.ids >= ids * 0.9);
    const answers = asked.map((id) => (filter.mayContain(id) ? "1" : "0")).join("");
    assert.equal(answers, maybe, file);
    for (let n = 0; n < ids; n++) assert.ok(filter.mayContain(spelling(form, n)), `${file} reports id ${n} as absent`);
  }
});

test("text that is no id is never absent", async () => {
  const now = { monotonicMs: 0, wallMs: 1_700_000_000_000 };
  const filters = { text: "static-text-seeded.ewf", uuid: "static-uuid.ewf", integer: "static-integer.ewf" };
  for (const { form, asked, ids } of json("not-ids.json")) {
    const filter = Filter.open(vector(filters[form]));
    for (const id of asked) assert.ok(filter.mayContain(id), `${form} ${JSON.stringify(id)}`);
    if (form === "text") {
      // Bytes are an exact id: nothing is removed from them.
      assert.ok(asked.some((id) => !filter.mayContain(new TextEncoder().encode(id))));
      assert.ok(ids.some((id) => !filter.mayContain(id)));
    }
    if (form !== "integer") continue;
    const keys = await importKeys([line("key.txt")]);
    const state = new FilterState({ set: "resource", maxStalenessMs: 10_000 });
    state.challenge(now, "ab".repeat(16));
    state.manifest(now, await readManifest(line("manifest.txt"), keys));
    state.proof(now, await readProof(line("proof.txt"), keys));
    state.snapshot(now, { sha256: await sha256(vector(filters[form])), filter });
    state.delta(now, vector("delta.ewd"), await sha256(vector("delta.ewd")));
    for (const id of asked) assert.equal(state.answer(now, id), "ask", JSON.stringify(id));
    assert.equal(state.answer(now, "7"), "maybe");
    assert.ok([5001, 5002, 5003].some((id) => state.answer(now, id) === "absent"));
  }
});

test("numbers are the same ids as their text", () => {
  const filter = Filter.open(vector("static-integer.ewf"));
  assert.ok([0, 7, 999, 7n, "7", "+007"].every((id) => filter.mayContain(id)));
  assert.throws(() => filter.mayContain(0.5), TypeError);
  assert.throws(() => filter.mayContain(2 ** 53), TypeError);
  assert.throws(() => filter.mayContain(null), TypeError);
});

test("cut, flipped and forged files are refused", () => {
  for (const { what, why, bytes: hex } of json("refused-files.json")) {
    const open = what === "delta" ? readDelta : Filter.open;
    assert.throws(() => open(bytes(hex)), { name: "FilterError" }, `${what}: ${why}`);
  }
});

test("each truncation and each flipped bit of a file is detected", () => {
  for (const name of ["static-small.ewf", "updatable-small.ewf", "delta.ewd"]) {
    const open = name.endsWith("ewd") ? readDelta : Filter.open;
    const whole = vector(name);
    open(whole);
    for (let cut = 0; cut < whole.length; cut++) {
      assert.throws(() => open(whole.slice(0, cut)), { name: "FilterError" }, `${name} cut at ${cut}`);
    }
    for (let bit = 0; bit < whole.length * 8; bit++) {
      const flipped = whole.slice();
      flipped[bit >> 3] ^= 1 << (bit & 7);
      assert.throws(() => open(flipped), { name: "FilterError" }, `${name} bit ${bit}`);
    }
  }
});

test("a filter within a larger buffer is the same filter", () => {
  const whole = vector("static-three-shards.ewf");
  const buffer = new Uint8Array(whole.length + 13);
  buffer.set(whole, 3);
  const filter = Filter.open(buffer.subarray(3, 3 + whole.length));
  for (let n = 0; n < 300; n++) assert.ok(filter.mayContain(spelling("uuid", n)));
});

test("signed lines are trusted, and forged ones are refused", async () => {
  const keys = await importKeys([line("key.txt")]);
  const manifest = await readManifest(line("manifest.txt"), keys);
  assert.equal(manifest.serial, 100n);
  assert.equal(manifest.deltas[0].sha256, await sha256(vector("delta.ewd")));
  assert.equal((await readProof(line("proof.txt"), keys)).lag_ms, 250n);
  // Without keys, the client accepts signed and unsigned lines from any server.
  const unsigned = `unsigned ${line("manifest.txt").slice(line("manifest.txt").indexOf("{"))}`;
  assert.deepEqual(await readManifest(unsigned, null), manifest);
  assert.deepEqual(await readManifest(line("manifest.txt"), null), manifest);
  for (const { what, why, line: forged } of json("refused-lines.json")) {
    const read = what === "proof" ? readProof : readManifest;
    await assert.rejects(read(forged, keys), { name: "ManifestError" }, `${what}: ${why}`);
  }
});

test("clients behave as the scripts specify", async () => {
  for (const script of json("scripts.json")) await runScript(script);
});

// Random scripts. `cargo xtask lives` writes them to a file, one per line. The variable LIVES has the path of the file.
const lives = process.env.LIVES;
test("no id is missed in random scripts", { skip: lives ? false : "LIVES names no file" }, async () => {
  let count = 0;
  for await (const script of createInterface({ input: createReadStream(lives) })) {
    await runScript(JSON.parse(script));
    count += 1;
  }
  assert.ok(count > 0, `${lives} has no scripts`);
});

/** Runs one script against a client. */
async function runScript({ client, documents, files, steps }) {
  const keys = await importKeys([client.key]);
  const config = {
    set: client.set,
    maxStalenessMs: client.max_staleness_ms,
    clockErrorMs: client.clock_error_ms,
    snapshotBytesMax: client.snapshot_bytes_max,
    overlayIdsMax: client.overlay_ids_max,
  };
  let state = new FilterState(config);
  const contents = files.map(bytes);
  const names = await Promise.all(contents.map(sha256));
  const position = (entry) => names.indexOf(entry.sha256);
  for (const [number, step] of steps.entries()) {
    // `what` names the event. `at` is the index of the event's document or file; for a challenge, its 16 bytes in hex.
    // The rest is the expected state after the event. `outcome` is "taken" or the reason for a refusal. `answers` has
    // a letter for each id of `client.asked`. `snapshot` and `deltas` are the indexes of the files to fetch next.
    const [monotonicMs, wallMs, what, at, outcome, freshMs, answers, snapshot, deltas, must = ""] = step;
    const now = { monotonicMs, wallMs };
    let found = "taken";
    if (what === "restart") state = new FilterState(config);
    try {
      await act(state, now, what, at, { keys, documents, contents, names });
    } catch (error) {
      if (error.name === "ManifestError") {
        state.observe(now);
        found = "unbelievable";
      } else {
        assert.equal(error.name, "Refused", error.stack);
        found = error.reason;
      }
    }
    const where = `seed ${client.seed}, step ${number}: ${JSON.stringify(step)}`;
    const letters = client.asked.map((id) => ({ absent: "a", maybe: "m", ask: "?" })[state.answer(now, id)]);
    // `must` has `!` for an id that was committed more than maxStalenessMs ago. It must not be reported as absent.
    for (let n = 0; n < must.length; n++) {
      assert.ok(must[n] !== "!" || letters[n] !== "a", `id ${client.asked[n]} is reported as absent: ${where}`);
    }
    assert.equal(found, outcome, where);
    assert.equal(state.freshForMs(now), freshMs, where);
    // The script has two letters for `ask`: `n` without a filter, `s` with a stale filter. This client has one answer.
    assert.equal(letters.join(""), answers.replaceAll(/[ns]/g, "?"), where);
    const wants = state.wants;
    assert.equal(wants.snapshot === null ? null : position(wants.snapshot), snapshot, where);
    assert.deepEqual(wants.deltas.map(position), deltas, where);
  }
}

async function act(state, now, what, at, { keys, documents, contents, names }) {
  switch (what) {
    case "manifest":
      return state.manifest(now, await readManifest(documents[at], keys));
    case "proof":
      return state.proof(now, await readProof(documents[at], keys));
    case "challenge":
      return state.challenge(now, at);
    case "snapshot":
      return state.snapshot(now, { sha256: names[at], filter: Filter.open(contents[at]) });
    case "delta":
      return state.delta(now, contents[at], names[at]);
    case "observe":
      return state.observe(now);
  }
}
