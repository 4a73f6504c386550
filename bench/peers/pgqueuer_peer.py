"""pgqueuer: prints one JSON line. usage: pgqueuer_peer.py URL drain|latency N"""
import asyncio
import json
import logging
import sys
import time
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

url, command, count = sys.argv[1:4]
n = int(count)
logging.disable(logging.CRITICAL)


async def main():
    pool = await asyncpg.create_pool(url, min_size=4, max_size=12)
    driver = AsyncpgPoolDriver(pool)
    queries = Queries(driver)
    try:
        await queries.install()
    except asyncpg.exceptions.DuplicateObjectError:
        pass
    queue = PgQueuer(driver)
    arrived = asyncio.Queue()

    @queue.entrypoint("noop")
    async def noop(job):
        if command == "latency":
            arrived.put_nowait(time.perf_counter())

    if command == "drain":
        for done in range(0, n, 1000):
            size = min(1000, n - done)
            await queries.enqueue(["noop"] * size, [b"{}"] * size, [0] * size)
        await pool.execute("VACUUM ANALYZE pgqueuer")
        begun = time.perf_counter()
        await queue.run(batch_size=500, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1))
        seconds = time.perf_counter() - begun
        left = await pool.fetchval("SELECT count(*) FROM pgqueuer")
        assert left == 0, left
        print(json.dumps({"per_second": n / seconds}), flush=True)
    else:
        work = asyncio.create_task(queue.run(dequeue_timeout=timedelta(seconds=30)))
        await asyncio.sleep(1)
        times = []
        for _ in range(n):
            await asyncio.sleep(0.1)
            await queries.enqueue("noop", b"{}")
            committed = time.perf_counter()
            times.append((await arrived.get() - committed) * 1000)
        print(json.dumps({"median_ms": max(0, sorted(times)[n // 2])}), flush=True)
        work.cancel()


asyncio.run(main())
