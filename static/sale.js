// Live page, report and first page of the back office: renews the live fragment, draws charts, counts down.
"use strict";
(() => {
  const EVERY_MS = 2000, SHOWN_S = 600;
  const live = document.querySelector("[data-sale-live]");
  const state = document.querySelector("[data-sale-state]");
  // The server's clock, as far as it can be told here: the page says what it was when it was made.
  const ahead = live ? Number(live.dataset.nowMs) - Date.now() : 0;
  const now = () => Date.now() + ahead;
  const charts = [];

  const say = (word) => { if (state) state.textContent = state.dataset[word]; };
  const two = (number) => String(number).padStart(2, "0");

  function countDown() {
    for (const element of document.querySelectorAll("[data-countdown]")) {
      const left = Math.max(0, Math.ceil((Number(element.dataset.countdown) - now()) / 1000));
      const days = Math.floor(left / 86400);
      const clock = [Math.floor(left % 86400 / 3600), Math.floor(left % 3600 / 60), left % 60].map(two).join(":");
      const text = days ? `${days}d ${clock}` : clock;
      if (element.textContent !== text) element.textContent = text;
    }
  }

  const colour = (name) => getComputedStyle(document.querySelector(".sale")).getPropertyValue(`--${name}`).trim();
  // In the site's time zone, as all other times of the back office, whatever the browser's is.
  const offset = Number(document.body.dataset.adminUtcOffset) || 0;
  const dateOf = (second) => new Date((second + offset) * 1000);
  const clockOf = (second) => dateOf(second).toISOString().slice(11, 19);

  function options(isLegend) {
    return {
      animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
      interaction: { mode: "index", intersect: false },
      elements: { point: { radius: 0, hitRadius: 8 }, line: { borderWidth: 2 } },
      plugins: { legend: { display: isLegend, align: "end", labels: { boxWidth: 10, boxHeight: 10 } } },
      scales: {
        x: { grid: { display: false }, ticks: { maxRotation: 0, autoSkip: true, maxTicksLimit: 6 } },
        y: { beginAtZero: true, ticks: { precision: 0, maxTicksLimit: 5 } },
      },
    };
  }

  function chartMake(canvas, type, labels, datasets) {
    for (const dataset of datasets) dress(dataset, type);
    const chart = new Chart(canvas, { type, data: { labels, datasets }, options: options(datasets.length > 1) });
    charts.push(chart);
    paint();
    return chart;
  }

  function dress(dataset, type) {
    dataset.borderColor = colour(dataset.colour);
    dataset.backgroundColor = type === "line" ? "transparent" : colour(dataset.colour);
  }

  function paint() {
    for (const chart of charts) {
      for (const dataset of chart.data.datasets) dress(dataset, chart.config.type);
      chart.options.plugins.legend.labels.color = colour("faint");
      for (const axis of Object.values(chart.options.scales)) {
        axis.ticks.color = colour("faint");
        axis.border = { color: colour("line") };
        if (axis.grid.display !== false) axis.grid.color = colour("line");
      }
      chart.update();
    }
  }

  // Live -----------------------------------------------------------------------------------------------

  let drawn = null;

  function liveDraw() {
    const fragment = live.querySelector("[data-sale-fragment]");
    const { seconds, total, left } = JSON.parse(fragment.dataset.chart);
    const isOver = fragment.dataset.over === "1";
    const known = new Map(seconds.map((one) => [one[0], one]));
    const newest = seconds.length ? seconds[seconds.length - 1][0] : Math.floor(now() / 1000);
    const end = isOver ? newest : Math.max(newest, Math.floor(now() / 1000) - 1);
    const labels = [], won = [], refused = [], stock = [];
    let last = seconds.length && seconds[0][3] !== null ? Math.min(total, seconds[0][3] + seconds[0][1]) : left;
    for (let second = end - SHOWN_S + 1; second <= end; second += 1) {
      const one = known.get(second);
      if (one && one[3] !== null) last = one[3];
      labels.push(clockOf(second));
      won.push(one ? one[1] : 0);
      refused.push(one ? one[2] : 0);
      stock.push(last);
    }
    if (left !== null && !isOver) stock[stock.length - 1] = left;
    if (!drawn) {
      const burn = document.querySelector('[data-sale-chart="left"]');
      const rate = document.querySelector('[data-sale-chart="rate"]');
      drawn = {
        burn: chartMake(burn, "line", labels, [{ label: burn.getAttribute("aria-label"), data: stock, colour: "won", stepped: true }]),
        rate: chartMake(rate, "line", labels, [
          { label: rate.dataset.won, data: won, colour: "won" },
          { label: rate.dataset.refused, data: refused, colour: "refused" },
        ]),
      };
      return;
    }
    drawn.burn.data.labels = drawn.rate.data.labels = labels;
    drawn.burn.data.datasets[0].data = stock;
    drawn.rate.data.datasets[0].data = won;
    drawn.rate.data.datasets[1].data = refused;
    drawn.burn.update("none");
    drawn.rate.update("none");
  }

  let timer = 0;

  async function renew() {
    timer = 0;
    if (document.hidden) return say("hidden");
    try {
      const answer = await fetch(live.dataset.saleLive, {
        headers: { "If-None-Match": live.dataset.etag, "X-Requested-With": "fetch" }, credentials: "same-origin",
        redirect: "manual", cache: "no-store",
      });
      if (answer.type === "opaqueredirect" || answer.status === 403) return say("out");
      if (answer.status === 200) {
        live.innerHTML = await answer.text();
        live.dataset.etag = answer.headers.get("ETag");
        countDown();
      }
      say(answer.status === 200 || answer.status === 304 ? "live" : "lost");
      liveDraw();
    } catch {
      say("lost");
    }
    again();
  }

  function again() {
    if (live.querySelector("[data-sale-fragment]").dataset.over === "1") return say("over");
    if (!timer) timer = setTimeout(renew, EVERY_MS);
  }

  // Bars -----------------------------------------------------------------------------------------------

  function barsDraw(canvas) {
    const { width, points } = JSON.parse(canvas.dataset.saleBars);
    if (!points.length) return;
    const values = new Map(points), first = points[0][0], last = points[points.length - 1][0];
    const labels = [], data = [];
    const step = Math.max(width, Math.ceil((last - first + 1) / 400 / width) * width);
    for (let at = first; at <= last; at += step) {
      labels.push(step >= 3600 ? dateOf(at).toISOString().slice(5, 16).replace("T", " ") : clockOf(at));
      let sum = 0;
      for (let part = at; part < at + step; part += width) sum += values.get(part) || 0;
      data.push(sum);
    }
    chartMake(canvas, "bar", labels, [{ label: canvas.getAttribute("aria-label"), data, colour: canvas.dataset.colour }]);
  }

  function daysDraw(canvas) {
    const days = JSON.parse(canvas.dataset.saleDays);
    chartMake(canvas, "bar", days.map((day) => day.day), [
      { label: canvas.dataset.won, data: days.map((day) => day.won), colour: "won" },
      { label: canvas.dataset.redeemed, data: days.map((day) => day.redeemed), colour: "refused" },
    ]);
  }

  document.querySelectorAll("[data-sale-bars]").forEach(barsDraw);
  document.querySelectorAll("[data-sale-days]").forEach(daysDraw);
  document.querySelectorAll("[data-print]").forEach((button) => button.addEventListener("click", () => window.print()));
  if (live) {
    liveDraw();
    again();
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !timer && live.querySelector("[data-sale-fragment]").dataset.over !== "1") renew();
    });
  }
  countDown();
  setInterval(countDown, 1000);
  new MutationObserver(paint).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
})();
