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
      let row = live.firstElementChild;
      for (let left = (html.match(/<tr /g) || []).length; left > 0 && row; left -= 1, row = row.nextElementSibling) row.classList.add("fresh");
      while (live.childElementCount > most) live.lastElementChild.remove();
    };
  }
})();
