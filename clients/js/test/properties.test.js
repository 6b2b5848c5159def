// Tests properties that must hold for random input. Test names contain the seed; SEED=… repeats a run.

import assert from "node:assert/strict";
import test from "node:test";

import { IdTable } from "../src/delta.js";
import { Filter, hash } from "../src/index.js";
import { mix, mulFold, lastHigh, mul } from "../src/u64.js";
import { dice, json, spelling, vector } from "../testing/common.js";

const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
// `roll(n)` returns a random integer below n.
const roll = dice(seed);
const u64 = () => (BigInt(roll(2 ** 32)) << 32n) | BigInt(roll(2 ** 32));
const U64 = (1n << 64n) - 1n;
const halves = (x) => [Number(x >> 32n) | 0, Number(x & 0xffffffffn) | 0];
const whole = (upper, lower) => (BigInt(upper >>> 0) << 32n) | BigInt(lower >>> 0);
// Returns a random number or an extreme value, so that carries and empty halves occur often.
const interesting = () => [u64(), 0n, U64, 1n << 63n, 0xffffffffn, u64() & 0xffffffffn][roll(6)];

test(`no id is missed in any spelling (seed ${seed})`, () => {
  for (const { file, form, ids } of json("answers.json").filter((one) => one.ids > 0)) {
    const filter = Filter.open(vector(file));
    for (let round = 0; round < 3000; round++) {
      const id = respell(form, spelling(form, roll(ids)));
      assert.ok(filter.mayContain(id), `${file} reports as absent: ${id}, seed ${seed}`);
    }
  }
});

function respell(form, id) {
  if (form === "integer") return `${["+", ""][roll(2)]}${"0".repeat(roll(4))}${Number(id)}`;
  if (form === "text") return [id, new TextEncoder().encode(id)][roll(2)];
  const bare = Array.from(id.slice(1, -1), (c) => (roll(2) ? c.toUpperCase() : c.toLowerCase())).join("");
  return [bare, bare.replaceAll("-", ""), `{${bare}}`, `URN:uuid:${bare}`][roll(4)];
}

test(`invalid spellings are hashed unchanged (seed ${seed})`, () => {
  for (const wrong of ["", "+", "--1", "1.0", "{}", "urn:uuid:", "0x10", "1e3", "١", " 7", "9".repeat(40)]) {
    assert.equal(hash(wrong, "integer"), hash(wrong, "text"), wrong);
    assert.equal(hash(wrong, "uuid"), hash(wrong, "text"), wrong);
  }
  const limit = 2n ** 127n;
  assert.notEqual(hash(`+${limit - 1n}`, "integer"), hash(`+${limit - 1n}`, "text"), "the largest is an id");
  assert.equal(hash(`+${limit}`, "integer"), hash(`+${limit}`, "text"), "one more is not an id");
});

test("long spellings in bytes have the hash of the same text", () => {
  for (const text of ["0".repeat(70) + "7", `-${"0".repeat(200)}12`, "9".repeat(100)]) {
    assert.equal(hash(new TextEncoder().encode(text), "integer"), hash(text, "integer"), text);
  }
});

test(`random hashes match at most at the configured rate (seed ${seed})`, () => {
  for (const { file, ids } of json("answers.json").filter((one) => one.ids >= 1000)) {
    const filter = Filter.open(vector(file));
    const probes = 40_000;
    let passed = 0;
    for (let n = 0; n < probes; n++) passed += filter.mayContainHash(...halves(u64())) ? 1 : 0;
    const { rate } = filter.facts;
    // The limit is five standard deviations above the expectation, and 3 more for rounding.
    const most = probes * rate + 5 * Math.sqrt(probes * rate) + 3;
    assert.ok(passed <= most, `${file}: ${passed} of ${probes} at ${rate}, seed ${seed}`);
  }
});

test(`products of halves equal products of BigInts (seed ${seed})`, () => {
  for (let round = 0; round < 20_000; round++) {
    const [a, b] = [interesting(), interesting()];
    const low = mul(...halves(a), ...halves(b));
    assert.equal(whole(lastHigh, low), (a * b) & U64, `${a} ${b}`);
    const fold = mulFold(...halves(a), ...halves(b));
    assert.equal(whole(lastHigh, fold), ((a * b) & U64) ^ ((a * b) >> 64n), `${a} ${b}`);
    let x = a ^ b;
    x = ((x ^ (x >> 33n)) * 0xff51afd7ed558ccdn) & U64;
    x = ((x ^ (x >> 33n)) * 0xc4ceb9fe1a85ec53n) & U64;
    const mixed = mix(...halves(a), ...halves(b));
    assert.equal(whole(lastHigh, mixed), x ^ (x >> 33n), `${a} ${b}`);
  }
});

test(`the table of added ids agrees with a Map (seed ${seed})`, () => {
  const table = new IdTable();
  const oracle = new Map();
  for (let round = 0; round < 4_000; round++) {
    const id = roll(3) === 0 ? BigInt(roll(50)) : u64();
    // The journal number of the delta that adds the id.
    const to = BigInt(1 + roll(1000));
    table.add(...halves(id), to);
    if ((oracle.get(id) ?? 0n) < to) oracle.set(id, to);
    if (roll(500) === 0) {
      const base = BigInt(roll(900));
      table.forgetUpTo(base);
      for (const [known, at] of oracle) if (at <= base) oracle.delete(known);
    }
    assert.equal(table.size, oracle.size);
  }
  for (const id of oracle.keys()) assert.ok(table.has(...halves(id)), `${id}, seed ${seed}`);
  for (let n = 0; n < 100; n++) {
    assert.equal(table.has(...halves(BigInt(n))), oracle.has(BigInt(n)), `${n}, seed ${seed}`);
  }
});
