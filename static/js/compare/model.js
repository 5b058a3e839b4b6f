// The comparison as numbers and words: groups, lines, measures, and who leads. Nothing here touches the page.

/**
 * @import { CostToTarget } from "../api.d.ts"
 * @import { Line } from "../chart-data.js"
 * @import { Axis, Choices } from "./address.js"
 * @import { Curves, SettledGroup } from "../series.js"
 * @import { Experiment, Style } from "../types.d.ts"
 */

import { convergenceMark } from "../convergence.js";
import { counted, groupExperiments, mean, meanCurve, smoothed, std } from "../series.js";
import { decimal, duration, formatBytes, formatFlops, integer, meanStd, NONE, percent } from "../units.js";
import { ACTIVE } from "../vocabulary.js";

/**
 * What is compared, and how a reader wants to see it.
 * @typedef {object} Compared
 * @property {Map<string, Experiment>} experiments in the order of the address
 * @property {Map<string, Curves>} curves
 * @property {Choices} choices
 * @property {(id: string) => CostToTarget|undefined} told the cost to the target of a thinned curve: only the server
 *   can tell it
 * @property {(method: string) => string} titleOf
 * @property {(method: string, variant: number) => Style} styleOf
 */

/**
 * A group with its curves.
 * @typedef {SettledGroup & {style: Style, used: Experiment[], curves: Curves[], rule: Rule|undefined, unlearned: number}} Drawn
 */

/** Which accuracy counts. @typedef {"best"|"final"} Rule */

/**
 * Over the seeds; `of` counts those without a value too.
 * @typedef {object} Measure
 * @property {number|null} mean
 * @property {number|null} std
 * @property {number} count
 * @property {number} of
 */

/**
 * @typedef {"best"|"final"|"judged"|"bytes"|"flops"|"seconds"|"targetRound"|"targetBytes"|"targetFlops"|"spentBytes"|"spentFlops"} MeasureName
 */

/** @typedef {{group: Drawn, slice: string, numbers: Record<MeasureName, Measure>}} ResultRow */

/** @typedef {Line & {level?: boolean}} MeanLine */

/** @typedef {{warnings: string[], notes: string[], swept: string[], alone: boolean}} Fair */

/**
 * @typedef {object} ResultColumn
 * @property {MeasureName} key
 * @property {string} csv the name for programs, which get numbers in full: accuracies are fractions
 * @property {string} title
 * @property {string} [short]
 * @property {string} [help]
 * @property {(value: number|null) => string} format
 * @property {"high"|"low"|null} better whether a large or a small number wins; null when neither does
 * @property {(difference: number) => string} [gap]
 * @property {boolean} [spread]
 * @property {boolean} [target]
 */

/** @typedef {{text: string, best: boolean, gap: string, gapped: boolean, muted: boolean}} ResultCell */

/** Totals that lie this many times apart would be a smear at one end of a linear axis. */
const WIDE = 100;

// --- groups ----------------------------------------------------------------------------------------------------------

/** @param {string} by */
function fieldsOf(by) {
  return by ? by.split(",") : [];
}

/** @param {Compared} compared @param {string[]} by @returns {Drawn[]} */
export function groupsOf(compared, by = fieldsOf(compared.choices.by)) {
  const { experiments, curves, titleOf, styleOf } = compared;
  return groupExperiments([...experiments.values()], titleOf, by).map((group) => {
    const used = counted(group.members, (id) => curves.get(id));
    // finished seeds where there are any: half a run would pull the mean of the others down
    const finished = used.filter((member) => member.state === "finished");
    const settledMembers = finished.length ? finished : used;
    return {
      ...group,
      style: styleOf(group.method, group.variant),
      used,
      settledMembers,
      curves: used.flatMap((member) => curves.get(member.id) ?? []),
      rule: settledMembers[0]?.headline_rule,
      unlearned: settledMembers.filter((member) => member.no_convergence).length,
    };
  });
}

/** The conditions of a group's runs: the groups of one slice may be ranked. @param {Drawn} group */
function sliceOf(group) {
  return [...new Set(group.members.map((member) => member.conditions))].sort().join();
}

/**
 * Whether the rows differ in data, models or budget on purpose, so that there is no one leader.
 * @param {ResultRow[]} rows
 */
export function inSlices(rows) {
  return new Set(rows.map((row) => row.slice)).size > 1;
}

// --- the numbers of one experiment -----------------------------------------------------------------------------------

/** @param {Experiment} member @param {Curves|undefined} curve */
function bestOf(member, curve) {
  return curve?.thinned ? (member.headline?.best_accuracy ?? null) : (curve?.best()?.accuracy ?? null);
}

/** @param {Curves|undefined} curve */
function finalOf(curve) {
  return curve?.final()?.accuracy ?? null;
}

/**
 * The accuracy an experiment is judged by; which one that is, the server says.
 * @param {Compared} compared @param {Experiment} member
 */
export function judgedOf({ curves }, member) {
  const curve = curves.get(member.id);
  return member.headline_rule === "final" ? finalOf(curve) : bestOf(member, curve);
}

/** @param {Compared} compared @param {Experiment} member */
function costOf({ curves, choices, told }, member) {
  const curve = curves.get(member.id);
  if (!curve || choices.target === null) return null;
  if (!curve.thinned) return curve.costTo(choices.target);
  const cost = told(member.id);
  return cost && cost.rounds !== null ? cost : null;
}

/**
 * What all experiments are judged by, as a key of the results; none where they are judged in different ways.
 * @param {Compared} compared @returns {Rule|null}
 */
export function ruleOf({ experiments }) {
  const rules = new Set([...experiments.values()].map((item) => item.headline_rule));
  return rules.size === 1 ? [...rules][0] : null;
}

/** The judged accuracy in words. @param {Compared} compared */
export function ruleWord(compared) {
  const rule = ruleOf(compared);
  return rule === null ? "Accuracy that counts" : { best: "Best accuracy", final: "Final accuracy" }[rule];
}

// --- lines -----------------------------------------------------------------------------------------------------------

/**
 * A method that sends nothing has no extent on an axis of bytes: its final value becomes a level to compare with.
 * @param {MeanLine} line @param {number} left @param {number} right @returns {MeanLine}
 */
function level(line, left, right) {
  if (line.x.length < 2 || line.x[0] !== line.x[line.x.length - 1]) return line;
  const last = line.y[line.y.length - 1];
  return { key: line.key, label: line.label, style: line.style, x: [left, right], y: [last, last], level: true };
}

/**
 * @param {Drawn[]} groups @param {Axis} axis @param {"accuracy"|"loss"} yName @param {number} smooth
 * @param {boolean} logX
 */
export function linesOf(groups, axis, yName, smooth, logX) {
  const plain = groups.filter((group) => group.curves.length).map((group) => meanLine(group, axis, yName, smooth));
  if (axis === "round") return plain;
  const right = Math.max(1, ...plain.map((line) => line.x[line.x.length - 1] ?? 0));
  const left = logX ? Math.min(right, ...plain.flatMap((line) => line.x.find((value) => value > 0) ?? [])) : 0;
  return plain.map((line) => level(line, left, right));
}

/**
 * @param {Drawn} group @param {Axis} axis @param {"accuracy"|"loss"} yName @param {number} smooth @returns {MeanLine}
 */
function meanLine(group, axis, yName, smooth) {
  const raw = meanCurve(group.curves, axis, yName);
  const y = smoothed(raw.y, smooth);
  const spread = smoothed(
    raw.high.map((value, index) => (value === null ? null : value - raw.y[index])),
    smooth,
  );
  const line = { key: group.key, label: group.label, style: group.style, x: raw.x, y };
  if (spread.every((value) => value === null)) return line;
  /** @param {number} sign */
  const edge = (sign) => y.map((value, index) => plus(value, spread[index], sign));
  return {
    ...line,
    low: edge(-1),
    high: edge(1),
    bandText: (index) =>
      spread[index] === null ? "" : `± ${yName === "accuracy" ? percent(spread[index]) : decimal(spread[index])}`,
  };
}

/** @param {number|null} value @param {number|null} spread @param {number} sign */
function plus(value, spread, sign) {
  return value === null || spread === null ? null : value + sign * spread;
}

/**
 * Where the mean itself, not the smoothed line, reaches the target.
 * @param {Drawn[]} groups @param {Choices} choices @param {boolean} logX
 */
export function marksOf(groups, { axis, target }, logX) {
  if (target === null) return [];
  return groups
    .filter((group) => group.curves.length)
    .flatMap((group) => {
      const { x, y } = meanCurve(group.curves, axis, "accuracy");
      const index = y.findIndex((value) => value !== null && value >= target);
      return index < 0 ? [] : [{ key: group.key, x: x[index], y: y[index], style: group.style, label: "" }];
    })
    .filter((mark) => !logX || mark.x > 0);
}

/**
 * Whether some lines end so early on a linear axis that they would lie on each other.
 * @param {Drawn[]} groups @param {Axis} axis
 */
export function isWide(groups, axis) {
  if (axis === "round") return false;
  const totals = groups
    .map((group) => mean(group.curves.map((curve) => curve.total(axis))) ?? 0)
    .filter((total) => total > 0);
  return totals.length > 1 && Math.max(...totals) > WIDE * Math.min(...totals);
}

// --- results ---------------------------------------------------------------------------------------------------------

/** @param {(number|null|undefined)[]} values @returns {Measure} */
function measure(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return { mean: mean(known), std: std(known), count: known.length, of: values.length };
}

/** The numbers of one group. @param {Compared} compared @param {Drawn} group @returns {Record<MeasureName, Measure>} */
function numbersOf(compared, group) {
  const { curves } = compared;
  const members = group.settledMembers;
  const settled = members.flatMap((member) => curves.get(member.id) ?? []);
  const reached = members.map((member) => costOf(compared, member));
  return {
    best: measure(members.map((member) => bestOf(member, curves.get(member.id)))),
    final: measure(members.map((member) => finalOf(curves.get(member.id)))),
    judged: measure(members.map((member) => judgedOf(compared, member))),
    bytes: measure(settled.map((curve) => curve.total("bytes"))),
    flops: measure(settled.map((curve) => curve.total("flops"))),
    seconds: measure(settled.map((curve) => curve.total("seconds"))),
    targetRound: measure(reached.map((hit) => hit?.rounds)),
    targetBytes: measure(reached.map((hit) => hit?.bytes)),
    targetFlops: measure(reached.map((hit) => hit?.flops)),
    spentBytes: measure(reached.map((hit) => hit?.spent_bytes)),
    spentFlops: measure(reached.map((hit) => hit?.spent_flops)),
  };
}

/**
 * Best first, the rows of one slice together; what cannot be compared stays in the order of the address.
 * @param {Compared} compared @param {Drawn[]} groups @param {Fair} fair @returns {ResultRow[]}
 */
export function resultsOf(compared, groups, fair) {
  const rows = groups.map((group) => ({ group, slice: sliceOf(group), numbers: numbersOf(compared, group) }));
  if (fair.warnings.length) return rows;
  const slices = [...new Set(rows.map((row) => row.slice))];
  /** @param {ResultRow} row */
  const order = (row) => slices.indexOf(row.slice);
  return rows.sort((a, b) => order(a) - order(b) || (b.numbers.judged.mean ?? -1) - (a.numbers.judged.mean ?? -1));
}

/**
 * A mean over the seeds that happened to reach the target would flatter: a group competes with all its seeds.
 * @param {Measure} measure
 */
export function reachedByAll(measure) {
  return measure.count > 0 && measure.count === measure.of;
}

/** How far the first is ahead. @param {ResultRow} first @param {ResultRow} second */
export function lead(first, second) {
  return (first.numbers.judged.mean ?? NaN) - (second.numbers.judged.mean ?? NaN);
}

/**
 * Why a lead says little, as the end of a sentence; empty when it is larger than what seeds alone do.
 * @param {ResultRow} first @param {ResultRow} second
 */
export function doubt(first, second) {
  const [a, b] = [first.numbers.judged, second.numbers.judged];
  if (Math.min(a.count, b.count) < 2) return ", from one seed";
  return lead(first, second) < Math.max(a.std ?? 0, b.std ?? 0) ? ", less than the spread over seeds" : "";
}

/**
 * What costs are compared by: to the target where there is one.
 * @param {Choices} choices @returns {{bytes: MeasureName, flops: MeasureName}}
 */
export function costNames({ target }) {
  return target === null ? { bytes: "bytes", flops: "flops" } : { bytes: "targetBytes", flops: "targetFlops" };
}

/** What a cost to the target is, where it is not what was spent. */
export const PAPERS_COUNT = "as the papers count: the mean of all rounds times the rounds to the target";

/**
 * The row that costs least, of those that reach the target with all their seeds where there is one. That Standalone
 * sends nothing is no news, unless nobody else gets there.
 * @param {ResultRow[]} rows @param {MeasureName} column @param {Choices} choices @returns {ResultRow|undefined}
 */
export function cheapest(rows, column, { target }) {
  /** @param {ResultRow} row */
  const cost = (row) => row.numbers[column].mean;
  const known = rows.filter((row) => cost(row) !== null && (target === null || reachedByAll(row.numbers[column])));
  const spending = known.filter((row) => (cost(row) ?? 0) > 0);
  const [least] = (spending.length ? spending : known).toSorted((a, b) => (cost(a) ?? 0) - (cost(b) ?? 0));
  return least;
}

// --- the table of results --------------------------------------------------------------------------------------------

/** @param {number|null} value */
const twoDigits = (value) => (value === null ? NONE : (100 * value).toFixed(2));
/** @param {number|null} value */
const oneDigit = (value) => (value === null ? NONE : Number.isInteger(value) ? integer(value) : value.toFixed(1));

/** @type {ResultColumn[]} */
const TABLE = [
  {
    key: "best",
    csv: "best_accuracy",
    title: "Best accuracy (%)",
    short: "Best (%)",
    format: twoDigits,
    better: "high",
    gap: (d) => `${(100 * d).toFixed(2)}`,
    spread: true,
  },
  {
    key: "final",
    csv: "final_accuracy",
    title: "Final accuracy (%)",
    short: "Final (%)",
    format: twoDigits,
    better: "high",
    gap: (d) => `${(100 * d).toFixed(2)}`,
    spread: true,
  },
  {
    key: "targetRound",
    csv: "rounds_to_target",
    title: "Rounds to target",
    format: oneDigit,
    better: "low",
    target: true,
    spread: true,
  },
  {
    key: "targetBytes",
    csv: "bytes_to_target",
    title: "Communication to target",
    help: "Bytes a round, sent and received by all participants, times the rounds to the target",
    format: (v) => formatBytes(v),
    better: "low",
    target: true,
  },
  {
    key: "targetFlops",
    csv: "flops_to_target",
    title: "FLOPs to target",
    help: "FLOPs of one participant a round, times the rounds to the target",
    format: (v) => formatFlops(v),
    better: "low",
    target: true,
  },
  {
    key: "spentBytes",
    csv: "spent_bytes_to_target",
    title: "Bytes spent until then",
    help: "What all participants sent and received until the target was reached, the opening included",
    format: (v) => formatBytes(v),
    better: "low",
    target: true,
  },
  {
    key: "spentFlops",
    csv: "spent_flops_to_target",
    title: "FLOPs spent until then",
    help: "What one participant computed until the target was reached, the opening included",
    format: (v) => formatFlops(v),
    better: "low",
    target: true,
  },
  { key: "bytes", csv: "bytes", title: "Total bytes", format: (v) => formatBytes(v), better: null },
  { key: "flops", csv: "flops", title: "Total FLOPs", format: (v) => formatFlops(v), better: null },
  { key: "seconds", csv: "seconds", title: "Time", format: duration, better: null },
];

/**
 * The column of the accuracy that counts stands first, and is the only one of the two in which anything is best.
 * @param {Rule|null} rule @param {Choices} choices @returns {ResultColumn[]}
 */
export function columnsOf(rule, { target }) {
  const columns = TABLE.filter((column) => !column.target || target !== null).map((column) =>
    column.spread && !column.target && column.key !== rule ? { ...column, better: null } : column
  );
  return rule === "final" ? columns.sort((a, b) => Number(b.key === "final") - Number(a.key === "final")) : columns;
}

/** @param {ResultColumn} column @param {Measure} measure */
function competes(column, measure) {
  return Boolean(column.better) && measure.mean !== null && (!column.target || reachedByAll(measure));
}

/**
 * The best mean of a column under the same conditions; null where fewer than two compete.
 * @param {ResultRow[]} rows @param {ResultColumn} column @param {string} slice
 */
function bestOfSlice(rows, column, slice) {
  const values = rows
    .filter((row) => row.slice === slice)
    .map((row) => row.numbers[column.key])
    .filter((measure) => competes(column, measure))
    .map((measure) => measure.mean ?? NaN);
  if (values.length < 2) return null;
  return column.better === "high" ? Math.max(...values) : Math.min(...values);
}

/**
 * @param {ResultRow[]} rows @param {ResultColumn[]} columns @param {Fair} fair
 * @param {boolean} told whether the costs to the target are known
 * @returns {{group: Drawn, seeds: string, cells: ResultCell[]}[]}
 */
export function tableOf(rows, columns, fair, told) {
  return rows.map(({ group, slice, numbers }) => ({
    group,
    seeds: group.settledMembers.length === group.members.length
      ? String(group.members.length)
      : `${group.settledMembers.length} of ${group.members.length}`,
    cells: columns.map((column) => {
      const top = fair.warnings.length ? null : bestOfSlice(rows, column, slice);
      return cellOf(group, column, numbers[column.key], top, told);
    }),
  }));
}

/**
 * @param {Drawn} group @param {ResultColumn} column @param {Measure} measure @param {number|null} top
 * @param {boolean} told @returns {ResultCell}
 */
function cellOf(group, column, measure, top, told) {
  const { mean: value, std: spread, count, of } = measure;
  const mark = column.key === group.rule ? convergenceMark(group.unlearned, count) : "";
  let text = meanStd(value, count > 1 && column.spread ? spread : null, column.format) + mark;
  if (column.target && !told) text = "…";
  else if (column.target && value === null && of > 0) text = "not reached";
  else if (column.target && count < of) text += ` (${count} of ${of} seeds)`;
  // as they are printed: equal texts are treated alike
  const best = top !== null && competes(column, measure) && column.format(value) === column.format(top);
  const gap = column.gap && top !== null && value !== null && !best ? column.gap(value - top).replace("-", "−") : "";
  return { text, best, gap, gapped: Boolean(column.gap), muted: Boolean(column.target && value === null) };
}

/**
 * The results with plain numbers, for programs.
 * @param {ResultRow[]} rows @param {ResultColumn[]} columns @returns {unknown[][]}
 */
export function plainTable(rows, columns) {
  return [
    ["method", "seeds", "no_convergence", ...columns.flatMap((column) => [`${column.csv}_mean`, `${column.csv}_std`])],
    ...rows.map(({ group, numbers }) => [
      group.label,
      group.settledMembers.length,
      group.unlearned,
      ...columns.flatMap(({ key }) => [numbers[key].mean, numbers[key].std]),
    ]),
  ];
}

// --- words -----------------------------------------------------------------------------------------------------------

/** @param {string[]} words */
export const listed = (words) => new Intl.ListFormat("en-GB").format(words);

/**
 * Who leads, as the start of a sentence; empty before the first test.
 * @param {Compared} compared @param {ResultRow[]} rows @param {Fair} fair
 */
function leaderText(compared, rows, { warnings, swept }) {
  if (warnings.length) return "Not comparable, for the reasons below";
  if (inSlices(rows)) return `Settings differ: compare rows with equal ${listed(swept)}`;
  const [first, second] = rows.filter((row) => row.numbers.judged.mean !== null);
  if (!first) return "";
  const high = percent(first.numbers.judged.mean);
  if (!second) return `${first.group.label} reaches ${high}`;
  const gap = 100 * lead(first, second);
  if (gap < 0.005) return `${first.group.label} and ${second.group.label} are level at ${high}`;
  return [
    `${first.group.label} leads with ${high}${ruleOf(compared) === "final" ? " in the final round" : ""}`,
    `${gap.toFixed(gap < 0.1 ? 2 : 1)} points ahead of ${second.group.label}${doubt(first, second)}`,
  ].join(", ");
}

/** The answer in one sentence. @param {Compared} compared @param {ResultRow[]} rows @param {Fair} fair */
export function verdictText(compared, rows, fair) {
  const all = compared.experiments.size;
  const running = [...compared.experiments.values()].filter((item) => ACTIVE.has(item.state)).length;
  const state = running
    ? `${running} of ${all} ${all === 1 ? "experiment" : "experiments"} ${running === 1 ? "is" : "are"} not finished`
    : `${all === 1 ? "the experiment has" : `${all === 2 ? "both" : `all ${all}`} experiments have`} ended`;
  const leader = leaderText(compared, rows, fair);
  // a method keeps its own spelling
  return leader ? `${leader}; ${state}.` : `${state[0].toUpperCase()}${state.slice(1)}.`;
}
