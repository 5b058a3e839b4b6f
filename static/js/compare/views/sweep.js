// Accuracy over a swept field.

/**
 * @import { Ink, Item, MakeOption } from "../../chart-echarts.js"
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

/** Accuracy over a field of the spec, a line for each method with a band over its seeds. */
export class Sweep {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.plot = new Plot(root, { name: "sweep", title: "Accuracy over a swept field", file: () => "compare-sweep" });
  }

  /**
   * @param {Experiment[]} experiments @param {string} field @param {(item: Experiment) => number|null} accuracyOf
   * @param {(method: string) => {label: string, style: Style}} lookOf @param {string} word which accuracy it is
   */
  update(experiments, field, accuracyOf, lookOf, word) {
    if (!field) return this.plot.empty("No method was run with several values of a field, so nothing was swept.");
    /** @type {(item: Experiment) => any} */
    const valueOf = (item) => flatten(item.spec)[field];
    const known = experiments.filter((item) => valueOf(item) !== undefined && accuracyOf(item) !== null);
    if (!known.length) return this.plot.empty("No round was tested yet.");
    const numeric = known.every((item) => typeof valueOf(item) === "number");
    const values = [...new Map(known.map((item) => [JSON.stringify(valueOf(item)), valueOf(item)])).values()].sort(
      (x, y) => (numeric ? x - y : show(x).localeCompare(show(y))),
    );
    const log = numeric && values[0] > 0 && values[values.length - 1] / values[0] >= 20;
    const lines = [...Map.groupBy(known, (item) => item.spec.algorithm.name)].map(([method, items]) => ({
      ...lookOf(method),
      points: values
        .map((value) => ({
          value,
          found: items.filter((item) => JSON.stringify(valueOf(item)) === JSON.stringify(value))
            .map((item) => accuracyOf(item) ?? NaN),
        }))
        .filter(({ found }) => found.length)
        .map(({ value, found }) => ({ value, mean: average(found), std: std(found), count: found.length })),
    }));
    /** @type {(value: any) => number} */
    const place = (value) => (numeric ? value : values.indexOf(value));
    /** @type {(line: SweepLine) => SweepPoint} */
    const last = (line) => line.points[line.points.length - 1];
    const ordered = [...lines].sort((x, y) => last(y).mean - last(x).mean);
    // names beside the plot would leave a phone no plot: they go into the legend
    const labelled = lines.length <= MOST_END_LABELS && this.plot.stage.clientWidth >= 560;
    const ends = roundEnds(
      lines
        .flatMap((line) =>
          line.points.flatMap((point) => [point.mean - (point.std ?? 0), point.mean + (point.std ?? 0)])
        )
        .map((value) => 100 * value),
      [0, 100],
    );
    /** @type {(line: SweepLine) => string} */
    const pointsText = (line) => line.points.map((point) => `${show(point.value)} ${percent(point.mean)}`).join(", ");
    const perRow = Math.max(1, Math.min(5, Math.floor(this.plot.stage.clientWidth / 240)));
    const legendRows = labelled ? 0 : Math.ceil(lines.length / perRow);
    const grid = { left: 56, right: labelled ? 190 : 24, top: 16, bottom: 48 + 24 * legendRows };
    /** @type {MakeOption} */
    const option = (ink, { width, height }) => ({
      grid,
      xAxis: axis(
        ink,
        fieldHead(field),
        numeric
          ? {
            type: log ? "log" : "value",
            scale: true,
            min: values[0],
            max: values[values.length - 1],
            axisTick: { customValues: values },
            axisLabel: {
              customValues: values,
              formatter: (/** @type {number} */ value) => String(Number(Number(value).toPrecision(6))),
              hideOverlap: true,
            },
            boundaryGap: ["5%", "5%"],
          }
          : { type: "category", data: values.map(show), boundaryGap: true },
      ),
      yAxis: axis(ink, `${word} (%)`, {
        type: "value",
        min: ends[0],
        max: ends[1],
        nameGap: 40,
        splitLine: { show: true, lineStyle: { color: ink.grid } },
        axisLabel: percentTick,
      }),
      tooltip: {
        trigger: "item",
        formatter: (/** @type {Item} */ item) => {
          const { label, points: all } = lines[item.seriesIndex];
          const point = all[item.dataIndex];
          return tip(`${label}, ${fieldTitle(field)} ${show(point.value)}`, [
            [
              word.toLowerCase(),
              `${percent(point.mean, 2)}${point.std === null ? "" : ` ± ${(100 * point.std).toFixed(2)}`}`,
            ],
            ["runs", String(point.count)],
          ]);
        },
      },
      legend: labelled ? { show: false } : {
        bottom: 0,
        itemWidth: 28,
        data: ordered.map((line) => line.label),
        textStyle: { color: ink.text, fontSize: 12, width: 190, overflow: "truncate" },
        formatter: (/** @type {string} */ name) =>
          `${name}  ${percent(ordered.find((line) => line.label === name)?.points.at(-1)?.mean)}`,
      },
      graphic: labelled
        ? apart(
          lines.map((line) => ({
            line,
            at: grid.top +
              (1 - (100 * last(line).mean - ends[0]) / (ends[1] - ends[0])) * (height - grid.top - grid.bottom),
          })),
          grid.top,
          height - grid.bottom,
        ).flatMap(({ line, at }) =>
          /**
           * @param {Ink} ink @param {SweepLine} line @param {number} x @param {number} at @param {string} text
           * @param {number} width
           */
          endLabel(
            ink,
            line,
            width - grid.right + 12,
            at,
            `${line.label}  ${percent(last(line).mean)}`,
            grid.right - 52,
          )
        )
        : [],
      series: [
        ...lines.map((line) => ({
          type: "line",
          name: line.label,
          data: line.points.map((point) => [place(point.value), inPercent(point.mean)]),
          symbol: "circle",
          symbolSize: 7,
          lineStyle: {
            color: colourOn(ink, line.style),
            width: 2,
            type: line.style.dash.length ? line.style.dash : "solid",
          },
          itemStyle: { color: colourOn(ink, line.style) },
        })),
        ...(labelled ? lines : [])
          .filter((line) => line.points.some((point) => point.std !== null))
          .map((line) => band(ink, line, place)),
      ],
    });
    return this.plot.set(option, {
      rows: [
        ["method", field, word.toLowerCase(), "std", "runs"],
        ...lines.flatMap((line) =>
          line.points.map((point) => [line.label, show(point.value), point.mean, point.std, point.count])
        ),
      ],
      label: `${word} over ${field}: ${lines.map((line) => `${line.label} ${pointsText(line)}`).join("; ")}`,
      hint: `mean over the runs with that value${labelled ? " · band: ± one standard deviation" : ""}`,
      height: 360 + 24 * legendRows,
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
