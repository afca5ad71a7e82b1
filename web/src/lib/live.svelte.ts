// What the program tells while the page is open: one stream a tab, which comes back by itself when the program does.
import { get, type GpuLoad, type MetricsEvent, type RunCard, type State, type StateAndRuns } from "./api";

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
  private late = false;  // whoever listens began to read before there was a stream
  private mark = "none";  // of the list in `runs`: the stream tells what is newer

  // The list comes once, however many there are.
  async start() {
    try {
      const { runs, mark, ...state } = await get<StateAndRuns>("/api/state");
      this.state = state;
      this.runs = runs;
      this.mark = mark;
    } catch {
      this.connected = false;
    }
    this.open();
  }

  // Lines of this run's metrics from now on; a reset means that all was read anew.
  follow(run: string, listener: Listener | null) {
    this.listener = listener;
    if (run === this.run) return;
    this.run = run;
    if (this.source) this.open();
    else this.late = true;
  }

  // Only what is different comes, and the order where that is.
  private change(news: { mark: string; cards: RunCard[]; names?: string[] }) {
    this.mark = news.mark;
    const cards = new Map(this.runs.map((card) => [card.name, card]));
    for (const card of news.cards) cards.set(card.name, card);
    this.runs = (news.names ?? [...cards.keys()]).flatMap((name) => cards.get(name) ?? []);
  }

  private open() {
    clearTimeout(this.retry);
    this.source?.close();
    const source = new EventSource(`/api/stream?${new URLSearchParams({ known: this.mark, ...(this.run ? { run: this.run } : {}) })}`);
    this.source = source;
    let opened = false;
    source.onopen = () => {
      if (opened || this.late || !this.connected) this.listener?.onReset();  // what happened meanwhile
      opened = true;
      this.late = false;
      this.connected = true;
    };
    source.onerror = () => {
      this.connected = false;
      if (source.readyState === EventSource.CLOSED) this.retry = window.setTimeout(() => this.open(), 1000);
    };
    source.addEventListener("stale", () => void this.start());  // another program answers than the one that told the list
    source.addEventListener("changed", (event) => this.change(JSON.parse((event as MessageEvent).data)));
    source.addEventListener("gpus", (event) => (this.gpus = JSON.parse((event as MessageEvent).data)));
    source.addEventListener("lines", (event) => this.listener?.onLines(JSON.parse((event as MessageEvent).data) as MetricsEvent[]));
    source.addEventListener("reset", () => this.listener?.onReset());
  }
}

export const live = new Live();
