// Follows a published set in the background. Queries return at once.
//
// The client sends one long poll after another. A poll requests the manifest: the list of the current snapshot (the
// filter of a whole scan) and its deltas (files of ids added later). A poll contains a challenge, 16 random bytes, and
// the client's position: its snapshot, and the journal number up to which it has all added ids. The publisher delays
// its response until it has a newer manifest. The response contains a proof: it states how fresh the published ids were
// when the poll was sent. The longer the delay, the older is the proof, so the delay is at most a third of
// `maxStalenessMs`. Snapshots are fetched concurrently, so that a large snapshot does not delay new ids.
//
// If `clockErrorMs` is set, the client trusts the date of the manifest instead of a proof. Its polls then have no
// challenge and no delay, and a cache may answer them.

import { Filter } from "./filter.js";
import { importKeys, randomChallenge, readManifest, readProof, sha256 } from "./manifest.js";
import { FilterState, Refused } from "./state.js";

const LINE_BYTES_MAX = 65536;
const DELTA_HEADER_BYTES = 64;
// The shortest pause between two polls.
const PAUSE_MIN_MS = 10;
// The bounds of the period: the longest delay of a response, and the time between two polls without delay. Most proxies
// tolerate a response that sends no byte for 25 seconds.
const PERIOD_MIN_MS = 50;
const PERIOD_MAX_MS = 25_000;
// The pause after the first failure. Each further failure doubles the pause, up to the period.
const BACKOFF_FIRST_MS = 100;

export class FilterClient {
  #options;
  #url;
  #state;
  #keys = null;
  #stop = new AbortController();
  #etag = null;
  #downloading = false;
  // Functions that check the condition of a waitUntil call.
  #waiting = new Set();
  // `refused`, a part of `failed`, counts the manifests, proofs and files that the client did not accept.
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
    const isPlainUrl = /^https?:\/\/[^/?#@]+\/[^?#]+$/.test(this.#url);
    if (!isPlainUrl || set === "") throw new TypeError("write url: \"https://HOST/sets/NAME\"");
    if (!(maxStalenessMs > 0)) throw new TypeError("maxStalenessMs is not set: it is the longest time for which a new id may be reported as absent");
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
   * Returns `"absent"`: do not send the request; `"maybe"`: send the request; or `"ask"`: send the request, because the
   * filter is not fresh.
   *
   * @param {string | number | bigint | Uint8Array} id
   */
  answer(id) {
    return this.#state.answer(this.#options.now(), id);
  }

  /** Returns false if the answer is `"absent"`, otherwise true. */
  mayExist(id) {
    return this.answer(id) !== "absent";
  }

  /** Returns the state of the client. `Status` in index.d.ts describes the fields. */
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

  /**
   * Resolves to true when `condition` returns true for the status, and to false after `ms`. Checks at each change of
   * the status.
   */
  waitUntil(ms, condition) {
    if (condition(this.status())) return Promise.resolve(true);
    return new Promise((resolve) => {
      const end = (result) => {
        clearTimeout(timer);
        this.#waiting.delete(check);
        resolve(result);
      };
      const check = () => {
        if (condition(this.status())) end(true);
      };
      const timer = setTimeout(() => end(condition(this.status())), ms);
      this.#waiting.add(check);
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
      const started = performance.now();
      let pause = PAUSE_MIN_MS;
      try {
        const pollAgain = await this.#poll();
        await this.#fetchDeltas();
        failures = 0;
        // A server that does not wait, such as a cache, must not be polled without a pause.
        if (!pollAgain) pause = this.#periodMs() - (performance.now() - started);
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        pause = this.#recordFailure(error, failures);
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

  #recordFailure(error, failures) {
    this.#counts.failed += 1;
    if (error instanceof Refused || error.name === "ManifestError") this.#counts.refused += 1;
    this.#lastError = error;
    try {
      this.#options.onError(error);
    } catch {
      // An exception of the listener must not stop the client.
    }
    const longest = Math.max(BACKOFF_FIRST_MS, this.#periodMs());
    return Math.min(longest, BACKOFF_FIRST_MS * 2 ** Math.min(failures - 1, 16));
  }

  /** Polls the publisher. Returns true if the next poll should follow at once. */
  async #poll() {
    const { keys, clockErrorMs, now } = this.#options;
    const hasKeys = Array.isArray(keys) && keys.length > 0;
    if (hasKeys && this.#keys === null) this.#keys = await importKeys(keys);
    this.#counts.polls += 1;
    // True if the date of a manifest shows its freshness, so that no challenge is needed.
    const dated = clockErrorMs !== null;
    const headers = {};
    let path = "";
    let waitMs = 0;
    if (dated) {
      if (this.#etag !== null) headers["if-none-match"] = this.#etag;
    } else {
      const challenge = await randomChallenge();
      this.#state.challenge(now(), challenge);
      headers["edgeward-challenge"] = challenge;
      // RFC 9111 §5.2.1.4: caches must forward the request to the publisher.
      headers["cache-control"] = "no-cache";
      const position = this.#state.position;
      if (position !== null) {
        waitMs = Math.round(this.#periodMs());
        const { lineage, epoch, applied } = position;
        path = `?have=${lineage}-${epoch}-${applied}&wait=${waitMs}`;
      }
    }
    const { response, bytes } = await this.#get(path, headers, LINE_BYTES_MAX, waitMs, dated);
    let pollAgain = false;
    if (response.status === 200) {
      const manifest = await readManifest(new TextDecoder("utf-8", { fatal: true }).decode(bytes), this.#keys);
      this.#state.manifest(now(), manifest);
      if (dated) this.#etag = response.headers.get("etag");
      this.#counts.manifests += 1;
      pollAgain = !dated;
    } else if (response.status !== 204 && response.status !== 304) {
      throw new Error(`the publisher responded with status ${response.status}`);
    }
    const line = response.headers.get("edgeward-proof");
    if (line !== null && !dated) {
      this.#state.proof(now(), await readProof(line, this.#keys));
      this.#counts.proofs += 1;
    }
    const tooLarge = this.#state.snapshotRefused;
    if (tooLarge !== null && response.status === 200) {
      // The client cannot load this snapshot, so its position stays older than the manifest. The publisher therefore
      // answers every poll at once, and the client must pause.
      this.#recordFailure(tooLarge, 1);
      return false;
    }
    return pollAgain;
  }

  /** Fetches the deltas that are needed now, in their order. */
  async #fetchDeltas() {
    for (const entry of this.#state.wants.deltas) {
      const bytesMax = DELTA_HEADER_BYTES + 8 * this.#options.overlayIdsMax;
      if (entry.bytes > BigInt(bytesMax)) {
        throw new Refused("overlay-full", `a delta of ${entry.bytes} bytes is larger than the ${bytesMax} allowed`);
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
        const snapshot = this.#state.wants.snapshot;
        if (snapshot === null || this.#stop.signal.aborted) return;
        try {
          await this.#fetchSnapshot(snapshot);
          failures = 0;
          await this.#fetchDeltas();
        } catch (error) {
          if (this.#stop.signal.aborted) return;
          failures += 1;
          await this.#sleep(this.#recordFailure(error, failures));
        }
        this.#changed();
      }
    } finally {
      this.#downloading = false;
    }
  }

  async #fetchSnapshot(snapshot) {
    const bytes = await this.#file(`/snapshot/${snapshot.sha256}`, Number(snapshot.bytes));
    if (bytes === null) throw new Error("the publisher does not have the snapshot of its manifest");
    const received = { sha256: await sha256(bytes), filter: null, error: undefined };
    try {
      received.filter = Filter.open(bytes);
    } catch (error) {
      received.error = error;
    }
    // If a newer manifest arrived meanwhile, its snapshot is needed instead.
    if (this.#state.wants.snapshot?.sha256 !== snapshot.sha256) return;
    this.#state.snapshot(this.#options.now(), received);
    this.#counts.snapshots += 1;
  }

  /** Fetches a file of known size. Returns null if the publisher no longer has it. */
  async #file(path, size) {
    const { response, bytes } = await this.#get(path, {}, size, 0, true);
    if (response.status === 404) return null;
    if (response.status !== 200) throw new Error(`the publisher responded with status ${response.status}`);
    if (bytes.length !== size) throw new Error(`the response ended after ${bytes.length} of ${size} bytes`);
    return bytes;
  }

  /** Fetches a whole response, with bounds on size and idle time. The server may delay its response by `waitMs`. */
  async #get(path, headers, bytesMax, waitMs, mayBeCached) {
    const abort = new AbortController();
    const stopRequest = () => abort.abort(new Error("the client was stopped"));
    const silenceMs = this.#options.silenceMaxMs;
    const timeOut = () => abort.abort(new Error(`no data for ${silenceMs + waitMs} ms`));
    let timer = setTimeout(timeOut, silenceMs + waitMs);
    this.#stop.signal.addEventListener("abort", stopRequest);
    try {
      if (this.#stop.signal.aborted) throw new Error("the client was stopped");
      const response = await this.#options.fetch(this.#url + path, {
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
        timer = setTimeout(timeOut, silenceMs);
        const { done, value } = await reader.read();
        if (done) break;
        length += value.length;
        this.#counts.bytes += value.length;
        if (length > bytesMax) {
          await reader.cancel();
          throw new Error(`the response is larger than the ${bytesMax} bytes expected`);
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
      this.#stop.signal.removeEventListener("abort", stopRequest);
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
    for (const check of [...this.#waiting]) check();
  }
}
