// Charts that are not round series, on ECharts: the library is fetched when the first of them is opened.

import { publishAs } from "./chart.js";
import { cssColour, isDark, onThemeChange } from "./colours.js";
import { download, fill, h } from "./dom.js";
import { csv } from "./table.js";

const LIBRARY = "/static/vendor/echarts/echarts.esm.min.mjs";
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const PAPER = { dark: false, text: "#1b1e23", muted: "#5a616b", line: "#b9bfc8", grid: "#e3e5e8", surface: "#ffffff" };

/** @type {Promise<any>|null} */
let loading = null;

function library() {
  loading ??= import(LIBRARY);
  return loading;
}

/** The colours of the page as it looks now. */
function inks() {
  return { dark: isDark(), text: cssColour("--text"), muted: cssColour("--text-muted"), line: cssColour("--line"), grid: cssColour("--grid"), surface: cssColour("--surface") };
}

/** The colour of a method on this ground. @param {{light: string, dark: string}} style */
export function colourOn(ink, style) {
  return ink.dark ? style.dark : style.light;
}

/** An axis with its title, a grid on y only, and numbers as the quantity writes them. */
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
  return h("div", {}, h("div", { class: "tip-head" }, head), rows.map(([name, value]) => h("div", { class: "tip-row" }, h("span", { class: "tip-name" }, name), h("span", { class: "num" }, value))));
}

export class Plot {
  /**
   * @param {HTMLElement} root an empty element
   * @param {{name: string, title: string, file?: () => string}} options
   */
  constructor(root, { name, title, file = () => name }) {
    this.name = name;
    this.file = file;
    /** @type {((ink: any) => any)|null} */
    this.option = null;
    /** @type {unknown[][]} */
    this.rows = [];
    /** @type {any} */
    this.chart = null;
    this.drawn = "";
    const tool = (label, help, action) => h("button", { type: "button", class: "tool", title: help, on: { click: action } }, label);
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
          tool("CSV", "Download the data of this chart", () => download(`${this.file()}.csv`, csv(this.rows), "text/csv")),
          tool("SVG", "Download this chart as a vector image", async () => download(`${this.file()}.svg`, await this.toSvg(), "image/svg+xml")),
          tool("PNG", "Download this chart as an image", () => this.toPng()),
        ),
      ),
      this.stage,
    );
    publishAs(name, {
      data: () => this.rows,
      drawn: () => Boolean(this.chart) && this.blank.hidden,
    });
    onThemeChange(() => this.draw(true));
    new ResizeObserver(() => this.chart?.resize()).observe(this.stage);
  }

  /**
   * @param {(ink: any) => any} option builds the chart for a ground: the screen's, or white paper for the export
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

  whole(ink) {
    const { tooltip, ...rest } = this.option(ink);
    return {
      animation: false,
      textStyle: { fontFamily: FONT, color: ink.text },
      ...rest,
      tooltip: { confine: true, transitionDuration: 0, backgroundColor: cssColour("--raised"), borderColor: cssColour("--line"), textStyle: { color: ink.text, fontSize: 12, fontFamily: FONT }, ...tooltip },
    };
  }

  /** Always on white, with the light theme's colours. */
  async toSvg() {
    if (!this.option) return '<svg xmlns="http://www.w3.org/2000/svg"/>';
    const { init } = await library();
    const paper = init(null, null, { renderer: "svg", ssr: true, width: this.stage.clientWidth, height: this.stage.clientHeight });
    paper.setOption({ backgroundColor: PAPER.surface, ...this.whole(PAPER) });
    const text = paper.renderToSVGString();
    paper.dispose();
    return text;
  }

  async toPng() {
    if (!this.chart) return;
    const address = this.chart.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: cssColour("--surface") });
    const bytes = Uint8Array.from(atob(address.split(",")[1]), (letter) => letter.codePointAt(0));
    download(`${this.file()}.png`, new Blob([bytes], { type: "image/png" }), "image/png");
  }
}
