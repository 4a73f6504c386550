// graphile-worker: prints one JSON line. usage: graphile.cjs URL drain|latency N batched|unbatched
// It keeps no history: a finished job is deleted.
const { Pool } = require("pg");
const { makeWorkerUtils, run, Logger } = require("graphile-worker");

const [url, command, count, mode] = process.argv.slice(2);
const n = Number(count);
const logger = new Logger(() => () => {});
const batched = {
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

(async () => {
  const pool = new Pool({ connectionString: url, max: 12 });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  let handled = 0;
  let arrived = () => {};
  const start = () =>
    run({
      pgPool: pool,
      logger,
      noHandleSignals: true,
      taskList: { noop: async (payload) => { handled += 1; arrived(payload); } },
      preset: { worker: { concurrentJobs: 24, pollInterval: 1000, ...(mode === "batched" ? batched : {}) } },
    });
  if (command === "drain") {
    await pool.query(
      `SELECT graphile_worker.add_jobs(array_agg(json_populate_record(NULL::graphile_worker.job_spec,
         json_build_object('identifier', 'noop', 'payload', json_build_object('n', i)))))
       FROM generate_series(1, ${n}) AS i`);
    await pool.query("VACUUM ANALYZE graphile_worker._private_jobs");
    const begun = process.hrtime.bigint();
    const runner = await start();
    for (;;) {
      if (handled >= n) {
        const left = await pool.query("SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS left");
        if (!left.rows[0].left) break;
      }
      await new Promise((done) => setTimeout(done, 5));
    }
    const seconds = Number(process.hrtime.bigint() - begun) / 1e9;
    console.log(JSON.stringify({ per_second: n / seconds }));
    await runner.stop();
  } else {
    const runner = await start();
    await new Promise((done) => setTimeout(done, 1000));
    const times = [];
    for (let i = 0; i < n; i++) {
      await new Promise((done) => setTimeout(done, 100));
      const landed = new Promise((done) => { arrived = () => done(process.hrtime.bigint()); });
      await utils.addJob("noop", { i });
      const committed = process.hrtime.bigint();
      times.push(Number((await landed) - committed) / 1e6);
    }
    times.sort((a, b) => a - b);
    console.log(JSON.stringify({ median_ms: Math.max(0, times[n >> 1]) }));
    await runner.stop();
  }
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
