// Shows the exact values under the pointer. When a plot has the focus, the arrow keys move to the next or previous
// point.
"use strict";
for (const figure of document.querySelectorAll("figure.plot")) {
  // Each series has a name, the number of its colour (`slot`) and its points. A point is an array [x, y, xText, yText]:
  // the position in thousandths of the plot, and both values as text. A horizontal line has no points; its value as
  // text is `level`.
  const series = JSON.parse(figure.querySelector("script").textContent);
  const area = figure.querySelector(".area");
  const cursor = figure.querySelector(".cursor");
  const tip = figure.querySelector(".tip");
  // The x positions of all points, in ascending order. The arrow keys move along them.
  const stops = [...new Set(series.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => a - b);
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
    const [firstX, , firstXText] = nearest(found.filter(Boolean), x);
    make(tip, "b", firstXText);
    // The rows have the order of the curves: the highest value first.
    const height = (n) => (found[n] ? found[n][1] : Infinity);
    const order = [...series.keys()].sort((a, b) => height(a) - height(b));
    order.forEach((n) => {
      const one = series[n];
      let value = one.level;
      if (found[n]) {
        const [, , xText, yText] = found[n];
        value ??= xText === firstXText ? yText : `${yText} at ${xText}`;
      }
      if (value == null) return;
      const row = make(tip, "div", "");
      make(row, "i", "", `c${one.slot}`);
      make(row, "span", one.name);
      make(row, "span", value);
    });
    cursor.hidden = tip.hidden = false;
    cursor.style.left = `${firstX / 10}%`;
    // The tip is beside the cursor, on the side with more room, and never outside the plot.
    const at = (firstX / 1000) * area.clientWidth;
    const left = at < area.clientWidth / 2 ? at + 12 : at - 12 - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(left, area.clientWidth - tip.offsetWidth))}px`;
  };

  // With many series, the legend selects one: it stays, and all others fade.
  if (figure.classList.contains("many")) {
    const items = [...figure.querySelectorAll(".legend li")];
    let selected = -1;
    const fade = (shown) => {
      items.forEach((item, n) => item.classList.toggle("faded", shown >= 0 && n !== shown));
      for (const path of area.querySelectorAll("[data-series]")) {
        path.classList.toggle("faded", shown >= 0 && Number(path.dataset.series) !== shown);
      }
    };
    items.forEach((item, n) => {
      item.tabIndex = 0;
      item.setAttribute("role", "button");
      item.setAttribute("aria-pressed", "false");
      const select = () => {
        selected = selected === n ? -1 : n;
        items.forEach((other, m) => other.setAttribute("aria-pressed", String(m === selected)));
        fade(selected);
      };
      item.addEventListener("click", select);
      item.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        select();
      });
      item.addEventListener("pointerenter", () => fade(n));
      item.addEventListener("pointerleave", () => fade(selected));
    });
  }

  const hide = () => {
    cursor.hidden = tip.hidden = true;
    stop = -1;
  };

  const showAtPointer = (event) => {
    const box = area.getBoundingClientRect();
    show(((event.clientX - box.left) / box.width) * 1000);
  };
  area.addEventListener("pointermove", showAtPointer);
  area.addEventListener("pointerdown", showAtPointer);
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
