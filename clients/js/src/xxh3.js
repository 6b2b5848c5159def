// XXH3 with 64 bits (Yann Collet), after its specification: a separate algorithm for each range of lengths.

// Each function of u64.js returns the lower half of its result, and sets `lastHigh` to the upper half.
import { add, lastHigh, mul, mul32, mulFold, sub } from "./u64.js";

const SECRET = Uint8Array.from(
  (
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221" +
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8" +
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb" +
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
  )
    .match(/../g),
  (byte) => parseInt(byte, 16),
);

const SECRET_BYTES = 192;

// The 32-bit number at each offset of the secret.
const KEY = Int32Array.from({ length: SECRET_BYTES - 3 }, (_, at) => read32(SECRET, at));

const STRIPE_BYTES = 64;
const BLOCK_BYTES = 1024;

const P32_1 = 0x9e3779b1;
const P32_2 = 0x85ebca77;
const P32_3 = 0xc2b2ae3d;

/**
 * Hashes `bytes[from..to]`. Returns the lower half; the upper half is `lastHashHigh()`.
 *
 * @param {Uint8Array} bytes
 * @param {number} from
 * @param {number} to
 * @param {number} sHi the seed's upper half
 * @param {number} sLo the seed's lower half
 */
export function xxh3(bytes, from, to, sHi, sLo) {
  const length = to - from;
  if (length > 240) return long(bytes, from, length, sHi, sLo);
  if (length > 128) return upTo240(bytes, from, length, sHi, sLo);
  if (length > 16) return upTo128(bytes, from, length, sHi, sLo);
  if (length > 8) return upTo16(bytes, from, length, sHi, sLo);
  if (length > 3) return upTo8(bytes, from, length, sHi, sLo);
  if (length > 0) return upTo3(bytes, from, length, sHi, sLo);
  return avalanche64(
    sHi ^ KEY[60] ^ KEY[68],
    sLo ^ KEY[56] ^ KEY[64],
  );
}

let resultHi = 0;

/** Returns the upper half of the last hash that this module computed. */
export function lastHashHigh() {
  return resultHi;
}

/** Returns the hash of all bytes as a BigInt, for code that need not be fast. */
export function xxh3BigInt(bytes, seed = 0n) {
  const lo = xxh3(bytes, 0, bytes.length, Number(seed >> 32n), Number(seed & 0xffffffffn));
  return (BigInt(resultHi >>> 0) << 32n) | BigInt(lo >>> 0);
}

function read32(bytes, at) {
  return bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
}

function swap32(x) {
  return (x << 24) | ((x & 0xff00) << 8) | ((x >>> 8) & 0xff00) | (x >>> 24);
}

function finish(upperHalf, lowerHalf) {
  resultHi = upperHalf;
  return lowerHalf;
}

/** The last step of XXH64, used for at most three bytes. Leaves the upper half in `resultHi`. */
function avalanche64(h, l) {
  l ^= h >>> 1;
  l = mul(h, l, 0xc2b2ae3d, 0x27d4eb4f);
  h = lastHigh;
  l ^= (l >>> 29) | (h << 3);
  h ^= h >>> 29;
  l = mul(h, l, 0x165667b1, 0x9e3779f9);
  h = lastHigh;
  return finish(h, l ^ h);
}

/** The last step of XXH3. Leaves the upper half in `resultHi`. */
function avalanche(h, l) {
  l ^= h >>> 5;
  l = mul(h, l, 0x16566791, 0x9e3779f9);
  h = lastHigh;
  return finish(h, l ^ h);
}

function upTo3(bytes, from, length, sHi, sLo) {
  const combined =
    (bytes[from] << 16) | (bytes[from + (length >> 1)] << 24) | bytes[from + length - 1] | (length << 8);
  const l = add(sHi, sLo, 0, KEY[0] ^ KEY[4]);
  return avalanche64(lastHigh, l ^ combined);
}

function upTo8(bytes, from, length, sHi, sLo) {
  const seedHi = sHi ^ swap32(sLo);
  let l = sub(
    KEY[12] ^ KEY[20],
    KEY[8] ^ KEY[16],
    seedHi,
    sLo,
  );
  let h = lastHigh ^ read32(bytes, from);
  l ^= read32(bytes, from + length - 4);
  // x ^ rotl(x, 49) ^ rotl(x, 24)
  const h49 = (l << 17) | (h >>> 15);
  const l49 = (h << 17) | (l >>> 15);
  const h24 = (h << 24) | (l >>> 8);
  const l24 = (l << 24) | (h >>> 8);
  h ^= h49 ^ h24;
  l ^= l49 ^ l24;
  l = mul(h, l, 0x9fb21c65, 0x1e98df25);
  h = lastHigh;
  // x ^ ((x >> 35) + length): x >> 35 is below 2^29, so the sum does not carry into the upper half.
  l ^= (h >>> 3) + length;
  l = mul(h, l, 0x9fb21c65, 0x1e98df25);
  h = lastHigh;
  return finish(h ^ (h >>> 28), l ^ ((l >>> 28) | (h << 4)));
}

function upTo16(bytes, from, length, sHi, sLo) {
  let l1 = add(
    KEY[28] ^ KEY[36],
    KEY[24] ^ KEY[32],
    sHi,
    sLo,
  );
  const h1 = lastHigh ^ read32(bytes, from + 4);
  l1 ^= read32(bytes, from);
  let l2 = sub(
    KEY[44] ^ KEY[52],
    KEY[40] ^ KEY[48],
    sHi,
    sLo,
  );
  const end = from + length;
  const h2 = lastHigh ^ read32(bytes, end - 4);
  l2 ^= read32(bytes, end - 8);
  let l = add(0, length, swap32(l1), swap32(h1));
  l = add(lastHigh, l, h2, l2);
  const partHi = lastHigh;
  const fold = mulFold(h1, l1, h2, l2);
  l = add(partHi, l, lastHigh, fold);
  return avalanche(lastHigh, l);
}

// The sum of all pieces so far: `begin` sets it, and each call of `mix16` adds a piece of 16 bytes. The parameter `key`
// of `mix16` is an offset in the secret.
let sumHi = 0;
let sumLo = 0;

function begin(length) {
  sumLo = mul(0, length, 0x9e3779b1, 0x85ebca87);
  sumHi = lastHigh;
}

function mix16(bytes, at, key, sHi, sLo) {
  const keyLo = add(KEY[key + 4], KEY[key], sHi, sLo);
  const aHi = read32(bytes, at + 4) ^ lastHigh;
  const aLo = read32(bytes, at) ^ keyLo;
  const otherLo = sub(KEY[key + 12], KEY[key + 8], sHi, sLo);
  const bHi = read32(bytes, at + 12) ^ lastHigh;
  const bLo = read32(bytes, at + 8) ^ otherLo;
  const fold = mulFold(aHi, aLo, bHi, bLo);
  sumLo = add(sumHi, sumLo, lastHigh, fold);
  sumHi = lastHigh;
}

function upTo128(bytes, from, length, sHi, sLo) {
  const end = from + length;
  begin(length);
  if (length > 32) {
    if (length > 64) {
      if (length > 96) {
        mix16(bytes, from + 48, 96, sHi, sLo);
        mix16(bytes, end - 64, 112, sHi, sLo);
      }
      mix16(bytes, from + 32, 64, sHi, sLo);
      mix16(bytes, end - 48, 80, sHi, sLo);
    }
    mix16(bytes, from + 16, 32, sHi, sLo);
    mix16(bytes, end - 32, 48, sHi, sLo);
  }
  mix16(bytes, from, 0, sHi, sLo);
  mix16(bytes, end - 16, 16, sHi, sLo);
  return avalanche(sumHi, sumLo);
}

function upTo240(bytes, from, length, sHi, sLo) {
  begin(length);
  for (let n = 0; n < 8; n++) mix16(bytes, from + 16 * n, 16 * n, sHi, sLo);
  sumLo = avalanche(sumHi, sumLo);
  sumHi = resultHi;
  for (let n = 8; n < length >> 4; n++) mix16(bytes, from + 16 * n, 16 * (n - 8) + 3, sHi, sLo);
  mix16(bytes, from + length - 16, 136 - 17, sHi, sLo);
  return avalanche(sumHi, sumLo);
}

/** Returns the secret of a seed, for long inputs. */
function secretOf(sHi, sLo) {
  if ((sHi | sLo) === 0) return SECRET;
  const secret = new Uint8Array(SECRET_BYTES);
  const view = new DataView(secret.buffer);
  for (let at = 0; at < SECRET_BYTES; at += 16) {
    view.setInt32(at, add(KEY[at + 4], KEY[at], sHi, sLo), true);
    view.setInt32(at + 4, lastHigh, true);
    view.setInt32(at + 8, sub(KEY[at + 12], KEY[at + 8], sHi, sLo), true);
    view.setInt32(at + 12, lastHigh, true);
  }
  return secret;
}

function long(bytes, from, length, sHi, sLo) {
  const secret = secretOf(sHi, sLo);
  const accHi = Int32Array.of(0, P32_1, P32_3, 0x165667b1, P32_2, 0, 0x27d4eb2f, 0);
  const accLo = Int32Array.of(
    P32_3, 0x85ebca87, 0x27d4eb4f, 0x9e3779f9, 0xc2b2ae63, P32_2, 0x165667c5, P32_1,
  );
  const accumulate = (at, key) => {
    for (let n = 0; n < 8; n++) {
      const dataLo = read32(bytes, at + 8 * n);
      const dataHi = read32(bytes, at + 8 * n + 4);
      const other = n ^ 1;
      accLo[other] = add(accHi[other], accLo[other], dataHi, dataLo);
      accHi[other] = lastHigh;
      const product = mul32(
        dataLo ^ read32(secret, key + 8 * n),
        dataHi ^ read32(secret, key + 8 * n + 4),
      );
      accLo[n] = add(accHi[n], accLo[n], lastHigh, product);
      accHi[n] = lastHigh;
    }
  };
  const scramble = () => {
    const key = SECRET_BYTES - STRIPE_BYTES;
    for (let n = 0; n < 8; n++) {
      const h = accHi[n] ^ read32(secret, key + 8 * n + 4);
      const l = accLo[n] ^ (accHi[n] >>> 15) ^ read32(secret, key + 8 * n);
      accLo[n] = mul(h, l, 0, P32_1);
      accHi[n] = lastHigh;
    }
  };
  const blocks = Math.floor((length - 1) / BLOCK_BYTES);
  for (let block = 0; block < blocks; block++) {
    const at = from + block * BLOCK_BYTES;
    for (let stripe = 0; stripe < 16; stripe++) accumulate(at + stripe * STRIPE_BYTES, stripe * 8);
    scramble();
  }
  const rest = from + blocks * BLOCK_BYTES;
  const stripes = Math.floor((length - 1 - blocks * BLOCK_BYTES) / STRIPE_BYTES);
  for (let stripe = 0; stripe < stripes; stripe++) {
    accumulate(rest + stripe * STRIPE_BYTES, stripe * 8);
  }
  accumulate(from + length - STRIPE_BYTES, SECRET_BYTES - STRIPE_BYTES - 7);
  // The length may have more than 32 bits.
  let l = mul(Math.floor(length / 4294967296), length | 0, 0x9e3779b1, 0x85ebca87);
  let h = lastHigh;
  for (let n = 0; n < 8; n += 2) {
    const key = 11 + 8 * n;
    const fold = mulFold(
      accHi[n] ^ read32(secret, key + 4),
      accLo[n] ^ read32(secret, key),
      accHi[n + 1] ^ read32(secret, key + 12),
      accLo[n + 1] ^ read32(secret, key + 8),
    );
    l = add(h, l, lastHigh, fold);
    h = lastHigh;
  }
  return avalanche(h, l);
}
