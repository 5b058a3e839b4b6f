// A curve the size of a word.

/** @import { Style } from "./types.d.ts" */

import { h } from "./dom.js";

const WIDTH = 132;
const HEIGHT = 36;

/**
 * @param {(number|null)[]} values @param {number} length how many values the whole curve will have
 * @param {Style & {css: string}} style @param {string} label
 */
export function sparkline(values, length, style, label) {
  /** @type {[number, number][]} */
  const points = values.flatMap((value, index) => value === null || value === undefined ? [] : [[index, value]]);
  const numbers = points.map(([, value]) => value);
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  /** @type {(index: number) => number} */
  const x = (index) => 2 + ((WIDTH - 4) * index) / Math.max(1, length - 1);
  /** @type {(value: number) => number} */
  const y = (value) => HEIGHT - 3 - ((HEIGHT - 6) * (value - low)) / Math.max(1e-9, high - low);
  const path = points.map(([index, value], place) =>
    `${place ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`
  ).join("");
  const line = h("path", { d: path || "M0 0" });
  line.style.stroke = style.css;
  return h("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, line);
}
