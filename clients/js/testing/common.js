// Helpers of several tests: read the golden files, and spell the ids in them.

import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = new URL("../../../vectors/filter/", import.meta.url);

/** Returns the bytes of a golden file. */
export function vector(name) {
  return new Uint8Array(readFileSync(fileURLToPath(new URL(name, folder))));
}

export function json(name) {
  return JSON.parse(readFileSync(fileURLToPath(new URL(name, folder)), "utf8"));
}

export function line(name) {
  return readFileSync(fileURLToPath(new URL(name, folder)), "utf8").trim();
}

export function bytes(hex) {
  return new Uint8Array(Buffer.from(hex, "hex"));
}

/**
 * Returns the n-th id of a form (`text`, `integer` or `uuid`), spelled as in the golden files, which
 * crates/filter/filter/tests/vectors writes.
 */
export function spelling(form, n) {
  if (form === "text") return `résumé/${n}`;
  if (form === "integer") return `+00${n}`;
  const mask = (1n << 64n) - 1n;
  const high = (BigInt(n) * 0x9e3779b97f4a7c15n) & mask;
  const low = ((high << 32n) | (high >> 32n)) & mask;
  const hex = high.toString(16).padStart(16, "0").toUpperCase() + low.toString(16).padStart(16, "0");
  const cut = [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)];
  return `{${cut.join("-")}}`;
}

/** The path of the edgeward program from the environment variable EDGEWARD; null if it is not set. */
export const edgeward = process.env.EDGEWARD ?? null;
if (edgeward !== null && !existsSync(edgeward)) throw new Error(`EDGEWARD=${edgeward} is not there`);

/** Returns a function that draws random integers below its argument: SplitMix64 (Steele, Lea, Flood, 2014). */
export function dice(seed) {
  let state = BigInt(seed);
  const mask = (1n << 64n) - 1n;
  return (below) => {
    state = (state + 0x9e3779b97f4a7c15n) & mask;
    let x = state;
    x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
    x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & mask;
    return Number((x ^ (x >> 31n)) % BigInt(below));
  };
}
