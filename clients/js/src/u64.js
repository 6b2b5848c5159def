// Arithmetic on 64-bit numbers that are passed as two 32-bit halves. It is for code in which a BigInt would allocate
// memory.
//
// Each function returns the lower half of its result and sets `lastHigh` to the upper half.
// Callers must read `lastHigh` before the next call.
// Arguments ending in `Hi` are upper halves, those ending in `Lo` are lower halves. A half may be signed or unsigned,
// because only its bits count.

/** The upper half of the last result. */
export let lastHigh = 0;

/** Returns the 64-bit product of two 32-bit numbers. */
export function mul32(a, b) {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  // Each sum stays below 2^32: (2^16 - 1)^2 + 2 · (2^16 - 1) = 2^32 - 1.
  const middle = a1 * b0 + ((a0 * b0) >>> 16);
  const low = a0 * b1 + (middle & 0xffff);
  lastHigh = (a1 * b1 + (middle >>> 16) + (low >>> 16)) | 0;
  return Math.imul(a, b);
}

/** Returns the lower 64 bits of the product of two 64-bit numbers. */
export function mul(aHi, aLo, bHi, bLo) {
  const lo = mul32(aLo, bLo);
  lastHigh = (lastHigh + Math.imul(aHi, bLo) + Math.imul(aLo, bHi)) | 0;
  return lo;
}

/** Returns the sum of two numbers, modulo 2^64. */
export function add(aHi, aLo, bHi, bLo) {
  const lo = (aLo + bLo) | 0;
  lastHigh = (aHi + bHi + (lo >>> 0 < aLo >>> 0 ? 1 : 0)) | 0;
  return lo;
}

/** Returns the difference of two numbers, modulo 2^64. */
export function sub(aHi, aLo, bHi, bLo) {
  lastHigh = (aHi - bHi - (aLo >>> 0 < bLo >>> 0 ? 1 : 0)) | 0;
  return (aLo - bLo) | 0;
}

/** Multiplies two numbers to 128 bits. Returns the XOR of the upper and the lower 64 bits. */
export function mulFold(aHi, aLo, bHi, bLo) {
  // w0 to w3 are the 32-bit words of the product, from the lowest to the highest. `part` and `carry` are the lower and
  // the upper half of a partial product.
  const w0 = mul32(aLo, bLo);
  let w1 = lastHigh;
  let w2 = 0;
  let w3 = 0;
  let part = mul32(aHi, bLo);
  let carry = lastHigh;
  let sum = (w1 >>> 0) + (part >>> 0);
  w1 = sum | 0;
  sum = (carry >>> 0) + (sum > 0xffffffff ? 1 : 0);
  w2 = sum | 0;
  w3 = sum > 0xffffffff ? 1 : 0;
  part = mul32(aLo, bHi);
  carry = lastHigh;
  sum = (w1 >>> 0) + (part >>> 0);
  w1 = sum | 0;
  sum = (w2 >>> 0) + (carry >>> 0) + (sum > 0xffffffff ? 1 : 0);
  w2 = sum | 0;
  w3 += sum > 0xffffffff ? 1 : 0;
  part = mul32(aHi, bHi);
  carry = lastHigh;
  sum = (w2 >>> 0) + (part >>> 0);
  w2 = sum | 0;
  w3 = (w3 + carry + (sum > 0xffffffff ? 1 : 0)) | 0;
  lastHigh = w1 ^ w3;
  return w0 ^ w2;
}

/** Mixes a hash h with a seed s by the finaliser of MurmurHash3 (Austin Appleby, public domain). */
export function mix(hHi, hLo, sHi, sLo) {
  let upper = hHi ^ sHi;
  let lower = hLo ^ sLo;
  // For the number x with these halves, x ^ (x >>> 33) changes the lower half only.
  lower ^= upper >>> 1;
  lower = mul(upper, lower, 0xff51afd7, 0xed558ccd);
  upper = lastHigh;
  lower ^= upper >>> 1;
  lower = mul(upper, lower, 0xc4ceb9fe, 0x1a85ec53);
  upper = lastHigh;
  lastHigh = upper;
  return lower ^ (upper >>> 1);
}
