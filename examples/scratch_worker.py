"""A worker whose temporary tables live exactly as long as someone refers to them. Needs psycopg 3 and the standard library.

    python3 scratch_worker.py DATABASE_URL CLICKHOUSE_URL [POLICY]

`Worker` opens a holder and beats. `Table` is a reference: made with `worker.create()` or `worker.refer(name)`, let go with
`with`, `close()`, or by the garbage collector through `__del__`. Whatever happens to the process, nothing stays behind: a
killed worker's holder runs out, and with it all its references.
"""
import queue
import random
import sys
import threading
import time
import urllib.request

import psycopg


def snowflake():
    """Milliseconds since 1970 in the upper bits, as ClickHouse's generateSnowflakeID makes them."""
    return (int(time.time() * 1000) << 22) | random.getrandbits(22)


class Gone(Exception):
    """The resource was dropped before this reference counted."""


class Worker:
    """One holder. References are counted here and are rows in PostgreSQL: the first makes one, the last removes it."""

    def __init__(self, database, clickhouse, policy="scratch-tables", name="worker", term=60):
        self.policy, self.clickhouse, self.term = policy, clickhouse, term
        self.connection = psycopg.connect(database, autocommit=True)
        self.lock = threading.Lock()
        self.counts = {}
        self.alive = True
        self.holder = self.ask("SELECT ebb.holder_open(%s, make_interval(secs => %s))", name, term)
        # __del__ may run at any moment, on any thread, inside any call: it only puts a name into this queue.
        self.released = queue.SimpleQueue()
        self.background = threading.Thread(target=self._work, daemon=True)
        self.background.start()

    def ask(self, sql, *values):
        with self.lock:
            return self.connection.execute(sql, values).fetchone()[0]

    def query(self, sql):
        request = urllib.request.Request(self.clickhouse, data=sql.encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode().strip()

    def create(self, columns="x UInt64"):
        """Announce first, make afterwards: a crash in between leaves something that Ebb knows of."""
        name = f"t{snowflake()}"
        self.ask("SELECT ebb.create_intent(%s, %s, %s)", self.policy, name, self.holder)
        table = self._count(name)
        self.query(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY tuple()")
        if not self.ask("SELECT ebb.created(%s, %s)", self.policy, name):
            self.query(f"DROP TABLE IF EXISTS {name}")
            raise Gone(name)
        return table

    def refer(self, name):
        """A table that another worker made. It counts when this returns."""
        if not self.ask("SELECT ebb.incref(%s, %s, %s)", self.policy, name, self.holder):
            raise Gone(name)
        return self._count(name)

    def _count(self, name):
        self.counts[name] = self.counts.get(name, 0) + 1
        return Table(self, name)

    def _work(self):
        beat_at = time.monotonic() + self.term / 3
        while True:
            try:
                name = self.released.get(timeout=max(0.0, beat_at - time.monotonic()))
            except queue.Empty:
                beat_at = time.monotonic() + self.term / 3
                try:
                    self.alive = self.ask("SELECT ebb.holder_beat(%s)", self.holder)
                except psycopg.Error:
                    continue  # the term decides when the database is back
                if not self.alive:
                    return
                continue
            if name is None:
                return
            self.counts[name] -= 1
            if self.counts[name] == 0:
                del self.counts[name]
                self.ask("SELECT ebb.decref(%s, %s, %s)", self.policy, name, self.holder)

    def close(self):
        self.released.put(None)
        self.background.join()
        self.ask("SELECT ebb.holder_close(%s)", self.holder)
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Table:
    """A reference to a table."""

    def __init__(self, worker, name):
        self.worker, self._name = worker, name

    @property
    def name(self):
        if self._name is None or not self.worker.alive:
            raise Gone("this reference is stale: it was let go, or the worker's holder died")
        return self._name

    def close(self):
        name, self._name = self._name, None
        if name is not None:
            self.worker.released.put(name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


def main():
    policy = sys.argv[3] if len(sys.argv) > 3 else "scratch-tables"
    with Worker(sys.argv[1], sys.argv[2], policy) as worker:
        with worker.create() as numbers:
            worker.query(f"INSERT INTO {numbers.name} SELECT number FROM system.numbers LIMIT 1000")
            print("sum of", numbers.name, "is", worker.query(f"SELECT sum(x) FROM {numbers.name}"), flush=True)
            if "--hang" in sys.argv:
                time.sleep(3600)
        kept = worker.create()
        print("made", kept.name, flush=True)
        del kept  # the garbage collector lets go


if __name__ == "__main__":
    main()
