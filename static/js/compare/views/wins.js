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

  /**
   * @param {Shown|undefined} a @param {Shown|undefined} b @param {ClientTable} table @param {string} moment
   * @returns {string} the result as a sentence
   */
  update(a, b, table, moment) {
    /** @type {(reason: string) => string} */
    const empty = (reason) => {
      this.bars.empty(reason);
      this.scatter.empty(reason);
      return "";
    };
    if (!a || !b || a === b) return empty("Choose two different methods.");
    const [first, second] = [table.of(a), table.of(b)];
    const pairs = [...first].flatMap(([key, { client, seed, value }]) => {
      const other = second.get(key)?.value;
      const difference = Number((value - (other ?? NaN)).toFixed(12));
      return other === undefined ? [] : [{ client, seed, a: value, b: other, difference }];
    });
    if (!pairs.length) {
      return empty(
        table.error ||
          "They have no tested client in common: their partitions differ, or no client was tested by both.",
      );
    }
    pairs.sort((x, y) => y.difference - x.difference);
    const wins = pairs.filter((pair) => pair.difference > 0).length;
    const losses = pairs.filter((pair) => pair.difference < 0).length;
    /** @type {(pair: ClientPair) => string} */
    const name = (pair) => `client ${pair.client}, seed ${pair.seed}`;
    const tooltip = {
      trigger: "item",
      formatter: (/** @type {Item} */ item) =>
        tip(name(pairs[item.dataIndex]), [
          [a.label, percent(pairs[item.dataIndex].a)],
          [b.label, percent(pairs[item.dataIndex].b)],
          ["difference", `${points(pairs[item.dataIndex].difference)} points`],
        ]),
    };
    // filled for the first, hollow for the second: two methods of one family have similar colours
    /** @type {(ink: Ink, pair: ClientPair) => object} */
    const filled = (ink, pair) => {
      const colour = colourOn(ink, (pair.difference >= 0 ? a : b).style);
      return { color: pair.difference >= 0 ? `${colour}d9` : `${colour}26`, borderColor: colour, borderWidth: 1.2 };
    };
    const rows = [
      ["client", "seed", a.label, b.label, "difference"],
      ...pairs.map((pair) => [pair.client, pair.seed, pair.a, pair.b, pair.difference]),
    ];
    const ties = pairs.length - wins - losses;
    const sentence = [
      `${a.label} is better on ${wins} of ${pairs.length} clients (${percent(wins / pairs.length)}), `,
      `${b.label} on ${losses}${ties ? `, equal on ${ties}` : ""}; `,
      `mean difference ${points(average(pairs.map((pair) => pair.difference)))} points.`,
    ].join("");
    // who is A and who is B stands in the picture itself, so that it can be read where it is exported to
    /** @type {MakeOption} */
    const heading = (ink, { width }) => {
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
    };
    this.bars.set(
      (ink, size) => ({
        ...heading(ink, size),
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
        tooltip,
        series: [
          {
            type: "bar",
            barCategoryGap: pairs.length > 60 ? "10%" : "25%",
            data: pairs.map((pair) => ({ value: inPercent(pair.difference), itemStyle: filled(ink, pair) })),
          },
        ],
      }),
      {
        rows,
        label: `Bars: ${sentence}`,
        hint: `${moment} · filled: A is better · hollow: B is better`,
        height: 320,
      },
    );
    const all = pairs.flatMap((pair) => [pair.a, pair.b]);
    const ends = [
      Math.max(0, 5 * Math.floor(20 * Math.min(...all) - 0.2)),
      Math.min(100, 5 * Math.ceil(20 * Math.max(...all) + 0.2)),
    ];
    this.scatter.set(
      (ink, size) => ({
        ...heading(ink, size),
        xAxis: axis(ink, "Accuracy with B (%)", { type: "value", min: ends[0], max: ends[1], axisLabel: percentTick }),
        yAxis: axis(ink, "Accuracy with A (%)", {
          type: "value",
          min: ends[0],
          max: ends[1],
          nameGap: 36,
          axisLabel: percentTick,
        }),
        tooltip,
        series: [
          {
            type: "scatter",
            symbolSize: 7,
            data: pairs.map((pair) => ({
              value: [inPercent(pair.b), inPercent(pair.a)],
              itemStyle: filled(ink, pair),
            })),
          },
          {
            type: "line",
            silent: true,
            symbol: "none",
            data: [
              [ends[0], ends[0]],
              [ends[1], ends[1]],
            ],
            lineStyle: { color: ink.muted, width: 1, type: [4, 4] },
          },
        ],
      }),
      { rows, label: `Scatter: ${sentence}`, hint: "on the diagonal: equal", height: 320 },
    );
    return sentence;
  }
}
