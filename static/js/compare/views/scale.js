// Numbers on the axes of the views.

import { ticks } from "../../units.js";

/** @param {number} fraction */
export const points = (fraction) => `${fraction >= 0 ? "+" : "−"}${Math.abs(100 * fraction).toFixed(2)}`;
/** @param {number} fraction */
export const inPercent = (fraction) => Number((100 * fraction).toFixed(4));
/** @type {{formatter: (value: number) => string}} */
export const percentTick = { formatter: (value) => String(Number(value.toFixed(2))) };

/**
 * Round ends of an axis a little beyond the values.
 * @param {number[]} values @param {[number, number]} limits @returns {[number, number]}
 */
export function roundEnds(values, limits) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const pad = Math.max(0.5, 0.08 * (most - least));
  const [first, second] = ticks(least - pad, most + pad, 6);
  const step = second === undefined ? 1 : second - first;
  return [
    Math.max(limits[0], step * Math.floor((least - pad) / step)),
    Math.min(limits[1], step * Math.ceil((most + pad) / step)),
  ];
}
