// Filters over untrusted bytes.
//
// Every number in a file is compared with the size of the file before it is used, so a hostile file cannot cause
// large allocations (docs/reference/filter-format.md).

import { FORMS, hashOf, lastIsReadAlike } from "./id.js";
import { lastHigh, mix, mul, mul32 } from "./u64.js";
import { lastHashHigh, xxh3BigInt } from "./xxh3.js";

/** The bytes are not a valid filter. */
export class FilterError extends Error {
  constructor(message) {
    super(message);
    this.name = "FilterError";
  }
}

const HEADER_BYTES = 128;
const SHARD_BYTES = 32;
const BLOCK_BYTES = 32;
const MAGIC = [0x89, 0x45, 0x57, 0x46, 0x0d, 0x0a, 0x1a, 0x0a];
const SLOTS_MAX = 2 ** 28;
const SEGMENT_LOG2_MAX = 16;
// Padding of the format after the slots of a shard. It lets readers load eight bytes at any slot; this one loads five.
const PADDING_BYTES = 7;

const SALTS = Int32Array.of(
  0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
);

export class Filter {
  #facts;
  #form;
  #seedHi;
  #seedLo;
  #view;
  // An updatable filter has a number of blocks, and `#shards` is null. A static filter has a list of shards, and
  // `#blocks` is 0.
  #blocks = 0;
  #shards = null;

  /** Use `Filter.open`. */
  constructor(facts, view, blocks, shards) {
    this.#facts = Object.freeze(facts);
    this.#form = FORMS.indexOf(facts.form);
    this.#seedHi = Number(facts.seed >> 32n);
    this.#seedLo = Number(facts.seed & 0xffffffffn);
    this.#view = view;
    this.#blocks = blocks;
    this.#shards = shards;
  }

  /**
   * Opens a filter. Keeps a reference to the bytes without copying them.
   *
   * @param {Uint8Array} bytes
   */
  static open(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes.length < 8 || MAGIC.some((byte, at) => bytes[at] !== byte)) {
      throw new FilterError("not an edgeward id filter");
    }
    if (bytes.length < HEADER_BYTES) {
      throw new FilterError(`the filter is truncated within its header, after ${bytes.length} bytes`);
    }
    const version = view.getUint16(8, true);
    if (version !== 1) {
      throw new FilterError(`the filter has format version ${version}, and this package reads version 1`);
    }
    if (view.getBigUint64(120, true) !== xxh3BigInt(bytes.subarray(0, 120))) {
      throw new FilterError("the filter's header is corrupt: its checksum does not match");
    }
    const [kind, form] = [bytes[10], bytes[11]];
    const expectedBytes = BigInt(HEADER_BYTES) + view.getBigUint64(64, true);
    const reserved = bytes.subarray(80, 120).some((byte) => byte !== 0);
    if ((kind !== 1 && kind !== 2) || form >= FORMS.length || reserved) {
      throw new FilterError("the filter's header has a value that format version 1 does not define");
    }
    if (BigInt(bytes.length) !== expectedBytes) {
      throw new FilterError(`the filter has ${bytes.length} bytes and its header states ${expectedBytes}`);
    }
    const payload = bytes.subarray(HEADER_BYTES);
    if (view.getBigUint64(72, true) !== xxh3BigInt(payload)) {
      throw new FilterError("the filter's payload is corrupt: its checksum does not match");
    }
    const rate = view.getFloat64(56, true);
    if (!(rate > 0 && rate < 1)) {
      throw new FilterError("the filter's header is invalid: the false-positive rate is not between 0 and 1");
    }
    const parts = view.getUint32(12, true);
    const payloadView = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    let [blocks, shards] = [0, null];
    if (kind === 1) {
      shards = readShards(payloadView, parts);
    } else {
      blocks = parts;
      if (blocks === 0 || payload.length !== blocks * BLOCK_BYTES) {
        throw new FilterError("the filter's header is invalid: the number of blocks does not match the length of the payload");
      }
    }
    const facts = {
      construction: kind === 1 ? "static" : "updatable",
      form: FORMS[form],
      epoch: view.getBigUint64(16, true),
      builtMs: Number(view.getBigUint64(24, true)),
      ids: Number(view.getBigUint64(32, true)),
      capacityIds: Number(view.getBigUint64(40, true)),
      seed: view.getBigUint64(48, true),
      rate,
      bytes: bytes.length,
    };
    return new Filter(facts, payloadView, blocks, shards);
  }

  /** The fields of the header. */
  get facts() {
    return this.#facts;
  }

  /**
   * Returns false only if the id is certainly not in the filter. Returns true for text that is not an id which every
   * origin reads alike, such as " 7" or "k2;v=1".
   *
   * @param {string | number | bigint | Uint8Array} id
   */
  mayContain(id) {
    const lo = hashOf(id, this.#form, this.#seedHi, this.#seedLo);
    return !lastIsReadAlike() || this.mayContainHash(lastHashHigh(), lo);
  }

  /**
   * Returns the lower half of the id's hash; the upper half is `lastHashHigh()`. Lets a caller look up the
   * hash in its own table, such as the ids that were added since the snapshot.
   */
  hash(id) {
    return hashOf(id, this.#form, this.#seedHi, this.#seedLo);
  }

  /** Like `mayContain`, for a hash that is already computed, given as two halves. */
  mayContainHash(hashHi, hashLo) {
    return this.#shards === null
      ? this.#mayContainInBlocks(hashHi, hashLo)
      : this.#mayContainInShards(hashHi, hashLo);
  }

  #mayContainInBlocks(hashHi, hashLo) {
    // `mul32`, `mix` and `mul` return the lower half of a result and set `lastHigh` to the upper half.
    mul32(hashHi, this.#blocks);
    const at = (lastHigh >>> 0) * BLOCK_BYTES;
    for (let lane = 0; lane < 8; lane++) {
      const bit = Math.imul(hashLo, SALTS[lane]) >>> 27;
      if (((this.#view.getUint32(at + 4 * lane, true) >>> bit) & 1) === 0) return false;
    }
    return true;
  }

  #mayContainInShards(hashHi, hashLo) {
    const shards = this.#shards;
    let number = 0;
    if (shards.length > 1) {
      // (hash · shards) >> 64
      mul32(hashLo, shards.length);
      const carried = lastHigh;
      const low = mul32(hashHi, shards.length);
      number = (lastHigh >>> 0) + ((low >>> 0) + (carried >>> 0) > 0xffffffff ? 1 : 0);
    }
    const shard = shards[number];
    if (shard.firstSlotCount === 0) return false;
    // Names as in docs/reference/filter-format.md: `m` is the mixed hash, `w` is a second hash derived from `m`.
    const mLo = mix(hashHi, hashLo, shard.seedHi, shard.seedLo);
    const mHi = lastHigh;
    let wLo = mul(mHi, mLo, 0x9e3779b9, 0x7f4a7c15);
    const wHi = lastHigh;
    wLo ^= wHi;
    const { segment } = shard;
    const mask = segment - 1;
    mul32(mHi, shard.firstSlotCount);
    const start = lastHigh;
    // `sum` has bits 0 to 31 of the XOR of the four slots. `top` has bit 32, which exists only in slots 33 bits wide.
    const view = this.#view;
    let sum = 0;
    let top = 0;
    for (let n = 0; n < 4; n++) {
      let slot = start + n * segment;
      if (n === 1) slot ^= mLo & mask;
      else if (n === 2) slot ^= (mLo >>> 16) & mask;
      else if (n === 3) slot ^= wLo & mask;
      // The bit offset may exceed 32 bits; a double represents it exactly.
      const bit = slot * shard.bits + (slot > shard.firstWideSlot ? slot - shard.firstWideSlot : 0);
      const shift = bit % 8;
      const at = shard.offset + (bit - shift) / 8;
      const word = view.getUint32(at, true);
      const next = view.getUint8(at + 4);
      sum ^= shift === 0 ? word : (word >>> shift) | (next << (32 - shift));
      top ^= next >>> shift;
    }
    // `start` is the lowest of the four slots. Wide slots come last, so the other three slots are at least as wide.
    const width = shard.bits + (start >= shard.firstWideSlot ? 1 : 0);
    if (width <= 32) {
      sum ^= wHi >>> (32 - width);
      return width === 32 ? sum === 0 : (sum & ((1 << width) - 1)) === 0;
    }
    return (sum ^ ((wHi << 1) | (wLo >>> 31))) === 0 && ((top ^ (wHi >>> 31)) & 1) === 0;
  }
}

function readShards(view, count) {
  const directoryBytes = count * SHARD_BYTES;
  if (count === 0 || directoryBytes > view.byteLength) {
    throw new FilterError("the filter's header is invalid: the payload is too short for the number of shards");
  }
  const shards = [];
  // The offset of the next shard's slots in the payload.
  let next = directoryBytes;
  for (let number = 0; number < count; number++) {
    const at = number * SHARD_BYTES;
    const offset = view.getBigUint64(at, true);
    // The number of segments in which the first of an id's four slots may lie; 0 for a shard without ids.
    const startSegments = view.getUint32(at + 16, true);
    // The slots before this one have `bits` bits; this slot and later ones have one bit more.
    const firstWideSlot = view.getUint32(at + 20, true);
    const log2 = view.getUint8(at + 24);
    const bits = view.getUint8(at + 25);
    const padding = view.getUint32(at + 26, true) | view.getUint16(at + 30, true);
    let isValid = offset === BigInt(next) && padding === 0;
    let bytes = 0;
    if (startSegments === 0) {
      isValid = isValid && firstWideSlot === 0 && log2 === 0 && bits === 1;
    } else {
      const slots = (startSegments + 3) * 2 ** log2;
      isValid =
        isValid &&
        bits >= 1 &&
        bits <= 32 &&
        log2 <= SEGMENT_LOG2_MAX &&
        slots <= SLOTS_MAX &&
        firstWideSlot <= slots;
      bytes = Math.ceil((slots * bits + slots - firstWideSlot) / 8) + PADDING_BYTES;
    }
    if (!isValid || next + bytes > view.byteLength) {
      throw new FilterError(`shard ${number} of the filter has an invalid size or offset`);
    }
    const shard = {
      offset: next,
      seedHi: view.getInt32(at + 12, true),
      seedLo: view.getInt32(at + 8, true),
      // The number of slots that may be the first of an id's four slots.
      firstSlotCount: startSegments === 0 ? 0 : startSegments * 2 ** log2,
      // The number of slots in a segment.
      segment: 2 ** log2,
      firstWideSlot,
      bits,
    };
    shards.push(shard);
    next += bytes;
  }
  if (next !== view.byteLength) {
    throw new FilterError("the filter's payload is invalid: it is longer than its shards");
  }
  return shards;
}
