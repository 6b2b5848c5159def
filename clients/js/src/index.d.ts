/** An id as a filter takes it: text, an integer (a safe one, or a BigInt), or the bytes of text. */
export type Id = string | number | bigint | Uint8Array;

/** `absent`: skip the request. `maybe`: send it. `ask`: send it, for nothing can be said. */
export type Answer = "absent" | "maybe" | "ask";

export type Form = "text" | "uuid" | "integer";

/** What a filter's header says of it. */
export interface Facts {
  readonly construction: "static" | "updatable";
  readonly form: Form;
  readonly epoch: bigint;
  /** Since 1970; 0 where nobody said. */
  readonly builtMs: number;
  readonly ids: number;
  readonly capacityIds: number;
  /** Of the ids' hashes. */
  readonly seed: bigint;
  /** The false-positive rate that was asked for. */
  readonly rate: number;
  readonly bytes: number;
}

/** Bytes are no filter or delta to be used. */
export class FilterError extends Error {}

/** A manifest or proof is not believed or cannot be read. */
export class ManifestError extends Error {}

/** Something that came was not used. What was there stays in use. */
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
  /** Opens a filter, or throws a `FilterError`. The bytes are kept, not copied. */
  static open(bytes: Uint8Array): Filter;
  readonly facts: Facts;
  /** False only if the id is certainly not in it. */
  mayContain(id: Id): boolean;
}

/** What clocks show. */
export interface Now {
  /** Since any fixed moment; never falls. */
  monotonicMs: number;
  /** Since 1970; may be stepped. */
  wallMs: number;
}

export interface FilterClientOptions {
  /** The set, as `https://ids.example/sets/resource`; in a browser also relative to the page. */
  url: string;
  /** The publisher's public keys, 64 hex digits each; more than one while keys are exchanged. */
  keys?: string[];
  /** Instead of keys: believe whoever answers. */
  trustTransport?: boolean;
  /** An id that was committed longer ago than this is never skipped. */
  maxStalenessMs: number;
  /**
   * How far this machine's clock and the publisher's can be apart, if somebody answers for that: then
   * manifests may come out of any cache, and count by their date.
   */
  clockErrorMs?: number | null;
  /** Snapshots above this size are refused before they are fetched. Default 1 GiB. */
  snapshotBytesMax?: number;
  /** Added ids kept beside the snapshot. Default 2^20. */
  overlayIdsMax?: number;
  /** For an answer to begin, and between two of its pieces. Default 10 s. */
  silenceMaxMs?: number;
  /** Is told what goes wrong; the client goes on. */
  onError?: (error: Error) => void;
  /** In place of the global one. */
  fetch?: typeof fetch;
  /** In place of the machine's clocks. */
  now?: () => Now;
}

export interface Status {
  /** Whether absent ids are skipped now, */
  fresh: boolean;
  /** and for how much longer if nothing more is learnt. */
  freshForMs: number;
  /** The snapshot in use. */
  facts: Facts | null;
  /** Added ids beside it. */
  overlayIds: number;
  /** The newest manifest's number. */
  serial: bigint;
  /** What happened so far. */
  counts: Readonly<
    Record<"polls" | "failed" | "manifests" | "proofs" | "snapshots" | "deltas" | "bytes" | "refused", number>
  >;
  lastError: Error | null;
}

/** Follows a published set in the background and answers at once. */
export class FilterClient {
  private constructor();
  /** Begins to follow; returns at once. Until the filter is there the answer is "ask". */
  static start(options: FilterClientOptions): FilterClient;
  answer(id: Id): Answer;
  /** False only if a request for the id can be skipped. */
  mayExist(id: Id): boolean;
  status(): Status;
  /** Resolves to true when absent ids are skipped, to false after `ms`. */
  waitFresh(ms: number): Promise<boolean>;
  /** Resolves to true when `holds` is true of the status, looked at whenever something came. */
  waitUntil(ms: number, holds: (status: Status) => boolean): Promise<boolean>;
  /** Ends the background. The filter answers until it is stale. */
  stop(): void;
}

/** A snapshot's or delta's line in a manifest. */
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

/** Public keys as lines are held against them. */
export interface TrustedKey {
  readonly id: string;
  readonly key: CryptoKey;
}
export function importKeys(keys: string[]): Promise<TrustedKey[]>;
/** Reads a manifest line; null for keys believes whoever answers. */
export function readManifest(line: string, keys: TrustedKey[] | null): Promise<Manifest>;
export function readProof(line: string, keys: TrustedKey[] | null): Promise<Proof>;
export function sha256(bytes: Uint8Array): Promise<string>;
/** The hash of an id, as filters and deltas have it. */
export function hash(id: Id, form: Form, seed?: bigint): bigint;

/** The client without its transport: for whoever fetches in another way. */
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
  /** Why the newest snapshot, which is wanted, is not fetched: it is larger than allowed. */
  readonly snapshotRefused: Error | null;
  readonly wants: { snapshot: SnapshotEntry | null; deltas: DeltaEntry[] };
  observe(now: Now): void;
  /** Begins a request that carries these 16 random bytes in hex. */
  challenge(now: Now, hex: string): void;
  manifest(now: Now, manifest: Manifest): void;
  proof(now: Now, proof: Proof): void;
  snapshot(now: Now, received: { sha256: string; filter: Filter | null; error?: Error }): void;
  delta(now: Now, bytes: Uint8Array, sha256: string): void;
}
