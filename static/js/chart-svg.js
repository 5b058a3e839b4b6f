// A chart as a standalone SVG file for papers and slides: always on white, with the light theme's colours.

/**
 * @import { Line } from "./chart-data.js"
 * @import { Chart } from "./chart.js"
 */

import { LABEL_HEIGHT, spread } from "./chart-data.js";
import { contextOf } from "./dom.js";
import { escapeXml } from "./svg-pen.js";
import { axisTitle, QUANTITIES } from "./units.js";

const WIDTH = 900;
const HEIGHT = 460;
const NARROWEST_PLOT = 600;
const EDGE = { top: 44, bottom: 56, left: 72 };
const SAMPLE = 36;
const FONT = "Helvetica, Arial, sans-serif";

/** @param {string} content */
function textWidth(content) {
  const pen = contextOf(document.createElement("canvas"));
  pen.font = `600 12px ${FONT}`;
  return Math.ceil(pen.measureText(content).width);
}

/** @param {number} x @param {number} y @param {string} content @param {string} more */
function text(x, y, content, more = "") {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escapeXml(content)}</text>`;
}

/** @param {string} tag @param {Record<string, string|number>} attributes */
function shape(tag, attributes) {
  const written = Object.entries(attributes).map(([name, value]) => `${name}="${escapeXml(String(value))}"`);
  return `<${tag} ${written.join(" ")}/>`;
}

/**
 * The plot on its paper: ends of its axes, and where a value stands in pixels.
 * @typedef {object} Frame
 * @property {number} right
 * @property {number} bottom
 * @property {number} height of the paper
 * @property {[number, number]} x
 * @property {[number, number]} y
 * @property {(value: number) => number} px
 * @property {(value: number) => number} py
 */

/** A name at the end of its line. @typedef {{line: Line, value: number, text: string}} Label */

/** @param {Chart} chart @returns {Label[]} */
function labelsOf(chart) {
  if (chart.bars) return [];
  const { value: write } = QUANTITIES[chart.yQuantity];
  return chart.ends().flatMap(({ line, value }) =>
    value === null || chart.hidden.has(line.key) ? [] : [{ line, value, text: `${line.label}  ${write(value)}` }]
  );
}

/** @param {Chart} chart @param {uPlot} plot @param {number} right @param {number} height @returns {Frame} */
function frameOf(chart, { scales }, right, height) {
  const bottom = height - EDGE.bottom;
  const { min: x0, max: x1 } = scales.x;
  const { min: y0, max: y1 } = scales.y;
  /** @type {(value: number, low: number, high: number, log: boolean) => number} */
  const share = (value, low, high, log) =>
    log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return {
    right,
    bottom,
    height,
    x: [x0, x1],
    y: [y0, y1],
    px: (value) => EDGE.left + share(value, x0, x1, chart.logX) * (right - EDGE.left),
    py: (value) => bottom - share(value, y0, y1, chart.logY) * (bottom - EDGE.top),
  };
}

/** The grid and the numbers of the vertical axis. @param {Chart} chart @param {Frame} frame */
function verticalAxis(chart, { right, y, py }) {
  return chart.yTicks(...y, 7).flatMap((value) => {
    const at = py(value).toFixed(1);
    return [
      shape("line", { x1: EDGE.left, x2: right, y1: at, y2: at, stroke: "#e3e5e8" }),
      text(EDGE.left - 8, py(value) + 4, QUANTITIES[chart.yQuantity].tick(value), 'text-anchor="end"'),
    ];
  });
}

/**
 * The numbers and the line of the horizontal axis, and the titles of both.
 * @param {Chart} chart @param {Frame} frame
 */
function horizontalAxis(chart, { right, bottom, height, x, px }) {
  const ticks = chart.bars ? chart.data[0] : chart.xTicks(...x, 8);
  const every = chart.bars ? Math.max(1, Math.ceil(ticks.length / 24)) : 1;
  const write = chart.xText ?? QUANTITIES[chart.xQuantity].tick;
  const turned = `text-anchor="middle" transform="translate(18 ${(EDGE.top + bottom) / 2}) rotate(-90)"`;
  return [
    ...ticks
      .filter((_, index) => index % every === 0)
      .map((value) => text(px(value), bottom + 18, write(value), 'text-anchor="middle"')),
    `<line x1="${EDGE.left}" x2="${right}" y1="${bottom}" y2="${bottom}" stroke="#9aa0a8"/>`,
    text((EDGE.left + right) / 2, height - 14, axisTitle(chart.xQuantity), 'text-anchor="middle"'),
    text(0, 0, axisTitle(chart.yQuantity), turned),
  ];
}

/** @param {Chart} chart @param {Frame} frame */
function targetLine({ target, yQuantity }, { right, py }) {
  if (target === null) return [];
  const at = py(target);
  return [
    shape("line", { x1: EDGE.left, x2: right, y1: at, y2: at, stroke: "#5d646e", "stroke-dasharray": "4 4" }),
    text(EDGE.left + 6, at - 4, `target ${QUANTITIES[yQuantity].value(target)}`),
  ];
}

/** @param {number[]} xs @param {(number|null)[]} ys @returns {[number, number][]} */
function pointsOf(xs, ys) {
  return xs.flatMap((x, index) => {
    const y = ys[index];
    return y === null ? [] : [[x, y]];
  });
}

/** @param {Line} line @param {Frame} frame */
function barsOf(line, { right, bottom, x, px, py }) {
  const width = Math.max(1, (0.8 * (right - EDGE.left)) / (x[1] - x[0]));
  return pointsOf(line.x, line.y).map(([a, b]) =>
    shape("rect", {
      x: (px(a) - width / 2).toFixed(1),
      y: py(b).toFixed(1),
      width: width.toFixed(1),
      height: (bottom - py(b)).toFixed(1),
      fill: line.style.light,
      "fill-opacity": 0.6,
    })
  );
}

/** A line over its band. @param {Line} line @param {Frame} frame */
function curveOf(line, { px, py }) {
  /** @param {[number, number][]} list */
  const path = (list) => list.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" ");
  const { x, y, low, high, style } = line;
  const area = low && high ? [...pointsOf(x, high), ...pointsOf(x, low).reverse()] : [];
  return [
    ...(area.length ? [`<polygon points="${path(area)}" fill="${style.light}" fill-opacity="0.15"/>`] : []),
    shape("polyline", {
      points: path(pointsOf(x, y)),
      stroke: style.light,
      "stroke-width": line.faint ? 1 : 2,
      "stroke-dasharray": style.dash.join(" "),
    }),
  ];
}

/** @param {Chart} chart @param {Frame} frame */
function marksOf(chart, { right, x, px, py }) {
  const shown = chart.marks.filter(({ key, x: at }) => !(key && chart.hidden.has(key)) && at >= x[0] && at <= x[1]);
  return shown.flatMap((mark) => {
    const [left, top] = [px(mark.x), py(mark.y)];
    const circle = { cx: left.toFixed(1), cy: top.toFixed(1), r: 4, fill: "#ffffff", "stroke-width": 2 };
    const anchor = `text-anchor="${left > right - 90 ? "end" : "middle"}"`;
    return [
      shape("circle", { ...circle, stroke: mark.style.light }),
      ...(mark.label ? [text(left, top - 10, mark.label, anchor)] : []),
    ];
  });
}

/**
 * The names beside the plot, each with a sample of its line where there are several.
 * @param {Label[]} labels @param {Frame} frame
 */
function endLabels(labels, { right, bottom, py }) {
  const sample = labels.length > 1 ? SAMPLE : 0;
  const places = labels.map((label) => ({ ...label, at: py(label.value) }));
  return spread(places, EDGE.top, bottom).flatMap(({ line: { style }, text: name, at }) => {
    const line = {
      class: "sample",
      x1: right + 8,
      x2: right + SAMPLE,
      y1: at.toFixed(1),
      y2: at.toFixed(1),
      stroke: style.light,
      "stroke-width": 2,
      "stroke-dasharray": style.dash.map((part) => 0.7 * part).join(" "),
    };
    return [
      ...(sample ? [shape("line", line)] : []),
      text(right + 8 + sample, at + 4, name, `fill="${style.light}" font-weight="600"`),
    ];
  });
}

/** @param {Chart} chart */
export function chartSvg(chart) {
  if (!chart.plot) return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}"/>`;
  const labels = labelsOf(chart);
  const edge = 24 + (labels.length > 1 ? SAMPLE : 0) + Math.max(0, ...labels.map((label) => textWidth(label.text)));
  const wide = Math.max(WIDTH, EDGE.left + NARROWEST_PLOT + edge);
  const height = Math.max(HEIGHT, EDGE.top + EDGE.bottom + LABEL_HEIGHT * labels.length);
  const frame = frameOf(chart, chart.plot, wide - edge, height);
  const plot = { x: EDGE.left, y: EDGE.top, width: frame.right - EDGE.left, height: frame.bottom - EDGE.top };
  const lines = chart.drawn.filter((line) => !chart.hidden.has(line.key));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${height}" viewBox="0 0 ${wide} ${height}"`,
    `font-family="${FONT}" font-size="12" fill="#3a3f47">`,
    `<rect width="${wide}" height="${height}" fill="#ffffff"/>`,
    text(EDGE.left, 24, chart.title, 'font-size="15" font-weight="600" fill="#1b1e23"'),
    '<clipPath id="plot">',
    shape("rect", plot),
    "</clipPath>",
    ...verticalAxis(chart, frame),
    ...horizontalAxis(chart, frame),
    ...targetLine(chart, frame),
    '<g clip-path="url(#plot)" fill="none">',
    ...lines.flatMap((line) => chart.bars ? barsOf(line, frame) : curveOf(line, frame)),
    "</g>",
    ...marksOf(chart, frame),
    ...endLabels(labels, frame),
    "</svg>",
  ].join("\n");
}
