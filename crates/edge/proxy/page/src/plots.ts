// Plots over time, by uPlot.

import uPlot from "uplot";
import { byId, make } from "./dom";
import type { History, Row } from "./state";

export interface Line {
  label: string;
  /** The column of the history, or a function of a row. */
  of: string | ((value: (column: string) => number | null) => number | null);
  /** The slot of the colour. */
  colour: number;
  /** False if the edge does not have the line. */
  isShown?: () => boolean;
}

interface Plot {
  id: string;
  title: string;
  lines: Line[];
  format: (value: number | null) => string;
  /** True if the values are bytes. */
  isBytes: boolean;
  /** The maximum of the axis, if it is fixed. */
  max?: number;
  chart?: uPlot;
}

/** The distances of labels of an axis of bytes: powers of two, so that the labels are whole numbers of KiB or MiB. */
export const BYTE_STEPS = Array.from({ length: 50 }, (_, n) => 2 ** n);

/** The distances of labels of an axis of time in seconds. Those of uPlot have none between one and five minutes. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];

const plots: Plot[] = [];
let history: History | undefined;
let level = 0;

export function addPlot(
  id: string,
  title: string,
  lines: Line[],
  format: Plot["format"],
  { isBytes = false, max }: { isBytes?: boolean; max?: number } = {},
): void {
  plots.push({ id, title, lines, format, isBytes, max });
}

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Returns the lines that the edge has. */
function linesOf(plot: Plot): Line[] {
  return plot.lines.filter((line) => line.isShown?.() ?? true);
}

/** Shows the values of a row in the legend while the pointer is outside of the plot. */
export function rest(row: (plot: uPlot) => number): uPlot.Hooks.Arrays {
  const show = (plot: uPlot) => {
    const at = row(plot);
    if (plot.legend.idx == null && at >= 0) plot.setLegend({ idx: at }, false);
  };
  return { ready: [show], setData: [show], setLegend: [show] };
}

export function setHistory(all: History): void {
  history = all;
  draw();
}

/** Adds the newest row of each level, unless it is known. */
export function addNewest(newest: History): void {
  if (!history) return;
  let isNew = false;
  newest.levels.forEach((from, nth) => {
    const rows = history!.levels[nth]?.rows;
    const row = from.rows[0];
    if (!rows || !row) return;
    const last = rows[rows.length - 1];
    if (last && last[0]! >= row[0]!) return;
    rows.push(row);
    const rowsMax = [300, 360, 1440][nth] ?? 300;
    if (rows.length > rowsMax) rows.shift();
    isNew ||= nth === level;
  });
  if (isNew) draw();
}

export function setLevel(nth: number): void {
  level = nth;
  for (const plot of plots) destroy(plot);
  draw();
}

/** Draws all plots again with the colours of the present scheme. */
export function redraw(): void {
  for (const plot of plots) destroy(plot);
  draw();
}

function destroy(plot: Plot): void {
  plot.chart?.destroy();
  plot.chart = undefined;
}

/** Returns the newest row as a function from column to value. */
export function newest(nth = 0): ((column: string) => number | null) | undefined {
  const rows = history?.levels[nth]?.rows;
  const row = rows?.[rows.length - 1];
  return row && valueOf(row);
}

function valueOf(row: Row): (column: string) => number | null {
  return (column) => row[history!.columns.indexOf(column)] ?? null;
}

function draw(): void {
  const rows = history?.levels[level]?.rows;
  if (!rows) return;
  for (const plot of plots) {
    const times = rows.map((row) => row[0] as number);
    const values = linesOf(plot).map((line) =>
      rows.map((row) => (typeof line.of === "string" ? valueOf(row)(line.of) : line.of(valueOf(row)))),
    );
    const data = [times, ...values] as uPlot.AlignedData;
    if (plot.chart) plot.chart.setData(data);
    else create(plot, data);
    describe(plot, values);
  }
}

function create(plot: Plot, data: uPlot.AlignedData): void {
  const figure = byId(plot.id);
  let holder = figure.querySelector<HTMLElement>(".plot");
  if (!holder) {
    figure.append(make("figcaption", {}, plot.title));
    holder = make("div", { class: "plot", role: "img" });
    figure.append(holder);
  }
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = {
    stroke: colour("--faint"),
    grid: { stroke: colour("--grid"), width: 1 },
    ticks: { stroke: colour("--grid"), width: 1 },
    font,
  };
  const options: uPlot.Options = {
    width: holder.clientWidth,
    height: 200,
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    legend: { live: true },
    scales: { y: { range: (_u, _min, max) => [0, plot.max ?? (max > 0 ? max * 1.1 : 1)] } },
    axes: [
      { ...axis, space: 80, incrs: TIME_STEPS, values: (_u, splits, _nth, _space, step) => splits.map((split) => clock(split, step < 60)) },
      {
        ...axis,
        size: 84,
        ...(plot.isBytes ? { incrs: BYTE_STEPS } : {}),
        values: (_u, splits) => splits.map((split) => plot.format(split)),
      },
    ],
    series: [
      { label: "time", value: (_u, at) => (at === null ? "–" : clock(at, true)) },
      ...linesOf(plot).map((line) => ({
        label: line.label,
        stroke: colour(`--s${line.colour}`),
        width: 2,
        points: { show: false },
        value: (_u: uPlot, value: number | null) => plot.format(value),
      })),
    ],
  };
  options.hooks = rest((chart) => chart.data[0].length - 1);
  plot.chart = new uPlot(options, data, holder);
}

function clock(at: number, hasSeconds: boolean): string {
  return new Date(at * 1000).toTimeString().slice(0, hasSeconds ? 8 : 5);
}

/** Describes the newest values in words for readers who do not see the plot. */
function describe(plot: Plot, values: (number | null)[][]): void {
  const holder = byId(plot.id).querySelector<HTMLElement>(".plot");
  const parts = linesOf(plot).map((line, nth) => {
    const series = values[nth] ?? [];
    return `${line.label} ${plot.format(series[series.length - 1] ?? null)}`;
  });
  holder?.setAttribute("aria-label", `${plot.title}. Newest values: ${parts.join(", ")}.`);
}

export function watchSize(): void {
  const observer = new ResizeObserver(() => {
    for (const plot of plots) {
      const holder = byId(plot.id).querySelector<HTMLElement>(".plot");
      const width = holder?.clientWidth ?? 0;
      if (plot.chart && width > 0 && plot.chart.width !== width) plot.chart.setSize({ width, height: 200 });
    }
  });
  observer.observe(document.body);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
