// One run as its view sees it: curves that grow with the stream, everything else asked for when something happened.
import { get, post, type Refused, runPath, type Evaluation, type MetricsEvent, type RunDetails, type Series } from "./api";
import { live } from "./live.svelte";

const POINTS = 800;
const columnNames = ["step", "loss", "loss_least", "loss_most", "grad_norm", "learning_rate", "tokens", "tokens_per_second", "step_seconds", "data_seconds", "mfu", "communication_seconds", "seconds_since_start"];

export class RunView {
  details = $state.raw<RunDetails | null>(null);
  columns = $state.raw<Record<string, (number | null)[]>>({});
  evaluations = $state.raw<Evaluation[]>([]);
  events = $state.raw<MetricsEvent[]>([]);
  last = $state.raw<Record<string, unknown> | null>(null);  // the newest step, as it was written
  totalSteps = $state(0);
  trouble = $state("");
  loaded = $state(false);
  asking = $state<Record<string, string>>({});  // wish by id, until it is answered
  answered = $state("");
  stopAsked = $state(0);  // when, while it has not stopped
  ending = $state(false);
  private waiting: Record<string, unknown>[] = [];
  private timer = 0;
  private detailsTimer = 0;

  // zoom: the steps whose curves are wanted; null: all of them.
  constructor(readonly name: string, public zoom: [number, number] | null) {
    live.follow(name, { onLines: (lines) => this.take(lines), onReset: () => void this.load() });
    void this.load();
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.detailsTimer);
    live.follow("", null);
  }

  async load() {
    await Promise.all([this.loadSeries(), this.loadDetails()]);
    this.loaded = true;
  }

  async loadDetails() {
    try {
      this.details = await get<RunDetails>(runPath(this.name));
      this.trouble = "";
    } catch (error) {
      if ((error as Refused).status !== 0) this.trouble = (error as Error).message;  // that nobody answers, the frame says
    }
  }

  async loadSeries() {
    const range = this.zoom ? `&from=${this.zoom[0]}&to=${this.zoom[1]}` : "";
    try {
      const series = await get<Series>(runPath(this.name, `/series?points=${POINTS}${range}`));
      this.columns = series.columns;
      this.evaluations = series.evaluations;
      this.events = series.events;
      this.last = series.last;
      this.findTotal();
    } catch { /* said by the details */ }
  }

  private findTotal() {
    const model = this.events.findLast((event) => event.event === "model");
    this.totalSteps = Number(model?.total_steps ?? 0);
  }

  async ask(wish: string) {
    this.answered = "";
    if (wish === "stop" && !this.stopAsked) this.stopAsked = Date.now();
    try {
      const asked = await post<{ id: string }>(runPath(this.name, "/ask"), { wish });
      if (asked.id) this.asking = { ...this.asking, [asked.id]: wish };
    } catch (error) {
      this.answered = (error as Error).message;
    }
  }

  // The launcher and its ranks, whatever they are doing.
  async end() {
    this.ending = true;
    try {
      await post(runPath(this.name, "/end"));
      this.answered = "ended";
      await this.load();
    } catch (error) {
      this.answered = (error as Error).message;
    }
    this.ending = false;
  }

  // What came is shown at most twice a second.
  private take(lines: Record<string, unknown>[]) {
    this.waiting.push(...lines);
    if (!this.timer) this.timer = window.setTimeout(() => this.show(), this.columns.step?.length ? 400 : 0);
  }

  private show() {
    this.timer = 0;
    const lines = this.waiting;
    this.waiting = [];
    const columns: Record<string, (number | null)[]> = {};
    for (const name of columnNames) columns[name] = [...(this.columns[name] ?? [])];
    const begun = Date.parse(String(this.events.find((event) => event.time)?.time ?? ""));
    let last = Math.max(columns.step!.at(-1) ?? 0, Number(this.last?.step ?? 0)), happened = false;
    const events = [...this.events], evaluations = [...this.evaluations];
    for (const line of lines) {
      if (line.event) {
        events.push(line as MetricsEvent);
        happened = true;
        this.hear(line);
      } else if ("eval_loss" in line) {
        evaluations.push(line as Evaluation);
      } else if (Number(line.step) > last!) {
        last = Number(line.step);
        this.last = line;
        if (this.zoom && last > this.zoom[1]) continue;  // curves end where the zoom does
        for (const name of columnNames) {
          const value = name === "loss_least" || name === "loss_most" ? line.loss : name === "seconds_since_start" ? Math.max(columns[name]!.at(-1) ?? 0, (Date.parse(String(line.time)) - begun) / 1000) : line[name];
          columns[name]!.push(typeof value === "number" && Number.isFinite(value) ? value : null);
        }
      }
    }
    this.columns = columns;
    this.evaluations = evaluations;
    this.events = events;
    this.findTotal();
    if (columns.step!.length > 2 * POINTS) void this.loadSeries();  // thinned out by the program
    if (happened) this.refreshSoon();
  }

  private hear(line: Record<string, unknown>) {
    const id = String(line.id ?? "");
    if (line.event !== "wish" || !(id in this.asking)) return;
    const { [id]: wish, ...others } = this.asking;
    this.asking = others;
    this.answered = line.done ? `${wish}: done after step ${line.step}` : `${wish}: not done: ${line.reason}`;
  }

  refreshSoon() {
    clearTimeout(this.detailsTimer);
    this.detailsTimer = window.setTimeout(() => void this.loadDetails(), 300);
  }
}
