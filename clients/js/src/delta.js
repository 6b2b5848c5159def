// The parser of deltas (files of the ids that were added after a snapshot), and a hash table of these ids.

import { lastHigh, mix } from "./u64.js";
import { xxh3BigInt } from "./xxh3.js";
import { FilterError } from "./filter.js";

const HEADER_BYTES = 64;
const CHECKSUM_AT = 56;
const MAGIC = 0x0a1a0a0d44574589n;

/**
 * Parses a delta. It covers the journal numbers above `from` up to `to`. Each id takes two elements of `ids`: its
 * lower half and its upper half. The ids are in ascending order.
 *
 * @param {Uint8Array} bytes
 */
export function readDelta(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 8 || view.getBigUint64(0, true) !== MAGIC) {
    throw new FilterError("not a delta of an edgeward id filter");
  }
  if (bytes.length < HEADER_BYTES) {
    throw new FilterError(`the delta is truncated within its header, after ${bytes.length} bytes`);
  }
  const field = (n) => view.getBigUint64(8 * n, true);
  if (field(1) !== 1n) {
    throw new FilterError(`the delta has format version ${field(1)}, and this package reads version 1`);
  }
  const expectedBytes = BigInt(HEADER_BYTES) + field(6) * 8n;
  if (BigInt(bytes.length) !== expectedBytes) {
    throw new FilterError(`the delta has ${bytes.length} bytes and its header states ${expectedBytes}`);
  }
  const checked = new Uint8Array(bytes.length - 8);
  checked.set(bytes.subarray(0, CHECKSUM_AT));
  checked.set(bytes.subarray(HEADER_BYTES), CHECKSUM_AT);
  if (field(7) !== xxh3BigInt(checked)) {
    throw new FilterError("the delta is corrupt: its checksum does not match");
  }
  const ids = new Uint32Array((bytes.length - HEADER_BYTES) / 4);
  for (let n = 0; n < ids.length; n++) ids[n] = view.getUint32(HEADER_BYTES + 4 * n, true);
  let ordered = field(3) < field(4);
  for (let n = 2; n < ids.length; n += 2) {
    const isAbove = ids[n + 1] > ids[n - 1] || (ids[n + 1] === ids[n - 1] && ids[n] > ids[n - 2]);
    ordered = ordered && isAbove;
  }
  if (!ordered) throw new FilterError("the journal numbers or the ids of the delta are not in ascending order");
  return { lineage: field(2), from: field(3), to: field(4), seed: field(5), ids };
}

/**
 * The ids that were added since the snapshot, each with the last journal number (`to`) of its delta. The table is a
 * hash table with open addressing, at most half full.
 */
export class IdTable {
  #lo = new Uint32Array(16);
  #hi = new Uint32Array(16);
  #to = new BigUint64Array(16);
  #used = new Uint8Array(16);
  #size = 0;
  // A random seed, so that an attacker cannot choose ids that collide in the table.
  #seedHi = (Math.random() * 0x100000000) | 0;
  #seedLo = (Math.random() * 0x100000000) | 0;

  get size() {
    return this.#size;
  }

  has(idHi, idLo) {
    return this.#size !== 0 && this.#used[this.#slotOf(idHi, idLo)] === 1;
  }

  /** Adds an id, or raises the journal number of an id that the table has. */
  add(idHi, idLo, to) {
    const at = this.#slotOf(idHi, idLo);
    if (this.#used[at] === 1) {
      if (this.#to[at] < to) this.#to[at] = to;
      return;
    }
    this.#used[at] = 1;
    this.#lo[at] = idLo;
    this.#hi[at] = idHi;
    this.#to[at] = to;
    this.#size += 1;
    if (this.#size * 2 > this.#used.length) this.#rebuild(this.#used.length * 2, 0n);
  }

  /** Removes the ids with a journal number up to `base`, because a new snapshot contains them. */
  forgetUpTo(base) {
    let remaining = 0;
    this.#used.forEach((used, at) => (remaining += used === 1 && this.#to[at] > base ? 1 : 0));
    let slots = 16;
    while (remaining * 2 > slots) slots *= 2;
    this.#rebuild(slots, base);
  }

  /** Moves the ids with a journal number above `base` to a table with this number of slots. */
  #rebuild(slots, base) {
    const [lo, upper, to, used] = [this.#lo, this.#hi, this.#to, this.#used];
    this.#lo = new Uint32Array(slots);
    this.#hi = new Uint32Array(slots);
    this.#to = new BigUint64Array(slots);
    this.#used = new Uint8Array(slots);
    this.#size = 0;
    for (let at = 0; at < used.length; at++) {
      if (used[at] === 1 && to[at] > base) this.add(upper[at], lo[at], to[at]);
    }
  }

  /** Returns the slot of the id, or the free slot into which the id can be inserted. */
  #slotOf(idHi, idLo) {
    const mask = this.#used.length - 1;
    // `mix` returns the lower half of the hash and sets `lastHigh` to the upper half.
    let at = (mix(idHi, idLo, this.#seedHi, this.#seedLo) ^ lastHigh) & mask;
    while (
      this.#used[at] === 1 &&
      (this.#lo[at] !== idLo >>> 0 || this.#hi[at] !== idHi >>> 0)
    ) {
      at = (at + 1) & mask;
    }
    return at;
  }
}
