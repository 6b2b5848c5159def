// Follows a published set in the background. Queries return at once.
//
// The client polls with one long request after another. Each requests the manifest with a challenge, states
// the client's position, and waits for news for a third of `maxStalenessMs`, because the freshness of an answer
// counts from the time at which its request was sent. Snapshots are fetched concurrently, so that a large one does
// not delay new ids.

import { Filter } from "./filter.js";
import { importKeys, randomChallenge, readManifest, readProof, sha256 } from "./manifest.js";
import { FilterState, Refused } from "./state.js";

const LINE_BYTES_MAX = 65536;
const DELTA_HEADER_BYTES = 64;
const PAUSE_MIN_MS = 10;
const PERIOD_MIN_MS = 50;
// The time that proxies usually tolerate without a byte.
const PERIOD_MAX_MS = 25_000;
const BACKOFF_FIRST_MS = 100;

export class FilterClient {
  #options;
  #url;
  #state;
  #keys = null;
  #stop = new AbortController();
  #tag = null;
  #downloading = false;
  #waiting = new Set();
  #counts = {
    polls: 0, failed: 0, manifests: 0, proofs: 0, snapshots: 0, deltas: 0, bytes: 0, refused: 0,
  };
  #lastError = null;

  /** Use `FilterClient.start`. */
  constructor(options) {
    this.#options = {
      clockErrorMs: null,
      snapshotBytesMax: 2 ** 30,
      overlayIdsMax: 2 ** 20,
      silenceMaxMs: 10_000,
      fetch: (...request) => globalThis.fetch(...request),
      now: () => ({ monotonicMs: performance.now(), wallMs: Date.now() }),
      onError: () => {},
      ...options,
    };
    const { url, keys, trustTransport, maxStalenessMs, clockErrorMs } = this.#options;
    this.#url = new URL(url, globalThis.location?.href).href.replace(/\/+$/, "");
    const set = this.#url.slice(this.#url.lastIndexOf("/") + 1);
    const bare = /^https?:\/\/[^/?#@]+\/[^?#]+$/.test(this.#url);
    if (!bare || set === "") throw new TypeError("write url: \"https://HOST/sets/NAME\"");
    if (!(maxStalenessMs > 0)) throw new TypeError("maxStalenessMs is not set: it is the longest time that an id may be unknown");
    const hasKeys = Array.isArray(keys) && keys.length > 0;
    if (!hasKeys && trustTransport !== true) {
      throw new TypeError("give the publisher's public keys, or trustTransport: true to trust any server that answers");
    }
    this.#state = new FilterState({
      set,
      maxStalenessMs,
      clockErrorMs,
      snapshotBytesMax: this.#options.snapshotBytesMax,
      overlayIdsMax: this.#options.overlayIdsMax,
    });
  }

  /** Starts to follow the set, and returns at once. Until the filter is loaded, every answer is "ask". */
  static start(options) {
    const client = new FilterClient(options);
    void client.#follow();
    return client;
  }

  /**
   * Returns `"absent"`: do not send the request;
   * `"maybe"`: send it; or `"ask"`: send it, because the filter is not fresh.
   *
   * @param {string | number | bigint | Uint8Array} id
   */
  answer(id) {
    return this.#state.answer(this.#options.now(), id);
  }

  /** Returns false only if no request for the id is needed, because the id does not exist. */
  mayExist(id) {
    return this.answer(id) !== "absent";
  }

  /** Returns the state of the client. */
  status() {
    const now = this.#options.now();
    return {
      fresh: this.#state.isFresh(now),
      freshForMs: this.#state.filter === null ? 0 : this.#state.freshForMs(now),
      facts: this.#state.filter?.facts ?? null,
      overlayIds: this.#state.overlayIds,
      serial: this.#state.serial,
      counts: { ...this.#counts },
      lastError: this.#lastError,
    };
  }

  /** Resolves to true when `holds` returns true for the status, which is checked at every change; to false after `ms`. */
  waitUntil(ms, holds) {
    if (holds(this.status())) return Promise.resolve(true);
    return new Promise((resolve) => {
      const end = (result) => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve(result);
      };
      const look = () => {
        if (holds(this.status())) end(true);
      };
      const timer = setTimeout(() => end(holds(this.status())), ms);
      this.#waiting.add(look);
    });
  }

  /** Resolves to true when the filter is fresh, to false after `ms`. */
  waitFresh(ms) {
    return this.waitUntil(ms, (status) => status.fresh);
  }

  /** Stops the background work. The filter can be queried until it is stale. */
  stop() {
    this.#stop.abort();
  }

  async #follow() {
    const { signal } = this.#stop;
    let failures = 0;
    while (!signal.aborted) {
      const begun = performance.now();
      let pause = PAUSE_MIN_MS;
      try {
        const news = await this.#poll();
        await this.#fetchDeltas();
        failures = 0;
        // A server that does not wait, such as a cache, must not be polled without a pause.
        if (!news) pause = this.#periodMs() - (performance.now() - begun);
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        pause = this.#failed(error, failures);
      }
      void this.#download();
      this.#changed();
      // Jitter, so that many clients do not poll at the same moment.
      await this.#sleep(Math.max(PAUSE_MIN_MS, pause * (0.8 + 0.4 * Math.random())));
    }
  }

  #periodMs() {
    return Math.min(PERIOD_MAX_MS, Math.max(PERIOD_MIN_MS, this.#options.maxStalenessMs / 3));
  }

  #failed(error, failures) {
    this.#counts.failed += 1;
    if (error instanceof Refused || error.name === "ManifestError") this.#counts.refused += 1;
    this.#lastError = error;
    try {
      this.#options.onError(error);
    } catch {
      // An exception of the listener must not stop the client.
    }
    const most = Math.max(BACKOFF_FIRST_MS, this.#periodMs());
    return Math.min(most, BACKOFF_FIRST_MS * 2 ** Math.min(failures - 1, 16));
  }

  /** Polls the publisher. Returns true if the next poll should follow at once. */
  async #poll() {
    const { keys, clockErrorMs, now } = this.#options;
    const hasKeys = Array.isArray(keys) && keys.length > 0;
    if (hasKeys && this.#keys === null) this.#keys = await importKeys(keys);
    this.#counts.polls += 1;
    const dated = clockErrorMs !== null;
    const headers = {};
    let beneath = "";
    let patience = 0;
    if (dated) {
      if (this.#tag !== null) headers["if-none-match"] = this.#tag;
    } else {
      const challenge = await randomChallenge();
      this.#state.challenge(now(), challenge);
      headers["edgeward-challenge"] = challenge;
      // RFC 9111 §5.2.1.4: caches must forward the request to the publisher.
      headers["cache-control"] = "no-cache";
      const position = this.#state.position;
      if (position !== null) {
        patience = Math.round(this.#periodMs());
        const { lineage, epoch, applied } = position;
        beneath = `?have=${lineage}-${epoch}-${applied}&wait=${patience}`;
      }
    }
    const { response, bytes } = await this.#get(beneath, headers, LINE_BYTES_MAX, patience, dated);
    let news = false;
    if (response.status === 200) {
      const manifest = await readManifest(new TextDecoder("utf-8", { fatal: true }).decode(bytes), this.#keys);
      this.#state.manifest(now(), manifest);
      if (dated) this.#tag = response.headers.get("etag");
      this.#counts.manifests += 1;
      news = !dated;
    } else if (response.status !== 204 && response.status !== 304) {
      throw new Error(`the publisher answers ${response.status}`);
    }
    const line = response.headers.get("edgeward-proof");
    if (line !== null && !dated) {
      this.#state.proof(now(), await readProof(line, this.#keys));
      this.#counts.proofs += 1;
    }
    const tooLarge = this.#state.snapshotRefused;
    if (tooLarge !== null && response.status === 200) {
      // The publisher answers at once while the client's snapshot is older, so the client must pause between polls.
      this.#failed(tooLarge, 1);
      return false;
    }
    return news;
  }

  /** Fetches the deltas that are needed now, in their order. */
  async #fetchDeltas() {
    for (const entry of this.#state.wants.deltas) {
      const most = DELTA_HEADER_BYTES + 8 * this.#options.overlayIdsMax;
      if (entry.bytes > BigInt(most)) {
        throw new Refused("overlay-full", `a delta of ${entry.bytes} bytes is larger than the ${most} allowed`);
      }
      const bytes = await this.#file(`/delta/${entry.sha256}`, Number(entry.bytes));
      // The delta was merged meanwhile: the next manifest lists the replacement.
      if (bytes === null) return;
      const digest = await sha256(bytes);
      this.#state.delta(this.#options.now(), bytes, digest);
      this.#counts.deltas += 1;
    }
  }

  /** Fetches the snapshot that is needed, and retries until it is loaded or replaced. */
  async #download() {
    if (this.#downloading) return;
    this.#downloading = true;
    let failures = 0;
    try {
      for (;;) {
        const named = this.#state.wants.snapshot;
        if (named === null || this.#stop.signal.aborted) return;
        try {
          await this.#fetchSnapshot(named);
          failures = 0;
          await this.#fetchDeltas();
        } catch (error) {
          if (this.#stop.signal.aborted) return;
          failures += 1;
          await this.#sleep(this.#failed(error, failures));
        }
        this.#changed();
      }
    } finally {
      this.#downloading = false;
    }
  }

  async #fetchSnapshot(named) {
    const bytes = await this.#file(`/snapshot/${named.sha256}`, Number(named.bytes));
    if (bytes === null) throw new Error("the publisher does not have the snapshot of its manifest");
    const received = { sha256: await sha256(bytes), filter: null, error: undefined };
    try {
      received.filter = Filter.open(bytes);
    } catch (error) {
      received.error = error;
    }
    // A newer manifest arrived meanwhile; its snapshot is needed now.
    if (this.#state.wants.snapshot?.sha256 !== named.sha256) return;
    this.#state.snapshot(this.#options.now(), received);
    this.#counts.snapshots += 1;
  }

  /** Fetches a file of known size. Returns null if the publisher no longer has it. */
  async #file(beneath, size) {
    const { response, bytes } = await this.#get(beneath, {}, size, 0, true);
    if (response.status === 404) return null;
    if (response.status !== 200) throw new Error(`the publisher answers ${response.status}`);
    if (bytes.length !== size) throw new Error(`the answer ended after ${bytes.length} of ${size} bytes`);
    return bytes;
  }

  /** Fetches a whole response, with bounds on size and idle time. */
  async #get(beneath, headers, bytesMax, patienceMs, mayBeCached) {
    const abort = new AbortController();
    const give = () => abort.abort(new Error("the client was stopped"));
    const silenceMs = this.#options.silenceMaxMs;
    const silent = () => abort.abort(new Error(`nothing came for ${silenceMs + patienceMs} ms`));
    let timer = setTimeout(silent, silenceMs + patienceMs);
    this.#stop.signal.addEventListener("abort", give);
    try {
      if (this.#stop.signal.aborted) throw new Error("the client was stopped");
      const response = await this.#options.fetch(this.#url + beneath, {
        headers,
        redirect: "error",
        credentials: "omit",
        cache: mayBeCached ? "default" : "no-store",
        signal: abort.signal,
      });
      const chunks = [];
      let length = 0;
      const reader = response.body?.getReader();
      // The body of an error is not needed.
      if (!response.ok) await reader?.cancel();
      for (; response.ok && reader !== undefined; ) {
        clearTimeout(timer);
        timer = setTimeout(silent, silenceMs);
        const { done, value } = await reader.read();
        if (done) break;
        length += value.length;
        this.#counts.bytes += value.length;
        if (length > bytesMax) {
          await reader.cancel();
          throw new Error(`the answer is larger than the ${bytesMax} bytes that belong there`);
        }
        chunks.push(value);
      }
      const bytes = new Uint8Array(length);
      let at = 0;
      for (const chunk of chunks) {
        bytes.set(chunk, at);
        at += chunk.length;
      }
      return { response, bytes };
    } finally {
      clearTimeout(timer);
      this.#stop.signal.removeEventListener("abort", give);
    }
  }

  #sleep(ms) {
    const { signal } = this.#stop;
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      signal.addEventListener("abort", end);
    });
  }

  #changed() {
    for (const look of [...this.#waiting]) look();
  }
}
