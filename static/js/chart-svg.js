// A chart as a standalone SVG file for papers and slides: always on white, with the light theme's colours.

/** @import { Line } from "./chart-data.js" */

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

/** @param {import("./chart.js").Chart} chart */
export function chartSvg(chart) {
  const u = chart.plot;
  if (!u) return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}"/>`;
  const x = QUANTITIES[chart.xQuantity];
  const y = QUANTITIES[chart.yQuantity];
  const { min: x0, max: x1 } = u.scales.x;
  const { min: y0, max: y1 } = u.scales.y;
  const labels = chart.ends().flatMap(({ line, value }) =>
    chart.bars || value === null || chart.hidden.has(line.key) ? [] : [{ line, value }]
  );
  /** @type {(end: {line: Line, value: number}) => string} */
  const labelOf = ({ line, value }) => `${line.label}  ${y.value(value)}`;
  const sample = labels.length > 1 ? SAMPLE : 0;
  const edge = 24 + sample + Math.max(0, ...labels.map((label) => textWidth(labelOf(label))));
  const wide = Math.max(WIDTH, EDGE.left + NARROWEST_PLOT + edge);
  const height = Math.max(HEIGHT, EDGE.top + EDGE.bottom + LABEL_HEIGHT * labels.length);
  const right = wide - edge;
  const bottom = height - EDGE.bottom;
  /** @type {(value: number, low: number, high: number, log: boolean) => number} */
  const share = (value, low, high, log) =>
    log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  /** @type {(value: number) => number} */
  const px = (value) => EDGE.left + share(value, x0, x1, chart.logX) * (right - EDGE.left);
  /** @type {(value: number) => number} */
  const py = (value) => bottom - share(value, y0, y1, chart.logY) * (bottom - EDGE.top);
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${height}" viewBox="0 0 ${wide} ${height}"`,
    `font-family="${FONT}" font-size="12" fill="#3a3f47">`,
    `<rect width="${wide}" height="${height}" fill="#ffffff"/>`,
    text(EDGE.left, 24, chart.title, 'font-size="15" font-weight="600" fill="#1b1e23"'),
    '<clipPath id="plot">',
    shape("rect", { x: EDGE.left, y: EDGE.top, width: right - EDGE.left, height: bottom - EDGE.top }),
    "</clipPath>",
  ];
  for (const value of chart.yTicks(y0, y1, 7)) {
    out.push(
      shape("line", {
        x1: EDGE.left,
        x2: right,
        y1: py(value).toFixed(1),
        y2: py(value).toFixed(1),
        stroke: "#e3e5e8",
      }),
    );
    out.push(text(EDGE.left - 8, py(value) + 4, y.tick(value), 'text-anchor="end"'));
  }
  const xTicks = chart.bars ? chart.data[0] : chart.xTicks(x0, x1, 8);
  const every = chart.bars ? Math.max(1, Math.ceil(xTicks.length / 24)) : 1;
  xTicks.forEach((value, index) => {
    if (index % every === 0) {
      out.push(text(px(value), bottom + 18, (chart.xText ?? x.tick)(value), 'text-anchor="middle"'));
    }
  });
  out.push(`<line x1="${EDGE.left}" x2="${right}" y1="${bottom}" y2="${bottom}" stroke="#9aa0a8"/>`);
  out.push(text((EDGE.left + right) / 2, height - 14, axisTitle(chart.xQuantity), 'text-anchor="middle"'));
  out.push(
    text(
      0,
      0,
      axisTitle(chart.yQuantity),
      `text-anchor="middle" transform="translate(18 ${(EDGE.top + bottom) / 2}) rotate(-90)"`,
    ),
  );
  if (chart.target !== null) {
    out.push(
      shape("line", {
        x1: EDGE.left,
        x2: right,
        y1: py(chart.target),
        y2: py(chart.target),
        stroke: "#5d646e",
        "stroke-dasharray": "4 4",
      }),
    );
    out.push(text(EDGE.left + 6, py(chart.target) - 4, `target ${y.value(chart.target)}`));
  }
  const shown = chart.drawn.filter((line) => !chart.hidden.has(line.key));
  /** @type {(xs: number[], ys: (number|null)[]) => [number, number][]} */
  const points = (xs, ys) =>
    xs.flatMap((x, index) => {
      const y = ys[index];
      return y === null ? [] : [[x, y]];
    });
  /** @type {(list: [number, number][]) => string} */
  const path = (list) => list.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" ");
  out.push('<g clip-path="url(#plot)" fill="none">');
  for (const line of shown) {
    if (chart.bars) {
      const width = Math.max(1, (0.8 * (right - EDGE.left)) / (x1 - x0));
      for (const [a, b] of points(line.x, line.y)) {
        out.push(
          shape("rect", {
            x: (px(a) - width / 2).toFixed(1),
            y: py(b).toFixed(1),
            width: width.toFixed(1),
            height: (bottom - py(b)).toFixed(1),
            fill: line.style.light,
            "fill-opacity": 0.6,
          }),
        );
      }
      continue;
    }
    if (line.low && line.high) {
      const area = [...points(line.x, line.high), ...points(line.x, line.low).reverse()];
      if (area.length) out.push(`<polygon points="${path(area)}" fill="${line.style.light}" fill-opacity="0.15"/>`);
    }
    out.push(
      shape("polyline", {
        points: path(points(line.x, line.y)),
        stroke: line.style.light,
        "stroke-width": line.faint ? 1 : 2,
        "stroke-dasharray": line.style.dash.join(" "),
      }),
    );
  }
  out.push("</g>");
  for (const mark of chart.marks.filter(({ key, x: at }) => !(key && chart.hidden.has(key)) && at >= x0 && at <= x1)) {
    const [left, top] = [px(mark.x), py(mark.y)];
    out.push(
      shape("circle", {
        cx: left.toFixed(1),
        cy: top.toFixed(1),
        r: 4,
        fill: "#ffffff",
        stroke: mark.style.light,
        "stroke-width": 2,
      }),
    );
    if (mark.label) out.push(text(left, top - 10, mark.label, `text-anchor="${left > right - 90 ? "end" : "middle"}"`));
  }
  for (
    const { line, value, at } of spread(
      labels.map((end) => ({ ...end, at: py(end.value) })),
      EDGE.top,
      bottom,
    )
  ) {
    if (sample) {
      out.push(
        shape("line", {
          class: "sample",
          x1: right + 8,
          x2: right + SAMPLE,
          y1: at.toFixed(1),
          y2: at.toFixed(1),
          stroke: line.style.light,
          "stroke-width": 2,
          "stroke-dasharray": line.style.dash.map((part) => 0.7 * part).join(" "),
        }),
      );
    }
    out.push(
      text(right + 8 + sample, at + 4, labelOf({ line, value }), `fill="${line.style.light}" font-weight="600"`),
    );
  }
  out.push("</svg>");
  return out.join("\n");
}
