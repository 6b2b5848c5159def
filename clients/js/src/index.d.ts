/** An id: text, the bytes of text, or an integer. Integers above 2^53 - 1 must be a BigInt. */
export type Id = string | number | bigint | Uint8Array;

/**
 * `absent`: skip the request. `maybe`: send the request, because the id may exist. `ask`: send the request, because the
 * client has no fresh filter.
 */
export type Answer = "absent" | "maybe" | "ask";

/** The form of the ids of a set. It decides which spellings are the same id, such as a UUID in upper and lower case. */
export type Form = "text" | "uuid" | "integer";

/** The fields of a filter's header. */
export interface Facts {
  /** Ids can be added to an updatable filter, but not to a static one. */
  readonly construction: "static" | "updatable";
  readonly form: Form;
  /** The sequence number of the build; a later build of the set has a higher number. */
  readonly epoch: bigint;
  /** The time of the build in milliseconds since 1970; 0 if unknown. */
  readonly builtMs: number;
  /** The number of ids in the filter. */
  readonly ids: number;
  /** The number of ids that the filter can hold. An updatable filter refuses more. */
  readonly capacityIds: number;
  /** The seed of the ids' hashes. */
  readonly seed: bigint;
  /** The configured false-positive rate, such as 0.01 for 1 %. */
  readonly rate: number;
  /** The size of the file in bytes. */
  readonly bytes: number;
}

/** The bytes are not a valid filter or delta. */
export class FilterError extends Error {}

/** A manifest or proof is not trusted or is invalid. */
export class ManifestError extends Error {}

/** Received data was not used. The previous data stays in use. */
export class Refused extends Error {
  readonly reason:
    /** The manifest or proof is for another set. */
    | "other-set"
    /** The serial number is lower than one received before. */
    | "replayed"
    /** The proof matches no request in progress. */
    | "not-asked"
    /** No manifest lists the file. */
    | "unlisted"
    /** The delta was received before an earlier one. */
    | "early"
    /** The snapshot is not newer than the one in use. */
    | "older"
    /** A number of the publisher decreased within a lineage. */
    | "falling"
    /** The content differs from an earlier statement of the publisher. */
    | "contradiction"
    /** The file is not a valid snapshot or delta. */
    | "broken"
    /** The snapshot is larger than `snapshotBytesMax`. */
    | "too-large"
    /** The delta has more ids than `overlayIdsMax` allows. */
    | "overlay-full";
}

/** A filter in memory. */
export class Filter {
  private constructor();
  /** Opens a filter, or throws a `FilterError`. Keeps a reference to the bytes without copying them. */
  static open(bytes: Uint8Array): Filter;
  readonly facts: Facts;
  /** Returns false only if the id is certainly not in the filter. */
  mayContain(id: Id): boolean;
}

/** The time of a machine's two clocks. */
export interface Now {
  /** Milliseconds since an arbitrary moment; never decreases. */
  monotonicMs: number;
  /** Milliseconds since 1970; may be stepped in either direction. */
  wallMs: number;
}

export interface FilterClientOptions {
  /** The URL of the set: `https://ids.example/sets/resource`. In a browser the URL may be relative to the page. */
  url: string;
  /** The publisher's public keys, 64 hex digits each; several during a change of keys. */
  keys?: string[];
  /** Trusts any server that answers, so that no keys are needed. */
  trustTransport?: boolean;
  /** The longest time for which the client may report a committed id as absent. */
  maxStalenessMs: number;
  /**
   * The largest difference between this machine's wall clock and the publisher's, if the operator guarantees a limit.
   * Then the date of a manifest proves its freshness, so manifests may come from any cache.
   */
  clockErrorMs?: number | null;
  /** The largest snapshot that is fetched, in bytes. Default 1 GiB. */
  snapshotBytesMax?: number;
  /** The largest number of ids from deltas that are stored in addition to the snapshot. Default 2^20. */
  overlayIdsMax?: number;
  /** The timeout for the start of a response, and between two parts of a response. Default 10 s. */
  silenceMaxMs?: number;
  /** Called with each error; the client continues. */
  onError?: (error: Error) => void;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
  /** Replaces the machine's clocks. */
  now?: () => Now;
}

export interface Status {
  /** True while the filter is fresh, so that the client may answer `absent`. */
  fresh: boolean;
  /** The time until the filter becomes stale, if no further manifest or proof arrives. */
  freshForMs: number;
  /** The header of the snapshot in use; null without a snapshot. */
  facts: Facts | null;
  /** The number of ids that deltas added since the snapshot. */
  overlayIds: number;
  /** The serial number of the newest manifest. */
  serial: bigint;
  /**
   * The counters since the client started: polls; accepted manifests, proofs, snapshots and deltas; received bytes of
   * bodies. `failed` counts failed polls and downloads; `refused` counts those of them whose data was not accepted.
   */
  counts: Readonly<
    Record<"polls" | "failed" | "manifests" | "proofs" | "snapshots" | "deltas" | "bytes" | "refused", number>
  >;
  /** The error of the last poll or download that failed. */
  lastError: Error | null;
}

/** Follows a published set in the background. Lookups return at once. */
export class FilterClient {
  private constructor();
  /** Starts to follow the set, and returns at once. Until the filter is loaded, every answer is `ask`. */
  static start(options: FilterClientOptions): FilterClient;
  answer(id: Id): Answer;
  /** Returns false only if a request for the id can be skipped. */
  mayExist(id: Id): boolean;
  status(): Status;
  /** Resolves to true when the filter is fresh, or to false after `ms` milliseconds. */
  waitFresh(ms: number): Promise<boolean>;
  /**
   * Calls `holds` with the status after every change. Resolves to true when `holds` returns true, or to false after
   * `ms` milliseconds.
   */
  waitUntil(ms: number, holds: (status: Status) => boolean): Promise<boolean>;
  /** Stops the background work. The client still answers, until its filter is stale. */
  stop(): void;
}

/** The entry of a snapshot in a manifest. */
export interface SnapshotEntry {
  epoch: bigint;
  /** The snapshot has all ids up to this journal number. */
  base: bigint;
  bytes: bigint;
  sha256: string;
}
/** The entry of a delta in a manifest: a file with the ids between two journal numbers. */
export interface DeltaEntry {
  from: bigint;
  to: bigint;
  bytes: bigint;
  sha256: string;
}
/**
 * The signed list of a snapshot and its deltas (docs/reference/filter-format.md, "Manifest and proof"). The publisher's
 * journal is the numbered list of added ids. Its lineage is a new random number at each start of the publisher.
 */
export interface Manifest {
  format: bigint;
  set: string;
  serial: bigint;
  lineage: bigint;
  /** Milliseconds since 1970. The snapshot and the journal have all ids committed before; 0 if unknown. */
  covers_ms: bigint;
  /** The epoch of the oldest snapshot for which `covers_ms` holds. */
  epoch_min: bigint;
  /** The newest number of the publisher's journal. */
  head: bigint;
  snapshot: SnapshotEntry;
  deltas: DeltaEntry[];
}
/** A statement of the publisher that was made after the client's request. */
export interface Proof {
  format: bigint;
  set: string;
  serial: bigint;
  lineage: bigint;
  epoch_min: bigint;
  head: bigint;
  /** All ids committed at least this many milliseconds before the response are in the snapshot and the journal. */
  lag_ms: bigint;
  /** The challenge of the client's request, in hex. */
  echo: string;
}

/** A parsed public key. */
export interface TrustedKey {
  /** The first 16 hex digits of the key's SHA-256. */
  readonly id: string;
  readonly key: CryptoKey;
}
/** Parses public keys of 64 hex digits each. */
export function importKeys(keys: string[]): Promise<TrustedKey[]>;
/** Verifies and parses the line of a manifest. If `keys` is null, any server is trusted. */
export function readManifest(line: string, keys: TrustedKey[] | null): Promise<Manifest>;
/** Verifies and parses the line of a proof. If `keys` is null, any server is trusted. */
export function readProof(line: string, keys: TrustedKey[] | null): Promise<Proof>;
/** Returns the SHA-256 digest of bytes in lower-case hex. */
export function sha256(bytes: Uint8Array): Promise<string>;
/** Returns the hash of an id by which filters and deltas store the id. */
export function hash(id: Id, form: Form, seed?: bigint): bigint;

/** The client without its transport, for programs that fetch with another library. */
export class FilterState {
  constructor(config: {
    set: string;
    maxStalenessMs: number;
    clockErrorMs?: number | null;
    /** Manifests and proofs with a lower serial number are refused as replays. Default 0. */
    serialMin?: bigint;
    snapshotBytesMax?: number;
    overlayIdsMax?: number;
  });
  answer(now: Now, id: Id): Answer;
  isFresh(now: Now): boolean;
  freshForMs(now: Now): number;
  readonly filter: Filter | null;
  readonly overlayIds: number;
  /** The position in the journal: `applied` is the last number whose ids are in the filter or the overlay. */
  readonly position: { lineage: bigint; epoch: bigint; applied: bigint } | null;
  readonly serial: bigint;
  /** An error if the client needs the newest snapshot, but the snapshot is larger than allowed. */
  readonly snapshotRefused: Error | null;
  /** The files to fetch now. */
  readonly wants: { snapshot: SnapshotEntry | null; deltas: DeltaEntry[] };
  /** Updates the time. Every method that changes the state also updates the time. */
  observe(now: Now): void;
  /** Records a challenge: 16 random bytes in hex. The request must not be sent before `now`. */
  challenge(now: Now, hex: string): void;
  manifest(now: Now, manifest: Manifest): void;
  proof(now: Now, proof: Proof): void;
  /** `filter` is null if the received bytes are not a valid filter; `error` is then the cause. */
  snapshot(now: Now, received: { sha256: string; filter: Filter | null; error?: Error }): void;
  delta(now: Now, bytes: Uint8Array, sha256: string): void;
}
