// pg-boss: prints one JSON line. usage: pgboss.cjs URL drain|latency N
// Drained by its fetch and complete in a loop, which is faster than its workers: those rest half a second between fetches.
const PgBoss = require("pg-boss");

const [url, command, count] = process.argv.slice(2);
const n = Number(count);

(async () => {
  const boss = new PgBoss({ connectionString: url, max: 12, supervise: false, schedule: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  await boss.createQueue("noop");
  if (command === "drain") {
    for (let done = 0; done < n; done += 10000) {
      const jobs = Array.from({ length: Math.min(10000, n - done) }, (_, i) => ({ name: "noop", data: { n: done + i } }));
      await boss.insert(jobs);
    }
    await boss.getDb().executeSql("VACUUM ANALYZE pgboss.job").catch(() => {});
    const begun = process.hrtime.bigint();
    let handled = 0;
    const loop = async () => {
      for (;;) {
        const jobs = await boss.fetch("noop", { batchSize: 500 });
        if (jobs.length === 0) return;
        await boss.complete("noop", jobs.map((job) => job.id));
        handled += jobs.length;
      }
    };
    await Promise.all(Array.from({ length: 4 }, loop));
    const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
    if (handled !== n) throw new Error(`${handled} of ${n}`);
    console.log(JSON.stringify({ per_second: n / seconds }));
  } else {
    let arrived = () => {};
    await boss.work("noop", { pollingIntervalSeconds: 0.5 }, async () => arrived());
    const times = [];
    for (let i = 0; i < n; i++) {
      await new Promise((done) => setTimeout(done, 100 + Math.random() * 500));
      const landed = new Promise((done) => { arrived = () => done(process.hrtime.bigint()); });
      await boss.send("noop", { i });
      const committed = process.hrtime.bigint();
      times.push(Number((await landed) - committed) / 1e6);
    }
    times.sort((a, b) => a - b);
    console.log(JSON.stringify({ median_ms: Math.max(0, times[n >> 1]) }));
  }
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
