// How the clients of each method are spread.

/**
 * @import { Item, MakeOption } from "../../chart-echarts.js"
 * @import { ClientMean, ClientTable, Shown } from "./clients.js"
 */

import { axis, colourOn, Plot, tip } from "../../chart-echarts.js";
import { average, quantile } from "../../series.js";
import { percent } from "../../units.js";
import { inPercent, percentTick } from "./scale.js";

/** How the clients of each method are spread: lying boxes, so that names stay readable however many there are. */
export class Boxes {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.plot = new Plot(root, { name: "boxes", title: "Accuracy of the clients", file: () => "compare-clients" });
  }

  /** @param {Shown[]} groups best first @param {ClientTable} table @param {string} moment */
  update(groups, table, moment) {
    const rows = groups
      .map((group) => ({ group, values: [...table.of(group).values()] }))
      .filter((row) => row.values.length);
    if (!rows.length) return this.plot.empty(table.error || "No client was tested yet.");
    const boxes = rows.map(boxOf);
    const names = boxes.map((box) => box.group.label);
    /** @type {(box: ReturnType<typeof boxOf>) => string} */
    const medianText = (box) => `${box.group.label} median ${percent(box.median)}`;
    /** @type {MakeOption} */
    const option = (ink) => ({
      grid: { left: 8, right: 24, top: 12, bottom: 48, containLabel: true },
      xAxis: axis(ink, "Test accuracy of a client (%)", {
        type: "value",
        scale: true,
        splitLine: { show: true, lineStyle: { color: ink.grid } },
        axisLabel: percentTick,
      }),
      yAxis: axis(ink, "", {
        type: "category",
        inverse: true,
        data: names,
        axisTick: { show: false },
        axisLabel: { color: ink.text, width: 220, overflow: "truncate" },
      }),
      tooltip: { trigger: "item", formatter: (/** @type {Item} */ item) => this.tipOf(item, boxes) },
      series: [
        {
          type: "boxplot",
          boxWidth: [6, 18],
          data: boxes.map((box) => {
            const colour = colourOn(ink, box.group.style);
            return {
              value: [box.low, box.q1, box.median, box.q3, box.high].map(inPercent),
              itemStyle: { color: `${colour}26`, borderColor: colour, borderWidth: 1.5 },
            };
          }),
        },
        {
          type: "scatter",
          symbol: "diamond",
          symbolSize: 7,
          data: boxes.map((box, place) => ({
            value: [inPercent(box.mean), place],
            itemStyle: { color: colourOn(ink, box.group.style) },
          })),
        },
        {
          type: "scatter",
          symbolSize: 5,
          data: boxes.flatMap((box, place) =>
            box.values
              .filter((item) => box.beyond(item.value))
              .map((item) => ({
                value: [inPercent(item.value), place],
                name: `client ${item.client}, seed ${item.seed}`,
                itemStyle: { color: "transparent", borderColor: colourOn(ink, box.group.style), borderWidth: 1.2 },
              }))
          ),
        },
      ],
    });
    return this.plot.set(option, {
      rows: [
        ["method", "seed", "client", "accuracy"],
        ...boxes.flatMap((box) => box.values.map((item) => [box.group.label, item.seed, item.client, item.value])),
      ],
      label: `Box plots of client accuracy, ${moment}: ${boxes.map(medianText).join(", ")}`,
      hint: `${moment} · box: quartiles and median · whiskers: within 1.5 box lengths · diamond: mean`,
      height: 72 + 30 * boxes.length,
    });
  }

  /** @param {Item} item @param {ReturnType<typeof boxOf>[]} boxes */
  tipOf(item, boxes) {
    if (item.seriesIndex === 2) return tip(item.name, [["accuracy", `${item.value[0].toFixed(1)} %`]]);
    const box = boxes[item.seriesIndex === 0 ? item.dataIndex : item.value[1]];
    return tip(`${box.group.label}, ${box.values.length} clients`, [
      ["highest", percent(box.most)],
      ["upper quartile", percent(box.q3)],
      ["median", percent(box.median)],
      ["mean", percent(box.mean)],
      ["lower quartile", percent(box.q1)],
      ["lowest", percent(box.least)],
    ]);
  }
}

/** Quartiles, whiskers after Tukey, and what lies beyond them. @param {number[]} numbers */
function spread(numbers) {
  const [q1, median, q3] = [0.25, 0.5, 0.75].map((share) => quantile(numbers, share) ?? NaN);
  const reach = 1.5 * (q3 - q1);
  const inside = numbers.filter((value) => value >= q1 - reach && value <= q3 + reach);
  return {
    q1,
    median,
    q3,
    low: Math.min(...inside),
    high: Math.max(...inside),
    least: Math.min(...numbers),
    most: Math.max(...numbers),
    mean: average(numbers),
    /** @param {number} value */
    beyond: (value) => value < q1 - reach || value > q3 + reach,
  };
}

/** A group with its clients, and how they are spread. @param {{group: Shown, values: ClientMean[]}} row */
function boxOf({ group, values }) {
  return { group, values, ...spread(values.map((item) => item.value)) };
}
