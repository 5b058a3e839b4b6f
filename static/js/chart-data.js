// The points of a chart, put into order for drawing. Nothing here touches the page.

/** @import { PlotColumns, Style } from "./types.d.ts" */

/** A button is at least so high, or it is hard to hit. */
export const LABEL_HEIGHT = 24;

/**
 * @typedef {object} Line
 * @property {string} key stays the same between updates
 * @property {string} label
 * @property {Style} style
 * @property {number[]} x
 * @property {(number|null)[]} y
 * @property {(number|null)[]} [low]
 * @property {(number|null)[]} [high]
 * @property {(index: number) => string} [bandText] what the band is at a point
 * @property {boolean} [faint] thin, without a label: a quiet companion of another line
 */

/** A point that stands out. @typedef {{key?: string, x: number, y: number, style: Style, label: string}} Mark */

/** Where a line ends. @typedef {{line: Line, value: number|null, x: number|null}} End */

/**
 * A logarithmic axis has no place for zero: such points are left out.
 * @param {Line} line @param {boolean} logX @param {boolean} logY @returns {Line}
 */
export function positive(line, logX, logY) {
  const kept = line.x.map((_, index) => index).filter((index) => !logX || line.x[index] > 0);
  /** @type {(values: (number|null)[]) => (number|null)[]} */
  const pick = (values) =>
    kept.map((index) => {
      const value = values[index];
      return logY && value !== null && value <= 0 ? null : value;
    });
  const shown = { ...line, x: kept.map((index) => line.x[index]), y: pick(line.y) };
  const { low, high = [], bandText } = line;
  if (!low) return shown;
  return {
    ...shown,
    low: kept.map((index) => {
      const value = low[index];
      return logY && value !== null ? Math.max(value, (line.y[index] ?? 0) / 100) : value;
    }),
    high: pick(high),
    bandText: bandText && ((index) => bandText(kept[index])),
  };
}

/**
 * All lines over one common x, as uPlot wants them; a missing point is undefined and does not break the line.
 * @param {Line[]} lines @returns {PlotColumns}
 */
export function align(lines) {
  const first = lines[0]?.x ?? [];
  const same = lines.every((line) =>
    line.x.length === first.length && line.x.every((value, index) => value === first[index])
  );
  const xs = same ? first : [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  /** @type {PlotColumns} */
  const data = [xs];
  for (const line of lines) {
    const columns = line.low && line.high ? [line.y, line.low, line.high] : [line.y];
    const place = new Map(same ? [] : line.x.map((value, index) => [value, index]));
    for (const column of columns) {
      data.push(
        same ? column : xs.map((value) => {
          const index = place.get(value);
          return index === undefined ? undefined : column[index];
        }),
      );
    }
  }
  return data;
}

/** @param {(number|null)[]} values */
export function lastOf(values) {
  for (let index = values.length - 1; index >= 0; index -= 1) if (values[index] !== null) return values[index];
  return null;
}

/** Where a line ends. @param {Line} line */
export function lastX(line) {
  const index = line.y.findLastIndex((value) => value !== null);
  return index < 0 ? -Infinity : line.x[index];
}

/** @param {(number|null|undefined)[]} column */
export function countOf(column) {
  let count = 0;
  for (const value of column) if (value !== null && value !== undefined && ++count > 1) break;
  return count;
}

/** The nearest index that holds a value. @param {(number|null|undefined)[]} column @param {number} index */
export function nearest(column, index) {
  for (let step = 0; step < column.length; step += 1) {
    if (column[index - step] !== null && column[index - step] !== undefined) return index - step;
    if (column[index + step] !== null && column[index + step] !== undefined) return index + step;
  }
  return index;
}

/** The point of a line that lies nearest to x; null when the line is empty. @param {Line} line @param {number} x */
export function closest(line, x) {
  let best = null;
  for (let index = 0; index < line.x.length; index += 1) {
    if (line.y[index] === null) continue;
    if (best === null || Math.abs(line.x[index] - x) <= Math.abs(line.x[best] - x)) best = index;
  }
  return best;
}

/**
 * Moves labels apart so that none covers another, keeping their order.
 * @template {{at: number}} T
 * @param {T[]} places @param {number} top @param {number} bottom @param {number} height
 * @returns {T[]}
 */
export function spread(places, top, bottom, height = LABEL_HEIGHT) {
  const sorted = [...places].sort((a, b) => a.at - b.at);
  let limit = top;
  for (const place of sorted) {
    place.at = Math.max(place.at, limit);
    limit = place.at + height;
  }
  limit = bottom;
  for (const place of sorted.reverse()) {
    place.at = Math.min(place.at, limit);
    limit = place.at - height;
  }
  return sorted;
}

/**
 * A tick for every bar as long as their numbers fit, else for every second, fifth, tenth and so on.
 * @param {number} low @param {number} high @param {number} width
 */
export function everyBar(low, high, width) {
  const first = Math.ceil(low);
  const count = Math.floor(high) - first + 1;
  const least = (count * (14 + 8 * String(count).length)) / width;
  const ten = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  const step = [1, 2, 5, 10].map((factor) => factor * ten).find((some) => some >= least) ?? 10 * ten;
  return Array.from({ length: Math.ceil(count / step) }, (_, index) => first + index * step);
}
