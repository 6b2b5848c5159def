// Shows the exact values under the pointer, or under the arrow keys when a plot has the focus.
"use strict";
for (const figure of document.querySelectorAll("figure.plot")) {
  const series = JSON.parse(figure.querySelector("script").textContent);
  const area = figure.querySelector(".area");
  const cursor = figure.querySelector(".cursor");
  const tip = figure.querySelector(".tip");
  const stops = [...new Set(series.flatMap((one) => one.points.map((p) => p[0])))].sort((a, b) => a - b);
  if (stops.length === 0) continue;
  let stop = -1;

  const nearest = (points, x) =>
    points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best), points[0]);

  const make = (parent, tag, text, name) => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (name) element.className = name;
    parent.append(element);
    return element;
  };

  const show = (x) => {
    tip.replaceChildren();
    const found = series.map((one) => (one.points.length ? nearest(one.points, x) : null));
    const first = nearest(found.filter(Boolean), x);
    make(tip, "b", first[2]);
    series.forEach((one, n) => {
      const point = found[n];
      const value = one.level ?? (point && (point[2] === first[2] ? point[3] : `${point[3]} at ${point[2]}`));
      if (value == null) return;
      const row = make(tip, "div", "");
      make(row, "i", "", `c${one.slot}`);
      make(row, "span", one.name);
      make(row, "span", value);
    });
    cursor.hidden = tip.hidden = false;
    cursor.style.left = `${first[0] / 10}%`;
    // Beside the cursor, on the side with more room, and never outside the plot.
    const at = (first[0] / 1000) * area.clientWidth;
    const left = at < area.clientWidth / 2 ? at + 12 : at - 12 - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(left, area.clientWidth - tip.offsetWidth))}px`;
  };

  const hide = () => {
    cursor.hidden = tip.hidden = true;
    stop = -1;
  };

  const point = (event) => {
    const box = area.getBoundingClientRect();
    show(((event.clientX - box.left) / box.width) * 1000);
  };
  area.addEventListener("pointermove", point);
  area.addEventListener("pointerdown", point);
  area.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step || event.target !== figure) return;
    event.preventDefault();
    stop = Math.max(0, Math.min(stops.length - 1, stop + step));
    show(stops[stop]);
  });
}
