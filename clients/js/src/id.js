// The canonical form of an id, and its hash for filters (docs/reference/filter-format.md).

import { lastHashHigh, xxh3 } from "./xxh3.js";

/** The forms of ids. The index of a form is its number in the file of a filter. */
export const FORMS = ["text", "uuid", "integer"];

const encoder = new TextEncoder();
// A buffer for the canonical bytes of an id. A longer id gets a new buffer.
const scratch = new Uint8Array(1024);

// The result of `text`, `uuid` and `integer`: the canonical form is the first `canonicalBytes` bytes of `canonical`.
let canonical = scratch;
let canonicalBytes = 0;

// True if every origin reads the text of the last `hashOf` as the same id.
let readAlike = true;
// Text from which an origin may remove a part before it looks up the id.
const REMOVED = /^$|^[ /\ufeff]|[ /]$|[\x00-\x1f\x7f;?#%]/;

/**
 * Returns true if every origin reads the text of the last `hashOf` as the same id. Only then may the answer be "absent":
 * see "Text that is no id" in docs/reference/filter-format.md.
 */
export function lastIsReadAlike() {
  return readAlike;
}

/**
 * Hashes an id. Returns the lower half of the hash; the upper half is `lastHashHigh()` of xxh3.js. Text that is not an
 * id of the form is hashed unchanged, and `lastIsReadAlike()` then returns false.
 *
 * @param {string | number | bigint | Uint8Array} id
 * @param {number} form an index into FORMS
 * @param {number} seedHi the upper 32 bits of the filter's seed
 * @param {number} seedLo the lower 32 bits
 */
export function hashOf(id, form, seedHi, seedLo) {
  let spelling = id;
  if (typeof id === "number") {
    if (!Number.isSafeInteger(id)) {
      throw new TypeError(`${id} is no safe integer; give larger ids as BigInt or text`);
    }
    spelling = String(id);
  } else if (typeof id === "bigint") {
    spelling = id.toString();
  } else if (typeof id !== "string") {
    if (!(id instanceof Uint8Array)) {
      throw new TypeError("an id is a string, a number, a BigInt or a Uint8Array");
    }
    if (form !== 0) spelling = latin1(id);
  }
  const isCanonical =
    (form === 1 && uuid(spelling)) || (form === 2 && integer(spelling));
  readAlike = isCanonical;
  if (!isCanonical) {
    // Bytes of the form text are an id of arbitrary bytes, from which no origin removes a part.
    readAlike = form === 0 && (id instanceof Uint8Array || !REMOVED.test(spelling));
    if (id instanceof Uint8Array) {
      canonical = id;
      canonicalBytes = id.length;
    } else {
      text(spelling);
    }
  }
  return xxh3(canonical, 0, canonicalBytes, seedHi, seedLo);
}

/** Returns the hash as a BigInt. `form` is a name in FORMS. */
export function hashBigInt(id, form, seed = 0n) {
  const lo = hashOf(id, FORMS.indexOf(form), Number(seed >> 32n), Number(seed & 0xffffffffn));
  return (BigInt(lastHashHigh() >>> 0) << 32n) | BigInt(lo >>> 0);
}

function latin1(bytes) {
  // Spellings of UUIDs and integers are ASCII, so a byte above 127 becomes a character that makes the spelling invalid.
  let spelling = "";
  for (const byte of bytes) spelling += String.fromCharCode(byte);
  return spelling;
}

function text(spelling) {
  canonical = scratch;
  if (spelling.length <= scratch.length) {
    let at = 0;
    for (; at < spelling.length; at++) {
      const code = spelling.charCodeAt(at);
      if (code > 127) break;
      scratch[at] = code;
    }
    canonicalBytes = at;
    if (at === spelling.length) return;
  }
  canonical = encoder.encode(spelling);
  canonicalBytes = canonical.length;
}

/** Parses 32 hex digits, with or without the usual hyphens, in braces, or after `urn:uuid:`. */
function uuid(spelling) {
  let from = 0;
  let to = spelling.length;
  // Without the prefix, a spelling has at most 38 characters.
  if (to > 38 && spelling.slice(0, 9).toLowerCase() === "urn:uuid:") {
    from = 9;
  } else if (spelling[0] === "{" && spelling[to - 1] === "}") {
    from = 1;
    to -= 1;
  }
  const hyphens = to - from === 36;
  if (!hyphens && to - from !== 32) return false;
  let at = 0;
  for (let n = from; n < to; n++) {
    let code = spelling.charCodeAt(n);
    if (hyphens && (at === 8 || at === 13 || at === 18 || at === 23)) {
      if (code !== 45) return false;
      scratch[at++] = 45;
      continue;
    }
    if (!hyphens && (at === 8 || at === 13 || at === 18 || at === 23)) scratch[at++] = 45;
    if (code >= 65 && code <= 70) code += 32;
    if (!((code >= 48 && code <= 57) || (code >= 97 && code <= 102))) return false;
    scratch[at++] = code;
  }
  canonical = scratch;
  canonicalBytes = at;
  return true;
}

/** Parses decimal digits with an optional sign, of up to 128 bits. Removes leading zeros. */
function integer(spelling) {
  const negative = spelling[0] === "-";
  let from = negative || spelling[0] === "+" ? 1 : 0;
  if (from === spelling.length) return false;
  for (let n = from; n < spelling.length; n++) {
    const code = spelling.charCodeAt(n);
    if (code < 48 || code > 57) return false;
  }
  while (from < spelling.length - 1 && spelling[from] === "0") from++;
  const digits = spelling.length - from;
  if (digits > MAX.length) return false;
  // For equal lengths the order of texts is the order of numbers.
  if (digits === MAX.length && spelling.slice(from) > (negative ? MIN_ABS : MAX)) return false;
  let at = 0;
  if (negative && !(digits === 1 && spelling[from] === "0")) scratch[at++] = 45;
  for (let n = from; n < spelling.length; n++) scratch[at++] = spelling.charCodeAt(n);
  canonical = scratch;
  canonicalBytes = at;
  return true;
}

// The decimal digits of 2^127 - 1 and 2^127.
const MAX = "170141183460469231731687303715884105727";
const MIN_ABS = "170141183460469231731687303715884105728";
