// Times in the viewer's zone, the theme, and pages that follow what happens. Everything works without this file.
"use strict";
(() => {
  const root = document.documentElement;
  const themes = ["light", "dark"];
  const stored = () => { try { return localStorage.getItem("ebb-theme"); } catch { return null; } };
  const apply = (theme) => { if (themes.includes(theme)) root.dataset.theme = theme; else delete root.dataset.theme; };
  apply(stored());

  const when = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const ago = (date) => {
    const seconds = (date - Date.now()) / 1000;
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) || ["second", 1];
    return relative.format(Math.round(seconds / size), unit);
  };
  const localize = () => document.querySelectorAll("time[datetime]").forEach((time) => {
    const date = new Date(time.dateTime);
    if (isNaN(date)) return;
    time.title = date.toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC");
    time.textContent = time.dataset.as === "ago" ? ago(date) : when.format(date);
  });

  const wire = () => {
    localize();
    const toggle = document.querySelector("[data-theme-toggle]");
    if (toggle && !toggle.dataset.wired) {
      toggle.dataset.wired = "1";
      toggle.addEventListener("click", () => {
        const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
        const next = dark ? "light" : "dark";
        apply(next);
        try { localStorage.setItem("ebb-theme", next); } catch { /* it holds for this page */ }
      });
    }
  };

  // Follow the stream: fetch this page again and put its content in place, unless somebody is at a form.
  let timer = null, again = false;
  const busy = () => document.querySelector("main form[data-keep]") || (document.activeElement && document.activeElement.closest("main form"));
  const refresh = async () => {
    timer = null;
    if (busy() || document.hidden) { again = document.hidden; return; }
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!response.ok || response.redirected) return;
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.querySelector("main"), old = document.querySelector("main");
      if (fresh && old) { old.replaceWith(fresh); wire(); }
    } catch { /* the next event tries again */ }
  };
  const soon = () => { if (!timer) timer = setTimeout(refresh, 700); };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && again) soon(); });

  if (document.body.dataset.live === "1") {
    const light = document.querySelector("[data-live]");
    const source = new EventSource("/v1/stream");
    const show = (on) => { if (light) light.dataset.live = on ? "on" : "off"; };
    source.onopen = () => show(true);
    source.onerror = () => show(false);
    source.addEventListener("run", soon);
    source.addEventListener("change", soon);
    setInterval(soon, 60000);
    addEventListener("pagehide", () => source.close());
  }
  setInterval(localize, 10000);
  wire();
})();
