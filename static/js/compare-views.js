// The views below the curves: clients, win rate, price, sweep and significance. Each is filled when it is opened.

/**
 * @import { Pair } from "./api.d.ts"
 * @import { Ink, Item, MakeOption } from "./chart-echarts.js"
 * @import { SettledGroup } from "./series.js"
 * @import { Experiment, Style } from "./types.d.ts"
 */

import { Answer } from "./answer.js";
import { api } from "./api.js";
import { MOST_END_LABELS, spread as apart } from "./chart.js";
import { axis, colourOn, FONT, placeNames, Plot, tip } from "./chart-echarts.js";
import { swatch } from "./chart-swatch.js";
import { fill, h, one, setText } from "./dom.js";
import { average, fieldHead, fieldTitle, flatten, METHOD, quantile, show, std } from "./series.js";
import { formatBytes, formatFlops, percent, QUANTITIES, ticks } from "./units.js";

/** @param {number} fraction */
const points = (fraction) => `${fraction >= 0 ? "+" : "−"}${Math.abs(100 * fraction).toFixed(2)}`;
/** @param {number} fraction */
const inPercent = (fraction) => Number((100 * fraction).toFixed(4));
/** @type {{formatter: (value: number) => string}} */
const percentTick = { formatter: (value) => String(Number(value.toFixed(2))) };

/** A group as it is drawn. @typedef {SettledGroup & {style: Style}} Shown */

/** A client with its mean accuracy over the runs on one partition. @typedef {{client: string, seed: number, value: number}} ClientMean */

/** A client with its accuracy under two methods. @typedef {{client: string, seed: number, a: number, b: number, difference: number}} ClientPair */

/** What a group costs; null where not all its seeds reached the target. @typedef {{group: Shown, accuracy: number|null, bytes: number|null, flops: number|null}} PriceRow */

/** @typedef {{group: Shown, accuracy: number, bytes: number, flops: number}} Spent */

/** @typedef {{value: unknown, mean: number, std: number|null, count: number}} SweepPoint */

/** @typedef {{label: string, style: Style, points: SweepPoint[]}} SweepLine */

/** Accuracy of the clients, read once for all views. */
export class ClientTable {
  /** @param {() => void} arrived */
  constructor(arrived) {
    this.answer = new Answer(({ ids, at }) => api.clients(ids, at), arrived, { pause: 3000 });
  }

  /**
   * @param {Experiment[]} experiments @param {string} at
   * @returns {boolean} whether the values of these experiments at this moment are there, or why there are none
   */
  need(experiments, at) {
    return experiments.length === 0 || this.answer.need({ ids: experiments.map((item) => item.id), at }, experiments);
  }

  /** @returns {Record<string, {round: number|null, accuracy: Record<string, number|null>}>} */
  get values() {
    return this.answer.value?.experiments ?? {};
  }

  get error() {
    return this.answer.error;
  }

  /**
   * Of a group: (partition, client) to accuracy, the mean over runs on that partition.
   * @param {SettledGroup} group @returns {Map<string, ClientMean>}
   */
  of(group) {
    /** @type {Map<string, {client: string, seed: number, values: number[]}>} */
    const found = new Map();
    for (const member of group.settledMembers) {
      for (const [client, value] of Object.entries(this.values[member.id]?.accuracy ?? {})) {
        if (value === null) continue;
        const key = `${member.partition_fingerprint ?? member.id} ${client}`;
        const item = found.get(key) ?? { client, seed: member.spec.seed, values: [] };
        item.values.push(value);
        found.set(key, item);
      }
    }
    return new Map(
      [...found].map(([key, { client, seed, values }]) => [key, { client, seed, value: average(values) }]),
    );
  }
}

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

/** @param {PriceRow} row @returns {row is Spent} */
function isSpent(row) {
  return row.accuracy !== null && row.bytes !== null && row.flops !== null;
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
   * @param {PriceRow[]} rows {group, accuracy, bytes, flops} with means, null where not all seeds reached the target
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
      y: round(
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
        ["method", word.toLowerCase(), `bytes ${until}`, `FLOPs ${until}`],
        ...rows.map((row) => [row.group.label, row.accuracy, row.bytes, row.flops]),
      ],
      label: `Bubble chart: ${drawn.map(inWords).join(", ")}`,
      hint: [
        `area: client FLOPs ${until}, largest ${formatFlops(largest)}`,
        ...(left.length ? [`not reached by all seeds of ${left.join(", ")}`] : []),
      ].join(" · "),
      height: 440,
    });
  }
}

/**
 * Round ends of an axis a little beyond the values.
 * @param {number[]} values @param {[number, number]} limits @returns {[number, number]}
 */
function round(values, limits) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const pad = Math.max(0.5, 0.08 * (most - least));
  const [first, second] = ticks(least - pad, most + pad, 6);
  const step = second === undefined ? 1 : second - first;
  return [
    Math.max(limits[0], step * Math.floor((least - pad) / step)),
    Math.min(limits[1], step * Math.ceil((most + pad) / step)),
  ];
}

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
    const ends = round(
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

/** @param {number|null} value */
const pText = (value) => (value === null ? "–" : value < 0.001 ? "< 0.001" : value.toFixed(3));
/** @param {number|null} value @param {number} digits */
const number = (value, digits = 2) =>
  value === null ? "–" : `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(digits)}`;

/** Paired tests between the groups, computed by the server. */
export class Significance {
  /** @param {HTMLElement} root @param {() => void} arrived */
  constructor(root, arrived) {
    this.root = root;
    this.answer = new Answer(({ ids, ...options }) => api.significance(ids, options), arrived, { pause: 5000 });
    /** @type {unknown[][]} */
    this.rows = [];
  }

  /**
   * @param {Shown[]} groups @param {Experiment[]} experiments
   * @param {{at: string, by: string, reference: string}} options
   */
  update(groups, experiments, options) {
    this.answer.need({ ids: experiments.map((item) => item.id), ...options }, experiments);
    this.render(groups);
  }

  /** @param {Shown[]} groups */
  render(groups) {
    const note = one(".significance-note", this.root);
    const table = one("table", this.root);
    const { value: answer, error } = this.answer;
    table.hidden = !answer?.pairs.length;
    if (!answer?.pairs.length) {
      setText(note, error || (answer ? "There is one group only, so there is nothing to test." : "Computing …"));
      this.rows = [];
      return;
    }
    const look = new Map(groups.map((group) => [group.label, group.style]));
    const corrected = answer.pairs.length > 1;
    const p = corrected ? "p (Holm)" : "p";
    /** @type {(label: string) => HTMLElement} */
    const name = (label) => {
      const style = look.get(label);
      return h("span", { class: "method" }, style ? swatch(style) : null, label);
    };
    this.rows = [
      [
        "Method A",
        "Method B",
        "Clients",
        "Wins",
        "Losses",
        "Mean difference (points)",
        `Wilcoxon ${p}`,
        "Rank-biserial r",
        "Seeds",
        "Mean difference (points)",
        `Paired t ${p}`,
        "d_z",
      ],
    ];
    const all = answer.pairs.map(remarksOf);
    // what is true of all pairs is said once, below
    const common = all.length > 1 ? all[0].filter((one) => all.every((remarks) => remarks.includes(one))) : [];
    const special = all.some((remarks) => remarks.length > common.length);
    const body = answer.pairs.map(({ first, second, clients, seeds }) => {
      /** @type {(test: {p: number|null, p_holm: number|null}) => number|null} */
      const chosen = (test) => (corrected ? test.p_holm : test.p);
      const cells = [
        [String(clients.n)],
        [String(clients.wins)],
        [String(clients.losses)],
        [clients.mean_difference === null ? "–" : points(clients.mean_difference)],
        [pText(chosen(clients)), chosen(clients), clients.note],
        [number(clients.rank_biserial)],
        [String(seeds.n)],
        [
          seeds.mean_difference === null ? "–" : points(seeds.mean_difference),
          null,
          seeds.low === null || seeds.high === null
            ? ""
            : `95 % interval ${points(seeds.low)} to ${points(seeds.high)}`,
        ],
        [pText(chosen(seeds)), chosen(seeds), seeds.note],
        [number(seeds.d_z)],
      ];
      this.rows.push([first, second, ...cells.map(([text]) => text)]);
      const remark = remarksOf({ clients, seeds })
        .filter((one) => !common.includes(one))
        .join(" ");
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, name(first)),
        h("td", {}, name(second)),
        cells.map(([text, value, title]) =>
          h(
            "td",
            { class: `num right${typeof value === "number" && value < 0.05 ? " best" : ""}`, title: title || null },
            text,
          )
        ),
        special ? h("td", { class: "remark" }, remark) : null,
      );
    });
    fill(
      one("thead", table),
      h(
        "tr",
        {},
        h("td", { colspan: 2 }),
        h("th", { scope: "colgroup", colspan: 6, class: "group" }, "Over clients: Wilcoxon signed-rank"),
        h("th", { scope: "colgroup", colspan: 4, class: "group" }, "Over seeds: paired t"),
        special ? h("td", {}) : null,
      ),
      h(
        "tr",
        {},
        ["Method A", "Method B"].map((text) => h("th", { scope: "col" }, text)),
        ["Clients", "Wins", "Losses", "Difference", p, "r", "Seeds", "Difference", p, "d"].map((text, place) =>
          h("th", { scope: "col", class: "right", title: HELP[place] }, text === "d" ? ["d", h("sub", {}, "z")] : text)
        ),
        special ? h("th", { scope: "col" }, "Remarks") : null,
      ),
    );
    fill(one("tbody", table), body);
    setText(note, [...common, answer.note].join(" "));
  }
}

/** @param {Pick<Pair, "clients"|"seeds">} pair @returns {string[]} */
function remarksOf({ clients, seeds }) {
  /** @type {(who: string, note: string) => string[]} */
  const sentences = (who, note) => (note ? note.split(/(?<=[.]) /).map((one) => `${who}: ${one}`) : []);
  return [...sentences("Clients", clients.note), ...sentences("Seeds", seeds.note)];
}

const HELP = [
  "Clients that both were tested on",
  "Clients on which A is better",
  "Clients on which B is better",
  "Mean difference in accuracy, A minus B, in points",
  "Two-sided p value of Wilcoxon's signed-rank test over the clients; bold below 0.05",
  "Rank-biserial correlation: 1 when A is always better, −1 when B is",
  "Seeds that both ran with",
  "Mean difference in accuracy, A minus B, in points",
  "Two-sided p value of the paired t test over the seeds; bold below 0.05",
  "Cohen's d of the differences: their mean in their standard deviations",
];
