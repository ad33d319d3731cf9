// What makes the pages quicker to use. Without it everything still works.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

  // Keyboard
  const help = $("#help");
  let waitsForGo = false;
  const isTyping = (element) => element.matches("input:not([type=checkbox]), textarea, select");
  const step = (by) => {
    const rows = $$("[data-row]");
    const at = rows.indexOf(document.activeElement);
    const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
    next?.focus();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (isTyping(target)) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (waitsForGo) {
      waitsForGo = false;
      const link = $(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const search = $("[data-search]");
    switch (event.key) {
      case "/": if (search) { event.preventDefault(); search.focus(); search.select(); } break;
      case "?": event.preventDefault(); if (!help.open) help.showModal(); break;
      case "g": waitsForGo = true; setTimeout(() => { waitsForGo = false; }, 1200); break;
      case "j": step(1); break;
      case "k": step(-1); break;
      case "n": $("a[rel=next]")?.click(); break;
      case "r": $("[data-refresher]:not([hidden])")?.click(); break;
    }
  });
  $$("[data-help]").forEach((button) => button.addEventListener("click", () => help.showModal()));

  // The finder shows the fields that belong to where the page begins.
  const start = $("[data-start]");
  if (start) {
    const fit = () => $$("[data-for]").forEach((label) => { label.hidden = label.dataset.for !== start.value; });
    start.addEventListener("change", fit);
    fit();
  }

  // What the browser remembers: nothing, where it may not.
  const remembered = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* for this page only */ } };

  // Times are UTC, or those of the browser's time zone.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const timesSwitch = $("[data-times]");
  let isLocal = remembered("ottla_times") === "local";
  const localText = (date) => {
    const two = (number, length = 2) => String(number).padStart(length, "0");
    const day = `${two(date.getFullYear(), 4)}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
  };
  const showTimes = () => {
    $$("time[datetime]").forEach((time) => {
      time.dataset.utc ??= time.textContent;
      time.textContent = isLocal ? localText(new Date(time.dateTime)) : time.dataset.utc;
    });
    $$("[data-zone]").forEach((name) => { name.textContent = isLocal ? zone : "UTC"; });
    timesSwitch.textContent = isLocal ? "Local" : "UTC";
    timesSwitch.title = isLocal ? "Show times in UTC" : `Show times in ${zone}`;
  };
  timesSwitch.addEventListener("click", () => {
    isLocal = !isLocal;
    remember("ottla_times", isLocal ? "local" : "utc");
    showTimes();
  });
  showTimes();
  // What is written in the form is a time of the zone that it names.
  $$("[data-time]").forEach((field) => field.form.addEventListener("submit", () => {
    if (isLocal && /^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?$/.test(field.value.trim())) {
      const written = field.value.trim().replace(" ", "T");
      field.value = new Date(written.includes("T") ? written : `${written}T00:00`).toISOString();
    }
  }));

  // Pages that refresh by themselves.
  const main = $("main");
  const refresher = $("[data-refresher]");
  const everyMs = 5000;
  let isRefreshing = false;
  let due = 0;
  const isInUse = () => document.hidden || help.open || isTyping(document.activeElement) || !getSelection().isCollapsed;
  const show = (fresh) => {
    const opened = $$("details", main).map((each) => each.open);
    const scrolled = $$(".scroll", main).map((each) => each.scrollLeft);
    const focused = document.activeElement?.getAttribute("href");
    main.replaceChildren(...fresh.childNodes);
    $$("details", main).forEach((each, at) => { each.open = opened[at] ?? each.open; });
    $$(".scroll", main).forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
    if (focused) $(`[href="${CSS.escape(focused)}"]`, main)?.focus({ preventScroll: true });
    showTimes();
  };
  let isAsking = false;
  const ask = async () => {
    const answer = await fetch(location.href, { headers: { "ottla-by-itself": "1" }, signal: AbortSignal.timeout(10_000) });
    if (answer.redirected || answer.status === 401) { location.reload(); return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    if (fresh && isRefreshing && !isInUse()) show(fresh);
    refresher.classList.toggle("lost", !fresh);
  };
  const refresh = async () => {
    if (isAsking) return;
    isAsking = true;
    if (!isInUse()) await ask().catch(() => refresher.classList.add("lost"));
    isAsking = false;
    clearTimeout(due);
    if (isRefreshing) due = setTimeout(refresh, everyMs);
  };
  const setRefreshing = (on) => {
    isRefreshing = on;
    refresher.setAttribute("aria-pressed", String(on));
    clearTimeout(due);
    if (on) due = setTimeout(refresh, everyMs);
  };
  if (main.hasAttribute("data-refresh")) {
    refresher.hidden = false;
    refresher.addEventListener("click", () => {
      setRefreshing(!isRefreshing);
      remember("ottla_refresh", isRefreshing ? "on" : "off");
      if (isRefreshing) { clearTimeout(due); refresh(); }
    });
    setRefreshing(remembered("ottla_refresh") === "on");
  }

  // Copy a key or value.
  $$("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  }));

  // Messages as they come.
  const live = $("[data-live]");
  if (live) {
    const most = 200;
    const source = new EventSource(live.dataset.live);
    source.onmessage = (event) => {
      const { html } = JSON.parse(event.data);
      live.insertAdjacentHTML("afterbegin", html);
      showTimes();
      let row = live.firstElementChild;
      for (let left = (html.match(/<tr /g) || []).length; left > 0 && row; left -= 1, row = row.nextElementSibling) row.classList.add("fresh");
      while (live.childElementCount > most) live.lastElementChild.remove();
    };
  }
})();
