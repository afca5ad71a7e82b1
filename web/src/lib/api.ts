// Talking to the program: JSON in, JSON out, mistakes as text for people.

export type Mistake = { keys: string[]; text: string };

export class Refused extends Error {
  constructor(message: string, readonly status: number, readonly mistakes: Mistake[] = []) {
    super(message);
  }
}

// What stands between a browser and the program, such as a proxy, may answer in its own way.
function understood(text: string, status: number) {
  try {
    return text ? JSON.parse(text) : {};
  } catch {
    throw new Refused(`Something other than the page's program answered (status ${status}).`, status);
  }
}

// "[ui] text": which room of the program speaks is for its log.
const plain = (text: string | undefined) => text?.replace(/^\[\w+\] /, "");

async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method, signal,
      headers: body === undefined && method === "GET" ? {} : { "Content-Type": "application/json" },
      body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused("The page's program does not answer. Is `lockstep ui` still running?", 0);
  }
  const json = understood(await answer.text(), answer.status);
  if (!answer.ok) {
    const mistakes: Mistake[] = json.errors ?? [];
    throw new Refused(plain(json.error) ?? (mistakes.map((one) => one.text).join("\n") || answer.statusText), answer.status, mistakes);
  }
  return json as T;
}

export const get = <T>(path: string, signal?: AbortSignal) => call<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body?: unknown, signal?: AbortSignal) => call<T>("POST", path, body, signal);
export const remove = <T>(path: string) => call<T>("DELETE", path);
export const runPath = (name: string, rest = "") => `/api/runs/${encodeURIComponent(name)}${rest}`;

export type Gpu = { id: number; name: string; memory_bytes: number; free_bytes: number };
export type GpuLoad = { id: number; busy: number | null; used_bytes: number | null; memory_bytes: number | null };
export type Devices = { gpus: Gpu[]; cores: number; problem: string };
export type RunCard = {
  name: string; state: string; reason: string; step: number; total_steps: number; loss: number | null; eval_loss: number | null;
  tokens_per_second: number | null; step_seconds: number | null; parameters: number; data: string; started: string; updated: string;
  sparkline: number[]; bytes: number | null;
};
export type Checkpoint = { step: number; name: string; path: string; bytes: number; best: boolean };
export type Exported = { name: string; path: string; state: "waiting" | "working" | "done" | "failed"; done?: number; total?: number; text?: string; command?: string };
export type SettingValue = { key: string; value: string; changed: boolean };
export type Ending = { status: string; exit_code: number; rank?: number; error: string; report: string; resume: string; seconds: number; last_step: number; time: string };
export type RunDetails = RunCard & {
  folder: string; ranks: number[]; checkpoints: Checkpoint[]; settings: SettingValue[]; ending?: Ending; resumable: boolean; why_not_resumable: string;
  printed?: string; config_error?: string; exports: Exported[];
};
export type Columns = Record<string, (number | null)[]>;
export type MetricsEvent = { event: string; step?: number; time?: string; [name: string]: unknown };
export type Evaluation = { step: number; eval_loss: number | null; [name: string]: unknown };
export type Series = { lines: number; columns: Columns; evaluations: Evaluation[]; events: MetricsEvent[]; last: Record<string, unknown> | null };
export type Setting = {
  key: string; section: string; kind: "boolean" | "integer" | "number" | "text" | "integers" | "texts" | "choice"; says: string; unit: string; zero: string;
  standard: string; example: string; rule: string; choices?: string[]; flags?: string[]; aliases?: string[]; path: boolean;
};
export type Plan = {
  ranks: number; devices: string[]; threads: number; backend: string; batch_size: number; gradient_accumulation: number; global_batch_size: number;
  tokens_per_step: number; learning_rate: number; learning_rate_factor: number; max_steps: number; num_epochs: number; steps?: number; warmup_steps?: number;
  epoch: { counting: boolean; mistake: string; samples?: number; steps?: number; epochs?: number };
  memory: Record<string, number>; memory_total: number; device_bytes: number; on_gpus: boolean; notes: string[]; data: string; parameters: number;
};
export type Model = { name: string; path: string; family: string; parameters: number; layers: number; hidden_size: number; dtype: string; vocab_size: number; max_seq_len: number; has_tokenizer: boolean };
export type Command = { where: string; command: string };
export type Judged = { errors: Mistake[]; plan?: Plan; model?: Model; name?: string; commands?: Command[]; starts_here?: boolean; start_note?: string };
export type ImportedKey = { fate: string; theirs: string; value: string; says: string; line: number };
export type Imported = { program: string; settings: Record<string, string>; keys: ImportedKey[] };
export type State = { version: string; output: string; folders: string[]; devices: Devices };
export type StateAndRuns = State & { runs: RunCard[]; mark: string };
