// The sections of the page below the plots.

import { byId, make, setText, showTable, visible, type Cell } from "./dom";
import { showFleetAndProtocols } from "./fleet";
import { bytes, count, date, percent, rate, seconds, span } from "./format";
import { newest } from "./plots";
import type { Finding, Rise, Share, Snapshot, TopUrl, WhatIfPoint } from "./state";

type Level = Cell["level"];

export function showSections(now: Snapshot): void {
  showHead(now);
  showErrors(now);
  showTraffic(now);
  showSites(now);
  showFaults(now);
  showUrls(now);
  showContents(now);
  showOrigins(now);
  showFleetAndProtocols(now);
  showPurges(now);
  showCertificates(now);
}

function showHead(now: Snapshot): void {
  setText(byId("name"), visible(now.name));
  document.title = `${visible(now.name)}: ${percent(now.hit_ratio.five_minutes)} hits`;
  setText(byId("about"), `edgeward ${now.version}, process ${now.pid}, up for ${span(now.uptime_seconds)}`);
  const viewers = `${now.viewers} of ${now.viewers_max} viewers. `;
  setText(byId("footer"), `${viewers}The same as JSON: /status.json. Metrics for Prometheus: /metrics.`);
  const row = newest();
  const sum = (columns: string[]) => columns.reduce((all, column) => all + (row?.(column) ?? 0), 0);
  const failed = now.sites.reduce((all, site) => all + site.server_errors, 0);
  const refused = now.errors.filter((error) => error.metric === REFUSED && error.label.startsWith("5"));
  const byEdge = refused.reduce((all, error) => all + error.five_minutes, 0);
  const byOrigins = now.origins.reduce((all, origin) => all + origin.server_errors, 0);
  const hasErrors = now.errors.some((error) => error.five_minutes > 0);
  const used = now.hot.used_bytes / now.hot.capacity_bytes;
  const disk = now.disk?.devices.reduce((all, device) => all + device.used_bytes, 0);
  const load = now.overload.level;
  const tiles: [string, string, string, Level?][] = [
    ["requests", rate(sum(["hit", "hit_stale", "miss", "revalidated", "pass", "refused", "none"])), "last second"],
    ["hit ratio", percent(now.hit_ratio.five_minutes), `5 minutes; ${percent(now.hit_ratio.since_start)} since the start`],
    ["byte hit ratio", percent(now.byte_hit_ratio.five_minutes), "5 minutes"],
    ["from origins", `${bytes(row?.("origin_bytes") ?? 0)}/s`, `of ${bytes(row?.("bytes") ?? 0)}/s to clients`],
    ["slowest 1 % of clients", seconds(row?.("client_p99_seconds")), "last second"],
    ["slowest 1 % of origins", seconds(row?.("origin_p99_seconds")), "last second"],
    ["memory", percent(used), `${bytes(now.hot.used_bytes)} of ${bytes(now.hot.capacity_bytes)}`],
    ["disk", disk === undefined ? "none" : bytes(disk), disk === undefined ? "no disk cache" : "in use"],
    ["connections", count(now.connections.clients), `of ${count(now.connections.clients_max)}`],
    [
      "status 5xx",
      count(failed),
      failed > 0 ? `5 minutes; ${count(byEdge)} by the edge; origins answered ${count(byOrigins)}` : hasErrors ? "see Recent errors" : "5 minutes",
      hasErrors || failed > 0 ? "warn" : "good",
    ],
    load === "normal"
      ? ["load", "normal", "nothing is shed", "good"]
      : ["load", "overload", `${now.overload.sheds ?? load}: ${overloadOf(now.overload.last_rise)}`, "bad"],
  ];
  const list = byId("now");
  tiles.forEach(([name, value, note, level], at) => {
    let tile = list.children[at];
    if (!tile) {
      tile = make("div");
      tile.append(make("dt"), make("dd"), make("dd", { class: "note" }));
      list.append(tile);
    }
    const [term, main, small] = tile.children;
    if (tile.className !== (level ?? "")) tile.className = level ?? "";
    setText(term!, name);
    setText(main!, value);
    setText(small!, note);
  });
}

const REFUSED = "edgeward_requests_refused_total";

const RESOURCES: Record<string, string> = {
  memory: "memory of the process",
  lag: "lag of workers",
  descriptors: "open files and connections",
};

/** Names the resource that exceeded its bound. */
function overloadOf(rise: Rise | null | undefined): string {
  if (!rise) return "a resource exceeded its bound";
  const amount = (value: number | null) => {
    if (rise.unit === "bytes") return bytes(value);
    return rise.unit === "microseconds" ? seconds(value === null ? null : value / 1e6) : count(value);
  };
  return `${RESOURCES[rise.resource] ?? rise.resource} ${amount(rise.used)}, bound ${amount(rise.bound)}`;
}

/** What to do about an error. Shed work has the resource that was exceeded last. */
function hintOf(error: Snapshot["errors"][number], rise: Rise | null | undefined): string {
  if (error.metric !== "edgeward_shed_total" || !rise) return error.hint;
  const lag = rise.resource === "lag" ? " Lag is the time for which an event waits until a worker handles it." : "";
  return `${error.hint} ${span(rise.seconds_ago)} ago: ${overloadOf(rise)}.${lag}`;
}

function showErrors(now: Snapshot): void {
  const rows = now.errors.map((error) => [
    { text: error.what, title: `${error.metric} ${error.label}` },
    { text: count(error.five_minutes), level: error.five_minutes > 0 ? ("bad" as const) : undefined },
    count(error.hour),
    hintOf(error, now.overload.last_rise),
  ]);
  showTable(
    "error-table",
    "Errors of the last hour, by cause",
    [
      { name: "error" },
      { name: "5 minutes", number: true },
      { name: "1 hour", number: true },
      { name: "what to do", long: true },
    ],
    rows,
    "No errors in the last hour.",
  );
}

const OUTCOMES: Record<string, string> = {
  hit: "fresh in the cache",
  "hit-stale": "from the cache, not fresh, as the origin allows",
  "uri-miss": "not in the cache: fetched",
  "vary-miss": "in the cache for other request headers: fetched",
  stale: "in the cache, not fresh: validated or fetched",
  request: "the request asks for a validation (Cache-Control)",
  partial: "a range that the cache lacks",
  method: "passed: a method that is not cached",
  bypass: "passed: a rule or the response forbids the cache",
  "only-if-cached": "only-if-cached, and not in the cache",
  "id-filter": "an id that does not exist",
  refused: "refused by the edge",
  rule: "answered by a rule",
  none: "no lookup, or the client left",
};

const REASONS: Record<string, string> = {
  "not-storable": "The response forbids it, or has no lifetime: see Explain under Tools.",
  admission: "The policy keeps more valuable objects. More memory or another policy may help.",
  "object-size": "The object is above limits.object_bytes_max.",
  "memory-rule": "A rule of the site keeps it out of memory.",
  "fill-memory": "Too many fetches at once: limits.fill_bytes_max.",
  incomplete: "The body ended early.",
  "other-owner": "Another node of the fleet owns the object and stores it.",
  "pinned-memory": "Slow clients hold too much memory.",
};

function showTraffic(now: Snapshot): void {
  const all = Object.values(now.requests).reduce((sum, n) => sum + n, 0);
  const used = (values: Record<string, number>) =>
    Object.entries(values)
      .filter(([, n]) => n > 0)
      .sort(([, a], [, b]) => b - a);
  showTable(
    "outcome-table",
    "Requests since the start, by outcome",
    [
      { name: "outcome" },
      { name: "requests", number: true },
      { name: "share", number: true },
      { name: "meaning", long: true },
    ],
    used(now.requests).map(([name, n]) => [name, count(n), percent(n / all), OUTCOMES[name] ?? ""]),
    "No requests yet.",
  );
  showTable(
    "stored-table",
    "Fetched responses that were not stored, since the start",
    [{ name: "reason" }, { name: "responses", number: true }, { name: "meaning", long: true }],
    used(now.not_stored).map(([name, n]) => [name, count(n), REASONS[name] ?? ""]),
    "All fetched responses were stored.",
  );
}

const NOT_STORABLE: Record<string, string> = {
  method: "the request is not a GET",
  partial: "status 206",
  status: "a status of one request",
  "request-error": "errors of requests, without a lifetime",
  "request-no-store": "no-store of requests",
  rule: "a rule of the site",
  "no-store": "no-store",
  private: "private",
  authorization: "Authorization of requests",
  "set-cookie": "Set-Cookie",
  "vary-any": "Vary: *",
  "event-stream": "streams of events",
  "no-explicit-freshness": "no lifetime",
  "never-reusable": "no lifetime and no validator",
  extension: "a type that contradicts the extension of the path",
};

/** What evicted objects mean. With a disk, an evicted object is one that the disk lacks, too. */
function evictedText(now: Snapshot): string {
  const tier = now.disk ? "disk" : "memory";
  const points: SizePoint[] = (now.disk ? now.what_if?.disk?.points : now.what_if?.points) ?? [];
  const present = points.find((point) => point.present);
  if (!present || present.filling) return `evicted objects: more ${tier} may help`;
  const rule = (point: SizePoint) => point.policy ?? point.admission;
  const more = points.filter((point) => rule(point) === rule(present) && point.capacity_bytes > present.capacity_bytes);
  const gain = Math.max(0, ...more.map((point) => point.hit_ratio)) - present.hit_ratio;
  if (gain >= 0.01) return `evicted objects: more ${tier} pays, see What if`;
  if (more.length === 0 || more.some((point) => point.filling)) return `evicted objects: more ${tier} may help`;
  return `evicted objects, but twice to 8 times the ${tier} gains less than a point, see What if`;
}

type SizePoint = Pick<WhatIfPoint, "capacity_bytes" | "present" | "hit_ratio" | "filling"> & {
  policy?: string;
  admission?: string;
};

const MISSES: Record<string, string> = {
  new: "new objects: first requests",
  expired: "expired objects: longer lifetimes help",
  refused: "objects that were not stored before, see Traffic",
  purged: "purged objects: narrower or soft purges help",
  "other-node": "objects of other nodes of the fleet",
  request: "requests or rules that ask the origin (no-cache)",
  range: "further ranges of stored objects",
  collapsed: "requests during the fetch of the same object",
};

/**
 * The main reason why requests of a site are not answered from this cache. Validations have responses that may not be
 * stored, too, so that these can be more than the fetched ones.
 */
function cause(site: Snapshot["sites"][number], now: Snapshot): string {
  const missed = site.by_outcome["miss"] ?? 0;
  const passed = site.by_outcome["pass"] ?? 0;
  const fetched = missed + passed;
  if (fetched === 0) return "";
  const largest = (counts: Record<string, number> | undefined) =>
    Object.entries(counts ?? {}).sort(([, a], [, b]) => b - a)[0] ?? ["", 0];
  const forbidden = Object.values(site.not_storable ?? {}).reduce((sum, n) => sum + n, 0);
  const [reason, n] = largest(site.not_storable);
  if (n > 0 && 2 * forbidden >= fetched) return `${percent(n / Math.max(fetched, forbidden))}: ${NOT_STORABLE[reason] ?? reason}`;
  if (2 * passed >= fetched) return "a rule, or a method that is not cached";
  const [miss, misses] = largest(site.misses_by_cause);
  if (misses === 0) return "";
  return `${percent(misses / missed)}: ${miss === "evicted" ? evictedText(now) : (MISSES[miss] ?? miss)}`;
}

/** The columns of the causes of misses. All other causes have one column. */
const CAUSES: [string, string][] = [
  ["new", "no request for the object is remembered"],
  ["expired", "was stored, and its lifetime was over: longer lifetimes help, or validators at the origin"],
  ["evicted", "was stored, and had to leave before the end of its lifetime: a larger cache helps"],
  ["refused", "the last response was not stored: by its fields, by a rule or by the policy"],
  ["purged", "was removed by a purge or an unsafe request, or the origin did not confirm it"],
  ["collapsed", "another request was already fetching the object"],
];

function showMisses(now: Snapshot): void {
  const rows = now.sites.flatMap((site) => {
    const causes = site.misses_by_cause ?? {};
    const all = Object.values(causes).reduce((sum, n) => sum + n, 0);
    if (all === 0) return [];
    const known = CAUSES.map(([name]) => causes[name] ?? 0);
    const other = all - known.reduce((sum, n) => sum + n, 0);
    return [{ all, row: [site.site, count(all), ...[...known, other].map((n) => (n > 0 ? percent(n / all) : ""))] }];
  });
  rows.sort((a, b) => b.all - a.all);
  showTable(
    "miss-table",
    `Misses by cause, last ${span(now.window_seconds)}`,
    [
      { name: "site" },
      { name: "misses", number: true },
      ...CAUSES.map(([name, title]) => ({ name, number: true, title })),
      { name: "other", number: true, title: "objects of other nodes, requests that ask the origin, further ranges" },
    ],
    rows.map(({ row }) => row),
    now.sites.length ? "No misses in the last minutes." : "",
  );
}

function showSites(now: Snapshot): void {
  const share = (site: Snapshot["sites"][number], outcome: string) =>
    percent((site.by_outcome[outcome] ?? 0) / site.requests);
  const misses = now.sites.reduce((sum, site) => sum + (site.by_outcome["miss"] ?? 0), 0);
  const rows = now.sites.map((site) => [
    site.site,
    rate(site.requests_per_second),
    percent(site.hit_ratio),
    percent(site.byte_hit_ratio),
    share(site, "miss"),
    percent(misses ? (site.by_outcome["miss"] ?? 0) / misses : null),
    cause(site, now),
    share(site, "pass"),
    share(site, "revalidated"),
    percent(((site.by_outcome["refused"] ?? 0) + (site.by_outcome["none"] ?? 0)) / site.requests),
    { text: count(site.server_errors), level: site.server_errors > 0 ? ("bad" as const) : undefined },
    seconds(site.client_p99_seconds),
    seconds(site.origin_p50_seconds),
  ]);
  showTable(
    "site-table",
    `Sites, last ${span(now.window_seconds)}`,
    [
      { name: "site" },
      { name: "requests", number: true },
      { name: "hits", number: true },
      { name: "bytes hit", number: true },
      { name: "misses", number: true },
      { name: "of all misses", number: true },
      { name: "main cause", long: true },
      { name: "passes", number: true, title: "forwarded to the origin without the cache, by a rule, the method or the response" },
      { name: "revalidated", number: true, title: "the origin confirmed a stored response (304)" },
      { name: "refused, left", number: true, title: "the edge answered by itself (refused, shed, a rule), or the client left" },
      { name: "5xx", number: true, title: "sent to clients, by the origin or by the edge" },
      { name: "client p99", number: true, title: "99 % of the responses end within this time" },
      { name: "origin p50", number: true, title: "half of the responses of the origin begin within this time" },
    ],
    rows,
    "No requests in the last minutes.",
  );
  showMisses(now);
}

function showUrls(now: Snapshot): void {
  const top = now.top;
  const note = byId("url-note");
  if (!top) {
    setText(note, "The edge does not sample URLs: insight.enabled is false, or no URL was sampled yet.");
  } else {
    const wonders = top.one_hit_wonder_ratio;
    setText(note, `Estimated from ${count(top.sampled)} sampled requests. One-hit wonders: ${percent(wonders)} of the URLs.`);
  }
  const table = (id: string, name: string, list: TopUrl[] | undefined) =>
    showTable(
      id,
      `URLs with the most ${name}`,
      [
        { name: "URL" },
        { name: "requests", number: true },
        { name: "bytes", number: true },
        { name: "misses", number: true },
      ],
      (list ?? []).map((url) => [url.url, count(url.requests), bytes(url.bytes), count(url.misses)]),
      top ? `No URL has a large part of the ${name}: many URLs have a few each.` : "",
    );
  table("url-requests", "requests", top?.requests);
  table("url-bytes", "bytes", top?.bytes);
  table("url-misses", "misses", top?.misses);
}

function showFaults(now: Snapshot): void {
  const faults = now.faults;
  const isPart = (faults?.texts_one_in ?? 1) > 1;
  setText(
    byId("fault-note"),
    faults
      ? `Found in ${count(faults.sampled)} sampled requests. Each rule belongs to the site of the example.` +
          (isPart ? " The sample is a part of the requests, so the rules bring more hits than estimated." : "")
      : "The edge does not sample requests: insight.enabled is false, or no request was sampled yet.",
  );
  showTable(
    "fault-table",
    "Caching faults, and the rules that mend them",
    [
      { name: "fault", long: true },
      { name: "requests", number: true },
      { name: "more hits", number: true },
      { name: "example", long: true },
      { name: "rule" },
    ],
    (faults?.findings ?? []).map((finding) => [
      { text: finding.text, title: finding.fault },
      percent(finding.request_share),
      percent(finding.hit_share),
      finding.example,
      { text: placed(finding), code: true },
    ]),
    faults ? "No caching faults." : "",
  );
}

/** The lines of a rule, with the place in the configuration. */
function placed(finding: Finding): string {
  const rule = finding.rule.trim();
  if (!rule.startsWith("[[site.rule]]")) return rule;
  const host = finding.example.split("/")[0] ?? "";
  return `# below the [[site]] of ${host}; without sites, first:\n# [[site]]\n# hosts = "*"\n${rule}`;
}

function showContents(now: Snapshot): void {
  const rows: (string | Cell)[][] = [
    [
      `memory, ${now.hot.policy}`,
      bytes(now.hot.used_bytes),
      bytes(now.hot.capacity_bytes),
      percent(now.hot.used_bytes / now.hot.capacity_bytes),
      count(now.hot.objects),
      "",
    ],
  ];
  for (const device of now.disk?.devices ?? []) {
    rows.push([
      `disk ${device.device}`,
      bytes(device.used_bytes),
      bytes(device.capacity_bytes),
      percent(device.used_bytes / device.capacity_bytes),
      count(device.objects),
      device.state,
    ]);
  }
  for (const device of now.disk_damaged) rows.push([`disk ${device}`, "", "", "", "", { text: "damaged, not used", level: "bad" }]);
  showTable(
    "space-table",
    "Tiers",
    [
      { name: "tier" },
      { name: "used", number: true },
      { name: "of", number: true },
      { name: "share", number: true },
      { name: "objects", number: true },
      { name: "state" },
    ],
    rows,
    "",
  );
  const contents = now.contents;
  const share = contents?.sampled_share ?? 1;
  setText(
    byId("contents-note"),
    !contents ? "" : share < 1 ? `Memory, estimated from ${percent(share)} of its objects.` : "All objects of memory.",
  );
  const table = (id: string, name: string, shares: Share[] | undefined) => {
    const all = (shares ?? []).reduce((sum, one) => sum + one.bytes, 0);
    showTable(
      id,
      `Memory by ${name}`,
      [{ name }, { name: "bytes", number: true }, { name: "share", number: true }, { name: "objects", number: true }],
      (shares ?? []).map((one) => [one.name, bytes(one.bytes), percent(all ? one.bytes / all : null), count(one.objects)]),
      contents ? "Memory is empty." : "",
    );
  };
  table("contents-site", "host", contents?.by_host);
  table("contents-type", "type", contents?.by_type);
  table("contents-age", "age", contents?.by_age);
}

/** The name of an origin, or of the node of the fleet that it stands for. */
function originName(name: string): string {
  return name.startsWith("fleet:") ? `node ${name.slice(6)}` : name;
}

function showOrigins(now: Snapshot): void {
  showTable(
    "origin-table",
    `Origins, last ${span(now.window_seconds)}`,
    [
      { name: "origin" },
      { name: "URL" },
      { name: "state" },
      { name: "responses", number: true },
      { name: "5xx", number: true },
      { name: "p50", number: true },
      { name: "p90", number: true },
      { name: "p99", number: true },
    ],
    now.origins.map((origin) => [
      originName(origin.origin),
      origin.url,
      origin.up ? { text: "up", level: "good" as const } : { text: "down", level: "bad" as const },
      rate(origin.responses_per_second),
      { text: count(origin.server_errors), level: origin.server_errors > 0 ? ("bad" as const) : undefined },
      seconds(origin.p50_seconds),
      seconds(origin.p90_seconds),
      seconds(origin.p99_seconds),
    ]),
    "No origins.",
  );
  const servers = now.origins.flatMap((origin) =>
    origin.servers.map((server) => [
      server.server,
      originName(origin.origin) + (server.backup ? ", backup" : ""),
      { text: server.state, level: server.state === "up" ? ("good" as const) : ("bad" as const) },
      count(server.under_way),
      count(server.requests),
      { text: count(server.failures), level: server.failures > 0 ? ("warn" as const) : undefined },
    ]),
  );
  showTable(
    "server-table",
    "Servers of the origins, since the start",
    [
      { name: "server" },
      { name: "origin" },
      { name: "state" },
      { name: "under way", number: true },
      { name: "requests", number: true },
      { name: "failures", number: true },
    ],
    servers,
    "No server was used yet.",
  );
}

function showPurges(now: Snapshot): void {
  const { purges } = now;
  const rows: (string | Cell)[][] = Object.entries(purges.accepted)
    .filter(([, n]) => n > 0)
    .map(([kind, n]) => [`accepted, by ${kind}`, count(n)]);
  rows.push(["remembered tags, hosts and URLs", `${count(purges.entries)} of ${count(purges.entries_max)}`]);
  rows.push(["remembered prefixes and patterns", `${count(purges.patterns)} of ${count(purges.patterns_max)}`]);
  if (purges.failures > 0) rows.push(["refused, or not durable", { text: count(purges.failures), level: "bad" }]);
  if (purges.log_damaged) rows.push(["log of purges", { text: "damaged: all objects on disk count as purged", level: "bad" }]);
  showTable("purge-table", "Purges since the start", [{ name: "purges" }, { name: "number", number: true }], rows, "");
  showTable(
    "purge-recent",
    "Last purges",
    [{ name: "target" }, { name: "scope" }, { name: "time" }, { name: "by" }],
    (purges.recent ?? []).map((purge) => [purge.target, purge.scope + (purge.soft ? ", soft" : ""), date(purge.at), purge.by]),
    "No purges since the start.",
  );
}

function showCertificates(now: Snapshot): void {
  const days = (end: number | null): Cell => {
    if (end === null) return { text: "–" };
    const left = Math.floor((end - now.at) / 86400);
    return { text: `${left} days`, level: left < 7 ? "bad" : left < 21 ? "warn" : "good" };
  };
  const rows = now.certificates.map((certificate) => [
    certificate.of,
    date(certificate.not_after),
    days(certificate.not_after),
    "",
  ]);
  for (const certificate of now.acme?.certificates ?? []) {
    const failed = certificate.failures > 0;
    const order = failed ? `${certificate.failures} failed orders; next order ${date(certificate.next_order)}` : `next order ${date(certificate.next_order)}`;
    rows.push([certificate.name, date(certificate.not_after), days(certificate.not_after), order]);
  }
  showTable(
    "certificate-table",
    "Earliest end of the certificates of each listener, and of each renewed name",
    [{ name: "certificate" }, { name: "valid until" }, { name: "left", number: true }, { name: "renewal" }],
    rows,
    "No listener has TLS.",
  );
}

export function showSettings(settings: NonNullable<Snapshot["settings"]>): void {
  const filter = byId<HTMLInputElement>("filter").value.trim().toLowerCase();
  const all = byId<HTMLInputElement>("defaults").checked;
  const shown = settings.filter(
    ({ key, value, from }) =>
      (all || from !== "default") && (!filter || `${key} ${value}`.toLowerCase().includes(filter)),
  );
  showTable(
    "setting-table",
    "Settings in effect",
    [{ name: "setting" }, { name: "value" }, { name: "from" }],
    shown.map(({ key, value, from }) => [key, value, from]),
    settings.length ? "No setting matches." : "This edge was started without a list of its settings.",
  );
}
