// The comparison: who wins, by how much, at what price, and is it fair?

/**
 * @import { Line } from "../chart.js"
 * @import { Boxes, ClientTable, Price, Significance, Sweep, Wins } from "../compare-views.js"
 * @import { SettledGroup } from "../series.js"
 * @import { Child, ComparePage, Experiment, Style } from "../types.d.ts"
 */

import { Answer } from "../answer.js";
import { api, messageOf } from "../api.js";
import { Chart, MOST_END_LABELS } from "../chart.js";
import { swatch } from "../chart-swatch.js";
import { methodStyle, methodTitle } from "../colours.js";
import { convergenceMark, NOTE } from "../convergence.js";
import { copy, download, fill, h, one, pageData, setQuery, setText, stateChip } from "../dom.js";
import { live, perFrame } from "../live.js";
import {
  applyRound,
  counted,
  Curves,
  differences,
  essence,
  fairness,
  groupExperiments,
  headlineOf,
  mean,
  meanCurve,
  METHOD,
  show,
  smoothed,
  std,
} from "../series.js";
import { notice, working } from "../shell.js";
import { datasetText, experimentTitle, partitionText } from "../spec.js";
import { csv, latex, markdown } from "../table.js";
import { decimal, duration, formatBytes, formatFlops, integer, meanStd, NONE, percent } from "../units.js";

/** @typedef {"round"|"bytes"|"flops"|"seconds"} Axis */

/** @type {Axis[]} */
const AXES = ["round", "bytes", "flops", "seconds"];
const BANDS = new Set(["off", "hovered", "all"]);
/** Totals that lie this many times apart would be a smear at one end of a linear axis. */
const WIDE = 100;
/** @type {Record<string, string>} */
const MOMENTS = { last: "last tested round", best: "best round", each: "each client’s own last test" };
/** Labels hold commas, so a bar separates them in the address. */
const BAR = "|";

/** @type {ComparePage} */
const data = pageData();
const query = new URLSearchParams(location.search);
/** @type {Map<string, Experiment>} in the order of the address */
const experiments = new Map(data.experiments.map((item) => [item.id, item]));
/** @type {Map<string, Curves>} */
const curves = new Map();

/**
 * What a reader chose.
 * @typedef {object} Choices
 * @property {Axis} axis
 * @property {boolean|null} logX null: chosen by the values, until a reader decides
 * @property {boolean} logY
 * @property {string} bands
 * @property {number} smooth
 * @property {string} by
 * @property {number|null} target
 * @property {string} at the moment of the accuracies of single clients
 * @property {string} first
 * @property {string} second
 * @property {string} field
 * @property {string} reference
 * @property {Set<string>} open the views that are open
 */

/** A group with its curves. @typedef {SettledGroup & {style: Style, used: Experiment[], curves: Curves[], rule: "best"|"final"|undefined, unlearned: number}} Drawn */

/** Over the seeds; `of` counts those without a value too. @typedef {{mean: number|null, std: number|null, count: number, of: number}} Measure */

/** @typedef {"best"|"final"|"judged"|"bytes"|"flops"|"seconds"|"targetRound"|"targetBytes"|"targetFlops"|"spentBytes"|"spentFlops"} MeasureName */

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

/** All that decides the picture; every part has its place in the address. @type {Choices} */
const state = {
  axis: AXES.find((axis) => axis === query.get("x")) ?? "round",
  logX: query.get("logx") === "1" ? true : query.get("logx") === "0" ? false : null,
  bands: BANDS.has(query.get("bands") ?? "") ? (query.get("bands") ?? "") : "",
  logY: query.get("logy") === "1",
  smooth: Math.min(1000, Math.max(1, Number.parseInt(query.get("smooth") ?? "1", 10) || 1)),
  by: query.get("by") ?? "",
  target: readTarget(query.get("target")),
  at: Object.keys(MOMENTS).find((moment) => moment === query.get("at")) ?? "last",
  first: query.get("a") ?? "",
  second: query.get("b") ?? "",
  field: query.get("field") ?? "",
  reference: query.get("ref") ?? "",
  open: new Set((query.get("open") ?? "").split(",").filter(Boolean)),
};
/** A thinned curve cannot tell when it reached the target; the server can. */
const toldCosts = new Answer(({ ids: thinned, target }) => api.costToTarget(thinned, target), costsArrived, {
  pause: 3000,
  settle: 300,
});
let costsAreTold = true;

/** @param {string} what */
const file = (what) => () => `compare-${what}-by-${state.axis}`;
/** @param {string} kind */
const print = (kind) =>
  h(
    "a",
    {
      class: "tool",
      href: "#",
      title: `Download for print, drawn by the server${kind === "pgf" ? " as a pgfplots picture for LaTeX" : ""}`,
    },
    kind.toUpperCase(),
  );
const prints = { pdf: print("pdf"), pgf: print("pgf") };
const accuracy = new Chart(one("#accuracy"), {
  name: "accuracy",
  title: "Test accuracy",
  y: "accuracy",
  sync: "compare",
  empty: "The curves start with the first round.",
  file: file("accuracy"),
  tools: Object.values(prints),
  changed: () => remember(),
  whole: () => wholeLines("accuracy"),
});
const loss = new Chart(one("#loss"), {
  name: "loss",
  title: "Training loss",
  y: "loss",
  sync: "compare",
  empty: "The curves start with the first round.",
  file: file("loss"),
  changed: () => remember(),
  whole: () => wholeLines("loss"),
});
/** The charts whose zoom and hidden lines the address holds, by what comes before the names there. */
const charts = { "": accuracy, loss };

/** Percent in the address and in the field, a fraction inside. @param {string|null} text */
function readTarget(text) {
  const value = Number(text);
  return text && Number.isFinite(value) && value > 0 && value <= 100 ? value / 100 : null;
}

/** What a reader zoomed into or hid goes into the address too. */
function remember() {
  for (const [prefix, chart] of Object.entries(charts)) {
    const labels = chart.lines.filter((line) => chart.hidden.has(line.key)).map((line) => line.label);
    setQuery({
      [`${prefix}hide`]: labels.join(BAR),
      [`${prefix}zoom`]: chart.zoom ? chart.zoom.map((end) => Number(end.toPrecision(6))).join(":") : "",
    });
  }
}

function recall() {
  for (const [prefix, chart] of Object.entries(charts)) {
    const hidden = new Set((query.get(`${prefix}hide`) ?? "").split(BAR).filter(Boolean));
    for (const group of groups()) if (hidden.has(group.label)) chart.hidden.add(group.key);
    const zoom = (query.get(`${prefix}zoom`) ?? "").split(":").map(Number);
    chart.xQuantity = state.axis;
    if (zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1]) chart.zoom = [zoom[0], zoom[1]];
  }
}

/** @param {string} id */
function curvesOf(id) {
  return curves.get(id);
}

/** @param {string} by */
function fieldsOf(by) {
  return by ? by.split(",") : [];
}

/** @param {string[]} by @returns {Drawn[]} */
function groups(by = fieldsOf(state.by)) {
  return groupExperiments([...experiments.values()], methodTitle, by).map((group) => {
    const used = counted(group.members, curvesOf);
    // finished seeds where there are any: half a run would pull the mean of the others down
    const finished = used.filter((member) => member.state === "finished");
    const settledMembers = finished.length ? finished : used;
    return {
      ...group,
      style: methodStyle(group.method, "", group.variant),
      used,
      settledMembers,
      curves: used.flatMap((member) => curvesOf(member.id) ?? []),
      rule: settledMembers[0]?.headline_rule,
      unlearned: settledMembers.filter((member) => member.no_convergence).length,
    };
  });
}

/** @param {Experiment} member */
function bestOf(member) {
  const curve = curvesOf(member.id);
  return curve?.thinned ? (member.headline?.best_accuracy ?? null) : (curve?.best()?.accuracy ?? null);
}

/** @param {Experiment} member */
function finalOf(member) {
  return curvesOf(member.id)?.final()?.accuracy ?? null;
}

/** The accuracy an experiment is judged by; which one that is, the server says. @param {Experiment} member */
function judgedOf(member) {
  return member.headline_rule === "final" ? finalOf(member) : bestOf(member);
}

/** What all experiments are judged by, as a key of the results; none where they are judged in different ways. */
function rule() {
  const rules = new Set([...experiments.values()].map((item) => item.headline_rule));
  return rules.size === 1 ? [...rules][0] : null;
}

/** The judged accuracy in words. */
function ruleWord() {
  const counts = rule();
  return counts === null ? "Accuracy that counts" : { best: "Best accuracy", final: "Final accuracy" }[counts];
}

/** @param {Experiment} member */
function costOf(member) {
  const curve = curvesOf(member.id);
  if (!curve || state.target === null) return null;
  if (!curve.thinned) return curve.costTo(state.target);
  const cost = toldCosts.value?.experiments[member.id];
  return cost && cost.rounds !== null ? cost : null;
}

/** @returns {boolean} whether the costs to the target are there */
function needCosts() {
  const thinned = [...experiments.values()].filter((item) => curvesOf(item.id)?.thinned);
  return (
    state.target === null ||
    !thinned.length ||
    (toldCosts.need({ ids: thinned.map((item) => item.id), target: state.target }, thinned) && !toldCosts.error)
  );
}

function costsArrived() {
  if (toldCosts.error) notice(`The cost to the target could not be read. ${toldCosts.error}`, "error");
  renderSoon();
}

/**
 * A method that sends nothing has no extent on an axis of bytes: its final value becomes a level to compare with.
 * @param {MeanLine} line @param {number} left @param {number} right @returns {MeanLine}
 */
function level(line, left, right) {
  if (state.axis === "round" || line.x.length < 2 || line.x[0] !== line.x[line.x.length - 1]) return line;
  const last = line.y[line.y.length - 1];
  return { key: line.key, label: line.label, style: line.style, x: [left, right], y: [last, last], level: true };
}

/** For programs: every round, and the means themselves. @param {"accuracy"|"loss"} yName */
async function wholeLines(yName) {
  const told = [...curves.values()].some((curve) => curve.thinned) ? await working(api.curves(ids())) : null;
  /** @type {(id: string) => Curves|undefined} */
  const whole = (id) => (told ? new Curves(told.experiments[id]) : curvesOf(id));
  return lines(
    groups().map((group) => ({ ...group, curves: group.used.flatMap((member) => whole(member.id) ?? []) })),
    yName,
    1,
  );
}

/** @param {Drawn[]} list @param {"accuracy"|"loss"} yName @param {number} smooth */
function lines(list, yName, smooth = state.smooth) {
  const plain = meanLines(list, yName, smooth);
  const right = Math.max(1, ...plain.map((line) => line.x[line.x.length - 1] ?? 0));
  const left = logX ? Math.min(right, ...plain.flatMap((line) => line.x.find((value) => value > 0) ?? [])) : 0;
  return plain.map((line) => level(line, left, right));
}

/** @param {Drawn[]} list @param {"accuracy"|"loss"} yName @param {number} smooth @returns {MeanLine[]} */
function meanLines(list, yName, smooth) {
  return list
    .filter((group) => group.curves.length)
    .map((group) => {
      const raw = meanCurve(group.curves, state.axis, yName);
      const y = smoothed(raw.y, smooth);
      const spread = smoothed(
        raw.high.map((value, index) => (value === null ? null : value - raw.y[index])),
        smooth,
      );
      const banded = spread.some((value) => value !== null);
      /** @type {(sign: number) => (number|null)[]} */
      const edge = (sign) => y.map((value, index) => plus(value, spread[index], sign));
      /** @type {(index: number) => string} */
      const text = (index) =>
        spread[index] === null ? "" : `± ${yName === "accuracy" ? percent(spread[index]) : decimal(spread[index])}`;
      return {
        key: group.key,
        label: group.label,
        style: group.style,
        x: raw.x,
        y,
        ...(banded ? { low: edge(-1), high: edge(1), bandText: text } : {}),
      };
    });
}

/** @param {number|null} value @param {number|null} spread @param {number} sign */
function plus(value, spread, sign) {
  return value === null || spread === null ? null : value + sign * spread;
}

/** Where the mean itself, not the smoothed line, reaches the target. @param {Drawn[]} list */
function marks(list) {
  const { target } = state;
  if (target === null) return [];
  return list
    .filter((group) => group.curves.length)
    .flatMap((group) => {
      const { x, y } = meanCurve(group.curves, state.axis, "accuracy");
      const index = y.findIndex((value) => value !== null && value >= target);
      return index < 0 ? [] : [{ key: group.key, x: x[index], y: y[index], style: group.style, label: "" }];
    })
    .filter((mark) => !logX || mark.x > 0);
}

/** The numbers of one group: each is {mean, std, count, of}. @param {Drawn} group */
function summary(group) {
  /** @type {(values: (number|null|undefined)[]) => Measure} */
  const measure = (values) => {
    const known = values.filter((value) => value !== null && value !== undefined);
    return { mean: mean(known), std: std(known), count: known.length, of: values.length };
  };
  const members = group.settledMembers;
  const settled = members.flatMap((member) => curvesOf(member.id) ?? []);
  const reached = members.map(costOf);
  return {
    best: measure(members.map(bestOf)),
    final: measure(members.map(finalOf)),
    judged: measure(members.map(judgedOf)),
    bytes: measure(settled.map((curve) => curve.total("bytes"))),
    flops: measure(settled.map((curve) => curve.total("flops"))),
    seconds: measure(settled.map((curve) => curve.total("seconds"))),
    targetRound: measure(reached.map((hit) => hit?.rounds ?? null)),
    targetBytes: measure(reached.map((hit) => hit?.bytes ?? null)),
    targetFlops: measure(reached.map((hit) => hit?.flops ?? null)),
    spentBytes: measure(reached.map((hit) => hit?.spent_bytes ?? null)),
    spentFlops: measure(reached.map((hit) => hit?.spent_flops ?? null)),
  };
}

/** @param {number|null} value */
const twoDigits = (value) => (value === null ? NONE : (100 * value).toFixed(2));
/** @param {number|null} value */
const oneDigit = (value) => (value === null ? NONE : Number.isInteger(value) ? integer(value) : value.toFixed(1));

/**
 * `better` says whether a large or a small number wins; null when neither does. `csv` is the name for programs, which
 * get numbers in full: accuracies are fractions.
 * @type {ResultColumn[]}
 */
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

/** The tables as last shown: cells for the exports. @type {Record<string, unknown[][]>} */
const shownTables = { table: [], differences: [], members: [], significance: [] };
/** The results with plain numbers, for programs. @type {unknown[][]} */
let numbers = [];

/**
 * Rebuilds a part of the page only when it would look different: focus and a selection of text survive.
 * @param {HTMLElement} element @param {unknown} signature @param {() => Child} build
 */
function fillWhenNew(element, signature, build) {
  const text = JSON.stringify(signature);
  if (element.dataset.signature === text) return;
  element.dataset.signature = text;
  fill(element, build());
}

/**
 * A mean over the seeds that happened to reach the target would flatter: a group competes with all its seeds.
 * @param {Measure} measure
 */
function reachedByAll(measure) {
  return measure.count > 0 && measure.count === measure.of;
}

/** The conditions of a group's runs: the groups of one slice may be ranked. @param {Drawn} group */
function sliceOf(group) {
  return [...new Set(group.members.map((member) => member.conditions))].sort().join();
}

/**
 * The column of the accuracy that counts stands first, and is the only one of the two in which anything is best.
 * @returns {ResultColumn[]}
 */
function tableColumns() {
  const counts = rule();
  const columns = TABLE.filter((column) => !column.target || state.target !== null).map((column) =>
    column.spread && !column.target && column.key !== counts ? { ...column, better: null } : column
  );
  return counts === "final" ? columns.sort((a, b) => Number(b.key === "final") - Number(a.key === "final")) : columns;
}

/** @param {Drawn} group */
function seedsText({ settledMembers, members }) {
  return settledMembers.length === members.length
    ? String(members.length)
    : `${settledMembers.length} of ${members.length}`;
}

/** @param {ResultRow[]} rows @param {Fair} fair */
function renderTable(rows, fair) {
  const columns = tableColumns();
  /** @type {(column: ResultColumn, measure: Measure) => boolean} */
  const competes = (column, measure) =>
    !fair.warnings.length &&
    Boolean(column.better) &&
    measure.mean !== null &&
    (!column.target || reachedByAll(measure));
  /** @type {(column: ResultColumn, slice: string) => number|null} */
  const bestOfSlice = (column, slice) => {
    const values = rows
      .filter((row) => row.slice === slice)
      .map((row) => row.numbers[column.key])
      .filter((measure) => competes(column, measure))
      .map((measure) => measure.mean ?? NaN);
    if (values.length < 2) return null;
    return column.better === "high" ? Math.max(...values) : Math.min(...values);
  };
  const built = rows.map(({ group, slice, numbers: found }) => ({
    group,
    seeds: seedsText(group),
    cells: columns.map((column) => {
      const { mean: value, std: spread, count, of } = found[column.key];
      const mark = column.key === group.rule ? convergenceMark(group.unlearned, count) : "";
      let text = meanStd(value, count > 1 && column.spread ? spread : null, column.format) + mark;
      if (column.target && !costsAreTold) text = "…";
      else if (column.target && value === null && of > 0) text = "not reached";
      else if (column.target && count < of) text += ` (${count} of ${of} seeds)`;
      const top = bestOfSlice(column, slice);
      // as they are printed: equal texts are treated alike
      const best = top !== null && competes(column, found[column.key]) && column.format(value) === column.format(top);
      const gap = column.gap && top !== null && value !== null && !best
        ? column.gap(value - top).replace("-", "−")
        : "";
      return { text, best, gap, gapped: Boolean(column.gap), muted: Boolean(column.target && value === null) };
    }),
  }));
  shownTables.table = [
    ["Method", "Seeds", ...columns.map((column) => column.title)],
    ...built.map((row) => [row.group.label, row.seeds, ...row.cells]),
  ];
  numbers = [
    ["method", "seeds", "no_convergence", ...columns.flatMap((column) => [`${column.csv}_mean`, `${column.csv}_std`])],
    ...rows.map(({ group, numbers: found }) => [
      group.label,
      group.settledMembers.length,
      group.unlearned,
      ...columns.flatMap(({ key }) => [found[key].mean, found[key].std]),
    ]),
  ];
  one("#no-convergence").hidden = !rows.some(({ group }) => group.unlearned);
  setText(one("#no-convergence"), NOTE);
  fillWhenNew(
    one("#table thead"),
    columns.map((column) => column.key),
    () =>
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Method"),
        h("th", { scope: "col", class: "right" }, "Seeds"),
        columns.map((column) =>
          h(
            "th",
            {
              scope: "col",
              class: column.gap ? "right gapped" : "right",
              title: column.help ?? (column.short ? column.title : null),
            },
            column.short ?? column.title,
          )
        ),
      ),
  );
  fillWhenNew(
    one("#table tbody"),
    built.map((row) => [row.group.label, row.group.variant, row.seeds, row.cells]),
    () =>
      built.map(({ group, seeds, cells }) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, named(group)),
          h("td", { class: "num right" }, seeds),
          cells.map((cell) =>
            h(
              "td",
              {
                class: ["num right", cell.gapped && "gapped", cell.best && "best", cell.muted && "muted"]
                  .filter(Boolean).join(" "),
              },
              cell.text,
              cell.gap ? h("small", { class: "gap", title: "Difference to the best" }, cell.gap) : null,
            )
          ),
        )
      ),
  );
}

/** @param {Drawn} group */
function named(group) {
  return h("span", { class: "method" }, swatch(group.style), group.label);
}

/** Differences and fairness are about the whole specs, however the lines are grouped. */
function renderDifferences() {
  const list = groups([]);
  const rows = differences(list).filter((row) => row.field !== METHOD);
  /** @type {(field: string) => boolean} */
  const common = (field) => !field.startsWith("algorithm.");
  const shared = list.length
    ? Object.keys(list[0].fields).filter(common).length - rows.filter((row) => common(row.field)).length
    : 0;
  one("#differences").hidden = rows.length === 0;
  one("#differences-csv").parentElement?.toggleAttribute("hidden", rows.length === 0);
  setText(
    one("#same"),
    rows.length
      ? `${integer(Math.max(0, shared))} other fields are equal.`
      : list.length > 1
      ? "The specs differ in nothing but the method with its own parameters and the seed."
      : "There is one group only, so nothing to compare.",
  );
  const cells = list.map((group, place) => ({ group, values: rows.map((row) => show(row.values[place])) }));
  shownTables.differences = [
    ["Method", ...rows.map((row) => row.field)],
    ...cells.map(({ group, values }) => [group.label, ...values]),
  ];
  fillWhenNew(
    one("#differences thead"),
    rows.map((row) => row.field),
    () =>
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "Method"),
        rows.map((row) => h("th", { scope: "col", class: "code" }, row.field)),
      ),
  );
  fillWhenNew(one("#differences tbody"), shownTables.differences, () =>
    cells.map(({ group, values }) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, named(group)),
        values.map((value) => h("td", { class: value === NONE ? "num muted" : "num" }, value)),
      )
    ));
  const { warnings, notes, swept } = list.length > 1 ? fairness(list) : { warnings: [], notes: [], swept: [] };
  one("#unfair").hidden = warnings.length === 0;
  fillWhenNew(one("#unfair-list"), warnings, () => warnings.map((reason) => h("li", {}, reason)));
  fillWhenNew(one("#notes"), notes, () => notes.map((note) => h("li", {}, note)));
  return { warnings, notes, swept, alone: list.length < 2 };
}

function renderMembers() {
  const rows = [...experiments.values()].map((experiment) => {
    const done = Math.max(0, experiment.next_round - 1);
    return [
      experimentTitle(experiment, methodTitle),
      experiment.state,
      methodTitle(experiment.spec.algorithm.name),
      `${datasetText(experiment.spec.dataset)}, ${partitionText(experiment.spec.partition)}`,
      String(experiment.spec.seed),
      `${integer(done)} / ${integer(experiment.rounds)}`,
      percent(headlineOf(experiment)),
      experiment.id,
    ];
  });
  shownTables.members = [["Name", "State", "Method", "Data", "Seed", "Rounds", "Accuracy", "Id"], ...rows];
  fillWhenNew(one("#members tbody"), rows, () =>
    rows.map(([title, word, method, where, seed, rounds, best, id]) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, h("a", { href: `/experiments/${id}` }, title)),
        h("td", {}, stateChip(word)),
        h(
          "td",
          {},
          h("span", { class: "method" }, swatch(methodStyle(experiments.get(id)?.spec.algorithm.name ?? "")), method),
        ),
        h("td", {}, where),
        h("td", { class: "num right" }, seed),
        h("td", { class: "num right" }, rounds),
        h("td", { class: "num right" }, best),
        h(
          "td",
          { class: "right" },
          h(
            "button",
            { type: "button", class: "tool", "aria-label": `Remove ${title}`, on: { click: () => remove(id) } },
            "Remove",
          ),
        ),
      )
    ));
}

/** @type {Record<Axis, string>} */
const X_WORDS = {
  round: "by round",
  bytes: "by bytes sent and received",
  flops: "by FLOPs on clients",
  seconds: "by wall time",
};

function render() {
  const any = experiments.size > 0;
  one("#comparison").hidden = !any;
  one("#empty").hidden = any;
  if (!any) {
    setText(one("#verdict"), "");
    return;
  }
  const list = groups();
  costsAreTold = needCosts();
  const seeds = list.some((group) => group.curves.length > 1);
  logX = state.logX ?? wide(list);
  const drawn = lines(list, "accuracy");
  const levelled = drawn.filter((line) => line.level).map((line) => line.label);
  const spends = NOTHING_SPENT[state.axis];
  const hint = [
    X_WORDS[state.axis],
    levelled.length
      ? `${levelled.join(", ")}: final value as a level, ${levelled.length === 1 ? spends?.one : spends?.many}`
      : "",
    state.smooth > 1 ? `smoothed: mean of the last ${state.smooth} tests` : "",
    wide(list)
      ? logX
        ? "log x: the totals differ by more than a factor of 100"
        : `log x separates the low-${COSTS[state.axis]} methods`
      : "",
    seeds ? `line: mean over seeds${bandWords(drawn)}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
  const look = { x: state.axis, logX, logY: state.logY, bands: state.bands };
  accuracy.set(drawn, { ...look, target: state.target, marks: marks(list), hint });
  loss.set(lines(list, "loss"), { ...look, hint: X_WORDS[state.axis] });
  const fair = renderDifferences();
  const rows = list.map((group) => ({ group, slice: sliceOf(group), numbers: summary(group) }));
  // best first, the rows of one slice together; what cannot be compared stays in the order of the address
  const slices = [...new Set(rows.map((row) => row.slice))];
  /** @type {(row: ResultRow) => number} */
  const order = (row) => slices.indexOf(row.slice);
  if (!fair.warnings.length) {
    rows.sort((a, b) => order(a) - order(b) || (b.numbers.judged.mean ?? -1) - (a.numbers.judged.mean ?? -1));
  }
  renderTable(rows, fair);
  renderVerdict(rows, fair);
  renderFigures(rows, fair);
  renderMembers();
  renderControls();
  renderViews(rows);
}

/** @type {Partial<Record<Axis, {one: string, many: string}>>} */
const NOTHING_SPENT = {
  bytes: { one: "sends nothing", many: "send nothing" },
  flops: { one: "computes nothing", many: "compute nothing" },
  seconds: { one: "takes no time", many: "take no time" },
};
/** @type {Partial<Record<Axis, string>>} */
const COSTS = { bytes: "communication", flops: "computation", seconds: "time" };
/** Whether the axis is logarithmic now. */
let logX = false;

/** Whether some lines end so early on a linear axis that they would lie on each other. @param {Drawn[]} list */
function wide(list) {
  if (state.axis === "round") return false;
  const totals = list
    .map((group) => mean(group.curves.map((curve) => curve.total(state.axis))) ?? 0)
    .filter((total) => total > 0);
  return totals.length > 1 && Math.max(...totals) > WIDE * Math.min(...totals);
}

/** @param {MeanLine[]} drawn */
function bandWords(drawn) {
  if (state.bands === "off") return "";
  const hovered = state.bands === "hovered" || (state.bands === "" && drawn.length > MOST_END_LABELS);
  return ` · band: ± one standard deviation${hovered ? ", of the name pointed at" : ""}`;
}

/** How far the first is ahead. @param {ResultRow} first @param {ResultRow} second */
function lead(first, second) {
  return (first.numbers.judged.mean ?? NaN) - (second.numbers.judged.mean ?? NaN);
}

/**
 * Why a lead says little, as the end of a sentence; empty when it is larger than what seeds alone do.
 * @param {ResultRow} first @param {ResultRow} second
 */
function doubt(first, second) {
  const [a, b] = [first.numbers.judged, second.numbers.judged];
  if (Math.min(a.count, b.count) < 2) return ", from one seed";
  return lead(first, second) < Math.max(a.std ?? 0, b.std ?? 0) ? ", less than the spread over seeds" : "";
}

/** @param {string[]} words */
const listed = (words) => new Intl.ListFormat("en-GB").format(words);

/**
 * Whether the rows differ in data, models or budget on purpose, so that there is no one leader.
 * @param {ResultRow[]} rows
 */
function inSlices(rows) {
  return new Set(rows.map((row) => row.slice)).size > 1;
}

/** The answer in one sentence. @param {ResultRow[]} rows @param {Fair} fair */
function renderVerdict(rows, { warnings, swept }) {
  const all = experiments.size;
  const ranked = rows.filter((row) => row.numbers.judged.mean !== null);
  const running =
    [...experiments.values()].filter((item) => ["queued", "running", "paused", "cancelling"].includes(item.state))
      .length;
  const parts = [];
  if (warnings.length) {
    parts.push("Not comparable, for the reasons below");
  } else if (inSlices(rows)) {
    parts.push(`Settings differ: compare rows with equal ${listed(swept)}`);
  } else if (ranked.length > 1) {
    const [first, second] = ranked;
    const high = first.numbers.judged.mean;
    const gap = 100 * lead(first, second);
    parts.push(
      gap < 0.005 ? `${first.group.label} and ${second.group.label} are level at ${percent(high)}` : [
        `${first.group.label} leads with ${percent(high)}${rule() === "final" ? " in the final round" : ""}`,
        `${gap.toFixed(gap < 0.1 ? 2 : 1)} points ahead of ${second.group.label}${doubt(first, second)}`,
      ].join(", "),
    );
  } else if (ranked.length === 1) {
    parts.push(`${ranked[0].group.label} reaches ${percent(ranked[0].numbers.judged.mean)}`);
  }
  parts.push(
    running
      ? `${running} of ${all} ${all === 1 ? "experiment" : "experiments"} ${running === 1 ? "is" : "are"} not finished`
      : `${all === 1 ? "the experiment has" : `${all === 2 ? "both" : `all ${all}`} experiments have`} ended`,
  );
  // a method keeps its own spelling
  if (parts.length === 1) parts[0] = `${parts[0][0].toUpperCase()}${parts[0].slice(1)}`;
  setText(one("#verdict"), `${parts.join("; ")}.`);
}

/** @param {string} name @param {string} value @param {string} detail @param {string} mark */
function figure(name, value, detail, mark = "") {
  const root = one(`[data-figure="${name}"]`);
  setText(one(".figure-value", root), value);
  const small = one(".figure-detail", root);
  setText(small, detail);
  small.title = detail;
  if (mark) root.dataset.state = mark;
  else delete root.dataset.state;
}

/** @param {ResultRow[]} rows @param {Fair} fair */
function renderFigures(rows, { warnings, notes, swept, alone }) {
  const unranked = warnings.length ? "not comparable" : inSlices(rows) ? "bold below: best under equal conditions" : "";
  const [first, second] = rows.filter((row) => row.numbers.judged.mean !== null);
  const top = first?.numbers.judged;
  setText(one('[data-figure="best"] .figure-title'), ruleWord());
  if (unranked) {
    for (const name of ["best", "lead", "bytes", "flops"]) figure(name, NONE, unranked);
  } else {
    figure(
      "best",
      percent(top?.mean, 2),
      first
        ? `${first.group.label}${top.std === null ? "" : ` ± ${(100 * top.std).toFixed(2)}, ${top.count} seeds`}`
        : "no tested round yet",
    );
    figure(
      "lead",
      second ? `${(100 * lead(first, second)).toFixed(2)} points` : NONE,
      second ? `ahead of ${second.group.label}${doubt(first, second)}` : "no other method",
    );
    renderCostFigures(rows, first);
  }
  if (alone) figure("fair", NONE, "one group only");
  else if (warnings.length) {
    figure(
      "fair",
      "Not comparable",
      `${warnings.length} ${warnings.length === 1 ? "difference" : "differences"}, named above`,
      "unfair",
    );
  } else if (swept.length) figure("fair", "Settings differ", `compare rows with equal ${listed(swept)}`);
  else figure("fair", "Comparable", notes.length ? "with remarks, see below" : "same data, models and budget", "fair");
}

/** @param {ResultRow[]} rows @param {ResultRow|undefined} first */
function renderCostFigures(rows, first) {
  const names = costNames();
  renderCostFigure("bytes", names.bytes, formatBytes, rows, first);
  renderCostFigure("flops", names.flops, formatFlops, rows, first);
}

/** What costs are compared by: to the target where there is one. @returns {{bytes: MeasureName, flops: MeasureName}} */
function costNames() {
  return state.target === null ? { bytes: "bytes", flops: "flops" } : { bytes: "targetBytes", flops: "targetFlops" };
}

/**
 * @param {string} name @param {MeasureName} column @param {(value: number|null) => string} format
 * @param {ResultRow[]} rows @param {ResultRow|undefined} first
 */
function renderCostFigure(name, column, format, rows, first) {
  if (!costsAreTold) {
    figure(name, toldCosts.error ? NONE : "…", toldCosts.error ? "could not be read" : "being computed");
    return;
  }
  /** @param {ResultRow} row */
  const cost = (row) => row.numbers[column].mean;
  const known = rows.filter((row) =>
    cost(row) !== null && (state.target === null || reachedByAll(row.numbers[column]))
  );
  // that Standalone sends nothing is no news, unless nobody else gets there
  const spending = known.filter((row) => (cost(row) ?? 0) > 0);
  const [least] = (spending.length ? spending : known).toSorted((a, b) => (cost(a) ?? 0) - (cost(b) ?? 0));
  if (state.target !== null) {
    const some = rows.some((row) => cost(row) !== null);
    figure(
      name,
      least ? format(cost(least)) : "not reached",
      least
        ? `${least.group.label}, least to ${percent(state.target)}`
        : `no method reaches ${percent(state.target)}${some ? " with all seeds" : ""}`,
    );
    return;
  }
  const other = least && least !== first
    ? `; least: ${least.group.label} ${format(cost(least))}`
    : ", the least of all";
  figure(name, first ? format(cost(first)) : NONE, first && least ? `${first.group.label}${other}` : "");
}

// Choices that depend on what is compared.
function renderControls() {
  const whole = [...experiments.values()].map((item) => essence(item.spec));
  const fields = differences(groupExperiments([...experiments.values()], methodTitle))
    .map((row) => row.field)
    .filter((field) => field !== METHOD);
  /** @type {[string, string][]} */
  const options = [
    ["", "method and all settings"],
    [METHOD, "method only"],
  ];
  for (const field of fields) options.push([field, `method and ${field}`]);
  // a link may name a field that does not differ here; it stays a choice, or the picture would change by itself
  if (state.by && !options.some(([key]) => key === state.by)) options.push([state.by, `method and ${state.by}`]);
  /** @type {HTMLInputElement} */ (one("#logx")).checked = logX;
  choose(one("#by"), whole.length ? options : options.slice(0, 1), state.by);
  const print = new URLSearchParams({ ids: ids().join(","), x: state.axis });
  if (state.target !== null) print.set("target", String(state.target));
  if (logX) print.set("log_x", "true");
  if (state.logY) print.set("log_y", "true");
  if (state.smooth > 1) print.set("smooth", String(state.smooth));
  if (state.by) print.set("by", state.by);
  for (const [kind, link] of Object.entries(prints)) {
    link.setAttribute("href", `/api/compare/figure.${kind}?${String(print).replaceAll("%2C", ",")}`);
  }
}

/**
 * Options of a select; the present choice stays.
 * @param {HTMLElement} select @param {[string, string][]} options @param {string} value
 */
function choose(select, options, value) {
  fillWhenNew(select, options, () => options.map(([key, text]) => h("option", { value: key }, text)));
  /** @type {HTMLSelectElement} */ (select).value = options.some(([key]) => key === value)
    ? value
    : (options[0]?.[0] ?? "");
  return /** @type {HTMLSelectElement} */ (select).value;
}

// The views below: their module is fetched when the first of them is opened.
/**
 * @typedef {object} Views
 * @property {typeof import("../compare-views.js")} module
 * @property {ClientTable} table
 * @property {Boxes} boxes
 * @property {Wins} wins
 * @property {Price} price
 * @property {Sweep} sweep
 * @property {Significance} significance
 */

/** @type {Views|null} */
let views = null;

async function openViews() {
  if (views) return;
  const module = await working(import("../compare-views.js"));
  if (views) return;
  views = {
    module,
    table: new module.ClientTable(() => renderSoon()),
    boxes: new module.Boxes(one("#boxes")),
    wins: new module.Wins(one("#wins"), one("#scatter")),
    price: new module.Price(one("#price")),
    sweep: new module.Sweep(one("#sweep")),
    significance: new module.Significance(one("#significance"), () => renderSoon()),
  };
  render();
}

/** @param {ResultRow[]} rows */
function renderViews(rows) {
  if (!state.open.size) return;
  if (!views) {
    openViews();
    return;
  }
  const list = rows.map((row) => row.group);
  const all = [...experiments.values()];
  /** @type {(name: string) => boolean} */
  const shown = (name) => state.open.has(name);
  if (shown("boxes") || shown("wins")) {
    if (
      views.table.need(
        all.filter((item) => item.next_round > 0),
        state.at,
      )
    ) {
      if (shown("boxes")) views.boxes.update(list, views.table, MOMENTS[state.at]);
      if (shown("wins")) {
        /** @type {[string, string][]} */
        const options = list.map((group) => [group.label, group.label]);
        const a = choose(one("#wins-a"), options, state.first);
        const rest = options.filter(([label]) => label !== a);
        const b = choose(one("#wins-b"), rest, state.second);
        /** @type {(label: string) => Drawn|undefined} */
        const find = (label) => list.find((group) => group.label === label);
        setText(one("#wins-text"), views.wins.update(find(a), find(b), views.table, MOMENTS[state.at]));
      }
    }
  }
  if (shown("price")) {
    const { bytes, flops } = costNames();
    /** @param {Measure} measure */
    const cost = (measure) => (state.target === null || reachedByAll(measure) ? measure.mean : null);
    views.price.update(
      rows.map((row) => ({
        group: row.group,
        accuracy: row.numbers.judged.mean,
        bytes: cost(row.numbers[bytes]),
        flops: cost(row.numbers[flops]),
      })),
      state.target,
      ruleWord(),
    );
  }
  if (shown("sweep")) {
    const fields = views.module.sweptFields(all);
    const field = choose(
      one("#sweep-field"),
      fields.map((name) => [name, name]),
      state.field,
    );
    const settled = list.flatMap((group) => group.settledMembers);
    views.sweep.update(
      settled,
      field,
      judgedOf,
      (method) => ({ label: methodTitle(method), style: methodStyle(method) }),
      ruleWord(),
    );
  }
  if (shown("significance")) {
    const labels = list.map((group) => group.label);
    /** @type {[string, string][]} */
    const options = labels.length > 2 ? labels.map((label) => [label, `${label} against the others`]) : [];
    options.push(["all", labels.length > 2 ? `all ${(labels.length * (labels.length - 1)) / 2} pairs` : "the pair"]);
    const reference = choose(one("#reference"), options, state.reference);
    views.significance.update(list, all, {
      at: state.at,
      by: state.by,
      reference: reference === "all" ? "" : reference,
    });
    shownTables.significance = views.significance.rows;
  }
}

for (const panel of document.querySelectorAll("details[data-view]")) {
  const details = /** @type {HTMLDetailsElement} */ (panel);
  const name = details.dataset.view ?? "";
  details.open = state.open.has(name);
  details.addEventListener("toggle", () => {
    if (details.open === state.open.has(name)) return;
    if (details.open) state.open.add(name);
    else state.open.delete(name);
    setQuery({ open: [...state.open].join(",") });
    if (details.open) render();
  });
}

function ids() {
  return [...experiments.keys()];
}

/** @param {string} id */
function remove(id) {
  experiments.delete(id);
  curves.delete(id);
  setQuery({ ids: ids().join(",") });
  connect();
  render();
}

/**
 * The list of candidates may be old, so the experiment is fetched anew; all curves too, thinned to common rounds.
 * @param {string} id
 */
async function add(id) {
  const answer = await working(api.curves([...ids(), id], data.points));
  experiments.set(id, await working(api.experiment(id)));
  for (const [key, columns] of Object.entries(answer.experiments)) {
    if (experiments.has(key)) curves.set(key, new Curves(columns));
  }
  setQuery({ ids: ids().join(",") });
  // events that passed while these curves were on their way did not concern the new one: they are told again
  live.last = Math.min(live.last ?? answer.seq, answer.seq);
  connect();
  render();
}

function connect() {
  live.start({ after: data.seq, experiments: ids() });
}

const renderSoon = perFrame(render);
live.onState((experiment) => {
  if (!experiments.has(experiment.id)) return;
  if (experiment.deleted_at) {
    remove(experiment.id);
    notice(`${experimentTitle(experiment, methodTitle)} was deleted and left this comparison.`);
    return;
  }
  experiments.set(experiment.id, experiment);
  renderSoon();
});
live.onRound((record) => {
  const experiment = experiments.get(record.experiment);
  if (!experiment) return;
  curves.get(record.experiment)?.push(record);
  applyRound(experiment, record);
  renderSoon();
});

// Picking further experiments.
const search = /** @type {HTMLInputElement} */ (one("#add-search"));
const panel = /** @type {HTMLDetailsElement} */ (one("#add"));
let timer = 0;

async function listCandidates() {
  try {
    const answer = await api.experiments({ search: search.value.trim(), limit: 30 });
    const rows = answer.items.filter((item) => !experiments.has(item.id));
    const nothing = !search.value.trim() && !answer.items.length;
    fill(
      one("#candidates"),
      rows.map((item) =>
        h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              class: "candidate",
              on: {
                click: async (event) => {
                  /** @type {HTMLElement} */ (event.currentTarget).closest("li")?.remove();
                  try {
                    await add(item.id);
                  } catch (error) {
                    notice(`Not added: ${messageOf(error)}`, "error");
                  }
                },
              },
            },
            swatch(methodStyle(item.spec.algorithm.name)),
            h("span", { class: "candidate-name" }, experimentTitle(item, methodTitle)),
            h(
              "span",
              { class: "muted" },
              `${methodTitle(item.spec.algorithm.name)} · ${datasetText(item.spec.dataset)} · seed ${item.spec.seed}`,
            ),
            h("span", { class: "num" }, percent(headlineOf(item))),
            stateChip(item.state),
          ),
        )
      ),
      rows.length
        ? null
        : h("li", { class: "muted" }, nothing ? "There are no experiments yet." : "No further experiments match."),
    );
    if (nothing) nextStep();
  } catch (error) {
    notice(`The experiments could not be listed. ${messageOf(error)}`, "error");
  }
}

/** In an empty store there is nothing to choose from. */
function nextStep() {
  const link = /** @type {HTMLAnchorElement} */ (one("#empty a"));
  link.href = "/new";
  setText(link, "New experiment");
}

panel.addEventListener("toggle", () => {
  if (!panel.open) return;
  listCandidates();
  search.focus();
});
search.addEventListener("input", () => {
  clearTimeout(timer);
  timer = window.setTimeout(listCandidates, 200);
});

// The controls, each with its place in the address.
for (const radio of document.querySelectorAll('input[name="x"]')) {
  const input = /** @type {HTMLInputElement} */ (radio);
  input.checked = input.value === state.axis;
  input.addEventListener("change", () => {
    state.axis = AXES.find((axis) => axis === input.value) ?? "round";
    setQuery({ x: state.axis === "round" ? "" : state.axis });
    render();
    remember();
  });
}
/** @param {string} id @param {"logX"|"logY"} key */
function onLog(id, key) {
  const input = /** @type {HTMLInputElement} */ (one(`#${id}`));
  input.checked = state[key] === true;
  input.addEventListener("change", () => {
    state[key] = input.checked;
    setQuery({ [id]: input.checked ? "1" : key === "logX" ? "0" : "" });
    render();
  });
}

onLog("logx", "logX");
onLog("logy", "logY");

/**
 * @param {HTMLElement} element @param {"smooth"|"by"|"bands"|"first"|"second"|"field"|"reference"|"at"} key in the state
 * @param {string} name in the address @param {string} usual not written
 */
function onSelect(element, key, name, usual) {
  const select = /** @type {HTMLSelectElement} */ (element);
  select.addEventListener("change", () => {
    if (key === "smooth") state.smooth = Number(select.value);
    else state[key] = select.value;
    setQuery({ [name]: select.value === usual ? "" : select.value });
    render();
  });
}

const smooth = /** @type {HTMLSelectElement} */ (one("#smooth"));
if (![...smooth.options].some((option) => option.value === String(state.smooth))) {
  smooth.append(h("option", { value: state.smooth }, `${state.smooth} tests`));
}
smooth.value = String(state.smooth);
onSelect(smooth, "smooth", "smooth", "1");
onSelect(one("#by"), "by", "by", "");
const bands = /** @type {HTMLSelectElement} */ (one("#bands"));
bands.value = state.bands;
onSelect(bands, "bands", "bands", "");
onSelect(one("#wins-a"), "first", "a", "");
onSelect(one("#wins-b"), "second", "b", "");
onSelect(one("#sweep-field"), "field", "field", "");
onSelect(one("#reference"), "reference", "ref", "");
const moments = /** @type {HTMLSelectElement[]} */ ([...document.querySelectorAll("[data-moment]")]);
for (const select of moments) {
  select.value = state.at;
  onSelect(select, "at", "at", "last");
  select.addEventListener("change", () => moments.forEach((other) => (other.value = state.at)));
}
const targetField = /** @type {HTMLInputElement} */ (one("#target"));
targetField.value = state.target === null ? "" : String(Number((100 * state.target).toFixed(4)));
targetField.addEventListener("input", () => {
  state.target = readTarget(targetField.value);
  targetField.setAttribute("aria-invalid", String(targetField.value !== "" && state.target === null));
  setQuery({ target: state.target === null ? "" : targetField.value });
  render();
});

/** What the mark in a table means, where there is one. @param {string} name */
function noteOf(name) {
  return name === "table" && !one("#no-convergence").hidden ? NOTE : "";
}

for (const name of Object.keys(shownTables)) {
  one(`#${name}-csv`).addEventListener(
    "click",
    () => download(`compare-${name}.csv`, csv(name === "table" ? numbers : shownTables[name]), "text/csv"),
  );
  one(`#${name}-markdown`).addEventListener(
    "click",
    (event) => copy(/** @type {HTMLElement} */ (event.currentTarget), markdown(shownTables[name], noteOf(name))),
  );
  one(`#${name}-latex`).addEventListener(
    "click",
    (event) => copy(/** @type {HTMLElement} */ (event.currentTarget), latex(shownTables[name], noteOf(name))),
  );
}

for (const id of ids()) curves.set(id, new Curves(data.curves[id]));
if (data.missing.length) {
  notice(`${data.missing.length} of the experiments in this address do not exist: ${data.missing.join(", ")}`, "error");
}
if (!experiments.size) panel.open = true;
recall();
render();
connect();
