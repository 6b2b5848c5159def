// Reads the signed lines of a publisher. Each line has a JSON document: a manifest or a proof. A manifest lists the
// newest snapshot and its deltas. A proof answers a client's challenge: it states up to what time the published files
// have all committed ids. docs/reference/filter-format.md explains the fields of both documents.
//
// Numbers in these documents have 64 bits, more than JSON.parse preserves. This module therefore has its own
// parser, which returns BigInt. Documents with unknown or missing fields are refused.

const LINE_BYTES_MAX = 65536;
const DELTAS_MAX = 128;
const U64_MAX = 2n ** 64n - 1n;

/** The error for a manifest or proof that is not trusted or is invalid. */
export class ManifestError extends Error {
  constructor(message) {
    super(message);
    this.name = "ManifestError";
  }
}

const encoder = new TextEncoder();

/** Returns WebCrypto, a global except in Node 18. */
async function subtle() {
  if (globalThis.crypto?.subtle) return globalThis.crypto.subtle;
  if (globalThis.process?.versions?.node === undefined) {
    throw new Error("WebCrypto is not available: browsers have it only in secure contexts (https, localhost)");
  }
  // Not a literal, so that bundlers for browsers do not resolve it.
  const name = "node:crypto";
  return (await import(name)).webcrypto.subtle;
}

/** Returns 16 random bytes as hex. */
export async function randomChallenge() {
  let source = globalThis.crypto;
  if (!source?.getRandomValues) {
    const name = "node:crypto";
    source = (await import(name)).webcrypto;
  }
  return toHex(source.getRandomValues(new Uint8Array(16)));
}

/** Returns the SHA-256 of bytes in hex. */
export async function sha256(bytes) {
  return toHex(new Uint8Array(await (await subtle()).digest("SHA-256", bytes)));
}

/**
 * Parses public keys.
 *
 * @param {string[]} keys each 64 hex digits
 */
export async function importKeys(keys) {
  const crypto = await subtle();
  return Promise.all(
    keys.map(async (key) => {
      const bytes = fromHex(key, 32);
      if (bytes === null) throw new TypeError("a public key has 64 hex digits");
      const id = (await sha256(bytes)).slice(0, 16);
      return { id, key: await crypto.importKey("raw", bytes, { name: "Ed25519" }, false, ["verify"]) };
    }),
  );
}

/**
 * Reads a manifest line. `keys` is the result of `importKeys`; null trusts any server that answers.
 */
export async function readManifest(line, keys) {
  const manifest = checkShape(await verifyLine(line, keys, "edgeward filter manifest 1"), MANIFEST);
  const { deltas, head, snapshot } = manifest;
  if (deltas.length > DELTAS_MAX) {
    throw new ManifestError(`the manifest lists ${deltas.length} deltas, more than ${DELTAS_MAX}`);
  }
  // The snapshot and the deltas must cover the journal up to the head.
  let end = deltas.length === 0 ? head : deltas[0].from;
  const first = end;
  for (const delta of deltas) {
    if (delta.from >= delta.to || delta.from !== end) throw gap(delta.from);
    end = delta.to;
  }
  if (end !== head || first > snapshot.base) throw gap(first);
  if (snapshot.base > head) throw gap(head);
  if (manifest.epoch_min > snapshot.epoch) {
    throw new ManifestError(
      `the manifest requires snapshot ${manifest.epoch_min}, and its newest is ${snapshot.epoch}`,
    );
  }
  return manifest;
}

/** Reads a line with a proof: verifies it with `keys` and parses its document. */
export async function readProof(line, keys) {
  return checkShape(await verifyLine(line, keys, "edgeward filter proof 1"), PROOF);
}

function gap(at) {
  return new ManifestError(`the manifest's deltas leave a gap at journal number ${at}`);
}

/** Verifies a line and parses the JSON in it. */
async function verifyLine(line, keys, kind) {
  if (encoder.encode(line).length > LINE_BYTES_MAX) {
    throw new ManifestError(`a signed line is longer than ${LINE_BYTES_MAX} bytes`);
  }
  let end = line.length;
  while (end > 0 && (line[end - 1] === "\n" || line[end - 1] === "\r")) end--;
  const words = line.slice(0, end).split(" ");
  const isSigned = words[0] === "ed25519" && words.length >= 4;
  if (!isSigned && (words[0] !== "unsigned" || words.length < 2)) {
    throw new ManifestError("not a signed line");
  }
  const [, id, hex] = words;
  const json = words.slice(isSigned ? 3 : 1).join(" ");
  if (keys !== null) {
    if (!isSigned) throw new ManifestError("the line is not signed");
    const signature = fromHex(hex, 64);
    if (signature === null) throw new ManifestError("not a signed line");
    const trusted = keys.find((key) => key.id === id);
    if (trusted === undefined) {
      throw new ManifestError(`the line is signed with the unknown key ${id.slice(0, 16)}`);
    }
    const message = encoder.encode(`${kind}\n${json}`);
    if (!(await (await subtle()).verify({ name: "Ed25519" }, trusted.key, signature, message))) {
      throw new ManifestError("the signature is wrong");
    }
  }
  const document = parse(json);
  // A document without the field `format` has version 1. Documents of version 1 do not identify the snapshot that they
  // are about, so they must not make a filter fresh.
  const format = document instanceof Map ? (document.get("format") ?? 1n) : null;
  if (format !== 2n) throw new ManifestError(`the document has format version ${format}, and this package reads version 2`);
  return document;
}

// A shape has a rule for each field of an object: a function that checks the value, the shape of an inner object, or
// a list with the shape of each member.
const number = (value) => typeof value === "bigint" && value <= U64_MAX;
const text = (value) => typeof value === "string";
const digest = (value) => typeof value === "string" && fromHex(value, 32) !== null;

const DELTA = { from: number, to: number, bytes: number, sha256: digest };
const MANIFEST = {
  format: number,
  set: text,
  serial: number,
  lineage: number,
  covers_ms: number,
  epoch_min: number,
  head: number,
  snapshot: { epoch: number, base: number, bytes: number, sha256: digest },
  deltas: [DELTA],
};
const PROOF = {
  format: number,
  set: text,
  serial: number,
  lineage: number,
  epoch_min: number,
  head: number,
  lag_ms: number,
  echo: text,
};

/** Checks a value against a shape. Converts digests to lower case. */
function checkShape(value, shape, path = "the document") {
  if (Array.isArray(shape)) {
    if (!Array.isArray(value)) throw new ManifestError(`${path} is not a list`);
    return value.map((one, n) => checkShape(one, shape[0], `${path}[${n}]`));
  }
  if (!(value instanceof Map)) throw new ManifestError(`${path} is not an object`);
  const checked = {};
  for (const [name, rule] of Object.entries(shape)) {
    if (!value.has(name)) throw new ManifestError(`${path} lacks ${name}`);
    const field = value.get(name);
    if (typeof rule !== "function") {
      checked[name] = checkShape(field, rule, name);
    } else if (rule(field)) {
      checked[name] = rule === digest ? field.toLowerCase() : field;
    } else {
      throw new ManifestError(`${name} in ${path} has an invalid value`);
    }
  }
  if (value.size !== Object.keys(shape).length) {
    throw new ManifestError(`${path} has a field that format version 2 does not define`);
  }
  return checked;
}

/** Parses the part of JSON that documents use: objects as Map, lists, text, and integers as BigInt. */
function parse(json) {
  let at = 0;
  const fail = () => new ManifestError(`the signed document cannot be read at character ${at}`);
  const blanks = () => {
    while (at < json.length && " \t\r\n".includes(json[at])) at++;
  };
  const take = (char) => {
    blanks();
    if (json[at] !== char) return false;
    at++;
    return true;
  };
  const string = () => {
    const found = /^"(?:[^"\\\u0000-\u001f]|\\.)*"/.exec(json.slice(at, at + 4096));
    if (found === null) throw fail();
    at += found[0].length;
    try {
      return JSON.parse(found[0]);
    } catch {
      throw fail();
    }
  };
  const value = (depth) => {
    blanks();
    if (depth > 8) throw fail();
    if (json[at] === '"') return string();
    if (take("[")) {
      const list = [];
      if (take("]")) return list;
      do list.push(value(depth + 1));
      while (take(","));
      if (!take("]")) throw fail();
      return list;
    }
    if (take("{")) {
      const object = new Map();
      if (take("}")) return object;
      do {
        blanks();
        const name = string();
        if (!take(":") || object.has(name)) throw fail();
        object.set(name, value(depth + 1));
      } while (take(","));
      if (!take("}")) throw fail();
      return object;
    }
    const digits = /^(?:0|[1-9][0-9]{0,19})(?![0-9.eE])/.exec(json.slice(at, at + 32));
    if (digits === null) throw fail();
    at += digits[0].length;
    return BigInt(digits[0]);
  };
  const document = value(0);
  blanks();
  if (at !== json.length) throw fail();
  return document;
}

export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Parses exactly `count` bytes in hex digits. Returns null if the text is invalid. */
export function fromHex(hex, count) {
  if (hex.length !== 2 * count || !/^[0-9a-fA-F]*$/.test(hex)) return null;
  return Uint8Array.from({ length: count }, (_, n) => parseInt(hex.slice(2 * n, 2 * n + 2), 16));
}
