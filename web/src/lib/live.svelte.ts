// What the program tells while the page is open: one stream a tab, which comes back by itself when the program does.
import { get, type GpuLoad, type MetricsEvent, type RunCard, type State } from "./api";

type Line = Record<string, unknown> & { step?: number };
type Listener = { onLines: (lines: Line[]) => void; onReset: () => void };

class Live {
  state = $state<State | null>(null);
  runs = $state.raw<RunCard[]>([]);
  gpus = $state.raw<GpuLoad[]>([]);
  connected = $state(true);
  private source: EventSource | null = null;
  private run = "";
  private listener: Listener | null = null;
  private retry = 0;

  async start() {
    try {
      this.state = await get<State>("/api/state");
      this.runs = this.state.runs;
    } catch {
      this.connected = false;
    }
    if (!this.source) this.open();
  }

  // Lines of this run's metrics from now on; a reset means that all was read anew.
  follow(run: string, listener: Listener | null) {
    this.listener = listener;
    if (run === this.run && this.source) return;
    this.run = run;
    this.open();
  }

  // Only what is different comes, and the order where that is.
  private change(news: { cards: RunCard[]; names?: string[] }) {
    const cards = new Map(this.runs.map((card) => [card.name, card]));
    for (const card of news.cards) cards.set(card.name, card);
    this.runs = (news.names ?? [...cards.keys()]).flatMap((name) => cards.get(name) ?? []);
  }

  private open() {
    clearTimeout(this.retry);
    this.source?.close();
    const source = new EventSource(`/api/stream${this.run ? `?run=${encodeURIComponent(this.run)}` : ""}`);
    this.source = source;
    let opened = false;
    source.onopen = () => {
      if (opened || !this.connected) this.listener?.onReset();  // what happened meanwhile
      opened = true;
      if (!this.connected) void this.start();
      this.connected = true;
    };
    source.onerror = () => {
      this.connected = false;
      if (source.readyState === EventSource.CLOSED) this.retry = window.setTimeout(() => this.open(), 1000);
    };
    source.addEventListener("runs", (event) => (this.runs = JSON.parse((event as MessageEvent).data)));
    source.addEventListener("changed", (event) => this.change(JSON.parse((event as MessageEvent).data)));
    source.addEventListener("gpus", (event) => (this.gpus = JSON.parse((event as MessageEvent).data)));
    source.addEventListener("lines", (event) => this.listener?.onLines(JSON.parse((event as MessageEvent).data) as MetricsEvent[]));
    source.addEventListener("reset", () => this.listener?.onReset());
  }
}

export const live = new Live();
