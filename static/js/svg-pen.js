// A pen with the few strokes of a canvas that charts use, which writes a standalone SVG file.

/** @type {Record<string, string>} */
const ANCHORS = { left: "start", start: "start", center: "middle", right: "end", end: "end" };
/** @type {Record<string, string>} */
const BASELINES = { top: "text-before-edge", middle: "central" };

/** @param {string} text */
export function escapeXml(text) {
  return String(text).replace(/[&<>"']/g, (letter) => `&#${letter.codePointAt(0)};`);
}

/** @type {(value: number) => number} */
const short = (value) => Number(value.toFixed(2));

export class SvgPen {
  constructor() {
    this.fillStyle = "#000000";
    /** Not written: the file has one font. */
    this.font = "";
    this.textAlign = "start";
    this.textBaseline = "alphabetic";
    /** @type {string[]} */
    this.parts = [];
    this.moves = "";
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.parts.push(
      `<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${
        short(height)
      }" fill="${this.fillStyle}"/>`,
    );
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const place = `x="${short(x)}" y="${short(y)}" text-anchor="${ANCHORS[this.textAlign]}" dominant-baseline="${
      BASELINES[this.textBaseline] ?? "auto"
    }"`;
    this.parts.push(
      `<text ${place} fill="${this.fillStyle}"${this.moves && ` transform="${this.moves.trim()}"`}>${
        escapeXml(text)
      }</text>`,
    );
  }

  /** @param {number} x @param {number} y */
  translate(x, y) {
    this.moves += ` translate(${short(x)} ${short(y)})`;
  }

  /** @param {number} angle */
  rotate(angle) {
    this.moves += ` rotate(${short((180 * angle) / Math.PI)})`;
  }

  /** One level is enough: nothing is moved before. */
  save() {
    this.moves = "";
  }

  restore() {
    this.moves = "";
  }

  /** On white, like every picture for papers. @param {number} width @param {number} height */
  file(width, height) {
    const size = `width="${width}" height="${height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${width} ${height}" font-family="Helvetica, Arial, sans-serif" font-size="11">\n<rect ${size} fill="#ffffff"/>\n${
      this.parts.join("\n")
    }\n</svg>`;
  }
}
