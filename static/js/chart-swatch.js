// The sample of a line in tables and legends.

/** @import { Style } from "./types.d.ts" */

import { h } from "./dom.js";

/** The line sample of a method: colour and dash as in the charts. @param {Style} style */
export function swatch(style) {
  const line = h("line", {
    x1: 1,
    y1: 5,
    x2: 27,
    y2: 5,
    "stroke-width": 2.5,
    "stroke-dasharray": style.dash.map((part) => part * 0.7).join(" ") || null,
  });
  line.style.stroke = `light-dark(${style.light}, ${style.dark})`;
  return h("svg", { class: "swatch", viewBox: "0 0 28 10", width: 28, height: 10, "aria-hidden": "true" }, line);
}
