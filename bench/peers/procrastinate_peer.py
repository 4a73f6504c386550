"""procrastinate: prints one JSON line. usage: procrastinate_peer.py URL drain|latency N"""
import asyncio
import json
import logging
import sys
import time

import procrastinate

url, command, count = sys.argv[1:4]
n = int(count)
logging.disable(logging.CRITICAL)
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=24))
arrived = asyncio.Queue()


@app.task(name="noop")
async def noop(n):
    if command == "latency":
        arrived.put_nowait(time.perf_counter())


async def main():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        if command == "drain":
            for done in range(0, n, 1000):
                await noop.batch_defer_async(*[{"n": done + i} for i in range(min(1000, n - done))])
            begun = time.perf_counter()
            await app.run_worker_async(concurrency=20, wait=False, install_signal_handlers=False)
            seconds = time.perf_counter() - begun
            print(json.dumps({"per_second": n / seconds}), flush=True)
        else:
            work = asyncio.create_task(app.run_worker_async(concurrency=4, install_signal_handlers=False))
            await asyncio.sleep(1)
            times = []
            for i in range(n):
                await asyncio.sleep(0.1)
                await noop.defer_async(n=i)
                committed = time.perf_counter()
                times.append((await arrived.get() - committed) * 1000)
            print(json.dumps({"median_ms": max(0, sorted(times)[n // 2])}), flush=True)
            work.cancel()


asyncio.run(main())
