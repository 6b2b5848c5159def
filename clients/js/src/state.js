// Decides when a client may rely on its filter. It does no input or output and reads no clock: the caller passes
// documents, files and times.
//
// The guarantee: for an id that was committed more than `maxStalenessMs` ago, the answer is never "absent". A client
// answers "absent" only before a deadline. A deadline comes from a statement of the publisher, after the snapshot and
// the ids that it refers to have arrived. There are two kinds of statements. A proof contains random bytes of this
// client's request, so it was made after the request. A manifest's date counts only if the operator guarantees the
// clocks (docs/explanation/id-filter.md, "Freshness"). The tests with `vectors/filter/scripts.json` compare this module
// with the Rust client.

import { IdTable, readDelta } from "./delta.js";
import { lastIsReadAlike } from "./id.js";
import { lastHashHigh } from "./xxh3.js";

/** The error for received data that was not used; `reason` is its code. The previous data stays in use. */
export class Refused extends Error {
  constructor(reason, message, options) {
    super(message, options);
    this.name = "Refused";
    this.reason = reason;
  }
}

/** The largest number of challenges without a proof. */
const CHALLENGES_MAX = 8;
/** The largest number of statements whose ids have not all arrived. */
const PENDING_MAX = 16;
/** The largest number of remembered deltas: those of the newest manifest, and equally many of earlier manifests. */
const LISTED_MAX = 256;
/** The largest difference between two clocks that counts as a rounding error. */
const JITTER_MS = 50;

/**
 * Computes one time from two clocks that may both be wrong. The time advances with the clock that advanced further
 * since the anchor, which is one earlier observation of both clocks. If the clocks diverge, the current observation
 * becomes the anchor. Otherwise a wall clock that was stepped back would hide the duration of a later sleep, which a
 * monotonic clock may not count.
 */
class Clock {
  #anchor = null;

  observe(now) {
    const moment = this.moment(now);
    const anchor = this.#anchor;
    const haveDiverged =
      anchor === null ||
      Math.abs(now.wallMs - anchor.wallMs - (now.monotonicMs - anchor.monotonicMs)) > JITTER_MS;
    if (haveDiverged) this.#anchor = { ...now, moment };
    return moment;
  }

  moment(now) {
    const anchor = this.#anchor;
    if (anchor === null) return now.wallMs;
    return anchor.moment + Math.max(now.monotonicMs - anchor.monotonicMs, now.wallMs - anchor.wallMs);
  }
}

/** The state of a client: its filter, the pending statements, and the deadline until which the filter is fresh. */
export class FilterState {
  #config;
  #clock = new Clock();
  /**
   * The snapshot in use and the ids added to it. `base` is the journal number up to which the snapshot has all ids;
   * `applied` is the one up to which snapshot and overlay together have all ids.
   */
  #current = null;
  /** The newest manifest. */
  #newest = null;
  #listedDeltas = [];
  #challenges = [];
  #pending = [];
  #deadline = -Infinity;
  /**
   * The highest numbers of all trusted statements. `head` and `epochMin` are those of `lineage` alone, the newest
   * lineage; `serial` increases across lineages.
   */
  #highest;

  /**
   * `clockErrorMs` is the largest error of the clocks that the operator guarantees, or null without a guarantee.
   * Documents with a serial number below `serialMin` are refused.
   *
   * @param {{set: string, maxStalenessMs: number, clockErrorMs?: number | null, serialMin?: bigint,
   *   snapshotBytesMax?: number, overlayIdsMax?: number}} config
   */
  constructor(config) {
    this.#config = {
      clockErrorMs: null,
      serialMin: 0n,
      snapshotBytesMax: 2 ** 30,
      overlayIdsMax: 2 ** 20,
      ...config,
    };
    this.#highest = { serial: this.#config.serialMin, lineage: null, head: 0n, epochMin: 0n };
  }

  /** Returns `"absent"`, `"maybe"`, or `"ask"` if the filter is not fresh or the text is not an id. */
  answer(now, id) {
    const current = this.#current;
    if (current === null || !this.isFresh(now)) return "ask";
    const lo = current.filter.hash(id);
    if (!lastIsReadAlike()) return "ask";
    const hi = lastHashHigh();
    return current.filter.mayContainHash(hi, lo) || current.overlay.has(hi, lo) ? "maybe" : "absent";
  }

  /** Returns true while the filter is fresh, so that an answer may be `"absent"`. */
  isFresh(now) {
    return this.#current !== null && this.#clock.moment(now) <= this.#deadline;
  }

  /** The time until the filter becomes stale, if no further statement arrives. */
  freshForMs(now) {
    return Math.max(0, this.#deadline - this.#clock.moment(now));
  }

  /** The filter in use, or null. */
  get filter() {
    return this.#current?.filter ?? null;
  }

  /** The number of ids that were added since the snapshot. */
  get overlayIds() {
    return this.#current?.overlay.size ?? 0;
  }

  /** The position in the journal, or null without a snapshot. */
  get position() {
    const current = this.#current;
    if (current === null) return null;
    return { lineage: current.lineage, epoch: current.epoch, applied: current.applied };
  }

  /** The serial number of the newest manifest; before the first manifest, the configured minimum. */
  get serial() {
    return this.#newest?.serial ?? this.#config.serialMin;
  }

  /** Updates the time. Every method that changes the state also updates the time. */
  observe(now) {
    this.#clock.observe(now);
  }

  /** Records a challenge: 16 random bytes in hex. The request with the challenge must not be sent before `now`. */
  challenge(now, hex) {
    const sent = this.#clock.observe(now);
    if (this.#challenges.length === CHALLENGES_MAX) this.#challenges.shift();
    this.#challenges.push({ hex, sent });
  }

  /** Processes a manifest that `readManifest` has verified. */
  manifest(now, manifest) {
    this.#clock.observe(now);
    this.#checkSet(manifest.set);
    this.#checkSerial(manifest.serial);
    if (this.#newest?.serial === manifest.serial && !same(this.#newest, manifest)) {
      throw contradiction();
    }
    this.#checkNumbers(manifest);
    if (this.#newest?.lineage === manifest.lineage) {
      checkNotBelow("epoch", manifest.snapshot.epoch, this.#newest.snapshot.epoch);
      checkNotBelow("base", manifest.snapshot.base, this.#newest.snapshot.base);
    }
    this.#recordHighest(manifest);
    this.#considerDate(now, manifest);
    for (const delta of manifest.deltas) {
      const existing = this.#listedDeltas.some(
        (one) => one.lineage === manifest.lineage && same(one.delta, delta),
      );
      if (existing) continue;
      if (this.#listedDeltas.length === LISTED_MAX) this.#listedDeltas.shift();
      this.#listedDeltas.push({ lineage: manifest.lineage, delta });
    }
    this.#adopt(manifest);
    this.#newest = manifest;
    this.#applyStatements();
  }

  /**
   * Continues with the snapshot in use if a manifest of a new lineage lists the same file: the publisher was
   * restarted. The added ids and the deadline stay. The next snapshot of the new lineage comes from a
   * scan that began after the restart, so it has all ids committed before the restart.
   */
  #adopt({ lineage, snapshot }) {
    const current = this.#current;
    if (current === null || current.lineage === lineage) return;
    if (current.sha256 !== snapshot.sha256 || current.epoch !== snapshot.epoch) return;
    current.lineage = lineage;
    current.base = snapshot.base;
    current.applied = snapshot.base;
  }

  #checkSerial(serial) {
    const newest = this.#highest.serial;
    if (serial < newest) {
      throw new Refused("replayed", `manifest ${serial} is older than ${newest}, which was received before`);
    }
  }

  /** Refuses a manifest or proof with smaller numbers than an earlier one of the same lineage. */
  #checkNumbers({ lineage, head, epoch_min: epochMin }) {
    if (lineage !== this.#highest.lineage) return;
    checkNotBelow("head", head, this.#highest.head);
    checkNotBelow("epoch_min", epochMin, this.#highest.epochMin);
  }

  #recordHighest({ serial, lineage, head, epoch_min: epochMin }) {
    this.#highest = { serial, lineage, head, epochMin };
  }

  /** Processes a proof that `readProof` has verified. */
  proof(now, proof) {
    this.#clock.observe(now);
    this.#checkSet(proof.set);
    const echo = proof.echo.toLowerCase();
    const at = this.#challenges.findIndex((one) => one.hex === echo);
    if (at < 0) throw new Refused("not-asked", "the proof matches no request in progress");
    const [{ sent }] = this.#challenges.splice(at, 1);
    this.#checkSerial(proof.serial);
    this.#checkNumbers(proof);
    this.#recordHighest(proof);
    const left = this.#config.maxStalenessMs - Number(proof.lag_ms);
    if (left >= 0) this.#addStatement(proof, sent + left);
    this.#applyStatements();
  }

  /**
   * Processes a snapshot that a manifest lists. The caller has hashed the file and opened the filter; `filter` is null
   * if the file is no valid filter.
   *
   * @param {{sha256: string, filter: import("./filter.js").Filter | null, error?: Error}} received
   */
  snapshot(now, received) {
    this.#clock.observe(now);
    const manifest = this.#newest;
    if (manifest === null) throw unlisted();
    const named = manifest.snapshot;
    this.checkSize(named);
    if (received.sha256 !== named.sha256) throw unlisted();
    const { filter } = received;
    if (filter === null) throw new Refused("broken", received.error.message, { cause: received.error });
    if (filter.facts.epoch !== named.epoch) throw contradiction();
    const current = {
      lineage: manifest.lineage,
      sha256: received.sha256,
      epoch: named.epoch,
      base: named.base,
      applied: named.base,
      overlay: new IdTable(),
      filter,
    };
    const old = this.#current;
    if (old?.lineage === manifest.lineage) {
      const sameHash = old.filter.facts.seed === filter.facts.seed;
      if (old.epoch >= named.epoch || old.base > named.base || !sameHash) {
        throw new Refused("older", "the snapshot is not newer than the one in use");
      }
      // The old overlay has all ids from the new base up to the old position.
      if (old.applied > current.applied) current.applied = old.applied;
      current.overlay = old.overlay;
      current.overlay.forgetUpTo(named.base);
    } else {
      // The deadline was computed for another lineage.
      this.#deadline = -Infinity;
    }
    this.#current = current;
    this.#applyStatements();
  }

  /** Processes a delta that a manifest lists, with the SHA-256 of its bytes. */
  delta(now, bytes, sha256) {
    this.#clock.observe(now);
    const listed = this.#listedDeltas.find((one) => one.delta.sha256 === sha256);
    if (listed === undefined) throw unlisted();
    const entry = listed.delta;
    let delta;
    try {
      delta = readDelta(bytes);
    } catch (error) {
      throw new Refused("broken", error.message, { cause: error });
    }
    const current = this.#current;
    if (current?.lineage !== listed.lineage) throw early();
    const matchesEntry =
      delta.lineage === listed.lineage &&
      delta.from === entry.from &&
      delta.to === entry.to &&
      delta.seed === current.filter.facts.seed;
    if (!matchesEntry) throw contradiction();
    if (entry.from > current.applied) throw early();
    // All ids of the delta were applied before.
    if (entry.to <= current.applied) return;
    const { ids } = delta;
    const { overlayIdsMax } = this.#config;
    if (ids.length / 2 > overlayIdsMax - current.overlay.size) {
      throw new Refused(
        "overlay-full",
        `more than ${overlayIdsMax} ids were added since the snapshot; waiting for the next snapshot`,
      );
    }
    // Each id takes two elements: the lower and the upper half of its hash.
    for (let n = 0; n < ids.length; n += 2) current.overlay.add(ids[n + 1], ids[n], entry.to);
    current.applied = entry.to;
    this.#applyStatements();
  }

  /** The files to fetch now: the entry of a snapshot or null, and the entries of deltas in their order. */
  get wants() {
    const manifest = this.#newest;
    const wants = { snapshot: null, deltas: [] };
    if (manifest === null) return wants;
    const current = this.#current?.lineage === manifest.lineage ? this.#current : null;
    const fits = manifest.snapshot.bytes <= BigInt(this.#config.snapshotBytesMax);
    if (this.#isWanted(manifest) && fits) wants.snapshot = manifest.snapshot;
    if (current !== null) {
      const missing = manifest.deltas.filter((delta) => delta.to > current.applied);
      // If no listed delta begins at the client's position any more, a snapshot is needed.
      if (missing.length > 0 && missing[0].from <= current.applied) wants.deltas = missing;
    }
    return wants;
  }

  /** Returns an error if the newest snapshot is needed but is larger than allowed, otherwise null. */
  get snapshotRefused() {
    const manifest = this.#newest;
    if (manifest === null || !this.#isWanted(manifest)) return null;
    try {
      this.checkSize(manifest.snapshot);
      return null;
    } catch (error) {
      return error;
    }
  }

  #isWanted(manifest) {
    const current = this.#current;
    return current?.lineage !== manifest.lineage || current.epoch < manifest.snapshot.epoch;
  }

  /** Refuses a snapshot that is larger than allowed, before it is fetched. */
  checkSize(snapshot) {
    const { snapshotBytesMax } = this.#config;
    if (snapshot.bytes > BigInt(snapshotBytesMax)) {
      throw new Refused(
        "too-large",
        `a snapshot of ${snapshot.bytes} bytes is larger than the ${snapshotBytesMax} allowed`,
      );
    }
  }

  /** Adds the statement of a manifest's date, if the operator guarantees the largest error of the clocks. */
  #considerDate(now, manifest) {
    const { clockErrorMs, maxStalenessMs } = this.#config;
    if (clockErrorMs === null) return;
    const moment = this.#clock.moment(now);
    const age = moment - Number(manifest.covers_ms) + clockErrorMs;
    // A negative age means that the clocks differ by more than `clockErrorMs`, so the guarantee does not hold.
    if (age < 0 || age > maxStalenessMs) return;
    this.#addStatement(manifest, moment + maxStalenessMs - age);
  }

  /** Stores a statement until its ids have arrived. Its deadline is reduced, because jitter can hide elapsed time. */
  #addStatement({ lineage, head, epoch_min: epochMin }, until) {
    const deadline = until - 2 * JITTER_MS;
    const existing = this.#pending.find(
      (one) => one.lineage === lineage && one.epochMin === epochMin && one.head === head,
    );
    if (existing !== undefined) {
      existing.deadline = Math.max(existing.deadline, deadline);
      return;
    }
    // The ids of the oldest statement arrive first, and the newest statement gives the latest deadline. Both are kept, and
    // a statement in the middle is dropped.
    if (this.#pending.length === PENDING_MAX) this.#pending.splice(PENDING_MAX / 2, 1);
    this.#pending.push({ lineage, epochMin, head, deadline });
  }

  /** Sets the deadline from the statements whose snapshot and ids have all arrived. */
  #applyStatements() {
    const current = this.#current;
    if (current === null) return;
    this.#pending = this.#pending.filter((one) => {
      const isComplete =
        one.lineage === current.lineage && one.epochMin <= current.epoch && one.head <= current.applied;
      if (isComplete) this.#deadline = Math.max(this.#deadline, one.deadline);
      return !isComplete;
    });
  }

  #checkSet(set) {
    if (set !== this.#config.set) {
      throw new Refused("other-set", `this manifest or proof is for the set \`${set.slice(0, 80)}\``);
    }
  }
}

function contradiction() {
  return new Refused("contradiction", "the content differs from an earlier statement of the publisher");
}

function checkNotBelow(what, found, newest) {
  if (found < newest) {
    throw new Refused("falling", `the publisher's ${what} decreased from ${newest} to ${found} within a lineage`);
  }
}

function unlisted() {
  return new Refused("unlisted", "no manifest lists a file with this SHA-256");
}

function early() {
  return new Refused("early", "the delta was received before an earlier one");
}

function same(one, other) {
  if (typeof one !== "object" || one === null) return one === other;
  return Object.keys(one).every((name) => same(one[name], other[name]));
}
