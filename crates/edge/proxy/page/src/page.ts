// The page of the admin server: connects to its events, and shows each snapshot.

import { Refused, follow, getJson, setToken } from "./api";
import { byId, setText } from "./dom";
import { bytes, percent, rate, seconds } from "./format";
import { addNewest, addPlot, setHistory, setLevel, watchSize } from "./plots";
import { showSections, showSettings } from "./sections";
import type { Snapshot } from "./state";
import { setUpTools } from "./tools";
import { forgetWhatIf, showWhatIf } from "./what_if";

let settings: NonNullable<Snapshot["settings"]> = [];
let generation = -1;
let hasDisk = false;
let connection: AbortController | undefined;

const total = (value: (column: string) => number | null) =>
  ["hit", "hit_stale", "miss", "revalidated", "pass", "refused", "none"].reduce((sum, name) => sum + (value(name) ?? 0), 0);

addPlot(
  "plot-ratio",
  "Hit ratio",
  [
    {
      label: "requests",
      colour: 0,
      of: (value) => (total(value) > 0 ? ((value("hit") ?? 0) + (value("hit_stale") ?? 0)) / total(value) : null),
    },
    {
      label: "bytes",
      colour: 1,
      of: (value) => ((value("bytes") ?? 0) > 0 ? (value("hit_bytes") ?? 0) / value("bytes")! : null),
    },
  ],
  percent,
  { max: 1 },
);
addPlot(
  "plot-requests",
  "Requests by outcome",
  [
    { label: "hit", colour: 0, of: (value) => (value("hit") ?? 0) + (value("hit_stale") ?? 0) },
    { label: "miss", colour: 1, of: "miss" },
    { label: "revalidated", colour: 2, of: "revalidated" },
    { label: "pass", colour: 3, of: "pass" },
    { label: "refused", colour: 6, of: "refused" },
  ],
  rate,
);
addPlot(
  "plot-clients",
  "Latency of clients: whole responses",
  [
    { label: "p50", colour: 0, of: "client_p50_seconds" },
    { label: "p90", colour: 2, of: "client_p90_seconds" },
    { label: "p99", colour: 1, of: "client_p99_seconds" },
  ],
  seconds,
);
addPlot(
  "plot-origins",
  "Latency of origins: until their response begins",
  [
    { label: "p50", colour: 0, of: "origin_p50_seconds" },
    { label: "p90", colour: 2, of: "origin_p90_seconds" },
    { label: "p99", colour: 1, of: "origin_p99_seconds" },
  ],
  seconds,
);
addPlot(
  "plot-bytes",
  "Body bytes",
  [
    { label: "to clients", colour: 0, of: "bytes" },
    { label: "from origins", colour: 1, of: "origin_bytes" },
  ],
  (value) => `${bytes(value)}/s`,
  { isBytes: true },
);
addPlot(
  "plot-space",
  "Space in use",
  [
    { label: "memory", colour: 0, of: "memory_bytes" },
    { label: "disk", colour: 1, of: "disk_bytes", isShown: () => hasDisk },
  ],
  bytes,
  { isBytes: true },
);

function show(now: Snapshot): void {
  addNewest(now.history);
  showSections(now);
  showWhatIf(now);
  if (now.generation !== generation && generation >= 0) void load();
}

async function load(): Promise<void> {
  const all = await getJson<Snapshot>("/status.json");
  generation = all.generation;
  settings = all.settings ?? [];
  hasDisk = all.disk != null;
  setHistory(all.history);
  showSections(all);
  showWhatIf(all);
  showSettings(settings);
  const policy = byId<HTMLInputElement>("policy-name");
  if (!policy.value) policy.value = all.hot.policy;
}

/** Follows the events until the page is hidden. After an error it tries again, less and less often. */
async function connect(): Promise<void> {
  connection?.abort();
  const own = new AbortController();
  connection = own;
  for (let wait = 1; !own.signal.aborted; wait = Math.min(2 * wait, 15)) {
    try {
      await load();
      byId("login").hidden = true;
      state("", false);
      await follow<Snapshot>("/events", own.signal, (now) => {
        wait = 1;
        show(now);
      });
    } catch (error) {
      if (own.signal.aborted) return;
      if (error instanceof Refused && [401, 403].includes(error.status)) {
        askForToken(error.message);
        return;
      }
      const isFull = error instanceof Refused && error.status === 503;
      state(isFull ? "Too many viewers: the page is not live." : "The connection is lost. Trying again…", true);
    }
    await new Promise((done) => setTimeout(done, wait * 1000));
  }
}

function state(text: string, isBad: boolean): void {
  const element = byId("state");
  setText(element, text);
  element.className = isBad ? "warn" : "";
}

function askForToken(why: string): void {
  setText(byId("about"), "");
  setText(byId("login-why"), why);
  byId("login").hidden = false;
  byId("login-token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = byId<HTMLInputElement>("login-token");
  setToken(field.value.trim());
  byId<HTMLInputElement>("token").value = field.value.trim();
  field.value = "";
  void connect();
});
byId("range").addEventListener("change", (event) => setLevel(Number((event.target as HTMLInputElement).value)));
byId("filter").addEventListener("input", () => showSettings(settings));
byId("defaults").addEventListener("change", () => showSettings(settings));
document.addEventListener("visibilitychange", () => {
  if (document.hidden) connection?.abort();
  else void connect();
});
setUpTools();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forgetWhatIf);
watchSize();
void connect();
