// When a client may still rely on its filter. It fetches nothing and looks at no clock: documents, files
// and times are handed in.
//
// The guarantee: an id that was committed more than `maxStalenessMs` ago is never skipped. A client
// says "absent" only while a deadline lies ahead, and a deadline comes from a statement of the publisher
// whose snapshot and ids are all here: from a proof, which echoes random bytes of this client's own request and so was
// made after that was sent, or from a manifest's date where somebody vouches for the clocks
// (docs/explanation/id-filter.md, "Freshness"). `vectors/filter/scripts.json` holds it to the Rust client, step by step.

import { IdTable, readDelta } from "./delta.js";
import { upper } from "./xxh3.js";

/** Something that came was not used; `reason` says why in a word. What was there stays in use. */
export class Refused extends Error {
  constructor(reason, message, options) {
    super(message, options);
    this.name = "Refused";
    this.reason = reason;
  }
}

/** Requests whose answers are still waited for. */
const CHALLENGES_MAX = 8;
/** Statements that wait for their ids. */
const PENDING_MAX = 16;
/** Deltas remembered as named: those of the newest manifest and as many that were merged away. */
const LISTED_MAX = 256;
/** More than rounding makes between two looks at two clocks. */
const JITTER_MS = 50;

/**
 * One reckoning of time from two clocks that may both be wrong: it passes by whichever says more.
 * When they part, the anchor is set anew, so that a step back hides no later sleep.
 */
class Clock {
  #anchor = null;

  observe(now) {
    const moment = this.moment(now);
    const anchor = this.#anchor;
    const parted =
      anchor === null ||
      Math.abs(now.wallMs - anchor.wallMs - (now.monotonicMs - anchor.monotonicMs)) > JITTER_MS;
    if (parted) this.#anchor = { ...now, moment };
    return moment;
  }

  moment(now) {
    const anchor = this.#anchor;
    if (anchor === null) return now.wallMs;
    return anchor.moment + Math.max(now.monotonicMs - anchor.monotonicMs, now.wallMs - anchor.wallMs);
  }
}

export class FilterState {
  #config;
  #clock = new Clock();
  #holding = null;
  #newest = null;
  #listed = [];
  #challenges = [];
  #pending = [];
  #deadline = -Infinity;
  /** The highest numbers that believed statements had; all but the serial belong to the lineage. */
  #highest;

  /**
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

  /** `"absent"`, `"maybe"`, or `"ask"` where nothing can be said. */
  answer(now, id) {
    const holding = this.#holding;
    if (holding === null || !this.isFresh(now)) return "ask";
    const lo = holding.filter.hash(id);
    const hi = upper();
    return holding.filter.mayContainHash(hi, lo) || holding.overlay.has(hi, lo) ? "maybe" : "absent";
  }

  /** Whether absent ids are skipped now. */
  isFresh(now) {
    return this.#holding !== null && this.#clock.moment(now) <= this.#deadline;
  }

  /** For how long they may be if nothing more is learnt. */
  freshForMs(now) {
    return Math.max(0, this.#deadline - this.#clock.moment(now));
  }

  /** The filter in use, or null. */
  get filter() {
    return this.#holding?.filter ?? null;
  }

  /** Added ids beside it. */
  get overlayIds() {
    return this.#holding?.overlay.size ?? 0;
  }

  /** How far the journal is known here, or null. */
  get position() {
    const holding = this.#holding;
    if (holding === null) return null;
    return { lineage: holding.lineage, epoch: holding.epoch, applied: holding.applied };
  }

  /** The newest manifest's number. */
  get serial() {
    return this.#newest?.serial ?? this.#config.serialMin;
  }

  /** Looks at the clocks; every other change does so too. */
  observe(now) {
    this.#clock.observe(now);
  }

  /** Begins a request that carries these 16 random bytes in hex, to be sent now at the earliest. */
  challenge(now, hex) {
    const sent = this.#clock.observe(now);
    if (this.#challenges.length === CHALLENGES_MAX) this.#challenges.shift();
    this.#challenges.push({ hex, sent });
  }

  /** Takes a manifest that `readManifest` believed. */
  manifest(now, manifest) {
    this.#clock.observe(now);
    this.#checkSet(manifest.set);
    this.#checkSerial(manifest.serial);
    if (this.#newest?.serial === manifest.serial && !same(this.#newest, manifest)) {
      throw contradiction();
    }
    this.#checkRising(manifest);
    if (this.#newest?.lineage === manifest.lineage) {
      rising("epoch", manifest.snapshot.epoch, this.#newest.snapshot.epoch);
      rising("base", manifest.snapshot.base, this.#newest.snapshot.base);
    }
    this.#raise(manifest);
    this.#considerDate(now, manifest);
    for (const delta of manifest.deltas) {
      const known = this.#listed.some(
        (one) => one.lineage === manifest.lineage && same(one.delta, delta),
      );
      if (known) continue;
      if (this.#listed.length === LISTED_MAX) this.#listed.shift();
      this.#listed.push({ lineage: manifest.lineage, delta });
    }
    this.#adopt(manifest);
    this.#newest = manifest;
    this.#settle();
  }

  /**
   * Takes the snapshot in use for that of a new lineage, if the manifest names the same file: the publisher
   * was restarted. The ids beside it and the deadline stay. The next snapshot of the new lineage comes from a
   * scan that began after the restart, so it has all ids committed before.
   */
  #adopt({ lineage, snapshot }) {
    const holding = this.#holding;
    if (holding === null || holding.lineage === lineage) return;
    if (holding.sha256 !== snapshot.sha256 || holding.epoch !== snapshot.epoch) return;
    holding.lineage = lineage;
    holding.base = snapshot.base;
    holding.applied = snapshot.base;
  }

  #checkSerial(serial) {
    const newest = this.#highest.serial;
    if (serial < newest) {
      throw new Refused("replayed", `manifest ${serial} is older than ${newest}, which was seen before`);
    }
  }

  /** Refuses a statement with smaller numbers than an earlier one of the same lineage. */
  #checkRising({ lineage, head, epoch_min: epochMin }) {
    if (lineage !== this.#highest.lineage) return;
    rising("head", head, this.#highest.head);
    rising("epoch_min", epochMin, this.#highest.epochMin);
  }

  #raise({ serial, lineage, head, epoch_min: epochMin }) {
    this.#highest = { serial, lineage, head, epochMin };
  }

  /** Takes a proof that `readProof` believed. */
  proof(now, proof) {
    this.#clock.observe(now);
    this.#checkSet(proof.set);
    const echo = proof.echo.toLowerCase();
    const at = this.#challenges.findIndex((one) => one.hex === echo);
    if (at < 0) throw new Refused("not-asked", "the proof answers no request that is under way");
    const [{ sent }] = this.#challenges.splice(at, 1);
    this.#checkSerial(proof.serial);
    this.#checkRising(proof);
    this.#raise(proof);
    const left = this.#config.maxStalenessMs - Number(proof.lag_ms);
    if (left >= 0) this.#state(proof, sent + left);
    this.#settle();
  }

  /**
   * Takes a snapshot that a manifest named. Hashing and opening it need no state and are done before.
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
    const holding = {
      lineage: manifest.lineage,
      sha256: received.sha256,
      epoch: named.epoch,
      base: named.base,
      applied: named.base,
      overlay: new IdTable(),
      filter,
    };
    const old = this.#holding;
    if (old?.lineage === manifest.lineage) {
      const sameHash = old.filter.facts.seed === filter.facts.seed;
      if (old.epoch >= named.epoch || old.base > named.base || !sameHash) {
        throw new Refused("older", "the snapshot is not newer than the one in use");
      }
      // What was added after the new base is complete up to where the old one was.
      if (old.applied > holding.applied) holding.applied = old.applied;
      holding.overlay = old.overlay;
      holding.overlay.forgetUpTo(named.base);
    } else {
      // What was shown of another journal says nothing about this one.
      this.#deadline = -Infinity;
    }
    this.#holding = holding;
    this.#settle();
  }

  /** Takes a delta that a manifest named, with the SHA-256 of its bytes. */
  delta(now, bytes, sha256) {
    this.#clock.observe(now);
    const listed = this.#listed.find((one) => one.delta.sha256 === sha256);
    if (listed === undefined) throw unlisted();
    const entry = listed.delta;
    let delta;
    try {
      delta = readDelta(bytes);
    } catch (error) {
      throw new Refused("broken", error.message, { cause: error });
    }
    const holding = this.#holding;
    if (holding?.lineage !== listed.lineage) throw early();
    const told =
      delta.lineage === listed.lineage &&
      delta.from === entry.from &&
      delta.to === entry.to &&
      delta.seed === holding.filter.facts.seed;
    if (!told) throw contradiction();
    if (entry.from > holding.applied) throw early();
    // Doubled, or covered by another: harmless and nothing to do.
    if (entry.to <= holding.applied) return;
    const { ids } = delta;
    const { overlayIdsMax } = this.#config;
    if (ids.length / 2 > overlayIdsMax - holding.overlay.size) {
      throw new Refused(
        "overlay-full",
        `more than ${overlayIdsMax} ids were added since the snapshot; waiting for the next one`,
      );
    }
    for (let n = 0; n < ids.length; n += 2) holding.overlay.add(ids[n + 1], ids[n], entry.to);
    holding.applied = entry.to;
    this.#settle();
  }

  /** What to fetch now: the entry of a snapshot or null, and those of deltas in their order. */
  get wants() {
    const manifest = this.#newest;
    const wants = { snapshot: null, deltas: [] };
    if (manifest === null) return wants;
    const holding = this.#holding?.lineage === manifest.lineage ? this.#holding : null;
    const fits = manifest.snapshot.bytes <= BigInt(this.#config.snapshotBytesMax);
    if (this.#isWanted(manifest) && fits) wants.snapshot = manifest.snapshot;
    if (holding !== null) {
      const missing = manifest.deltas.filter((delta) => delta.to > holding.applied);
      // Where the journal no longer reaches back to what is here, only a snapshot helps.
      if (missing.length > 0 && missing[0].from <= holding.applied) wants.deltas = missing;
    }
    return wants;
  }

  /** Why the newest snapshot, which is wanted, is not fetched: it is larger than allowed. Or null. */
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
    const holding = this.#holding;
    return holding?.lineage !== manifest.lineage || holding.epoch < manifest.snapshot.epoch;
  }

  /** Refuses what is larger than allowed, before it is fetched. */
  checkSize(snapshot) {
    const { snapshotBytesMax } = this.#config;
    if (snapshot.bytes > BigInt(snapshotBytesMax)) {
      throw new Refused(
        "too-large",
        `a snapshot of ${snapshot.bytes} bytes is larger than the ${snapshotBytesMax} allowed`,
      );
    }
  }

  /** A dated manifest counts where clocks are vouched for. */
  #considerDate(now, manifest) {
    const { clockErrorMs, maxStalenessMs } = this.#config;
    if (clockErrorMs === null) return;
    const moment = this.#clock.moment(now);
    const age = moment - Number(manifest.covers_ms) + clockErrorMs;
    // Dated later than the clocks' error allows: they are not what they were said to be.
    if (age < 0 || age > maxStalenessMs) return;
    this.#state(manifest, moment + maxStalenessMs - age);
  }

  /** Remembers a statement until its ids are here. Jitter in both directions can hide time. */
  #state({ lineage, head, epoch_min: epochMin }, until) {
    const deadline = until - 2 * JITTER_MS;
    const known = this.#pending.find(
      (one) => one.lineage === lineage && one.epochMin === epochMin && one.head === head,
    );
    if (known !== undefined) {
      known.deadline = Math.max(known.deadline, deadline);
      return;
    }
    // The oldest is nearest to being fulfilled, and the newest is the best to have.
    if (this.#pending.length === PENDING_MAX) this.#pending.splice(PENDING_MAX / 2, 1);
    this.#pending.push({ lineage, epochMin, head, deadline });
  }

  /** Lets the statements count whose ids are all here. */
  #settle() {
    const holding = this.#holding;
    if (holding === null) return;
    this.#pending = this.#pending.filter((one) => {
      const fulfilled =
        one.lineage === holding.lineage && one.epochMin <= holding.epoch && one.head <= holding.applied;
      if (fulfilled) this.#deadline = Math.max(this.#deadline, one.deadline);
      return !fulfilled;
    });
  }

  #checkSet(set) {
    if (set !== this.#config.set) {
      throw new Refused("other-set", `this is about the set \`${set.slice(0, 80)}\``);
    }
  }
}

function contradiction() {
  return new Refused("contradiction", "the publisher contradicts itself");
}

function rising(what, found, newest) {
  if (found < newest) {
    throw new Refused("falling", `the publisher's ${what} fell from ${newest} to ${found} within a lineage`);
  }
}

function unlisted() {
  return new Refused("unlisted", "no manifest names a file with this content");
}

function early() {
  return new Refused("early", "the delta comes before what it follows");
}

function same(one, other) {
  if (typeof one !== "object" || one === null) return one === other;
  return Object.keys(one).every((name) => same(one[name], other[name]));
}
