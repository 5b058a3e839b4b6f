// Charts that are not round series, on ECharts: the library is fetched when the first of them is opened.

import { publishAs } from "./chart.js";
import { cssColour, isDark, onThemeChange } from "./colours.js";
import { contextOf, download, fill, h, toolButton } from "./dom.js";
import { csv } from "./table.js";

const LIBRARY = "/static/vendor/echarts/echarts.esm.min.mjs";
export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const PAPER = { dark: false, text: "#1b1e23", muted: "#5a616b", line: "#b9bfc8", grid: "#e3e5e8", surface: "#ffffff" };

/**
 * What is used of the library; the options of a chart are its own language.
 * @typedef {object} Drawing
 * @property {(option: object, more?: object) => void} setOption
 * @property {() => void} resize
 * @property {() => void} dispose
 * @property {() => string} renderToSVGString
 * @property {(options: object) => string} getDataURL
 */

/** @typedef {{init: (root: HTMLElement|null, theme: null, options: object) => Drawing}} Library */

/** The colours of a ground. @typedef {typeof PAPER} Ink */

/** @typedef {{width: number, height: number}} Size */

/** @typedef {(ink: Ink, size: Size) => {tooltip?: object, [part: string]: unknown}} MakeOption */

/** What the pointer is on. @typedef {{seriesIndex: number, dataIndex: number, name: string, value: number[]}} Item */

/** @typedef {{left: number, right: number, top: number, bottom: number}} Box */

/** In pixels. @typedef {{x: number, y: number, radius: number, text: string}} Bubble */

/** @type {Promise<Library>|null} */
let loading = null;

/** @returns {Promise<Library>} */
function library() {
  loading ??= import(LIBRARY);
  return loading;
}

/** The colours of the page as it looks now. */
function inks() {
  return {
    dark: isDark(),
    text: cssColour("--text"),
    muted: cssColour("--text-muted"),
    line: cssColour("--line"),
    grid: cssColour("--grid"),
    surface: cssColour("--surface"),
  };
}

/** The colour of a method on this ground. @param {Ink} ink @param {{light: string, dark: string}} style */
export function colourOn(ink, style) {
  return ink.dark ? style.dark : style.light;
}

/**
 * An axis with its title, a grid on y only, and numbers as the quantity writes them.
 * @param {Ink} ink @param {string} title @param {Record<string, any>} more
 */
export function axis(ink, title, more = {}) {
  return {
    name: title,
    nameLocation: "middle",
    nameGap: 28,
    nameTextStyle: { color: ink.muted, fontFamily: FONT, fontSize: 12 },
    axisLine: { show: true, lineStyle: { color: ink.line } },
    axisTick: { show: true, lineStyle: { color: ink.line } },
    splitLine: { show: false, lineStyle: { color: ink.grid } },
    ...more,
    axisLabel: { color: ink.muted, fontFamily: FONT, fontSize: 12, ...more.axisLabel },
  };
}

/** The lines of a tooltip as elements: text stays text. @param {string} head @param {[string, string][]} rows */
export function tip(head, rows) {
  return h(
    "div",
    {},
    h("div", { class: "tip-head" }, head),
    rows.map(([name, value]) =>
      h("div", { class: "tip-row" }, h("span", { class: "tip-name" }, name), h("span", { class: "num" }, value))
    ),
  );
}

const LABEL = { size: 12, height: 15, gap: 4 };

/** @param {string} text */
function textWidth(text) {
  const pen = contextOf(document.createElement("canvas"));
  pen.font = `${LABEL.size}px ${FONT}`;
  return pen.measureText(text).width;
}

/** The first place beside a bubble, then further and further away: right, left, above, below, and between them. */
const ANGLES = [0, 180, 270, 90, 315, 45, 225, 135].map((angle) => (angle * Math.PI) / 180);
const RINGS = [0, 8, 16, 26, 38, 52, 70];

/**
 * A place for the name of every bubble that covers no other name and no other bubble, as far as there is one.
 * @param {Bubble[]} bubbles
 * @param {Box} frame
 * @returns {{x: number, y: number, line: [number, number, number, number]|null}[]} middle of the left edge of each name, and a
 *   line to its bubble where it stands apart
 */
export function placeNames(bubbles, frame) {
  const taken = /** @type {Box[]} */ ([]);
  const circles = bubbles.map(({ x, y, radius }) => ({
    left: x - radius,
    right: x + radius,
    top: y - radius,
    bottom: y + radius,
  }));
  /** @type {(a: Box, b: Box) => number} */
  const overlap = (a, b) =>
    Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) *
    Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
  const found = new Map();
  // from the rim to the middle: who stands free keeps the usual place, the crowd shares what is left
  /** @type {(one: number) => number} */
  const crowd = (one) => circles.reduce((sum, other) => sum + overlap(grown(circles[one]), other), 0);
  const order = bubbles.map((_, index) => index).sort((a, b) => crowd(a) - crowd(b));
  for (const index of order) {
    const { x, y, radius, text } = bubbles[index];
    const width = textWidth(text);
    /** @type {{cost: number, box: Box, left: number, middle: number, ring: number, angle: number}|null} */
    let best = null;
    for (const ring of RINGS) {
      for (const angle of ANGLES) {
        const reach = radius + LABEL.gap + ring;
        const [dx, dy] = [Math.cos(angle), Math.sin(angle)];
        const left = x + reach * dx - (dx > 0.1 ? 0 : dx < -0.1 ? width : width / 2);
        const middle = y + reach * dy + (Math.abs(dx) < 0.1 ? (dy * LABEL.height) / 2 : 0);
        const box = { left, right: left + width, top: middle - LABEL.height / 2, bottom: middle + LABEL.height / 2 };
        const outside = width * LABEL.height - overlap(box, frame);
        // a name that stands nearer to another bubble would be read as that one's
        const stolen = bubbles.some((other, place) =>
            place !== index && away(box, other) <= away(box, bubbles[index]) + 2
          )
          ? 150
          : 0;
        const cost = outside * 4 + stolen + [...taken, ...circles].reduce((sum, other) =>
          sum + overlap(box, other), 0) +
          ring / 10;
        if (best === null || cost < best.cost) best = { cost, box, left, middle, ring, angle };
      }
      if (best && best.cost <= ring / 10 + 0.01) break;
    }
    if (!best) continue;
    taken.push(best.box);
    const [cos, sin] = [Math.cos(best.angle), Math.sin(best.angle)];
    const line = best.ring < 8
      ? null
      : [x + radius * cos, y + radius * sin, x + (radius + best.ring) * cos, y + (radius + best.ring) * sin];
    found.set(index, { x: best.left, y: best.middle, line });
  }
  return bubbles.map((_, index) => found.get(index));
}

/** From the nearest edge of a box to the rim of a bubble. @param {Box} box @param {Bubble} bubble */
function away(box, { x, y, radius }) {
  return Math.hypot(Math.max(box.left - x, 0, x - box.right), Math.max(box.top - y, 0, y - box.bottom)) - radius;
}

/** @param {Box} box */
function grown(box) {
  return { left: box.left - 40, right: box.right + 40, top: box.top - 12, bottom: box.bottom + 12 };
}

export class Plot {
  /**
   * @param {HTMLElement} root an empty element
   * @param {{name: string, title: string, file?: () => string}} options
   */
  constructor(root, { name, title, file = () => name }) {
    this.name = name;
    this.file = file;
    /** @type {MakeOption|null} */
    this.option = null;
    /** @type {unknown[][]} */
    this.rows = [];
    /** @type {Drawing|null} */
    this.chart = null;
    this.drawn = "";
    this.hint = h("span", { class: "chart-hint" });
    this.stage = h("div", { class: "plot-stage" });
    this.canvas = h("div", { class: "plot-canvas", role: "img", "aria-label": title });
    this.blank = h("p", { class: "chart-empty" }, "Loading …");
    this.stage.append(this.canvas, this.blank);
    root.classList.add("plot");
    fill(
      root,
      h(
        "header",
        { class: "chart-head" },
        h("h3", { class: "chart-title" }, title),
        this.hint,
        h(
          "div",
          { class: "tools" },
          toolButton(
            "CSV",
            "Download the data of this chart",
            () => download(`${this.file()}.csv`, csv(this.rows), "text/csv"),
          ),
          toolButton(
            "SVG",
            "Download this chart as a vector image",
            async () => download(`${this.file()}.svg`, await this.toSvg(), "image/svg+xml"),
          ),
          toolButton("PNG", "Download this chart as an image", () => this.toPng()),
        ),
      ),
      this.stage,
    );
    publishAs(name, {
      data: () => this.rows,
      drawn: () => Boolean(this.chart) && this.blank.hidden,
    });
    onThemeChange(() => this.draw(true));
    new ResizeObserver(() => this.chart && this.draw(true)).observe(this.stage);
  }

  /**
   * @param {MakeOption} option builds the chart for a ground, the screen's or
   *   white paper for the export, and for its size in pixels
   * @param {{rows: unknown[][], label: string, hint?: string, height?: number}} more `rows` is the data as a table
   */
  async set(option, { rows, label, hint = "", height = 320 }) {
    this.option = option;
    this.rows = rows;
    this.hint.textContent = hint;
    this.hint.title = hint;
    this.canvas.setAttribute("aria-label", label);
    this.stage.style.height = `${height}px`;
    await this.draw(false);
  }

  /** Nothing to draw, and why. @param {string} reason */
  empty(reason) {
    this.option = null;
    this.rows = [];
    this.chart?.dispose();
    this.chart = null;
    this.drawn = "";
    this.hint.textContent = "";
    this.stage.style.height = "96px";
    this.blank.textContent = reason;
    this.blank.hidden = false;
  }

  /** @param {boolean} anew */
  async draw(anew) {
    if (!this.option) return;
    const { init } = await library();
    if (!this.option || !this.stage.clientWidth) return;
    // the page draws again with every round; data that did not change need no new picture
    const now = JSON.stringify(this.rows) + this.stage.style.height;
    if (!anew && this.chart && now === this.drawn) return;
    this.drawn = now;
    // on a canvas: the vector renderer sets style attributes, which the pages' security policy refuses
    this.chart ??= init(this.canvas, null, { renderer: "canvas" });
    this.chart.resize();
    this.chart.setOption(this.whole(inks()), { notMerge: true });
    this.blank.hidden = true;
  }

  /** @param {Ink} ink */
  whole(ink) {
    const size = { width: this.stage.clientWidth, height: this.stage.clientHeight };
    const { tooltip = {}, ...rest } = this.option?.(ink, size) ?? {};
    return {
      animation: false,
      textStyle: { fontFamily: FONT, color: ink.text },
      ...rest,
      tooltip: {
        confine: true,
        transitionDuration: 0,
        backgroundColor: cssColour("--raised"),
        borderColor: cssColour("--line"),
        textStyle: { color: ink.text, fontSize: 12, fontFamily: FONT },
        ...tooltip,
      },
    };
  }

  /** Always on white, with the light theme's colours. */
  async toSvg() {
    if (!this.option) return '<svg xmlns="http://www.w3.org/2000/svg"/>';
    const { init } = await library();
    const paper = init(null, null, {
      renderer: "svg",
      ssr: true,
      width: this.stage.clientWidth,
      height: this.stage.clientHeight,
    });
    paper.setOption({ backgroundColor: PAPER.surface, ...this.whole(PAPER) });
    const text = paper.renderToSVGString();
    paper.dispose();
    return text;
  }

  toPng() {
    if (!this.chart) return;
    const address = this.chart.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: cssColour("--surface") });
    const bytes = Uint8Array.from(atob(address.split(",")[1]), (letter) => letter.charCodeAt(0));
    download(`${this.file()}.png`, new Blob([bytes], { type: "image/png" }), "image/png");
  }
}
