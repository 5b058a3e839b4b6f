// The shapes that several scripts share, for the type checker; those of the API's answers stand in api.d.ts.

import type { ExperimentView, Headline, RoundRecord, State, SweepSummary, WorkerView } from "./api.d.ts";

/** What `h` makes of a tag's name. */
export type ElementOf<Tag> = Tag extends "svg" | "use" | "line" | "path" ? SVGElement
  : Tag extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Tag]
  : HTMLElement;

export type Child = Node | string | number | false | null | undefined | Child[];

export type Attributes = {
  on?: { [Name in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[Name]) => unknown };
  data?: Record<string, string | number | null | undefined>;
  [attribute: string]: unknown;
};

/** How a method's line looks, on a light ground and on a dark one. */
export type Style = { light: string; dark: string; dash: number[] };

/** What the server says once for browser and server; app/pages/vocabulary.py writes it. */
export type Vocabulary = {
  states: { id: State; title: string; ended: boolean; retried: boolean }[];
  palette: {
    dashes: number[][];
    families: Record<string, { title: string; light: string[]; dark: string[] }>;
    methods: Record<string, { title: string; family: string; tone: number; dash: number }>;
  };
  /** By method and trace. */
  traces: Record<string, Record<string, { title: string; unit: string }>>;
  /** How LaTeX wants a letter. */
  latex: Record<string, string>;
  partition_letters: Record<string, string>;
  /** What a part of a spec is called. */
  part_titles: Record<string, string>;
  /** Fields of a spec in which two seeds of one group may differ. */
  not_compared: string[];
  no_convergence: string;
  convergence_margin: number;
};

/** A complete spec, as far as the pages read it; its other fields are shown as they are. */
export type Spec = {
  algorithm: { name: string; [parameter: string]: unknown };
  dataset: { name: string; set?: string; labels?: string; [field: string]: unknown };
  partition: { name: string; classes_per_client?: number; [field: string]: unknown };
  models: { family: string; [field: string]: unknown };
  evaluation: Record<string, unknown>;
  training: Record<string, unknown>;
  clients: number;
  participation: number;
  rounds: number;
  seed: number;
  [field: string]: unknown;
};

export type Experiment = Omit<ExperimentView, "spec"> & { spec: Spec };

/** A round as the live events tell it. */
export type LiveRound = RoundRecord & { experiment: string };

export type Problem = { field: string; message: string };

/** Curves as the server sends them. */
export type CurveColumns = {
  round: number[];
  accuracy: (number | null)[];
  loss: (number | null)[];
  bytes: number[];
  flops: number[];
  seconds: number[];
  flops_each: number[];
  thinned?: boolean;
};

/** A JSON schema of one field, as far as the form reads it. */
export type FieldSchema = {
  type?: string;
  format?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  description?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  anyOf?: FieldSchema[];
};

export type Properties = Record<string, FieldSchema>;

/** A spec or a sweep as somebody writes it: anything may stand anywhere. */
// deno-lint-ignore no-explicit-any
export type Document = Record<string, any>;

export type Parameters = { properties: Properties };

export type Catalogue = {
  algorithms: {
    id: string;
    title: string;
    family: string;
    shares: string;
    heterogeneous: string;
    parameters: Parameters;
    presets?: Record<string, Record<string, unknown>>;
  }[];
  datasets: {
    id: string;
    title: string;
    set?: string;
    available: boolean;
    samples: number;
    shape: number[];
    classes: number;
    parameters: Parameters;
  }[];
  partitions: { id: string; title: string; parameters: Parameters }[];
  models: { id: string; title: string; members: { id: string; parameters: number }[] }[];
  presets: Record<string, Record<string, unknown>>;
  fields: Record<string, FieldSchema> & Record<"models" | "training" | "evaluation", Properties>;
};

export type NewPage = { seq: number; spec: Document | null; algorithm: string | null; catalogue: Catalogue };

export type ListPage = { seq: number; items: Experiment[]; total: number };

export type ExperimentPage = {
  seq: number;
  experiment: Experiment;
  sweep: { id: string; name: string | null } | null;
  source: { id: string; rounds: number } | null;
  heirs: { id: string; rounds: number }[];
  rounds: RoundRecord[];
  tested: number;
  detailed: number | null;
  latest: Record<string, number> | null;
  architectures: string[];
  problems: string[];
  fixed_rounds: string | null;
};

export type ComparePage = {
  seq: number;
  experiments: Experiment[];
  curves: Record<string, CurveColumns>;
  points: number;
  missing: string[];
};

export type OverviewPage = {
  seq: number;
  now: number;
  counts: Record<string, number>;
  slots: number;
  running: Experiment[];
  queued: Experiment[];
  finished: Experiment[];
  failed: Experiment[];
  finished_today: number;
  failed_today: number;
  curves: Record<string, { round: number[]; accuracy: (number | null)[]; seconds: number[] }>;
  expected: Record<string, number | null>;
  once: Record<string, number>;
  later_seconds: number | null;
  sweeps: SweepSummary[];
  workers: (WorkerView & { silent: boolean })[];
};

/** What a worker says of itself. */
export type Report = {
  shortage?: string;
  memory_free?: number;
  memory_total?: number;
  device_memory_free?: number;
  device_memory_total?: number;
  rounds_per_minute?: number;
};

export type WorkersPage = {
  seq: number;
  now: number;
  workers: (Omit<WorkerView, "report"> & {
    silent: boolean;
    pid: number;
    report: Report;
    experiments: { id: string; name: string; round: number; of: number }[];
  })[];
};

export type MethodCost = {
  round: { bytes_up: number; bytes_down: number; client_flops: number } | null;
  opening: { bytes_up: number; bytes_down: number; client_flops: number } | null;
  reason: string | null;
};

export type { Headline };

/** Where the lines have their points, then the values of each; undefined is a missing point, which breaks no line. */
export type PlotColumns = [number[], ...(number | null | undefined)[][]];

type PlotAxis = {
  splits: (u: uPlot, axis: number, low: number, high: number) => number[];
  filter: (u: uPlot, splits: number[]) => number[];
  values: (u: uPlot, splits: number[]) => string[];
  size: number | ((u: uPlot, values: string[] | null) => number);
  [look: string]: unknown;
};

type PlotScale = {
  time?: boolean;
  distr: number;
  range: (u: uPlot, low: number, high: number) => [number, number];
};

/** What the charts ask of uPlot. */
export type PlotOptions = {
  width: number;
  height: number;
  padding: number[];
  legend: { show: boolean };
  scales: { x: PlotScale; y: PlotScale };
  axes: PlotAxis[];
  series: {
    points?: { show: boolean | ((u: uPlot, series: number) => boolean); size?: number; fill?: () => string };
    [look: string]: unknown;
  }[];
  bands: { series: [number, number]; fill: () => string; show: boolean }[];
  cursor: { dataIdx: (u: uPlot, series: number, hovered: number) => number; [look: string]: unknown };
  hooks: Record<"setSelect" | "draw" | "setCursor", ((u: uPlot) => void)[]>;
};

declare global {
  /** What the scripts use of uPlot, which is loaded as a classic script. */
  class uPlot {
    constructor(options: PlotOptions, data: PlotColumns, root: HTMLElement);
    static paths: { bars(options: object): unknown };
    width: number;
    height: number;
    ctx: CanvasRenderingContext2D;
    bbox: { left: number; top: number; width: number; height: number };
    select: { left: number; width: number };
    cursor: { left: number; idx: number | null | undefined };
    data: PlotColumns;
    axes: { _splits: number[] }[];
    scales: { x: { min: number; max: number }; y: { min: number; max: number } };
    destroy(): void;
    setData(data: PlotColumns): void;
    setSize(size: { width: number; height: number }): void;
    setSelect(select: object, fire: boolean): void;
    posToVal(position: number, scale: "x" | "y"): number;
    valToPos(value: number, scale: "x" | "y", onCanvas?: boolean): number;
  }

  interface Window {
    fedarena: { charts: Record<string, object> };
  }
}
