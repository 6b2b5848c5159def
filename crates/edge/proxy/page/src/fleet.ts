// The sections of a fleet and of HTTP/3. Each is shown only if the edge has it.

import { byId, setText, showTable, visible, type Cell } from "./dom";
import { count, percent, seconds } from "./format";
import type { Fleet, Http3, PurgeStream, Snapshot } from "./state";

export function showFleetAndProtocols(now: Snapshot): void {
  showSection("fleet", now.fleet != null);
  if (now.fleet) showFleet(now.fleet, now.fleet_purges);
  showSection("protocols", now.http3 != null);
  if (now.http3) showProtocols(now.http3);
}

/** Shows or hides a section and its link. */
function showSection(id: string, isShown: boolean): void {
  byId(id).hidden = !isShown;
  byId(`${id}-link`).hidden = !isShown;
}

const ANSWERS: Record<string, string> = {
  hit: "the other node had the object",
  miss: "the other node fetched the object for this one",
  slow: "no byte within fleet.wait, so this node asked the origin",
  failed: "the connection or the response failed, so this node asked the origin",
  purged: "the object is older than a purge that this node has, so this node asked the origin",
  refused: "the other node answered with an error of its own: compare the configurations",
  invalidated: "invalidations after an unsafe request that the other node confirmed",
  "not-invalidated": "invalidations that the other node did not confirm: it may serve an old object until it is stale",
};

const RECEIVED: Record<string, string> = {
  accepted: "served",
  unsigned: "refused: another key of the fleet, or a request of another program",
  loop: "refused: the request had passed through this node before. Compare the member lists of the nodes",
};

const FAILED = ["failed", "refused", "not-invalidated", "unsigned", "loop"];

function showFleet(fleet: Fleet, purges: PurgeStream | null | undefined): void {
  const { requests = {}, received = {}, waits = 0 } = fleet;
  const { hit = 0, miss = 0 } = requests;
  const hits = hit + miss > 0 ? ` ${percent(hit / (hit + miss))} of their answers were hits.` : "";
  const asked = Object.values(requests).reduce((sum, n) => sum + n, 0);
  setText(
    byId("fleet-note"),
    `This node is ${visible(fleet.name)}, of the group ${fleet.group}. It sent ${count(asked)} requests to other nodes.${hits}`,
  );
  showDirectory(fleet.directory);
  showTable(
    "fleet-members",
    "Members, as this node sees them",
    [
      { name: "member" },
      { name: "group" },
      { name: "state" },
      { name: "share of keys", number: true },
      { name: "requests to it", number: true },
      { name: "failures", number: true },
    ],
    fleet.members.map((member) => [
      member.is_self ? `${member.name} (this node)` : member.name,
      member.group,
      { text: member.state, level: MEMBER_LEVELS[member.state] ?? "bad" },
      percent(member.key_share),
      member.is_self ? "" : count(member.requests),
      member.is_self ? "" : { text: count(member.failures), level: member.failures > 0 ? ("warn" as const) : undefined },
    ]),
    "The member list is empty.",
  );
  const counts = (prefix: string, values: Record<string, number>, meanings: Record<string, string>) =>
    Object.entries(values)
      .filter(([, n]) => n > 0)
      .map(([name, n]): (string | Cell)[] => [
        `${prefix}, ${name}`,
        { text: count(n), level: FAILED.includes(name) ? "warn" : undefined },
        meanings[name] ?? "",
      ]);
  const rows = [...counts("sent", requests, ANSWERS), ...counts("received", received, RECEIVED)];
  if (waits > 0) {
    rows.push(["waits", count(waits), "longer than fleet.wait, because the budget of fallbacks was used up"]);
  }
  showTable(
    "fleet-requests",
    "Requests between nodes since the start",
    [{ name: "requests" }, { name: "number", number: true }, { name: "meaning" }],
    rows,
    "No requests between nodes yet.",
  );
  showPurgeStream(purges);
}

/** The faults of the list of members. */
function showDirectory(directory: Fleet["directory"]): void {
  const rival = directory?.duplicate_of;
  const faults: string[] = [];
  if (rival != null) {
    faults.push(`Another node, at ${visible(rival)}, has the name of this one, so this node stays out of the fleet.`);
  }
  if (directory?.current === false) {
    faults.push("The heartbeats of this node do not return from NATS, so its list of members stays as it is.");
  }
  const note = byId("fleet-directory");
  setText(note, faults.join(" "));
  note.hidden = faults.length === 0;
}

const MEMBER_LEVELS: Record<string, Cell["level"]> = { up: "good", joining: "warn", draining: "warn", down: "bad" };

function showPurgeStream(purges: PurgeStream | null | undefined): void {
  const rows: (string | Cell)[][] = [];
  if (purges) {
    const bad = (isBad: boolean): Cell["level"] => (isBad ? "bad" : "good");
    const refused = Object.values(purges.refused).reduce((sum, n) => sum + n, 0);
    rows.push(
      ["stream of purges", { text: purges.connected ? "connected" : "disconnected", level: bad(!purges.connected) }],
      ["purges of other nodes", { text: purges.cut_off ? "some may be missing" : "complete", level: bad(purges.cut_off) }],
      ["time since all purges were applied", seconds(purges.lag_seconds)],
      ["purges that are not applied yet", count(purges.lag_messages)],
      ["applied since the start", count(purges.applied)],
      ["own purges that wait for the stream", count(purges.pending)],
    );
    if (purges.log_unwritable) rows.push(["log of purges", { text: "cannot be written", level: "bad" }]);
    if (purges.unreadable > 0) rows.push(["messages that could not be read", { text: count(purges.unreadable), level: "bad" }]);
    if (refused > 0) rows.push(["own purges that failed", { text: count(refused), level: "bad" }]);
    if (purges.purged_all > 0) rows.push(["purges of all objects, because some may have been missed", count(purges.purged_all)]);
  }
  showTable(
    "fleet-purges",
    "Purges of the fleet",
    [{ name: "purges" }, { name: "state", number: true }],
    rows,
    "The nodes do not share their purges: fleet.nats is not set.",
  );
}

function showProtocols(http3: Http3): void {
  const all = Object.values(http3.requests).reduce((sum, n) => sum + n, 0);
  showTable(
    "protocol-table",
    "Requests and connections of clients since the start",
    [
      { name: "protocol" },
      { name: "requests", number: true },
      { name: "share", number: true },
      { name: "connections", number: true },
      { name: "requests per connection", number: true },
    ],
    Object.entries(NAMES).map(([name, shown]) => {
      const [n, connections] = [http3.requests[name] ?? 0, http3.connections[name] ?? 0];
      return [
        shown,
        count(n),
        percent(all ? n / all : null),
        count(connections),
        connections ? (n / connections).toFixed(1) : "–",
      ];
    }),
    "",
  );
  const bounds = Object.entries(http3.refused).filter(([, n]) => n > 0);
  showTable(
    "quic-table",
    "QUIC since the start",
    [{ name: "attempts and refused requests" }, { name: "number", number: true }, { name: "meaning" }],
    [
      ["handshakes under way", count(http3.handshakes), ""],
      ...Object.entries(http3.attempts)
        .filter(([, n]) => n > 0)
        .map(([name, n]) => [`attempts, ${ATTEMPTS[name]?.[0] ?? name}`, count(n), ATTEMPTS[name]?.[1] ?? ""]),
      ...bounds.map(([name, n]) => [`refused requests, ${name}`, { text: count(n), level: "warn" as const }, "this bound was reached"]),
    ],
    "",
  );
}

const NAMES: Record<string, string> = { "http/1.1": "HTTP/1.1", h2: "HTTP/2", h3: "HTTP/3" };

const ATTEMPTS: Record<string, [string, string]> = {
  retry: ["sent back", "many handshakes are under way, so the client must prove its address first"],
  refused: ["refused", "limits.quic_handshakes_max or limits.connections_max was reached"],
  none: ["not answered", "the address was not proven"],
};
