// Filters over untrusted bytes.
//
// Every number in a file is checked against the size of the file before it is used, so a hostile file
// cannot cause allocations (docs/reference/filter-format.md).

import { FORMS, hashOf } from "./id.js";
import { hi, mix, mul, mul32 } from "./u64.js";
import { upper, xxh3BigInt } from "./xxh3.js";

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
// Padding, so that eight bytes can be read at the start of any slot.
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
  // Only one of the two fields is set.
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
    const whole = BigInt(HEADER_BYTES) + view.getBigUint64(64, true);
    const reserved = bytes.subarray(80, 120).some((byte) => byte !== 0);
    if ((kind !== 1 && kind !== 2) || form >= FORMS.length || reserved) {
      throw new FilterError("the filter's header has a value that format version 1 does not define");
    }
    if (BigInt(bytes.length) !== whole) {
      throw new FilterError(`the filter has ${bytes.length} bytes where its header says ${whole}`);
    }
    const payload = bytes.subarray(HEADER_BYTES);
    if (view.getBigUint64(72, true) !== xxh3BigInt(payload)) {
      throw new FilterError("the filter's payload is corrupt: its checksum does not match");
    }
    const rate = view.getFloat64(56, true);
    if (!(rate > 0 && rate < 1)) {
      throw new FilterError("the filter's header is inconsistent in: rate");
    }
    const parts = view.getUint32(12, true);
    const room = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    let [blocks, shards] = [0, null];
    if (kind === 1) {
      shards = readShards(room, parts);
    } else {
      blocks = parts;
      if (blocks === 0 || payload.length !== blocks * BLOCK_BYTES) {
        throw new FilterError("the filter's header is inconsistent in: blocks");
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
    return new Filter(facts, room, blocks, shards);
  }

  /** The fields of the header. */
  get facts() {
    return this.#facts;
  }

  /**
   * Returns false only if the id is certainly not in the filter.
   *
   * @param {string | number | bigint | Uint8Array} id
   */
  mayContain(id) {
    const lo = hashOf(id, this.#form, this.#seedHi, this.#seedLo);
    return this.mayContainHash(upper(), lo);
  }

  /** Returns the lower half of the id's hash; the upper half is `upper()`. For lookups in other tables. */
  hash(id) {
    return hashOf(id, this.#form, this.#seedHi, this.#seedLo);
  }

  /** Like the above, for a hash in two halves. */
  mayContainHash(hashHi, hashLo) {
    return this.#shards === null
      ? this.#inBlocks(hashHi, hashLo)
      : this.#inShards(hashHi, hashLo);
  }

  #inBlocks(hashHi, hashLo) {
    mul32(hashHi, this.#blocks);
    const at = (hi >>> 0) * BLOCK_BYTES;
    for (let lane = 0; lane < 8; lane++) {
      const bit = Math.imul(hashLo, SALTS[lane]) >>> 27;
      if (((this.#view.getUint32(at + 4 * lane, true) >>> bit) & 1) === 0) return false;
    }
    return true;
  }

  #inShards(hashHi, hashLo) {
    const shards = this.#shards;
    let number = 0;
    if (shards.length > 1) {
      // (hash · shards) >> 64
      mul32(hashLo, shards.length);
      const carried = hi;
      const low = mul32(hashHi, shards.length);
      number = (hi >>> 0) + ((low >>> 0) + (carried >>> 0) > 0xffffffff ? 1 : 0);
    }
    const shard = shards[number];
    if (shard.starts === 0) return false;
    const mLo = mix(hashHi, hashLo, shard.seedHi, shard.seedLo);
    const mHi = hi;
    let wLo = mul(mHi, mLo, 0x9e3779b9, 0x7f4a7c15);
    const wHi = hi;
    wLo ^= wHi;
    const { segment } = shard;
    const mask = segment - 1;
    mul32(mHi, shard.starts);
    const start = hi;
    // Bits 0 to 31 of the sum, and bit 32 of the one width that has it.
    const view = this.#view;
    let sum = 0;
    let top = 0;
    for (let n = 0; n < 4; n++) {
      let slot = start + n * segment;
      if (n === 1) slot ^= mLo & mask;
      else if (n === 2) slot ^= (mLo >>> 16) & mask;
      else if (n === 3) slot ^= wLo & mask;
      // The value has more than 32 bits, which a double represents exactly.
      const bit = slot * shard.bits + (slot > shard.wideFrom ? slot - shard.wideFrom : 0);
      const shift = bit % 8;
      const at = shard.from + (bit - shift) / 8;
      const word = view.getUint32(at, true);
      const next = view.getUint8(at + 4);
      sum ^= shift === 0 ? word : (word >>> shift) | (next << (32 - shift));
      top ^= next >>> shift;
    }
    const width = shard.bits + (start >= shard.wideFrom ? 1 : 0);
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
    throw new FilterError("the filter's header is inconsistent in: shards");
  }
  const shards = [];
  let next = directoryBytes;
  for (let number = 0; number < count; number++) {
    const at = number * SHARD_BYTES;
    const from = view.getBigUint64(at, true);
    const segments = view.getUint32(at + 16, true);
    const wideFrom = view.getUint32(at + 20, true);
    const log2 = view.getUint8(at + 24);
    const bits = view.getUint8(at + 25);
    const spare = view.getUint32(at + 26, true) | view.getUint16(at + 30, true);
    let sound = from === BigInt(next) && spare === 0;
    let bytes = 0;
    if (segments === 0) {
      sound = sound && wideFrom === 0 && log2 === 0 && bits === 1;
    } else {
      const slots = (segments + 3) * 2 ** log2;
      sound =
        sound &&
        bits >= 1 &&
        bits <= 32 &&
        log2 <= SEGMENT_LOG2_MAX &&
        slots <= SLOTS_MAX &&
        wideFrom <= slots;
      bytes = Math.ceil((slots * bits + slots - wideFrom) / 8) + PADDING_BYTES;
    }
    if (!sound || next + bytes > view.byteLength) {
      throw new FilterError(`shard ${number} of the filter has an invalid size or offset`);
    }
    const shard = {
      from: next,
      seedHi: view.getInt32(at + 12, true),
      seedLo: view.getInt32(at + 8, true),
      starts: segments === 0 ? 0 : segments * 2 ** log2,
      segment: 2 ** log2,
      wideFrom,
      bits,
    };
    shards.push(shard);
    next += bytes;
  }
  if (next !== view.byteLength) {
    throw new FilterError("the filter's header is inconsistent in: length of the shards");
  }
  return shards;
}
