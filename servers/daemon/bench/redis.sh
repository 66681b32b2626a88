#!/bin/sh
# redis.sh: MSET and MGET of 10 keys by redis-benchmark, against Redis and against a RAMP table by turns, in one run. In Redis all keys are in one process and
# one thread; in the table they are in three partitions, and each MSET is an atomic transaction over them.
#
#	daemon/bench/redis.sh bin/flashdbmd [requests [rounds]]
#
# It needs redis-server and redis-benchmark (Debian: apt-get install redis-server redis-tools).
set -e
daemon=$1 requests=${2:-100000} rounds=${3:-5}
dir=$(mktemp -d)
trap 'kill $redis $table 2>/dev/null; wait; rm -rf "$dir"' EXIT
redis-server --port 7461 --save '' --appendonly no --dir "$dir" >"$dir/redis.log" &
redis=$!
"$daemon" serve --table ramp --durability memory --shards 3 --resp 127.0.0.1:7462 --socket "$dir/node.sock" 2>"$dir/table.log" &
table=$!
for port in 7461 7462; do
	until redis-cli -p $port get x >/dev/null 2>&1; do sleep 0.1; done
done
sleep 1.5 # a new life of the table serves nothing for 1.2 s
cpu() { awk '{print $14+$15}' "/proc/$1/stat"; }
measure() { # name, port, pid, command line
	before=$(cpu $3)
	rate=$(redis-benchmark -p $2 -n "$requests" -c 50 -r 100000 -q $4 | tr '\r' '\n' | grep -o '[0-9.]* requests per second' | tail -1 | cut -d' ' -f1)
	after=$(cpu $3)
	echo "$1 $rate $(awk "BEGIN{printf \"%.1f\", ($after-$before)*10000/$requests}")"
}
k=key:__rand_int__
mget="mget $k $k $k $k $k $k $k $k $k $k"
for round in $(seq "$rounds"); do
	measure redis-mset 7461 $redis "-t mset"
	measure ramp-mset 7462 $table "-t mset"
	measure redis-mget 7461 $redis "$mget"
	measure ramp-mget 7462 $table "$mget"
done >"$dir/results"
median() { grep "^$1 " "$dir/results" | cut -d' ' -f$2 | sort -n | awk '{a[NR]=$1} END{print a[int((NR+1)/2)]}'; }
echo "| | Redis, operations/s | RAMP table, operations/s | ratio | µs of processor: Redis | RAMP table |"
echo "|---|---|---|---|---|---|"
for what in mset mget; do
	a=$(median redis-$what 2) b=$(median ramp-$what 2)
	echo "| $(echo $what | tr a-z A-Z) of 10 keys, 50 clients | $a | $b | $(awk "BEGIN{printf \"%.2f\", $b/$a}") | $(median redis-$what 3) | $(median ramp-$what 3) |"
done
