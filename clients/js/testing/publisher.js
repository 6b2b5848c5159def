// A publisher in this process. Its `fetch` answers from memory, signs manifests and proofs, and injects faults. Its two
// clocks are advanced only by the test.
//
// Fields of manifests and proofs (docs/reference/filter-format.md): a manifest covers the ids that were committed
// before the wall-clock time `covers_ms`. A proof covers the ids that were committed at least `lag_ms` milliseconds
// before the response. `epoch_min` is the epoch of the oldest snapshot that has all covered ids, together with the
// journal up to the number `head`. The only snapshot of this publisher has epoch 7.

import { createPrivateKey, sign } from "node:crypto";

import { sha256 } from "../src/index.js";
import { line, vector } from "./common.js";

// The PKCS #8 encoding of an Ed25519 secret key is this prefix and the 32 bytes of the key (RFC 8410).
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");

function privateKey(byte) {
  return createPrivateKey({
    key: Buffer.concat([PKCS8, Buffer.alloc(32, byte)]),
    format: "der",
    type: "pkcs8",
  });
}

export class FakePublisher {
  key = line("key.txt");
  snapshot = vector("static-integer.ewf");
  delta = vector("delta.ewd");
  secret = privateKey(7);
  untrustedSecret = privateKey(8);
  /**
   * The fault to inject, or null: no response ("dead"), an untrusted signature ("forged"), a low serial ("old"), or
   * a file without its last byte ("cut"), with a wrong bit ("flipped") or without an end ("flood").
   */
  trouble = null;
  /** The `serial` of manifests and proofs. A client refuses a lower one than it has seen. */
  serial = 1000;
  now = { monotonicMs: 1_000, wallMs: 1_700_000_000_000 };
  requests = [];

  options(more) {
    return {
      url: "http://publisher.test/sets/resource",
      keys: [this.key],
      maxStalenessMs: 3_000,
      fetch: (url, init) => this.answer(url, init),
      now: () => ({ ...this.now }),
      ...more,
    };
  }

  /** Advances both clocks. */
  pass(ms) {
    this.now = { monotonicMs: this.now.monotonicMs + ms, wallMs: this.now.wallMs + ms };
  }

  async answer(url, init) {
    this.requests.push(url);
    const { pathname, searchParams } = new URL(url);
    if (this.trouble === "dead") throw new TypeError("fetch failed");
    if (pathname.includes("/snapshot/")) return this.file(this.snapshot);
    if (pathname.includes("/delta/")) return this.file(this.delta);
    const serial = this.trouble === "old" ? 1 : this.serial;
    const headers = {};
    const challenge = init.headers["edgeward-challenge"];
    if (challenge !== undefined) {
      headers["edgeward-proof"] = this.sign("proof", {
        format: 2, set: "resource", serial, lineage: 305419896, epoch_min: 7, head: 2, lag_ms: 0,
        echo: challenge,
      });
    }
    // A client with a snapshot states its position in `have`. It needs no manifest: the set never changes.
    if (searchParams.has("have") && this.trouble === null) {
      return new Response(null, { status: 204, headers });
    }
    const manifest = await this.manifest(serial);
    return new Response(this.sign("manifest", manifest), { headers });
  }

  async manifest(serial) {
    const { snapshot, delta } = this;
    return {
      format: 2, set: "resource", serial, lineage: 305419896, covers_ms: this.now.wallMs, epoch_min: 7, head: 2,
      snapshot: { epoch: 7, base: 1, bytes: snapshot.length, sha256: await sha256(snapshot) },
      deltas: [{ from: 1, to: 2, bytes: delta.length, sha256: await sha256(delta) }],
    };
  }

  sign(kind, document) {
    const json = JSON.stringify(document);
    const key = this.trouble === "forged" ? this.untrustedSecret : this.secret;
    const signature = sign(null, Buffer.from(`edgeward filter ${kind} 1\n${json}`), key);
    // The line begins with the id of the trusted key, even if the untrusted key has signed it.
    return `ed25519 fe812c12f3ab4ce6 ${signature.toString("hex")} ${json}`;
  }

  file(bytes) {
    if (this.trouble === "cut") return new Response(bytes.slice(0, -1));
    if (this.trouble === "flipped") {
      const flipped = bytes.slice();
      flipped[200 % flipped.length] ^= 1;
      return new Response(flipped);
    }
    if (this.trouble === "flood") {
      const more = () => new Uint8Array(65536);
      return new Response(new ReadableStream({ pull: (stream) => stream.enqueue(more()) }));
    }
    return new Response(bytes);
  }
}
