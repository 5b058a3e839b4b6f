// Numbers for people: bytes, FLOPs, percentages, durations and ticks.

export const NONE = "–";

const SI = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
const IEC = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/** @param {unknown} value @returns {value is number} */
function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** Three significant digits without an exponent: 1.23, 12.3, 123. @param {number} value */
function three(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** @param {number} value @param {number} base @param {string[]} prefixes @returns {[number, string]} */
function scaled(value, base, prefixes) {
  let power = 0;
  let rest = value;
  // 999.6 would print as 1000, so it already takes the next prefix
  while (Math.abs(rest) >= base - base / 2000 && power < prefixes.length - 1) {
    rest /= base;
    power += 1;
  }
  return [rest, prefixes[power]];
}

/** @param {number|null|undefined} value @param {string} unit @param {number} base @param {string[]} prefixes */
function withUnit(value, unit, base = 1000, prefixes = SI) {
  if (!isNumber(value)) return NONE;
  const [rest, prefix] = scaled(value, base, prefixes);
  const number = prefix === "" ? String(Number(rest.toFixed(Number.isInteger(rest) ? 0 : 1))) : three(rest);
  return `${number} ${prefix}${unit}`.trimEnd();
}

/** @param {number|null|undefined} value @param {"SI"|"IEC"} system */
export function formatBytes(value, system = "SI") {
  return system === "IEC" ? withUnit(value, "B", 1024, IEC) : withUnit(value, "B");
}

/** @param {number|null|undefined} value */
export function formatFlops(value) {
  return withUnit(value, "FLOP");
}

/** A fraction as a percentage with one decimal. @param {number|null|undefined} value @param {number} digits */
export function percent(value, digits = 1) {
  return isNumber(value) ? `${(100 * value).toFixed(digits)} %` : NONE;
}

/**
 * The same without the sign, for tables and axes that carry it in their title.
 * @param {number|null|undefined} value @param {number} digits
 */
export function percentNumber(value, digits = 1) {
  return isNumber(value) ? (100 * value).toFixed(digits) : NONE;
}

/** @param {number|null|undefined} value */
export function integer(value) {
  return isNumber(value) ? Math.round(value).toLocaleString("en-US") : NONE;
}

/** @param {number|null|undefined} value @param {number} digits */
export function decimal(value, digits = 3) {
  return isNumber(value) ? value.toFixed(digits) : NONE;
}

/** The two largest parts of a time span: 5 h 20 min, 3 min 5 s, 4.2 s. @param {number|null|undefined} seconds */
export function duration(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  /** @type {[number, string][]} */
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

/** @param {string|null|undefined} iso */
export function clock(iso) {
  if (!iso) return NONE;
  const date = new Date(iso);
  const day = date.toLocaleDateString("en-CA");
  return `${day} ${date.toLocaleTimeString("en-GB")}`;
}

/** "3 min ago"; the exact time belongs into the title. @param {string|null|undefined} iso @param {number} now */
export function ago(iso, now = Date.now()) {
  if (!iso) return NONE;
  const seconds = Math.max(0, (now - new Date(iso).getTime()) / 1000);
  if (seconds < 60) return "just now";
  const [count, unit] = seconds < 3600
    ? [seconds / 60, "min"]
    : seconds < 86400
    ? [seconds / 3600, "h"]
    : [seconds / 86400, "d"];
  return `${Math.floor(count)} ${unit} ago`;
}

/**
 * Mean ± standard deviation, the deviation only when there is more than one value.
 * @param {number|null} mean @param {number|null|undefined} std @param {(value: number|null) => string} format
 */
export function meanStd(mean, std, format) {
  return std === null || std === undefined ? format(mean) : `${format(mean)} ± ${format(std)}`;
}

/** @typedef {"round"|"accuracy"|"loss"|"bytes"|"flops"|"seconds"|"value"|"client"} QuantityName */

/**
 * @typedef {object} Quantity
 * @property {string} title
 * @property {string} unit
 * @property {(value: number) => string} tick writes the numbers of an axis
 * @property {(value: number|null|undefined) => string} value writes a number in text
 * @property {boolean} [whole]
 */

/** What an axis or a column measures. @type {Record<QuantityName, Quantity>} */
export const QUANTITIES = {
  round: { title: "Round", unit: "", tick: integer, value: integer, whole: true },
  accuracy: { title: "Accuracy", unit: "%", tick: (v) => tidy(100 * v), value: percent },
  loss: { title: "Training loss", unit: "", tick: tidy, value: decimal },
  bytes: { title: "Communication, cumulative", unit: "", tick: (v) => tidyUnit(v, "B"), value: (v) => formatBytes(v) },
  flops: { title: "Client computation, cumulative", unit: "", tick: (v) => tidyUnit(v, "FLOP"), value: formatFlops },
  seconds: { title: "Wall time, cumulative", unit: "", tick: tickDuration, value: duration },
  value: { title: "Value", unit: "", tick: tidy, value: (v) => isNumber(v) ? tidy(Number(v.toPrecision(4))) : NONE },
  client: { title: "Client", unit: "", tick: integer, value: (v) => `client ${v}`, whole: true },
};

/**
 * The title of an axis with its unit; in a small chart, whose own title says the rest, a short one.
 * @param {QuantityName} quantity @param {boolean} small
 */
export function axisTitle(quantity, small = false) {
  const { title: whole, unit } = QUANTITIES[quantity];
  const title = small ? whole.replace(/^.*, c/, "C") : whole;
  return unit ? `${title} (${unit})` : title;
}

/** @param {number} value */
function tidy(value) {
  const text = Number(value.toPrecision(6));
  return Math.abs(text) >= 1e6 ? text.toExponential().replace("e+", "e") : String(text);
}

/** @param {number} value @param {string} unit */
function tidyUnit(value, unit) {
  if (value === 0) return "0";
  const [rest, prefix] = scaled(value, 1000, SI);
  return `${Number(rest.toPrecision(4))} ${prefix}${unit}`;
}

/** @param {number} value */
function tickDuration(value) {
  if (value === 0) return "0";
  return value < 60 ? `${Number(value.toPrecision(3))} s` : duration(value);
}

/**
 * Ticks of a logarithmic axis: decades, with 2 and 5 between them as long as they are few.
 * @param {number} low @param {number} high @param {number} count @returns {number[]}
 */
export function logTicks(low, high, count = 6) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const decades = last - first;
  const factors = decades * 3 <= count ? [1, 2, 5] : [1];
  const step = Math.max(1, Math.ceil(decades / Math.max(1, count)));
  const result = [];
  for (let power = first; power <= last; power += step) {
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(3));
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) result.push(value);
    }
  }
  // a stretch without two such numbers is short enough for plain ones
  return result.length > 1 ? result : ticks(low, high, count);
}

/**
 * Round numbers between two limits, about `count` of them.
 * @param {number} low @param {number} high @param {number} count @param {boolean} whole @returns {number[]}
 */
export function ticks(low, high, count = 6, whole = false) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) ?? rough;
  if (whole) step = Math.max(1, Math.ceil(step));
  const result = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1) {
    result.push(Number((index * step).toPrecision(12)));
  }
  return result;
}
