#!/bin/sh
# resp.sh: one table of what clients of Redis do, by redis-benchmark with 50 connections, against Redis and against flashdbmd with one shard by turns.
#
#	daemon/bench/resp.sh bin/flashdbmd memory|async|sync [rounds [ROW ...]]
#
# Redis has no persistence beside memory, appendfsync everysec beside async, and always beside sync. Rows are get, set, get16, set16, mget10, mset10, mget100
# and mset100; 16 is the pipeline. Values have 32 bytes, and there are 100,000 keys. It needs redis-server and redis-benchmark (Debian:
# apt-get install redis-server redis-tools). Its directory, for both, is in TMPDIR.
set -e
daemon=$1 mode=$2 rounds=${3:-5}
shift 2
[ $# = 0 ] || shift
rows=${*:-get set get16 set16 mget10 mset10 mget100 mset100}
dir=$(mktemp -d)
trap 'kill $redis $node 2>/dev/null; wait; rm -rf "$dir"' EXIT
case $mode in
memory) append="--appendonly no" where="--socket $dir/node.sock" ;;
async) append="--appendonly yes --appendfsync everysec" where="--dir $dir/node" ;;
sync) append="--appendonly yes --appendfsync always" where="--dir $dir/node" ;;
esac
redis-server --port 7461 --save '' $append --dir "$dir" >"$dir/redis.log" &
redis=$!
"$daemon" serve --durability $mode --resp 127.0.0.1:7462 $where 2>"$dir/node.log" &
node=$!
for port in 7461 7462; do
	until redis-cli -p $port set x y >/dev/null 2>&1; do sleep 0.1; done
done
cpu() { awk '{print $14+$15}' "/proc/$1/stat"; }
args() { # of a row: what redis-benchmark is to do, and how often
	k=key:__rand_int__ v=$(printf '%032d' 0) list=
	case $1 in
	mget*) n=${1#mget} && while [ $n -gt 0 ]; do list="$list $k" n=$((n - 1)); done; echo "-n $((many / 10)) mget$list" ;;
	mset*) n=${1#mset} && while [ $n -gt 0 ]; do list="$list $k $v" n=$((n - 1)); done; echo "-n $((many / 20)) mset$list" ;;
	*16) echo "-n $((many * 4)) -P 16 -d 32 -t ${1%16}" ;;
	*) echo "-n $many -d 32 -t $1" ;;
	esac
}
many=${MANY:-60000}
measure() { # row, name, port, process
	set -- "$@" $(args $1)
	row=$1 name=$2 port=$3 process=$4 n=$6
	shift 4
	before=$(cpu $process)
	rate=$(redis-benchmark -p $port -c 50 -r 100000 -q "$@" | tr '\r' '\n' | grep -o '[0-9.]* requests per second' | tail -1 | cut -d' ' -f1)
	echo "$row $name $rate $(awk "BEGIN{printf \"%.1f\", ($(cpu $process)-$before)*10000/$n}")"
}
redis-benchmark -p 7461 -q -n 300000 -P 50 -r 100000 -d 32 -t set >/dev/null
redis-benchmark -p 7462 -q -n 300000 -P 50 -r 100000 -d 32 -t set >/dev/null
for round in $(seq $rounds); do
	for row in $rows; do
		a=$(measure $row redis 7461 $redis) b=$(measure $row node 7462 $node)
		echo "$a
$b
$row ratio $(echo $a $b | awk '{printf "%.3f 0", $7/$3}')"
	done
done >"$dir/results"
median() { grep "^$1 $2 " "$dir/results" | cut -d' ' -f$3 | sort -n | awk '{a[NR]=$1} END{print a[int((NR+1)/2)]}'; }
echo "| $mode | Redis, operations/s | flashdbmd | ratio | µs of processor: Redis | flashdbmd |"
echo "|---|---|---|---|---|---|"
for row in $rows; do
	echo "| $row | $(median $row redis 3) | $(median $row node 3) | $(median $row ratio 3) | $(median $row redis 4) | $(median $row node 4) |"
done
