/** The types of an id: text, an integer (a safe one, or a BigInt), or the bytes of text. */
export type Id = string | number | bigint | Uint8Array;

/** `absent`: skip the request. `maybe`: send it. `ask`: send it, because the client has no fresh filter. */
export type Answer = "absent" | "maybe" | "ask";

export type Form = "text" | "uuid" | "integer";

/** The fields of a filter's header. */
export interface Facts {
  readonly construction: "static" | "updatable";
  readonly form: Form;
  readonly epoch: bigint;
  /** The time of the build in milliseconds since 1970; 0 if unknown. */
  readonly builtMs: number;
  readonly ids: number;
  readonly capacityIds: number;
  /** The seed of the ids' hashes. */
  readonly seed: bigint;
  /** The configured false-positive rate. */
  readonly rate: number;
  readonly bytes: number;
}

/** The bytes are not a valid filter or delta. */
export class FilterError extends Error {}

/** A manifest or proof is not trusted or is invalid. */
export class ManifestError extends Error {}

/** Received data was not used. The previous data stays in use. */
export class Refused extends Error {
  readonly reason:
    | "other-set"
    | "replayed"
    | "not-asked"
    | "unlisted"
    | "early"
    | "older"
    | "contradiction"
    | "broken"
    | "too-large"
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

/** The time of two clocks. */
export interface Now {
  /** Milliseconds since an arbitrary moment; never decreases. */
  monotonicMs: number;
  /** Milliseconds since 1970; the clock may be stepped. */
  wallMs: number;
}

export interface FilterClientOptions {
  /** The URL of the set, such as `https://ids.example/sets/resource`. In a browser it may be relative to the page. */
  url: string;
  /** The publisher's public keys, 64 hex digits each; several during a change of keys. */
  keys?: string[];
  /** Trusts any server that answers, instead of keys. */
  trustTransport?: boolean;
  /** The longest time for which the client may report a committed id as absent. */
  maxStalenessMs: number;
  /**
   * The largest difference between this machine's clock and the publisher's, if the operator guarantees it.
   * Then manifests may come from any cache, and are fresh by their date.
   */
  clockErrorMs?: number | null;
  /** The largest snapshot that is fetched, in bytes. Default 1 GiB. */
  snapshotBytesMax?: number;
  /** The most ids kept in addition to the snapshot. Default 2^20. */
  overlayIdsMax?: number;
  /** The timeout for the start of a response, and between two parts of it. Default 10 s. */
  silenceMaxMs?: number;
  /** Called with each error; the client continues. */
  onError?: (error: Error) => void;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
  /** Replaces the machine's clocks. */
  now?: () => Now;
}

export interface Status {
  /** True while absent ids are skipped. */
  fresh: boolean;
  /** The time until this ends without further news. */
  freshForMs: number;
  /** The snapshot in use. */
  facts: Facts | null;
  /** The ids in addition to the snapshot. */
  overlayIds: number;
  /** The number of the newest manifest. */
  serial: bigint;
  /** The counters of the client. */
  counts: Readonly<
    Record<"polls" | "failed" | "manifests" | "proofs" | "snapshots" | "deltas" | "bytes" | "refused", number>
  >;
  lastError: Error | null;
}

/** Follows a published set in the background. Queries return at once. */
export class FilterClient {
  private constructor();
  /** Starts to follow the set, and returns at once. Until the filter is loaded, every answer is "ask". */
  static start(options: FilterClientOptions): FilterClient;
  answer(id: Id): Answer;
  /** Returns false only if a request for the id can be skipped. */
  mayExist(id: Id): boolean;
  status(): Status;
  /** Resolves to true when absent ids are skipped, to false after `ms`. */
  waitFresh(ms: number): Promise<boolean>;
  /** Resolves to true when `holds` returns true for the status, which is checked at every change. */
  waitUntil(ms: number, holds: (status: Status) => boolean): Promise<boolean>;
  /** Stops the background work. The filter can be queried until it is stale. */
  stop(): void;
}

/** An entry of a manifest for a snapshot or delta. */
export interface SnapshotEntry {
  epoch: bigint;
  base: bigint;
  bytes: bigint;
  sha256: string;
}
export interface DeltaEntry {
  from: bigint;
  to: bigint;
  bytes: bigint;
  sha256: string;
}
export interface Manifest {
  format: bigint;
  set: string;
  serial: bigint;
  lineage: bigint;
  covers_ms: bigint;
  epoch_min: bigint;
  head: bigint;
  snapshot: SnapshotEntry;
  deltas: DeltaEntry[];
}
export interface Proof {
  format: bigint;
  set: string;
  serial: bigint;
  lineage: bigint;
  epoch_min: bigint;
  head: bigint;
  lag_ms: bigint;
  echo: string;
}

/** A parsed public key. */
export interface TrustedKey {
  readonly id: string;
  readonly key: CryptoKey;
}
export function importKeys(keys: string[]): Promise<TrustedKey[]>;
/** Verifies and parses a manifest's line. With null for keys any server is trusted. */
export function readManifest(line: string, keys: TrustedKey[] | null): Promise<Manifest>;
export function readProof(line: string, keys: TrustedKey[] | null): Promise<Proof>;
export function sha256(bytes: Uint8Array): Promise<string>;
/** Returns the hash of an id that filters and deltas use. */
export function hash(id: Id, form: Form, seed?: bigint): bigint;

/** The client without its transport, for programs that fetch in another way. */
export class FilterState {
  constructor(config: {
    set: string;
    maxStalenessMs: number;
    clockErrorMs?: number | null;
    serialMin?: bigint;
    snapshotBytesMax?: number;
    overlayIdsMax?: number;
  });
  answer(now: Now, id: Id): Answer;
  isFresh(now: Now): boolean;
  freshForMs(now: Now): number;
  readonly filter: Filter | null;
  readonly overlayIds: number;
  readonly position: { lineage: bigint; epoch: bigint; applied: bigint } | null;
  readonly serial: bigint;
  /** An error if the newest snapshot is needed but is larger than allowed. */
  readonly snapshotRefused: Error | null;
  readonly wants: { snapshot: SnapshotEntry | null; deltas: DeltaEntry[] };
  observe(now: Now): void;
  /** Records a request with these 16 random bytes in hex. */
  challenge(now: Now, hex: string): void;
  manifest(now: Now, manifest: Manifest): void;
  proof(now: Now, proof: Proof): void;
  snapshot(now: Now, received: { sha256: string; filter: Filter | null; error?: Error }): void;
  delta(now: Now, bytes: Uint8Array, sha256: string): void;
}
