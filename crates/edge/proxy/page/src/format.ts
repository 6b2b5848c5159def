// Numbers with the digits that a reader needs.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  let at = 0;
  while (value >= 1024 && at < UNITS.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${digits(value)} ${UNITS[at]}`;
}

/** Three digits, or all digits before the point. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en");
}

export function rate(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${digits(value)}/s`;
}

export function percent(ratio: number | null | undefined): string {
  return ratio === null || ratio === undefined ? "–" : `${(ratio * 100).toFixed(1)} %`;
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${digits(value * 1e6)} µs`;
  if (value < 0.9995) return `${digits(value * 1e3)} ms`;
  return `${digits(value)} s`;
}

/** A long time, such as the time since the start. */
export function span(value: number): string {
  const parts: [number, string][] = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
  ];
  for (const [length, unit] of parts) {
    if (value >= 2 * length) return `${Math.floor(value / length)} ${unit}`;
  }
  return `${Math.round(value)} s`;
}

export function date(since1970: number | null | undefined): string {
  if (since1970 === null || since1970 === undefined) return "–";
  return new Date(since1970 * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";
}
