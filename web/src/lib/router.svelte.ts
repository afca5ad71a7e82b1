// The address is the state: views read it, links and setQuery() change it.

class Router {
  path = $state(location.pathname);
  query = $state(new URLSearchParams(location.search));

  constructor() {
    addEventListener("popstate", () => this.read());
    document.addEventListener("click", (event) => {
      const link = (event.target as Element).closest?.("a[href^='/']") as HTMLAnchorElement | null;
      if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
      event.preventDefault();
      this.go(link.getAttribute("href")!);
    });
  }

  private read() {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  go(address: string) {
    history.pushState(null, "", address);
    this.read();
    scrollTo(0, 0);
  }

  // Without a step in the history: for zoom, smoothing and the like.
  setQuery(changes: Record<string, string | null>) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
    this.query = query;
  }
}

export const router = new Router();
