# What a program does with redis-py, threads and asyncio, at the port that is its argument.
import asyncio
import sys
import threading

import redis
import redis.asyncio

port = int(sys.argv[1])
r = redis.Redis(port=port, decode_responses=True, client_name="test", health_check_interval=1)
assert r.ping() and r.echo("x") == "x" and r.client_getname() == "test" and r.client_id() > 0 and r.client_list()
assert r.info()["redis_version"] and r.config_get("maxmemory") is not None
r.flushdb()
assert r.set("a", "1") and r.get("a") == "1" and r.get("none") is None
assert r.set("a", "2", nx=True) is None and r.set("a", "2", xx=True)
assert r.set("a", "3", get=True) == "2" and r.getset("a", "4") == "3" and r.getdel("a") == "4" and not r.exists("a")
assert r.incr("n") == 1 and r.incrby("n", 5) == 6 and r.decr("n") == 5 and r.decrby("n", 2) == 3
assert r.append("s", "ab") == 2 and r.append("s", "cd") == 4 and r.strlen("s") == 4
assert r.mset({f"m{i}": i for i in range(100)})
assert r.mget([f"m{i}" for i in range(101)]) == [str(i) for i in range(100)] + [None]
assert r.delete("m1", "m2", "none") == 2 and r.unlink("m3") == 1 and r.exists("m4", "m5") == 2
assert {k for k in r.scan_iter("m*", count=7)} == {f"m{i}" for i in range(100) if i not in (1, 2, 3)}
assert r.set("b", "x", ex=100) and 0 < r.ttl("b") <= 100 and r.setex("e", 10, "v") and r.psetex("f", 10000, "v")
assert r.setnx("q", "1") and not r.setnx("q", "2") and r.expire("q", 50) and r.pttl("q") > 0 and r.persist("q")
assert r.ttl("q") == -1 and r.ttl("none") == -2 and r.type("q") == "string" and r.dbsize() >= 100

p = r.pipeline(transaction=False)
for i in range(500):
    p.set(f"p{i}", i)
    p.get(f"p{i}")
assert p.execute()[1::2] == [str(i) for i in range(500)]

for refused in (lambda: r.lpush("l", 1), lambda: r.pipeline().set("x", 1).execute()):
    try:
        refused()
    except redis.exceptions.ResponseError as e:
        assert "flashdbmd serves strings and keys" in str(e)
    else:
        raise AssertionError("no error")

b = redis.Redis(port=port)
large = bytes(range(256)) * 16384
assert b.set("large", large) and b.get("large") == large

pool = redis.ConnectionPool(port=port, max_connections=20)


def count():
    c = redis.Redis(connection_pool=pool)
    for _ in range(100):
        c.incr("shared")


threads = [threading.Thread(target=count) for _ in range(10)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert int(r.get("shared")) == 1000


async def at_once():
    c = redis.asyncio.Redis(port=port)
    await asyncio.gather(*[c.set(f"as{i}", i) for i in range(100)])
    got = await asyncio.gather(*[c.get(f"as{i}") for i in range(100)])
    await c.close()
    return [int(x) for x in got]


assert asyncio.run(at_once()) == list(range(100))
