// Two methods, client by client.

/**
 * @import { Ink, Item, MakeOption } from "../../chart-echarts.js"
 * @import { ClientTable, Shown } from "./clients.js"
 */

import { axis, colourOn, FONT, Plot, tip } from "../../chart-echarts.js";
import { average } from "../../series.js";
import { percent } from "../../units.js";
import { inPercent, percentTick, points } from "./scale.js";

/**
 * A client with its accuracy under two methods.
 * @typedef {object} ClientPair
 * @property {string} client
 * @property {number} seed
 * @property {number} a
 * @property {number} b
 * @property {number} difference
 */

/** Two groups with their clients, the best for A first. @typedef {{a: Shown, b: Shown, pairs: ClientPair[]}} Duel */

/**
 * @param {Shown} a @param {Shown} b @param {ClientTable} table @returns {ClientPair[]} clients that both were tested on
 */
function pairsOf(a, b, table) {
  const second = table.of(b);
  const pairs = [...table.of(a)].flatMap(([key, { client, seed, value }]) => {
    const other = second.get(key)?.value;
    const difference = Number((value - (other ?? NaN)).toFixed(12));
    return other === undefined ? [] : [{ client, seed, a: value, b: other, difference }];
  });
  return pairs.sort((x, y) => y.difference - x.difference);
}

/** @param {Duel} duel */
function sentenceOf({ a, b, pairs }) {
  const wins = pairs.filter((pair) => pair.difference > 0).length;
  const losses = pairs.filter((pair) => pair.difference < 0).length;
  const ties = pairs.length - wins - losses;
  return [
    `${a.label} is better on ${wins} of ${pairs.length} clients (${percent(wins / pairs.length)}), `,
    `${b.label} on ${losses}${ties ? `, equal on ${ties}` : ""}; `,
    `mean difference ${points(average(pairs.map((pair) => pair.difference)))} points.`,
  ].join("");
}

/** @param {Duel} duel */
function tooltipOf({ a, b, pairs }) {
  return {
    trigger: "item",
    formatter: (/** @type {Item} */ { dataIndex }) => {
      const pair = pairs[dataIndex];
      return tip(`client ${pair.client}, seed ${pair.seed}`, [
        [a.label, percent(pair.a)],
        [b.label, percent(pair.b)],
        ["difference", `${points(pair.difference)} points`],
      ]);
    },
  };
}

/**
 * Filled for the first, hollow for the second: two methods of one family have similar colours.
 * @param {Ink} ink @param {Duel} duel @param {ClientPair} pair
 */
function filled(ink, { a, b }, { difference }) {
  const colour = colourOn(ink, (difference >= 0 ? a : b).style);
  return { color: difference >= 0 ? `${colour}d9` : `${colour}26`, borderColor: colour, borderWidth: 1.2 };
}

/**
 * Who is A and who is B stands in the picture itself, so that it can be read where it is exported to.
 * @param {Ink} ink @param {Duel} duel @param {number} width
 */
function headingOf(ink, { a, b }, width) {
  const lines = width < 560 ? [`A: ${a.label}`, `B: ${b.label}`] : [`A: ${a.label}   B: ${b.label}`];
  return {
    title: {
      text: lines.join("\n"),
      left: 8,
      top: 4,
      padding: 0,
      textStyle: {
        color: ink.text,
        fontFamily: FONT,
        fontSize: 12,
        fontWeight: 500,
        lineHeight: 16,
        width: width - 16,
        overflow: "truncate",
      },
    },
    grid: { left: 56, right: 16, top: 20 + 16 * lines.length, bottom: 44 },
  };
}

/** A bar for the difference of each client. @param {Duel} duel @returns {MakeOption} */
function barsOf(duel) {
  const { pairs } = duel;
  return (ink, { width }) => ({
    ...headingOf(ink, duel, width),
    xAxis: axis(ink, "Clients, the best for A first", {
      type: "category",
      data: pairs.map((_, place) => String(place + 1)),
      axisTick: { show: false },
      axisLabel: { hideOverlap: true },
    }),
    yAxis: axis(ink, "A − B (points)", {
      type: "value",
      nameGap: 40,
      splitLine: { show: true, lineStyle: { color: ink.grid } },
      axisLabel: percentTick,
    }),
    tooltip: tooltipOf(duel),
    series: [
      {
        type: "bar",
        barCategoryGap: pairs.length > 60 ? "10%" : "25%",
        data: pairs.map((pair) => ({ value: inPercent(pair.difference), itemStyle: filled(ink, duel, pair) })),
      },
    ],
  });
}

/** A point for each client, and the diagonal on which both are equal. @param {Duel} duel @returns {MakeOption} */
function scatterOf(duel) {
  const all = duel.pairs.flatMap((pair) => [pair.a, pair.b]);
  const min = Math.max(0, 5 * Math.floor(20 * Math.min(...all) - 0.2));
  const max = Math.min(100, 5 * Math.ceil(20 * Math.max(...all) + 0.2));
  const ends = { type: "value", min, max, axisLabel: percentTick };
  return (ink, { width }) => ({
    ...headingOf(ink, duel, width),
    xAxis: axis(ink, "Accuracy with B (%)", ends),
    yAxis: axis(ink, "Accuracy with A (%)", { ...ends, nameGap: 36 }),
    tooltip: tooltipOf(duel),
    series: [
      {
        type: "scatter",
        symbolSize: 7,
        data: duel.pairs.map((pair) => ({
          value: [inPercent(pair.b), inPercent(pair.a)],
          itemStyle: filled(ink, duel, pair),
        })),
      },
      {
        type: "line",
        silent: true,
        symbol: "none",
        data: [[min, min], [max, max]],
        lineStyle: { color: ink.muted, width: 1, type: [4, 4] },
      },
    ],
  });
}

/** Two methods, client by client: who is better on how many, and by how much. */
export class Wins {
  /** @param {HTMLElement} bars @param {HTMLElement} scatter */
  constructor(bars, scatter) {
    this.bars = new Plot(bars, {
      name: "wins",
      title: "Difference of each client, sorted",
      file: () => "compare-win-rate",
    });
    this.scatter = new Plot(scatter, {
      name: "scatter",
      title: "Client by client",
      file: () => "compare-client-by-client",
    });
  }

  /** @param {string} reason */
  empty(reason) {
    this.bars.empty(reason);
    this.scatter.empty(reason);
    return "";
  }

  /**
   * @param {Shown|undefined} a @param {Shown|undefined} b @param {ClientTable} table @param {string} moment
   * @returns {string} the result as a sentence
   */
  update(a, b, table, moment) {
    if (!a || !b || a === b) return this.empty("Choose two different methods.");
    const pairs = pairsOf(a, b, table);
    if (!pairs.length) {
      return this.empty(
        table.error ||
          "They have no tested client in common: their partitions differ, or no client was tested by both.",
      );
    }
    const duel = { a, b, pairs };
    const sentence = sentenceOf(duel);
    const rows = [
      ["client", "seed", a.label, b.label, "difference"],
      ...pairs.map((pair) => [pair.client, pair.seed, pair.a, pair.b, pair.difference]),
    ];
    const hint = `${moment} · filled: A is better · hollow: B is better`;
    this.bars.set(barsOf(duel), { rows, label: `Bars: ${sentence}`, hint, height: 320 });
    const equal = "on the diagonal: equal";
    this.scatter.set(scatterOf(duel), { rows, label: `Scatter: ${sentence}`, hint: equal, height: 320 });
    return sentence;
  }
}
