// What accuracy costs: communication and computation.

/**
 * @import { Bubble, Ink, Item, MakeOption, Size } from "../../chart-echarts.js"
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

/**
 * Where a cost stands on the logarithmic axis. It has no place for zero: who sends nothing stands a decade left of
 * everybody, at a tick of its own.
 * @param {Spent[]} drawn
 */
function costAxis(drawn) {
  const sent = drawn.map((row) => row.bytes).filter((value) => value > 0);
  const least = sent.length ? Math.min(...sent) : 1;
  const most = sent.length ? Math.max(...sent) : 10;
  const nothing = drawn.some((row) => row.bytes === 0);
  const decade = 10 ** Math.floor(Math.log10(least / 1.5));
  const zero = decade / 10;
  return {
    nothing,
    zero,
    min: nothing ? zero / 10 : decade,
    max: 10 ** Math.ceil(Math.log10(most * 1.5)),
    /** @param {number} value */
    tick: (value) => !nothing || value > zero * 1.01 ? QUANTITIES.bytes.tick(value) : value > zero * 0.99 ? "0 B" : "",
  };
}

const GRID = { left: 56, right: 24, top: 16, bottom: 48 };

/**
 * The bubbles in pixels, and where their names stand.
 * @param {Spent[]} drawn @param {ReturnType<typeof costAxis>} costs @param {[number, number]} ends of the vertical axis
 * @param {Size} size
 */
function layout(drawn, costs, ends, { width, height }) {
  const frame = { left: GRID.left, right: width - GRID.right, top: GRID.top, bottom: height - GRID.bottom };
  const largest = Math.max(...drawn.map((row) => row.flops));
  const [low, high] = [Math.log10(costs.min), Math.log10(costs.max)];
  const bubbles = drawn.map((row) => ({
    x: frame.left + ((Math.log10(row.bytes || costs.zero) - low) / (high - low)) * (frame.right - frame.left),
    y: frame.bottom - ((100 * row.accuracy - ends[0]) / (ends[1] - ends[0])) * (frame.bottom - frame.top),
    radius: Math.max(6, 40 * Math.sqrt(row.flops / (largest || 1))) / 2, // the area is the number
    text: row.group.label,
  }));
  return { bubbles, names: placeNames(bubbles, frame) };
}

/**
 * @param {Ink} ink @param {Spent} row @param {Bubble} bubble @param {{x: number, y: number}} name @param {number} zero
 */
function bubbleOf(ink, row, { x, y, radius }, name, zero) {
  const colour = colourOn(ink, row.group.style);
  return {
    value: [row.bytes || zero, inPercent(row.accuracy)],
    symbolSize: 2 * radius,
    itemStyle: { color: `${colour}40`, borderColor: colour, borderWidth: 1.5, opacity: 1 },
    label: {
      show: true,
      position: [name.x - x + radius, name.y - y + radius], // relative to the corner of the bubble's box
      align: "left",
      verticalAlign: "middle",
      color: colour,
      fontSize: 12,
      formatter: () => row.group.label,
    },
  };
}

/** From a name to its bubble where it stands apart. @param {Ink} ink @param {[number, number, number, number]} line */
function leader(ink, [x1, y1, x2, y2]) {
  const style = { stroke: ink.muted, lineWidth: 1 };
  return { type: "line", silent: true, z: 1, shape: { x1, y1, x2, y2 }, style };
}

/** @param {Spent[]} drawn @param {number|null} target @param {string} word @returns {MakeOption} */
function optionOf(drawn, target, word) {
  const costs = costAxis(drawn);
  const ends = roundEnds(drawn.map((row) => 100 * row.accuracy), [0, 100]);
  const until = untilText(target);
  return (ink, size) => {
    const { bubbles, names } = layout(drawn, costs, ends, size);
    const remark = costs.nothing && size.width >= 560 ? " (the first tick is zero, not part of the scale)" : "";
    return {
      grid: GRID,
      xAxis: axis(ink, `Communication ${until}${remark}`, {
        type: "log",
        min: costs.min,
        max: costs.max,
        axisLabel: { formatter: costs.tick, hideOverlap: true },
      }),
      yAxis: axis(ink, `${word} (%)`, {
        type: "value",
        nameGap: 40,
        splitLine: { show: true, lineStyle: { color: ink.grid } },
        axisLabel: percentTick,
        min: ends[0],
        max: ends[1],
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
      graphic: names.flatMap(({ line }) => line ? [leader(ink, line)] : []),
      series: [
        {
          type: "scatter",
          data: drawn.map((row, index) => bubbleOf(ink, row, bubbles[index], names[index], costs.zero)),
        },
      ],
    };
  };
}

/** @param {number|null} target */
function untilText(target) {
  return target === null ? "in total" : `to ${percent(target)}`;
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

  /** @param {PriceRow[]} rows @param {number|null} target @param {string} word which accuracy it is */
  update(rows, target, word) {
    const drawn = rows.filter(isSpent);
    const left = rows.filter((row) => !isSpent(row)).map((row) => row.group.label);
    const until = untilText(target);
    if (!drawn.length) {
      return this.plot.empty(
        target === null ? "No round was tested yet." : `No method reaches ${percent(target)} with all its seeds.`,
      );
    }
    const largest = Math.max(...drawn.map((row) => row.flops));
    const hint = [`area: client FLOPs ${until}, largest ${formatFlops(largest)}`];
    if (target !== null) hint.push(`costs ${PAPERS_COUNT}`);
    if (left.length) hint.push(`not reached by all seeds of ${left.join(", ")}`);
    /** @param {Spent} row */
    const inWords = (row) => `${row.group.label} ${percent(row.accuracy)} for ${formatBytes(row.bytes)}`;
    return this.plot.set(optionOf(drawn, target, word), {
      rows: [
        ["method", word.toLowerCase(), `bytes ${until}`, `FLOPs ${until}`, ...(target === null ? [] : SPENT_HEADS)],
        ...rows.map((row) => [
          ...[row.group.label, row.accuracy, row.bytes, row.flops],
          ...(target === null ? [] : [row.spentBytes, row.spentFlops]),
        ]),
      ],
      label: `Bubble chart: ${drawn.map(inWords).join(", ")}`,
      hint: hint.join(" · "),
      height: 440,
    });
  }
}
