// `/status.json`, as docs/reference/admin-api.md describes it. An edge of an older version lacks keys that are optional
// here.

export type Row = (number | null)[];

export interface History {
  columns: string[];
  levels: { interval_seconds: number; rows: Row[] }[];
}

export interface Ratios {
  minute: number | null;
  five_minutes: number | null;
  since_start: number | null;
}

export interface Site {
  site: string;
  requests: number;
  requests_per_second: number;
  by_outcome: Record<string, number>;
  misses_by_cause?: Record<string, number>;
  not_storable?: Record<string, number>;
  hit_ratio: number | null;
  byte_hit_ratio: number | null;
  bytes_per_second: number;
  server_errors: number;
  client_p99_seconds: number | null;
  origin_p50_seconds: number | null;
  origin_p99_seconds: number | null;
}

export interface Origin {
  origin: string;
  url: string;
  up: boolean;
  responses_per_second: number;
  server_errors: number;
  p50_seconds: number | null;
  p90_seconds: number | null;
  p99_seconds: number | null;
  servers: {
    server: string;
    backup: boolean;
    state: string;
    under_way: number;
    requests: number;
    failures: number;
  }[];
}

export interface Share {
  name: string;
  objects: number;
  bytes: number;
}

export interface TopUrl {
  url: string;
  requests: number;
  bytes: number;
  misses: number;
}

export interface WhatIfPoint {
  policy: string;
  size: string;
  capacity_bytes: number;
  present: boolean;
  hit_ratio: number;
  hit_ratio_error: number | null;
  byte_hit_ratio: number | null;
  origin_bytes_per_second: number;
  /** The simulated cache has never been full: the hit ratio is a lower bound. */
  filling?: boolean;
}

export interface DiskPoint {
  admission: string;
  size: string;
  capacity_bytes: number;
  present: boolean;
  hit_ratio: number;
  hit_ratio_error: number | null;
  byte_hit_ratio: number | null;
  origin_bytes_per_second: number;
  disk_bytes_per_second: number;
  filling?: boolean;
}

export interface Finding {
  fault: string;
  text: string;
  requests: number;
  request_share: number;
  hit_share: number;
  example: string;
  rule: string;
}

export interface Fleet {
  name: string;
  group: string;
  members: {
    name: string;
    group: string;
    state: string;
    key_share?: number | null;
    is_self: boolean;
    requests: number;
    failures: number;
  }[];
  /** Null if the configuration lists the members. */
  directory?: { current: boolean; duplicate_of: string | null } | null;
  requests?: Record<string, number>;
  received?: Record<string, number>;
  waits?: number;
}

export interface PurgeStream {
  connected: boolean;
  cut_off: boolean;
  lag_seconds: number | null;
  lag_messages: number | null;
  applied: number;
  purged_all: number;
  unreadable: number;
  log_unwritable: boolean;
  pending: number;
  refused: Record<string, number>;
}

export interface Http3 {
  requests: Record<string, number>;
  connections: Record<string, number>;
  handshakes: number;
  attempts: Record<string, number>;
  refused: Record<string, number>;
}

/** A rise of the level of overload. */
export interface Rise {
  level: string;
  resource: string;
  used: number | null;
  bound: number | null;
  unit: string;
  seconds_ago: number;
}

export interface Snapshot {
  at: number;
  generation: number;
  window_seconds: number;
  viewers: number;
  viewers_max: number;
  name: string;
  version: string;
  uptime_seconds: number;
  pid: number;
  memory_bytes: number | null;
  hot: {
    policy: string;
    capacity_bytes: number;
    used_bytes: number;
    objects: number;
    evicted: number;
    admitted: number;
    refused: Record<string, number>;
  };
  disk: {
    devices: { device: string; state: string; capacity_bytes: number; used_bytes: number; objects: number }[];
  } | null;
  disk_damaged: string[];
  requests: Record<string, number>;
  hit_ratio: Ratios;
  byte_hit_ratio: Ratios;
  not_stored: Record<string, number>;
  acme: { certificates: { name: string; not_after: number | null; next_order: number | null; failures: number }[] } | null;
  fleet?: Fleet | null;
  fleet_purges?: PurgeStream | null;
  http3?: Http3 | null;
  connections: { clients: number; clients_max: number; origin: number };
  overload: {
    level: string;
    /** The work that is shed, in words. */
    sheds?: string;
    last_rise?: Rise | null;
  };
  purges: {
    accepted: Record<string, number>;
    entries: number;
    entries_max: number;
    patterns: number;
    patterns_max: number;
    failures: number;
    log_damaged: boolean;
    recent?: { at: number; scope: string; target: string; soft: boolean; by: string }[];
  };
  certificates: { of: string; not_after: number | null; ocsp_next_update: number | null }[];
  sites: Site[];
  origins: Origin[];
  errors: { metric: string; label: string; what: string; hint: string; five_minutes: number; hour: number }[];
  contents?: { objects: number; sampled_share: number; by_host: Share[]; by_type: Share[]; by_age: Share[] } | null;
  top?: {
    requests: TopUrl[];
    bytes: TopUrl[];
    misses: TopUrl[];
    sampled: number;
    one_hit_wonder_ratio: number | null;
  } | null;
  what_if?: {
    window_seconds: number | null;
    requests: number;
    requests_sampled: number;
    points: WhatIfPoint[];
    disk?: { points: DiskPoint[] } | null;
  } | null;
  faults?: { sampled: number; texts_one_in: number; findings: Finding[] } | null;
  history: History;
  settings?: { key: string; value: string; from: string }[];
}
