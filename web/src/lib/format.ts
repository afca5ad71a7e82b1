// Numbers as people read them.

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e4, "k"]] as const) {
    if (Math.abs(value) >= size) return `${(value / (letter === "k" ? 1e3 : size)).toPrecision(3)}${letter}`;
  }
  return Math.round(value).toLocaleString("en-US");
}

export function bytes(value: number | null): string {
  if (value === null) return "–";
  let size = value, unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(size >= 100 ? 0 : 1)} ${units[unit]}`;
}

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 48 * 3600) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export const loss = (value: number | null | undefined) => (value === null || value === undefined ? "–" : value.toFixed(4));
export const small = (value: number | null | undefined) => (value === null || value === undefined ? "–" : value === 0 ? "0" : value < 0.01 ? value.toExponential(2) : value.toPrecision(3));
// A part of a step: in milliseconds below a second.
export function brief(seconds: number | null | undefined): { value: string; unit: string } {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return { value: "–", unit: "" };
  if (seconds >= 1) return { value: seconds.toFixed(seconds < 10 ? 2 : 1), unit: "s" };
  const ms = seconds * 1000;
  return { value: ms === 0 ? "0" : ms.toFixed(ms < 10 ? 2 : ms < 100 ? 1 : 0), unit: "ms" };
}
export const briefly = (seconds: number | null | undefined) => `${brief(seconds).value} ${brief(seconds).unit}`.trim();
export const step = (value: number) => value.toLocaleString("en-US");
export const percent = (share: number) => `${Math.round(share * 100)} %`;

export function ago(time: string): string {
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (seconds < 90) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 48 * 3600 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86400)} days ago`;
}

// Words of a run's state, with a shape beside the color.
export const stateWords: Record<string, { word: string; kind: "good" | "warn" | "bad" | "calm" | "busy"; mark: string }> = {
  running: { word: "running", kind: "busy", mark: "▶" },
  starting: { word: "starting", kind: "busy", mark: "◌" },
  waiting: { word: "waiting", kind: "calm", mark: "⏸" },
  complete: { word: "complete", kind: "good", mark: "✓" },
  stopped: { word: "stopped", kind: "calm", mark: "■" },
  ended: { word: "ended at once", kind: "warn", mark: "■" },
  failed: { word: "failed", kind: "bad", mark: "✕" },
  killed: { word: "killed", kind: "bad", mark: "✕" },
};
