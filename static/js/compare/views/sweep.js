// Accuracy over a swept field.

/**
 * @import { Box, Ink, Item, MakeOption, Size } from "../../chart-echarts.js"
 * @import { Experiment, Style } from "../../types.d.ts"
 */

import { MOST_END_LABELS } from "../../chart.js";
import { spread as apart } from "../../chart-data.js";
import { axis, colourOn, FONT, Plot, tip } from "../../chart-echarts.js";
import { average, fieldHead, fieldTitle, flatten, METHOD, show, std } from "../../series.js";
import { percent } from "../../units.js";
import { inPercent, percentTick, roundEnds } from "./scale.js";

/** @typedef {{value: unknown, mean: number, std: number|null, count: number}} SweepPoint */

/** @typedef {{label: string, style: Style, points: SweepPoint[]}} SweepLine */

/**
 * Fields that take several values within a method, the one with most values first.
 * @param {Experiment[]} experiments
 */
export function sweptFields(experiments) {
  const specs = experiments.map((item) => flatten(item.spec));
  const fields = [...new Set(specs.flatMap((spec) => Object.keys(spec)))].filter(
    (field) => !["name", "tags", "notes", "seed", METHOD].includes(field),
  );
  /** @type {(some: Record<string, unknown>[], field: string) => number} */
  const count = (some, field) =>
    new Set(some.filter((spec) => field in spec).map((spec) => JSON.stringify(spec[field]))).size;
  const methods = [...Map.groupBy(specs, (spec) => spec[METHOD]).values()];
  return fields
    .filter((field) => methods.some((some) => count(some, field) > 1))
    .sort((x, y) => count(specs, y) - count(specs, x));
}

/**
 * What is drawn: the values of a field, and a line for each method.
 * @typedef {object} Swept
 * @property {string} field
 * @property {string} word which accuracy it is
 * @property {boolean} numeric
 * @property {any[]} values in the order of the axis
 * @property {SweepLine[]} lines
 * @property {[number, number]} ends of the vertical axis
 */

/** Where the names of the lines stand. @typedef {{labelled: boolean, legendRows: number, grid: Box}} Names */

/**
 * @param {Experiment[]} experiments with an accuracy @param {string} field
 * @param {(item: Experiment) => number|null} accuracyOf
 * @param {(method: string) => {label: string, style: Style}} lookOf @param {string} word @returns {Swept}
 */
function sweptOf(experiments, field, accuracyOf, lookOf, word) {
  /** @type {(item: Experiment) => any} */
  const valueOf = (item) => flatten(item.spec)[field];
  const numeric = experiments.every((item) => typeof valueOf(item) === "number");
  const distinct = new Map(experiments.map((item) => [JSON.stringify(valueOf(item)), valueOf(item)]));
  const values = [...distinct.values()].sort((x, y) => (numeric ? x - y : show(x).localeCompare(show(y))));
  const methods = Map.groupBy(experiments, (item) => item.spec.algorithm.name);
  const lines = [...methods].map(([method, items]) => {
    const runs = Map.groupBy(items, (item) => JSON.stringify(valueOf(item)));
    return {
      ...lookOf(method),
      points: values.flatMap((value) => {
        const found = (runs.get(JSON.stringify(value)) ?? []).map((item) => accuracyOf(item) ?? NaN);
        return found.length ? [{ value, mean: average(found), std: std(found), count: found.length }] : [];
      }),
    };
  });
  const reached = lines.flatMap((line) =>
    line.points.flatMap(({ mean, std: spread }) => [100 * (mean - (spread ?? 0)), 100 * (mean + (spread ?? 0))])
  );
  return { field, word, numeric, values, lines, ends: roundEnds(reached, [0, 100]) };
}

/** The last point of a line. @param {SweepLine} line */
function lastOf(line) {
  return line.points[line.points.length - 1];
}

/** @param {Ink} ink @param {Swept} swept */
function valueAxis(ink, { field, numeric, values }) {
  if (!numeric) return axis(ink, fieldHead(field), { type: "category", data: values.map(show), boundaryGap: true });
  const [first, last] = [values[0], values[values.length - 1]];
  return axis(ink, fieldHead(field), {
    type: first > 0 && last / first >= 20 ? "log" : "value",
    scale: true,
    min: first,
    max: last,
    axisTick: { customValues: values },
    axisLabel: {
      customValues: values,
      formatter: (/** @type {number} */ value) => String(Number(Number(value).toPrecision(6))),
      hideOverlap: true,
    },
    boundaryGap: ["5%", "5%"],
  });
}

/** @param {Swept} swept */
function tooltipOf({ field, word, lines }) {
  return {
    trigger: "item",
    formatter: (/** @type {Item} */ { seriesIndex, dataIndex }) => {
      const { label, points } = lines[seriesIndex];
      const { value, mean, std: spread, count } = points[dataIndex];
      const accuracy = `${percent(mean, 2)}${spread === null ? "" : ` ± ${(100 * spread).toFixed(2)}`}`;
      return tip(`${label}, ${fieldTitle(field)} ${show(value)}`, [
        [word.toLowerCase(), accuracy],
        ["runs", String(count)],
      ]);
    },
  };
}

/** Sorted by the last value, which it also shows. @param {Ink} ink @param {SweepLine[]} lines */
function legendOf(ink, lines) {
  const ordered = [...lines].sort((x, y) => lastOf(y).mean - lastOf(x).mean);
  return {
    bottom: 0,
    itemWidth: 28,
    data: ordered.map((line) => line.label),
    textStyle: { color: ink.text, fontSize: 12, width: 190, overflow: "truncate" },
    formatter: (/** @type {string} */ name) =>
      `${name}  ${percent(ordered.find((line) => line.label === name)?.points.at(-1)?.mean)}`,
  };
}

/**
 * The names beside the plot, none on another.
 * @param {Ink} ink @param {Swept} swept @param {Box} grid @param {Size} size
 */
function endLabels(ink, { lines, ends }, grid, { width, height }) {
  const tall = height - grid.top - grid.bottom;
  const places = lines.map((line) => ({
    line,
    at: grid.top + (1 - (100 * lastOf(line).mean - ends[0]) / (ends[1] - ends[0])) * tall,
  }));
  return apart(places, grid.top, height - grid.bottom).flatMap(({ line, at }) => {
    const text = `${line.label}  ${percent(lastOf(line).mean)}`;
    return endLabel(ink, line, width - grid.right + 12, at, text, grid.right - 52);
  });
}

/** @param {Ink} ink @param {Swept} swept @param {boolean} banded */
function seriesOf(ink, { lines, numeric, values }, banded) {
  /** @param {any} value */
  const place = (value) => (numeric ? value : values.indexOf(value));
  const curves = lines.map(({ label, style, points }) => ({
    type: "line",
    name: label,
    data: points.map((point) => [place(point.value), inPercent(point.mean)]),
    symbol: "circle",
    symbolSize: 7,
    lineStyle: { color: colourOn(ink, style), width: 2, type: style.dash.length ? style.dash : "solid" },
    itemStyle: { color: colourOn(ink, style) },
  }));
  const spread = banded ? lines.filter((line) => line.points.some((point) => point.std !== null)) : [];
  return [...curves, ...spread.map((line) => band(ink, line, place))];
}

/** @param {Swept} swept @param {Names} names @returns {MakeOption} */
function optionOf(swept, { labelled, grid }) {
  const [min, max] = swept.ends;
  return (ink, size) => ({
    grid,
    xAxis: valueAxis(ink, swept),
    yAxis: axis(ink, `${swept.word} (%)`, {
      type: "value",
      min,
      max,
      nameGap: 40,
      splitLine: { show: true, lineStyle: { color: ink.grid } },
      axisLabel: percentTick,
    }),
    tooltip: tooltipOf(swept),
    legend: labelled ? { show: false } : legendOf(ink, swept.lines),
    graphic: labelled ? endLabels(ink, swept, grid, size) : [],
    series: seriesOf(ink, swept, labelled),
  });
}

/** Accuracy over a field of the spec, a line for each method with a band over its seeds. */
export class Sweep {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.plot = new Plot(root, { name: "sweep", title: "Accuracy over a swept field", file: () => "compare-sweep" });
  }

  /**
   * Names beside the plot would leave a phone no plot: they go into the legend.
   * @param {number} count @returns {Names}
   */
  namesOf(count) {
    const { clientWidth: width } = this.plot.stage;
    const labelled = count <= MOST_END_LABELS && width >= 560;
    const perRow = Math.max(1, Math.min(5, Math.floor(width / 240)));
    const legendRows = labelled ? 0 : Math.ceil(count / perRow);
    const grid = { left: 56, right: labelled ? 190 : 24, top: 16, bottom: 48 + 24 * legendRows };
    return { labelled, legendRows, grid };
  }

  /**
   * @param {Experiment[]} experiments @param {string} field @param {(item: Experiment) => number|null} accuracyOf
   * @param {(method: string) => {label: string, style: Style}} lookOf @param {string} word which accuracy it is
   */
  update(experiments, field, accuracyOf, lookOf, word) {
    if (!field) return this.plot.empty("No method was run with several values of a field, so nothing was swept.");
    const known = experiments.filter((item) => field in flatten(item.spec) && accuracyOf(item) !== null);
    if (!known.length) return this.plot.empty("No round was tested yet.");
    const swept = sweptOf(known, field, accuracyOf, lookOf, word);
    const names = this.namesOf(swept.lines.length);
    /** @param {SweepLine} line */
    const inWords = ({ label, points }) =>
      `${label} ${points.map((point) => `${show(point.value)} ${percent(point.mean)}`).join(", ")}`;
    return this.plot.set(optionOf(swept, names), {
      rows: [
        ["method", field, word.toLowerCase(), "std", "runs"],
        ...swept.lines.flatMap(({ label, points }) =>
          points.map((point) => [label, show(point.value), point.mean, point.std, point.count])
        ),
      ],
      label: `${word} over ${field}: ${swept.lines.map(inWords).join("; ")}`,
      hint: `mean over the runs with that value${names.labelled ? " · band: ± one standard deviation" : ""}`,
      height: 360 + 24 * names.legendRows,
    });
  }
}

/**
 * A sample of the line and its name.
 * @param {Ink} ink @param {SweepLine} line @param {number} x @param {number} at @param {string} text
 * @param {number} width
 */
function endLabel(ink, line, x, at, text, width) {
  const colour = colourOn(ink, line.style);
  return [
    {
      type: "line",
      silent: true,
      shape: { x1: x, x2: x + 28, y1: at, y2: at },
      style: { stroke: colour, lineWidth: 2, lineDash: line.style.dash.map((part) => 0.7 * part) },
    },
    {
      type: "text",
      silent: true,
      x: x + 36,
      y: at,
      style: { text, fill: colour, font: `500 12px ${FONT}`, verticalAlign: "middle", width, overflow: "truncate" },
    },
  ];
}

/**
 * A band as a polygon: ECharts stacks areas, which cannot start at a deviation below the mean.
 * @param {Ink} ink @param {SweepLine} line @param {(value: any) => number} place
 */
function band(ink, line, place) {
  const known = line.points.flatMap(({ std, ...point }) => std === null ? [] : [{ ...point, std }]);
  /** @type {(sign: number) => [number, number][]} */
  const edge = (sign) => known.map((point) => [place(point.value), 100 * (point.mean + sign * point.std)]);
  const outline = [...edge(1), ...edge(-1).reverse()];
  return {
    type: "custom",
    silent: true,
    data: [outline[0]],
    clip: true,
    encode: { x: 0, y: 1 },
    z: 1,
    renderItem: (/** @type {unknown} */ _, /** @type {{coord: (point: number[]) => number[]}} */ view) => ({
      type: "polygon",
      shape: { points: outline.map((point) => view.coord(point)) },
      style: { fill: colourOn(ink, line.style), opacity: 0.15 },
    }),
  };
}
