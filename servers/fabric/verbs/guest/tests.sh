#!/bin/sh
# tests.sh runs in the guest: HydraDB and RAMP over its RDMA device, three nodes that replicate over it and of which one after the other is killed, what a Read and a wake take there, and the conformance suite of the fabrics.
export VERBS_ADDR=10.9.0.1
export IPATH_NO_BACKTRACE=1 # a library that libfabric brings has handlers of signals that are Go's
failed=0
# The server as people start it, and its command line's client.
export FLASHDBMD_PASSWORD=guest
./flashdbmd serve --durability memory --resp 127.0.0.1:6380 --socket /tmp/node.sock --verbs 10.9.0.1:7401 &
server=$!
for try in 1 2 3 4 5 6; do
	./flashdbmd kv --addr verbs:10.9.0.1:7401 put greeting "hello over verbs" && break
	sleep 5
done
[ "$(./flashdbmd kv --addr verbs:10.9.0.1:7401 get greeting)" = "hello over verbs" ] && echo "flashdbmd: a key written and read over verbs" || failed=1
kill $server
./hydra.test -test.v -test.run '^TestVerbs$' || failed=1
./ramp.test -test.v -test.run '^TestVerbs$' || failed=1
TMPDIR=/tmp ./cluster.test -test.v -test.run '^TestClusterKilled$' -test.timeout 15m -cluster.kills 20 -cluster.modes async -cluster.verbs $VERBS_ADDR || failed=1
./verbs.test -test.v -test.run Measure -fabric.measure || failed=1
./verbs.test -test.v -test.timeout 2h -fabric.operations "$(cat operations)" || failed=1
exit $failed
