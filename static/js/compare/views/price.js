// What accuracy costs: communication and computation.

/**
 * @import { Item, MakeOption } from "../../chart-echarts.js"
 * @import { Shown } from "./clients.js"
 */

import { axis, colourOn, placeNames, Plot, tip } from "../../chart-echarts.js";
import { formatBytes, formatFlops, percent, QUANTITIES } from "../../units.js";
import { PAPERS_COUNT } from "../model.js";
import { inPercent, percentTick, roundEnds } from "./scale.js";

/**
 * What a group costs, as means over its seeds; null where not all of them reached the target.
 * @typedef {object} PriceRow
 * @property {Shown} group
 * @property {number|null} accuracy
 * @property {number|null} bytes
 * @property {number|null} flops
 * @property {number|null} spentBytes until the target
 * @property {number|null} spentFlops
 */

/** @typedef {PriceRow & {accuracy: number, bytes: number, flops: number}} Spent */

/** @param {PriceRow} row @returns {row is Spent} */
function isSpent(row) {
  return row.accuracy !== null && row.bytes !== null && row.flops !== null;
}

const SPENT_HEADS = ["bytes spent until then", "FLOPs spent until then"];

/**
 * To the target the papers count otherwise than what was spent.
 * @param {Spent} row @param {number|null} target @returns {[string, string][]}
 */
function spentUntilThen(row, target) {
  if (target === null) return [];
  return [
    [SPENT_HEADS[0], formatBytes(row.spentBytes)],
    [SPENT_HEADS[1], formatFlops(row.spentFlops)],
    ["costs to the target", PAPERS_COUNT],
  ];
}

/** Accuracy against communication, with the computation as the size of the bubble. */
export class Price {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.plot = new Plot(root, {
      name: "price",
      title: "Accuracy, communication and computation",
      file: () => "compare-price",
    });
  }

  /**
   * @param {PriceRow[]} rows
   * @param {number|null} target @param {string} word which accuracy it is
   */
  update(rows, target, word) {
    const drawn = rows.filter(isSpent);
    const left = rows.filter((row) => !isSpent(row)).map((row) => row.group.label);
    const until = target === null ? "in total" : `to ${percent(target)}`;
    if (!drawn.length) {
      return this.plot.empty(
        target === null ? "No round was tested yet." : `No method reaches ${percent(target)} with all its seeds.`,
      );
    }
    const sent = drawn.map((row) => row.bytes).filter((value) => value > 0);
    const least = sent.length ? Math.min(...sent) : 1;
    const most = sent.length ? Math.max(...sent) : 10;
    const nothing = drawn.some((row) => row.bytes === 0);
    const decade = 10 ** Math.floor(Math.log10(least / 1.5));
    // a logarithm has no place for zero: who sends nothing stands a decade left of everybody, at a tick of its own
    const zero = decade / 10;
    /** @type {(value: number) => string} */
    const tick = (value) =>
      !nothing || value > zero * 1.01 ? QUANTITIES.bytes.tick(value) : value > zero * 0.99 ? "0 B" : "";
    const largest = Math.max(...drawn.map((row) => row.flops));
    /** @type {(row: Spent) => number} */
    const size = (row) => Math.max(6, 40 * Math.sqrt(row.flops / (largest || 1))); // the area is the number
    const ends = {
      x: [nothing ? zero / 10 : decade, 10 ** Math.ceil(Math.log10(most * 1.5))],
      y: roundEnds(
        drawn.map((row) => 100 * row.accuracy),
        [0, 100],
      ),
    };
    const grid = { left: 56, right: 24, top: 16, bottom: 48 };
    /** @type {MakeOption} */
    const option = (ink, { width, height }) => {
      const frame = { left: grid.left, right: width - grid.right, top: grid.top, bottom: height - grid.bottom };
      const bubbles = drawn.map((row) => ({
        x: frame.left +
          ((Math.log10(row.bytes || zero) - Math.log10(ends.x[0])) / (Math.log10(ends.x[1]) - Math.log10(ends.x[0]))) *
            (frame.right - frame.left),
        y: frame.bottom - ((100 * row.accuracy - ends.y[0]) / (ends.y[1] - ends.y[0])) * (frame.bottom - frame.top),
        radius: size(row) / 2,
        text: row.group.label,
      }));
      const names = placeNames(bubbles, frame);
      return {
        grid,
        xAxis: axis(
          ink,
          `Communication ${until}${nothing && width >= 560 ? " (the first tick is zero, not part of the scale)" : ""}`,
          { type: "log", min: ends.x[0], max: ends.x[1], axisLabel: { formatter: tick, hideOverlap: true } },
        ),
        yAxis: axis(ink, `${word} (%)`, {
          type: "value",
          nameGap: 40,
          splitLine: { show: true, lineStyle: { color: ink.grid } },
          axisLabel: percentTick,
          min: ends.y[0],
          max: ends.y[1],
        }),
        tooltip: {
          trigger: "item",
          formatter: (/** @type {Item} */ item) => {
            const row = drawn[item.dataIndex];
            return tip(row.group.label, [
              [word.toLowerCase(), percent(row.accuracy, 2)],
              [`communication ${until}`, formatBytes(row.bytes)],
              [`computation ${until}`, formatFlops(row.flops)],
              ...spentUntilThen(row, target),
            ]);
          },
        },
        graphic: names
          .flatMap(({ line }) => line ? [line] : [])
          .map(([x1, y1, x2, y2]) => ({
            type: "line",
            silent: true,
            z: 1,
            shape: { x1, y1, x2, y2 },
            style: { stroke: ink.muted, lineWidth: 1 },
          })),
        series: [
          {
            type: "scatter",
            data: drawn.map((row, index) => {
              const colour = colourOn(ink, row.group.style);
              const { x, y, radius } = bubbles[index];
              // an array is the place relative to the corner of the bubble's box
              const label = {
                show: true,
                position: [names[index].x - x + radius, names[index].y - y + radius],
                align: "left",
                verticalAlign: "middle",
                color: colour,
                fontSize: 12,
                formatter: () => row.group.label,
              };
              return {
                value: [row.bytes || zero, inPercent(row.accuracy)],
                symbolSize: size(row),
                itemStyle: { color: `${colour}40`, borderColor: colour, borderWidth: 1.5, opacity: 1 },
                label,
              };
            }),
          },
        ],
      };
    };
    /** @type {(row: Spent) => string} */
    const inWords = (row) => `${row.group.label} ${percent(row.accuracy)} for ${formatBytes(row.bytes)}`;
    return this.plot.set(option, {
      rows: [
        ["method", word.toLowerCase(), `bytes ${until}`, `FLOPs ${until}`, ...(target === null ? [] : SPENT_HEADS)],
        ...rows.map((row) => [
          ...[row.group.label, row.accuracy, row.bytes, row.flops],
          ...(target === null ? [] : [row.spentBytes, row.spentFlops]),
        ]),
      ],
      label: `Bubble chart: ${drawn.map(inWords).join(", ")}`,
      hint: [
        `area: client FLOPs ${until}, largest ${formatFlops(largest)}`,
        ...(target === null ? [] : [`costs ${PAPERS_COUNT}`]),
        ...(left.length ? [`not reached by all seeds of ${left.join(", ")}`] : []),
      ].join(" · "),
      height: 440,
    });
  }
}
