// Line and bar charts on uPlot: theme aware, labelled at the line's end, and steady while data keep coming.

/**
 * @import { End, Line, Mark } from "./chart-data.js"
 * @import { PlotColumns, PlotOptions } from "./types.d.ts"
 * @import { QuantityName } from "./units.js"
 */

import { cssColour, isDark, onThemeChange } from "./colours.js";
import {
  align,
  closest,
  countOf,
  everyBar,
  LABEL_HEIGHT,
  lastOf,
  lastX,
  nearest,
  positive,
  spread,
} from "./chart-data.js";
import { chartSvg } from "./chart-svg.js";
import { swatch } from "./chart-swatch.js";
import { all, contextOf, download, downloadPng, fill, h, one, toolButton } from "./dom.js";
import { csv } from "./table.js";
import { axisTitle, logTicks, QUANTITIES, ticks } from "./units.js";

/* global uPlot */

/** Up to so many lines are labelled at their end; more get a sorted legend. */
export const MOST_END_LABELS = 8;
const NARROW = 400;
const SWATCH = 36;
const POINTER = 8;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const TITLE_FONT = `500 ${FONT}`;

/** @type {Record<string, object>} */
const handles = {};
window.fedarena = Object.freeze({ charts: handles });

/**
 * What tests and the console may read of a chart that is drawn elsewhere.
 * @param {string} name @param {object} handle
 */
export function publishAs(name, handle) {
  handles[name] = Object.freeze(handle);
}

/** What tests and the console may read of a chart; nothing here changes it. @param {Chart} chart */
function publish(chart) {
  handles[chart.name] = Object.freeze({
    get data() {
      return chart.lines.map(({ key, label, x, y, low, high }) => ({
        key,
        label,
        x: [...x],
        y: [...y],
        low: low ? [...low] : null,
        high: high ? [...high] : null,
      }));
    },
    get hidden() {
      return [...chart.hidden];
    },
    /** Lines that are drawn with their band. */
    get banded() {
      return chart.drawn.filter((line) => line.low).map((line) => line.label);
    },
    get zoom() {
      return chart.zoom && [...chart.zoom];
    },
    get quantities() {
      return [chart.xQuantity, chart.yQuantity];
    },
    get target() {
      return chart.target;
    },
    get log() {
      return [chart.logX, chart.logY];
    },
    get marks() {
      return chart.marks.map((mark) => mark.label);
    },
    /** The two ends of the horizontal axis. */
    get reach() {
      return chart.plot && [chart.plot.scales.x.min, chart.plot.scales.x.max];
    },
    /** Where the horizontal axis has its numbers. */
    get ticks() {
      return chart.plot && [...chart.plot.axes[0]._splits];
    },
  });
}

/**
 * @typedef {object} Options
 * @property {string} name
 * @property {string} title
 * @property {QuantityName} [x]
 * @property {QuantityName} y
 * @property {string} [sync] charts of one name share their crosshair
 * @property {boolean} [bars]
 * @property {boolean} [compact]
 * @property {string} [empty]
 * @property {() => string} [file]
 * @property {HTMLElement[]} [tools] stand before the exports
 * @property {() => void} [changed] called when a reader zooms or hides a line
 * @property {() => Promise<Line[]>} [whole] gives the lines for a CSV where those on the screen are thinned or smoothed
 */

/**
 * How the lines are shown.
 * @typedef {object} Look
 * @property {number|null} [target]
 * @property {Mark[]} [marks]
 * @property {QuantityName} [x]
 * @property {((value: number) => string)|null} [xText]
 * @property {string} [hint]
 * @property {boolean} [logX]
 * @property {boolean} [logY]
 * @property {string} [bands]
 * @property {number|null} [last] the axis reaches so far, however short the lines are
 */

export class Chart {
  /**
   * @param {HTMLElement} root an empty element; its class reserves the height
   * @param {Options} options
   */
  constructor(
    root,
    {
      name,
      title,
      x = "round",
      y,
      sync = "",
      bars = false,
      compact = false,
      empty = "No data yet.",
      file = () => name,
      tools = [],
      changed = () => {},
      whole = () => Promise.resolve(this.lines),
    },
  ) {
    this.root = root;
    this.name = name;
    this.title = title;
    this.xQuantity = x;
    this.yQuantity = y;
    this.sync = sync;
    this.bars = bars;
    /** Few lines in a small space: the label is the value alone. */
    this.compact = compact;
    this.file = file;
    this.tools = tools;
    this.changed = changed;
    this.whole = whole;
    this.logX = false;
    this.logY = false;
    /** "off", "hovered" or "all"; empty: all where lines are labelled at their end, else hovered. @type {string} */
    this.bands = "";
    /** @type {Line[]} */
    this.lines = [];
    /** @type {Set<string>} keys of lines that a reader hid */
    this.hidden = new Set();
    /** The line whose name a reader points at: it stands out and shows its band. @type {string|null} */
    this.focus = null;
    /** @type {[number, number]|null} */
    this.zoom = null;
    /** @type {number|null} */
    this.target = null;
    /** @type {number|null} */
    this.last = null;
    /** @type {Mark[]} */
    this.marks = [];
    /** @type {((value: number) => string)|null} */
    this.xText = null;
    this.structure = "";
    /** @type {uPlot|null} */
    this.plot = null;
    /** @type {PlotColumns} */
    this.data = [[]];
    this.gutter = 0;
    this.resetButton = toolButton("Reset zoom", "Show all rounds again", () => this.setZoom(null));
    this.resetButton.hidden = true;
    this.hint = h("span", { class: "chart-hint" });
    this.stage = h("div", { class: "chart-stage" });
    this.blank = h("p", { class: "chart-empty" }, empty);
    this.labels = h("div", { class: "end-labels" });
    this.tip = h("div", { class: "chart-tip", hidden: true, "aria-hidden": "true" });
    this.legend = h("ol", { class: "legend", hidden: true });
    this.build();
    publish(this);
    onThemeChange(() => this.rebuild());
    new ResizeObserver(() => this.resize()).observe(this.stage);
  }

  build() {
    this.stage.append(this.blank, this.labels, this.tip);
    this.root.classList.add("chart");
    this.root.setAttribute("role", "group");
    this.root.setAttribute("aria-labelledby", `chart-${this.name}`);
    fill(
      this.root,
      h(
        "header",
        { class: "chart-head" },
        h("h2", { class: "chart-title", id: `chart-${this.name}` }, this.title),
        this.hint,
        h(
          "div",
          { class: "tools" },
          this.resetButton,
          this.tools,
          toolButton(
            "CSV",
            "Download the data of this chart",
            async () => download(`${this.file()}.csv`, this.toCsv(await this.whole()), "text/csv"),
          ),
          toolButton(
            "SVG",
            "Download this chart as a vector image",
            () => download(`${this.file()}.svg`, this.toSvg(), "image/svg+xml"),
          ),
          toolButton("PNG", "Download this chart as an image", () => this.toPng()),
        ),
      ),
      this.stage,
      this.legend,
    );
  }

  /**
   * Shows these lines. Zoom and hidden lines stay as they are.
   * @param {Line[]} lines
   * @param {Look} more
   */
  set(lines, more = {}) {
    const { target = null, marks = [], x = this.xQuantity, xText = null, hint = "" } = more;
    const { logX = false, logY = false, bands = "", last = null } = more;
    if (x !== this.xQuantity) {
      this.xQuantity = x;
      this.zoom = null;
      this.structure = "";
    }
    this.logX = logX;
    this.logY = logY;
    this.bands = bands;
    this.lines = logX || logY ? lines.map((line) => positive(line, logX, logY)) : lines;
    this.target = target;
    this.last = last;
    this.marks = marks;
    this.xText = xText;
    this.hint.textContent = hint;
    this.hint.title = hint;
    this.update();
  }

  /** As they are drawn: the bands of many lines would cover each other, so only the one in focus has its own. */
  get drawn() {
    /** @type {string} */
    const bands = this.bands || (this.few ? "all" : "hovered");
    if (bands === "all") return this.lines;
    /** @type {(line: Line) => boolean} */
    const bare = (line) => Boolean(line.low) && (bands === "off" || line.key !== this.focus);
    return this.lines.map((line) => (bare(line) ? { ...line, low: undefined, high: undefined } : line));
  }

  get filled() {
    return this.lines.some((line) => line.y.some((value) => value !== null));
  }

  /** A cost of zero all along: an axis with fractions of a byte would be silly. */
  get nothing() {
    const cost = this.yQuantity === "bytes" || this.yQuantity === "flops";
    return cost && this.lines.every((line) => line.y.every((value) => !value));
  }

  get labelled() {
    return this.lines.filter((line) => !line.faint);
  }

  /** Few enough to be labelled at their end. */
  get few() {
    const count = this.labelled.length;
    return !this.bars && count > 0 && count <= MOST_END_LABELS;
  }

  /** Several names beside the plot would leave a phone no plot: they go into the legend. */
  get endLabels() {
    return this.few && (this.compact || this.labelled.length === 1 || !(this.stage.clientWidth < NARROW));
  }

  /** Whether the name of a line has a sample of it: a single line needs none. */
  get sampled() {
    return this.labelled.length > 1;
  }

  update() {
    this.blank.hidden = this.filled;
    if (!this.filled) {
      this.plot?.destroy();
      this.plot = null;
      this.structure = "";
      fill(this.labels);
      this.legend.hidden = true;
      return;
    }
    const { drawn } = this;
    this.data = align(drawn);
    const structure = JSON.stringify([
      this.xQuantity,
      this.logX,
      this.logY,
      this.endLabels,
      this.focus,
      drawn.map((line) => [line.key, line.label, line.style.light, line.style.dash, Boolean(line.low), line.faint]),
    ]);
    if (this.plot && structure === this.structure) {
      this.plot.setData(this.data);
    } else {
      this.structure = structure;
      this.rebuild();
    }
    this.drawLegend();
    this.resetButton.hidden = this.zoom === null;
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.filled || !this.stage.clientWidth) return;
    this.gutter = this.room(this.stage.clientWidth);
    this.plot = new uPlot(this.options(), this.data, this.stage);
  }

  /** Space to the right of the plot for the labels. @param {number} width */
  room(width) {
    if (!this.endLabels) return 12;
    return Math.min(0.3 * width, (this.compact ? 20 : 30) + (this.sampled ? SWATCH : 0) + this.widest());
  }

  widest() {
    const pen = contextOf(document.createElement("canvas"));
    pen.font = TITLE_FONT;
    const value = QUANTITIES[this.yQuantity].value;
    return Math.ceil(
      Math.max(
        ...this.labelled.map((line) =>
          pen.measureText(this.compact ? value(lastOf(line.y) ?? 0.888) : `${line.label}  ${value(0.888)}`).width
        ),
      ),
    );
  }

  /** @param {Line} line */
  colour(line) {
    const colour = isDark() ? line.style.dark : line.style.light;
    return this.focus === null || this.focus === line.key ? colour : `${colour}30`;
  }

  /** @param {string|null} key */
  setFocus(key) {
    if (this.focus === key || (key !== null && this.hidden.has(key))) return;
    this.focus = key;
    this.update();
  }

  /**
   * A name answers to pointer and keyboard: a click hides its line, pointing at it makes it stand out.
   * @param {string} key
   */
  answers(key) {
    const [on, off] = [() => this.setFocus(key), () => this.setFocus(null)];
    return { click: () => this.toggle(key), pointerenter: on, pointerleave: off, focus: on, blur: off };
  }

  /** @returns {PlotOptions} */
  options() {
    const x = QUANTITIES[this.xQuantity];
    const y = QUANTITIES[this.yQuantity];
    /** @type {() => string} */
    const axis = () => cssColour("--text-muted");
    /** @type {PlotOptions["series"]} */
    const series = [{}];
    /** @type {PlotOptions["bands"]} */
    const bands = [];
    for (const line of this.drawn) {
      const index = series.length;
      const show = !this.hidden.has(line.key);
      series.push({
        label: line.label,
        show,
        spanGaps: true,
        stroke: () => this.colour(line),
        width: this.bars ? 0 : line.faint ? 1 : line.key === this.focus ? 2.5 : this.endLabels ? 2 : 1.5,
        dash: this.bars ? undefined : line.style.dash,
        fill: this.bars ? () => `${this.colour(line)}b3` : undefined,
        paths: this.bars ? uPlot.paths.bars({ size: [0.8, 48], align: 0 }) : undefined,
        points: { show: (u, i) => !this.bars && countOf(u.data[i]) === 1, size: 6, fill: () => this.colour(line) },
      });
      if (line.low) {
        /** @type {PlotOptions["series"][number]} */
        const edge = { show, spanGaps: true, width: 0, stroke: "transparent", points: { show: false } };
        series.push({ ...edge }, { ...edge });
        const faded = () => this.focus !== null && this.focus !== line.key;
        bands.push({
          series: [index + 2, index + 1],
          fill: () => (faded() ? "transparent" : `${this.colour(line)}26`),
          show,
        });
      }
    }
    const room = this.stage.clientWidth < 560 ? 64 : 84;
    return {
      width: this.stage.clientWidth,
      height: this.stage.clientHeight,
      padding: [10, this.gutter, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, distr: this.logX ? 3 : 1, range: (_, low, high) => this.xRange(low, high) },
        y: { distr: this.logY ? 3 : 1, range: (_, low, high) => this.yRange(low, high) },
      },
      axes: [
        {
          stroke: axis,
          font: FONT,
          labelFont: FONT,
          label: axisTitle(this.xQuantity),
          labelSize: 20,
          size: 30,
          gap: 4,
          grid: { show: false },
          ticks: { stroke: () => cssColour("--line"), width: 1, size: 4 },
          border: { show: true, stroke: () => cssColour("--line"), width: 1 },
          splits: (u, _, low, high) =>
            this.bars
              ? everyBar(low, high, u.bbox.width / devicePixelRatio)
              : this.xTicks(low, high, Math.max(2, u.bbox.width / devicePixelRatio / room)),
          filter: (_, splits) => splits,
          values: (_, splits) => splits.map((value) => (this.xText ?? x.tick)(value)),
        },
        {
          stroke: axis,
          font: FONT,
          labelFont: FONT,
          label: axisTitle(this.yQuantity, this.compact),
          labelSize: 20,
          size: (_, values) => 14 + Math.max(24, ...(values ?? []).map((text) => 6.6 * text.length)),
          gap: 6,
          grid: { stroke: () => cssColour("--grid"), width: 1 },
          ticks: { show: false },
          splits: (
            u,
            _,
            low,
            high,
          ) => (this.nothing ? [0] : this.yTicks(low, high, Math.max(2, u.bbox.height / devicePixelRatio / 44))),
          filter: (_, splits) => splits,
          values: (_, splits) => splits.map(y.tick),
        },
      ],
      series,
      bands,
      cursor: {
        y: false,
        points: { size: 7 },
        drag: { x: true, y: false, setScale: false },
        sync: this.sync ? { key: this.sync, setSeries: false, scales: ["x", null] } : undefined,
        dataIdx: (u, i, hovered) => nearest(u.data[i], hovered),
        bind: { dblclick: () => () => this.setZoom(null) },
      },
      hooks: {
        setSelect: [(u) => this.selected(u)],
        draw: [(u) => this.drawMarks(u), () => this.placeLabels()],
        setCursor: [(u) => this.showTip(u)],
      },
    };
  }

  /** @param {number} low @param {number} high @param {number} count */
  xTicks(low, high, count) {
    return this.logX ? logTicks(low, high, count) : ticks(low, high, count, QUANTITIES[this.xQuantity].whole);
  }

  /** @param {number} low @param {number} high @param {number} count */
  yTicks(low, high, count) {
    return this.logY ? logTicks(low, high, count) : ticks(low, high, count);
  }

  /** @param {number} low @param {number} high @returns {[number, number]} */
  xRange(low, high) {
    if (this.zoom) return this.zoom;
    if (this.logX) return low === high ? [low / 2, high * 2] : [low, high];
    if (this.bars) return [low - 0.6, high + 0.6];
    // from nothing on, whichever round a curve has its first value in: charts of one page then share their axis
    if (this.last !== null) return [Math.min(0, low ?? 0), Math.max(high ?? 0, this.last)];
    return [Math.min(0, low), high > 0 ? high : 1];
  }

  /** @param {number|null} low @param {number|null} high @returns {[number, number]} */
  yRange(low, high) {
    if (low === null || high === null) return this.logY ? [0.1, 1] : [0, 1];
    if (this.logY) {
      const ends = this.target === null ? [low, high] : [Math.min(low, this.target), Math.max(high, this.target)];
      return [ends[0] / 1.08, ends[1] * 1.08];
    }
    if (this.yQuantity === "bytes" || this.yQuantity === "flops" || this.bars) {
      const top = high > 0 ? high * 1.05 : 1;
      return [0, this.yQuantity === "accuracy" ? Math.min(1, top) : top];
    }
    const bottom = this.target === null ? low : Math.min(low, this.target);
    const top = this.target === null ? high : Math.max(high, this.target);
    const pad = Math.max(0.06 * (top - bottom), this.yQuantity === "accuracy" ? 0.01 : 1e-3);
    if (this.yQuantity === "accuracy") return [Math.max(0, bottom - pad), Math.min(1, top + pad)];
    return [bottom >= 0 ? Math.max(0, bottom - pad) : bottom - pad, top + pad];
  }

  /** @param {uPlot} u */
  selected(u) {
    const { left, width } = u.select;
    if (width < 6) return;
    const zoom = /** @type {[number, number]} */ ([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.setZoom(zoom);
  }

  /** @param {[number, number]|null} zoom */
  setZoom(zoom) {
    this.zoom = zoom;
    this.resetButton.hidden = zoom === null;
    this.plot?.setData(this.data);
    this.changed();
  }

  /** @param {string} key */
  toggle(key) {
    if (this.hidden.has(key)) this.hidden.delete(key);
    else this.hidden.add(key);
    this.focus = null;
    this.structure = "";
    this.update();
    this.changed();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!width || !height) return;
    if (!this.plot) this.update();
    else if (width !== this.plot.width || height !== this.plot.height) {
      const gutter = this.room(width);
      if (gutter === this.gutter) this.plot.setSize({ width, height });
      else this.rebuild();
      this.drawLegend();
    }
  }

  /** Where each visible line ends: its last value inside the zoom. @returns {End[]} */
  ends() {
    return this.labelled.map((line) => {
      let index = line.y.length - 1;
      while (index >= 0 && (line.y[index] === null || (this.zoom && line.x[index] > this.zoom[1]))) index -= 1;
      return { line, value: index >= 0 ? line.y[index] : null, x: index >= 0 ? line.x[index] : null };
    });
  }

  placeLabels() {
    const u = this.plot;
    if (!u || !this.endLabels) {
      fill(this.labels);
      return;
    }
    const top = u.bbox.top / devicePixelRatio;
    const height = u.bbox.height / devicePixelRatio;
    const right = (u.bbox.left + u.bbox.width) / devicePixelRatio;
    const places = this.ends().map((end) => ({
      ...end,
      off: this.hidden.has(end.line.key) || end.value === null,
      at: end.value === null ? top + height : top + u.valToPos(end.value, "y"),
    }));
    /** @type {Map<string|undefined, HTMLElement>} */
    const known = new Map(all("button", this.labels).map((child) => [child.dataset.key, child]));
    for (const place of spread(places, top, top + height)) {
      const { line } = place;
      let button = known.get(line.key);
      if (!button) {
        button = h("button", {
          type: "button",
          class: "end-label",
          data: { key: line.key },
          on: this.answers(line.key),
        });
        button.append(...["end-sample", "end-name", "end-value num"].map((part) => h("span", { class: part })));
        this.labels.append(button);
      }
      known.delete(line.key);
      button.style.transform = `translate(${Math.round(right + 8)}px, ${Math.round(place.at - LABEL_HEIGHT / 2)}px)`;
      button.style.maxWidth = `${this.gutter - 10}px`;
      button.style.color = `light-dark(${line.style.light}, ${line.style.dark})`;
      const hidden = this.hidden.has(line.key);
      button.setAttribute("aria-pressed", String(!hidden));
      button.title = hidden ? `Show ${line.label}` : `Hide ${line.label}`;
      const [sample, name, number] = all("span", button);
      fill(sample, this.sampled ? swatch(line.style) : null);
      sample.hidden = !this.sampled;
      name.textContent = this.compact ? "" : line.label;
      const value = place.value === null ? "" : QUANTITIES[this.yQuantity].value(place.value);
      number.textContent = hidden ? "show" : value;
    }
    for (const old of known.values()) old.remove();
  }

  drawLegend() {
    const show = !this.bars && this.labelled.length > 0 && !this.endLabels;
    this.legend.hidden = !show;
    if (!show) return;
    const known = new Map(all("li", this.legend).map((child) => [child.dataset.key, child]));
    const items = this.ends()
      .sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity))
      .map(({ line, value }) => {
        let item = known.get(line.key);
        if (!item) {
          item = h(
            "li",
            { data: { key: line.key } },
            h(
              "button",
              { type: "button", class: "legend-item", on: this.answers(line.key) },
              swatch(line.style),
              h("span", { class: "legend-name" }),
              h("span", { class: "num" }),
            ),
          );
        }
        const [name, number] = all("span", item);
        one("button", item).setAttribute("aria-pressed", String(!this.hidden.has(line.key)));
        name.textContent = line.label;
        number.textContent = value === null ? "–" : QUANTITIES[this.yQuantity].value(value);
        return item;
      });
    // a name that has the pointer or the keyboard must not be made anew under it
    if (
      items.length !== this.legend.children.length || items.some((item, index) => item !== this.legend.children[index])
    ) this.legend.replaceChildren(...items);
  }

  /** @param {uPlot} u */
  drawMarks(u) {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    if (this.target !== null) {
      const y = Math.round(u.valToPos(this.target, "y", true));
      ctx.strokeStyle = cssColour("--text-muted");
      ctx.setLineDash([4 * ratio, 4 * ratio]);
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = cssColour("--text-muted");
      ctx.font = FONT.replace("12px", `${12 * ratio}px`);
      ctx.textBaseline = "bottom";
      ctx.textAlign = "left";
      ctx.fillText(`target ${QUANTITIES[this.yQuantity].value(this.target)}`, bbox.left + 6 * ratio, y - 2 * ratio);
    }
    for (const mark of this.marks) {
      if (mark.key && this.hidden.has(mark.key)) continue;
      const x = u.valToPos(mark.x, "x", true);
      const y = u.valToPos(mark.y, "y", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.fillStyle = cssColour("--surface");
      ctx.strokeStyle = isDark() ? mark.style.dark : mark.style.light;
      ctx.lineWidth = 2 * ratio;
      ctx.beginPath();
      ctx.arc(x, y, 4 * ratio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
      if (!mark.label) continue;
      ctx.fillStyle = cssColour("--text");
      ctx.font = FONT.replace("12px", `${12 * ratio}px`);
      ctx.textAlign = x > bbox.left + bbox.width - 90 * ratio ? "right" : "center";
      ctx.textBaseline = "bottom";
      ctx.fillText(mark.label, x, y - 8 * ratio);
    }
    ctx.restore();
  }

  /** @param {uPlot} u */
  showTip(u) {
    const { left, idx } = u.cursor;
    const inside = left >= 0 && idx !== null && idx !== undefined;
    this.tip.hidden = !inside;
    if (!inside) return;
    const x = QUANTITIES[this.xQuantity];
    const y = QUANTITIES[this.yQuantity];
    const at = u.posToVal(left, "x");
    // a line that ended farther left has nothing to say here; a pointer is not exact
    const reach = u.posToVal(left - POINTER, "x");
    /** @type {{line: Line, value: number, spread: string}[]} */
    const rows = [];
    let anchor = null;
    for (const line of this.lines) {
      if (this.hidden.has(line.key)) continue;
      const index = closest(line, at);
      if (index === null || (!this.bars && lastX(line) < reach)) continue;
      anchor ??= line.x[index];
      const low = line.low?.[index];
      const spread = low === null || low === undefined ? "" : line.bandText?.(index) ?? "";
      rows.push({ line, value: line.y[index] ?? NaN, spread });
    }
    rows.sort((a, b) => b.value - a.value);
    const head = this.bars || this.xText
      ? (this.xText ? `${x.title} ${this.xText(u.data[0][idx])}` : "")
      : `${
        this.xQuantity === "round" ? "Round " : ""
      }${(this.xQuantity === "round" ? x.tick(u.data[0][idx]) : x.value(at))}`;
    fill(
      this.tip,
      h("div", { class: "tip-head" }, head),
      rows.slice(0, 12).map(({ line, value, spread }) =>
        h(
          "div",
          { class: "tip-row" },
          this.bars ? null : swatch(line.style),
          h("span", { class: "tip-name" }, line.label),
          h("span", { class: "num" }, y.value(value)),
          spread ? h("span", { class: "tip-spread num" }, spread) : null,
        )
      ),
      rows.length > 12 ? h("div", { class: "tip-more" }, `and ${rows.length - 12} more`) : null,
    );
    const box = this.stage.getBoundingClientRect();
    const plotLeft = u.bbox.left / devicePixelRatio + left;
    const width = this.tip.offsetWidth;
    const flip = plotLeft + 16 + width > box.width - 4;
    this.tip.style.transform = `translate(${
      Math.max(0, Math.round(flip ? plotLeft - width - 12 : plotLeft + 12))
    }px, 14px)`;
  }

  /** One column for x, one per visible line, and its band where there is one. @param {Line[]} lines */
  toCsv(lines) {
    const shown = lines.filter((line) => !this.hidden.has(line.key));
    /** @type {string[]} */
    const columns = [this.bars ? "client" : this.xQuantity];
    for (const line of shown) {
      columns.push(line.label);
      if (line.low) columns.push(`${line.label} low`, `${line.label} high`);
    }
    const [xs, ...data] = align(shown);
    const rows = xs.map((x, index) => [this.xText ? this.xText(x) : x, ...data.map((column) => column[index] ?? "")]);
    return csv([columns, ...rows]);
  }

  toSvg() {
    return chartSvg(this);
  }

  async toPng() {
    if (this.plot) await downloadPng(`${this.file()}.png`, this.toSvg());
  }
}
