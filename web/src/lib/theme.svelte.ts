// Light or dark: as the system says, until a person chooses.

class Theme {
  chosen = $state<string | null>(localStorage.getItem("theme"));
  system = $state(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  current = $derived(this.chosen ?? this.system);

  constructor() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
      this.system = event.matches ? "dark" : "light";
      this.apply();
    });
    this.apply();
  }

  // At once, and not as an effect: charts read their colors from the document as soon as they hear of a change.
  private apply() {
    document.documentElement.dataset.theme = this.chosen ?? this.system;
  }

  toggle() {
    this.chosen = this.current === "dark" ? "light" : "dark";
    localStorage.setItem("theme", this.chosen);
    this.apply();
  }
}

export const theme = new Theme();
