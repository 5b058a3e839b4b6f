// The answers of the API, for the type checker; written by `make docs`.

export type ArtifactList = {
  experiment: string;
  artifacts: ArtifactView[];
};

export type ArtifactState = "wanted" | "running" | "ready" | "failed";

export type ArtifactView = {
  id: string;
  experiment: string;
  kind: string;
  parameters: Record<string, any>;
  state: ArtifactState;
  error: string | null;
  name: string | null;
  media_type: string | null;
  sha256: string | null;
  bytes: number | null;
  requested_at: string;
  ready_at: string | null;
};

export type CellView = {
  values: Record<string, any>;
  best: Spread | null;
  final: Spread | null;
  headline_rule: "best" | "final";
  conditions: string | null;
  runs: RunView[];
};

export type Checked = {
  fingerprint: string;
  spec: Record<string, any>;
};

export type Choice = {
  values: Record<string, any>;
  cells: number;
  finished: number;
  headline_rule: "best" | "final";
  on_validation: Pick | null;
  validation: Spread | null;
  why_not: string | null;
  on_test: Pick;
};

export type Choices = {
  over: string[];
  paths: string[];
  groups: Choice[];
};

export type ClientTable = {
  experiments: Record<string, ClientValues>;
};

export type ClientTest = {
  n: number;
  wins: number;
  losses: number;
  ties: number;
  mean_difference: number | null;
  median_difference: number | null;
  p: number | null;
  p_holm: number | null;
  exact: boolean | null;
  rank_biserial: number | null;
  note: string;
};

export type ClientValues = {
  round: number | null;
  accuracy: Record<string, number | null>;
};

export type Columns = {
  experiments: Record<string, Record<string, any[]>>;
  seq: number;
};

export type Cost = {
  bytes_up: number;
  bytes_down: number;
  client_flops: number;
};

export type CostEstimate = {
  round: Cost;
  opening: Cost;
  total: Cost;
  seconds_per_round: number;
  seconds_once: number;
  seconds: number;
  basis: "measured" | "scaled" | "rate" | "guess";
  experiments: number;
};

export type CostToTarget = {
  target: number;
  rounds: number | null;
  scalars: number | null;
  bytes: number | null;
  flops: number | null;
  spent_scalars: number | null;
  spent_bytes: number | null;
  spent_flops: number | null;
};

export type CostView = {
  seconds: number | null;
  days: number | null;
  bytes: number | null;
  flops: number | null;
  unknown_seconds: number;
  unknown_bytes: number;
  unknown_flops: number;
  scaled: number;
  rehearsed: number;
  slots: number;
  text: string;
};

export type Costs = {
  experiments: Record<string, CostToTarget>;
};

export type Curves = {
  experiments: Record<string, Record<string, any>>;
  seq: number;
};

export type DeliveryView = {
  event: string;
  experiment: string | null;
  attempts: number;
  delivered_at: string | null;
  next_try: string | null;
  error: string | null;
};

export type Dropped = {
  client: number | null;
  part: string;
  reason: string;
};

export type ErrorItem = {
  field: string;
  message: string;
  value: any;
};

export type ErrorView = {
  reason: string;
  detail: string | null;
};

export type Errors = {
  errors: ErrorItem[];
};

export type Estimated = {
  estimate: CostEstimate | null;
  reason: string | null;
};

export type ExperimentPage = {
  items: ExperimentView[];
  next: string | null;
  total: number;
  seq: number;
};

export type ExperimentView = {
  id: string;
  name: string | null;
  tags: string[];
  notes: string;
  state: State;
  spec: Record<string, any>;
  fingerprint: string;
  partition_fingerprint: string | null;
  environment: Record<string, any> | null;
  bit_identical: boolean;
  rounds: number;
  next_round: number;
  headline: Headline | null;
  headline_rule: "best" | "final";
  majority_share: number | null;
  no_convergence: boolean;
  conditions: string;
  error: ErrorView | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  seconds: number;
  owner: string | null;
  attempts: number;
  priority: number;
  position: number | null;
  start_after: string | null;
  window: WindowView | null;
  pause: boolean;
  hold: string | null;
  stop: Record<string, any> | null;
  stopped_by: string | null;
  sweep: string | null;
  cell: Record<string, any> | null;
  retry_of: string | null;
  continues: string | null;
  taken_over: number;
  deleted_at: string | null;
  has_checkpoint: boolean;
  seq: number;
  totals: TotalsView;
};

export type ExtendedView = {
  id: string;
  name: string | null;
  tags: string[];
  notes: string;
  state: State;
  spec: Record<string, any>;
  fingerprint: string;
  partition_fingerprint: string | null;
  environment: Record<string, any> | null;
  bit_identical: boolean;
  rounds: number;
  next_round: number;
  headline: Headline | null;
  headline_rule: "best" | "final";
  majority_share: number | null;
  no_convergence: boolean;
  conditions: string;
  error: ErrorView | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
  seconds: number;
  owner: string | null;
  attempts: number;
  priority: number;
  position: number | null;
  start_after: string | null;
  window: WindowView | null;
  pause: boolean;
  hold: string | null;
  stop: Record<string, any> | null;
  stopped_by: string | null;
  sweep: string | null;
  cell: Record<string, any> | null;
  retry_of: string | null;
  continues: string | null;
  taken_over: number;
  deleted_at: string | null;
  has_checkpoint: boolean;
  seq: number;
  totals: TotalsView;
  told: string;
};

export type Headline = {
  best_accuracy: number | null;
  best_round: number | null;
  final_accuracy: number | null;
  best_validation_accuracy: number | null;
  best_validation_round: number | null;
  accuracy_at_best_validation: number | null;
  final_validation_accuracy: number | null;
};

export type Health = {
  status: string;
};

export type Log = {
  lines: LogLineView[];
};

export type LogLineView = {
  number: number;
  at: string;
  level: string;
  text: string;
};

export type NotApplicableView = {
  cell: string;
  reason: string;
  experiments: number;
};

export type Pair = {
  first: string;
  second: string;
  clients: ClientTest;
  seeds: SeedTest;
};

export type PartitionPreview = {
  clients: number;
  classes: number;
  counts: number[][];
  fingerprint: string;
  notes: string[];
};

export type Pick = {
  cell: number;
  values: Record<string, any>;
  accuracy: Spread;
};

export type Readiness = {
  status: string;
  slots: number;
  due: number;
};

export type RefusedView = {
  field: string;
  message: string;
  value: any;
  experiments: number;
  example: string;
};

export type RoundRecord = {
  round: number;
  accuracy: number | null;
  loss: number | null;
  scalars_up: number;
  scalars_down: number;
  bytes_up: number;
  bytes_down: number;
  client_flops: number;
  server_flops: number;
  eval_flops: number;
  seconds: number;
  client_seconds: number;
  server_seconds: number;
  cohort: number[];
  client_accuracy: Record<string, number>;
  traces: Record<string, any>;
  dropped: Dropped[];
  validation_accuracy: number | null;
};

export type Rounds = {
  experiment: string;
  rounds: RoundRecord[];
  seq: number;
};

export type RunView = {
  experiment: string;
  seed: number;
  state: State;
  rounds: number;
  next_round: number;
  best_accuracy: number | null;
  final_accuracy: number | null;
  no_convergence: boolean;
  seconds: number;
  reused: boolean;
  retry_of: string | null;
  reason: string | null;
};

export type SeedTest = {
  n: number;
  seeds: number[];
  mean_difference: number | null;
  low: number | null;
  high: number | null;
  p: number | null;
  p_holm: number | null;
  d_z: number | null;
  note: string;
};

export type Significance = {
  groups: Record<string, string[]>;
  pairs: Pair[];
  note: string;
};

export type Spread = {
  mean: number;
  std: number | null;
  seeds: number;
};

export type State = "queued" | "paused" | "running" | "cancelling" | "finished" | "failed" | "cancelled" | "diverged" | "not_applicable";

export type SweepCheck = {
  ok: boolean;
  cells: number;
  experiments: number;
  excluded: number;
  to_run: number;
  reused: Record<string, number>;
  refused: RefusedView[];
  not_applicable: NotApplicableView[];
  cost: CostView;
};

export type SweepPage = {
  items: SweepSummary[];
  next: string | null;
  seq: number;
};

export type SweepSummary = {
  id: string;
  name: string | null;
  notes: string;
  tags: string[];
  state: string;
  created_at: string;
  experiments: number;
  reused: number;
  counts: Record<string, number>;
  rounds_done: number;
  rounds_total: number;
  paths: string[];
  seeds: number[];
};

export type SweepView = {
  id: string;
  name: string | null;
  notes: string;
  tags: string[];
  state: string;
  created_at: string;
  experiments: number;
  reused: number;
  counts: Record<string, number>;
  rounds_done: number;
  rounds_total: number;
  paths: string[];
  seeds: number[];
  document: Record<string, any>;
  cells: CellView[];
  choices: Choices | null;
  comparable: boolean;
  time_left: TimeLeft;
  webhook: string | null;
  deliveries: DeliveryView[];
  seq: number;
};

export type TimeLeft = {
  seconds: number | null;
  unknown: number;
  slots: number;
};

export type TotalsView = {
  bytes_up: number;
  bytes_down: number;
  client_flops: number;
};

export type WindowView = {
  from: string;
  to: string;
  zone: "UTC";
};

export type WorkerView = {
  name: string;
  host: string;
  device: string;
  slots: number;
  started_at: string;
  last_seen: string;
  report: Record<string, any> | null;
};

export type Workers = {
  items: WorkerView[];
};
