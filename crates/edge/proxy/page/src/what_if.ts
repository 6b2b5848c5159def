// The plots of other sizes and policies, and what follows from them.

import uPlot from "uplot";
import { byId, make, setText, showTable, visible } from "./dom";
import { bytes, count, percent, span } from "./format";
import { BYTE_STEPS, colour, rest } from "./plots";
import type { Snapshot, WhatIfPoint } from "./state";

type Measure = "hit_ratio" | "origin_bytes_per_second";

const charts: uPlot[] = [];
let drawn = "";

/** Draws everything again at the next snapshot. */
export function forgetWhatIf(): void {
  drawn = "";
}

export function showWhatIf(now: Snapshot): void {
  const what = now.what_if;
  const points = what?.points ?? [];
  const note = byId("what-if-note");
  if (!what) {
    setText(note, "This edge does not follow other settings: insight.enabled is false.");
  } else if (points.length === 0) {
    setText(note, "No prediction yet: it needs requests.");
  } else {
    const window = span(what.window_seconds ?? 0);
    setText(
      note,
      `Simulated with ${count(what.requests_sampled)} of the ${count(what.requests)} requests of the last ${window}. ` +
        "lru evicts the object that was not used for the longest time; gdsf keeps those with most hits per byte, " +
        "density those with most expected hits per byte and time. A point is 1 % of the requests; ± is the standard error of the sample.",
    );
  }
  showAdvice(points);
  const sizes = [...new Set(points.map((point) => point.capacity_bytes))].sort((a, b) => a - b);
  const policies = [...new Set(points.map((point) => point.policy))];
  showTable(
    "what-if-table",
    "Predicted hit ratio and traffic of origins, by policy and size of memory",
    [
      { name: "policy" },
      { name: "memory", number: true },
      { name: "hit ratio", number: true },
      { name: "±", number: true },
      { name: "bytes hit", number: true },
      { name: "from origins", number: true },
      { name: "setting" },
    ],
    points.map((point) => [
      point.policy,
      bytes(point.capacity_bytes),
      (point.filling ? "≥ " : "") + percent(point.hit_ratio),
      errorOf(point),
      percent(point.byte_hit_ratio),
      `${bytes(point.origin_bytes_per_second)}/s`,
      point.present ? "present" : "",
    ]),
    "",
  );
  const disk = now.what_if?.disk?.points ?? [];
  showTable(
    "what-if-disk",
    "Predicted hit ratio and writes, by admission and size of disk",
    [
      { name: "admission" },
      { name: "disk", number: true },
      { name: "hit ratio", number: true },
      { name: "±", number: true },
      { name: "bytes hit", number: true },
      { name: "from origins", number: true },
      { name: "written", number: true },
      { name: "setting" },
    ],
    disk.map((point) => [
      point.admission,
      bytes(point.capacity_bytes),
      (point.filling ? "≥ " : "") + percent(point.hit_ratio),
      errorOf(point),
      percent(point.byte_hit_ratio),
      `${bytes(point.origin_bytes_per_second)}/s`,
      `${bytes(point.disk_bytes_per_second)}/s`,
      point.present ? "present" : "",
    ]),
    "",
  );
  // The values change slowly, and a plot that is drawn anew loses the pointer.
  const state = JSON.stringify(points.map((point) => [point.policy, point.size, Math.round(point.hit_ratio * 500)]));
  if (state === drawn) return;
  drawn = state;
  for (const chart of charts.splice(0)) chart.destroy();
  for (const id of ["what-if-ratio", "what-if-bytes"]) byId(id).replaceChildren();
  if (points.length === 0) return;
  draw("what-if-ratio", "Hit ratio against the size of memory", "hit_ratio", points, sizes, policies);
  draw("what-if-bytes", "From origins against the size of memory", "origin_bytes_per_second", points, sizes, policies);
}

function errorOf(point: { hit_ratio_error: number | null; filling?: boolean }): string {
  if (point.filling) return "fills";
  return point.hit_ratio_error === null ? "" : (point.hit_ratio_error * 100).toFixed(1);
}

function draw(
  id: string,
  title: string,
  measure: Measure,
  points: WhatIfPoint[],
  sizes: number[],
  policies: string[],
): void {
  const figure = byId(id);
  const format = (value: number | null) => (measure === "hit_ratio" ? percent(value) : `${bytes(value)}/s`);
  const values = policies.map((policy) =>
    sizes.map((size) => {
      const found = points.find((point) => point.policy === policy && point.capacity_bytes === size);
      return found ? found[measure] : null;
    }),
  );
  const words = policies.map((policy, nth) => `${policy} ${values[nth]!.map(format).join(", ")}`).join("; ");
  const holder = make("div", {
    class: "plot",
    role: "img",
    "aria-label": visible(`${title}, for ${sizes.map(bytes).join(", ")}: ${words}.`),
  });
  figure.append(make("figcaption", {}, title), holder);
  const present = sizes.indexOf(points.find((point) => point.present)?.capacity_bytes ?? -1);
  const axis = {
    stroke: colour("--faint"),
    grid: { stroke: colour("--grid"), width: 1 },
    ticks: { stroke: colour("--grid"), width: 1 },
    font: `12px ${getComputedStyle(document.body).fontFamily}`,
  };
  const mark = (plot: uPlot) => {
    if (present < 0) return;
    const { ctx, bbox } = plot;
    const x = plot.valToPos(present, "x", true);
    ctx.save();
    ctx.strokeStyle = colour("--faint");
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillStyle = colour("--faint");
    ctx.font = axis.font;
    ctx.fillText("present size", x + 4, bbox.top + 12);
    ctx.restore();
  };
  charts.push(
    new uPlot(
      {
        width: holder.clientWidth,
        height: 220,
        cursor: { drag: { x: false, y: false } },
        scales: {
          x: { time: false, range: [-0.2, sizes.length - 0.8] },
          y: { range: (_u, _min, max) => [0, measure === "hit_ratio" ? 1 : max > 0 ? max * 1.1 : 1] },
        },
        axes: [
          {
            ...axis,
            splits: sizes.map((_, nth) => nth),
            values: (_u, splits) => splits.map((at) => bytes(sizes[at])),
          },
          {
            ...axis,
            size: 76,
            ...(measure === "hit_ratio" ? {} : { incrs: BYTE_STEPS }),
            values: (_u, splits) => splits.map(format),
          },
        ],
        series: [
          { label: "memory", value: (_u, at) => (at === null ? "–" : bytes(sizes[at])) },
          ...policies.map((policy, nth) => ({
            label: visible(policy),
            stroke: colour(`--s${nth}`),
            width: 2,
            points: { show: true, size: 6 },
            value: (_u: uPlot, value: number | null) => format(value),
          })),
        ],
        hooks: { ...rest(() => present), draw: [mark] },
      },
      [sizes.map((_, nth) => nth), ...values] as uPlot.AlignedData,
      holder,
    ),
  );
}

/** Says in words if more memory or another policy pays. */
function showAdvice(points: WhatIfPoint[]): void {
  const present = points.find((point) => point.present);
  const list = byId("advice");
  const lines: string[] = [];
  if (present) {
    const difference = (point: WhatIfPoint) => {
      const gain = (point.hit_ratio - present.hit_ratio) * 100;
      const saved = present.origin_bytes_per_second - point.origin_bytes_per_second;
      const error = Math.max(point.hit_ratio_error ?? 0, present.hit_ratio_error ?? 0) * 100;
      const sign = gain < 0 ? "−" : "+";
      const range = point.filling ? "" : ` (± ${error.toFixed(1)})`;
      const traffic = saved >= 0 ? `${bytes(saved)}/s less` : `${bytes(-saved)}/s more`;
      const least = point.filling ? "at least " : "";
      return `${least}${sign}${Math.abs(gain).toFixed(1)} points of hit ratio${range}, ${traffic} from origins`;
    };
    lines.push(`Now: ${visible(present.policy)} with ${bytes(present.capacity_bytes)}, predicted ${present.filling ? "at least " : ""}${percent(present.hit_ratio)}.`);
    if (present.filling) {
      lines.push(
        "The simulated memory of the present size has not been full since the start. Predictions for more memory follow when it was.",
      );
    }
    for (const point of points) {
      if (!present.filling && point.policy === present.policy && point.capacity_bytes > present.capacity_bytes) {
        const setting = `hot.capacity = "${Math.round(point.capacity_bytes / 2 ** 20)}MiB"`;
        lines.push(`With ${setting}, after a restart: ${difference(point)}.`);
      }
    }
    for (const point of points) {
      if (!present.filling && point.policy !== present.policy && point.capacity_bytes === present.capacity_bytes) {
        lines.push(`With hot.policy = "${visible(point.policy)}", after a reload: ${difference(point)}.`);
      }
    }
  }
  while (list.children.length > lines.length) list.lastElementChild!.remove();
  lines.forEach((line, at) => {
    let item = list.children[at];
    if (!item) {
      item = make("li");
      list.append(item);
    }
    setText(item, line);
  });
}
