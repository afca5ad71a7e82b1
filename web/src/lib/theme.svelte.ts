// Light or dark: as the system says, until a person chooses.

class Theme {
  chosen = $state<string | null>(localStorage.getItem("theme"));
  system = $state(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  current = $derived(this.chosen ?? this.system);

  constructor() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => (this.system = event.matches ? "dark" : "light"));
  }

  toggle() {
    this.chosen = this.current === "dark" ? "light" : "dark";
    localStorage.setItem("theme", this.chosen);
  }
}

export const theme = new Theme();
