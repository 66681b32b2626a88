#!/bin/sh
# tests.sh runs in the guest: HydraDB over its RDMA device, what a Read and a wake take there, and the conformance suite of the fabrics.
export VERBS_ADDR=10.9.0.1
export IPATH_NO_BACKTRACE=1 # a library that libfabric brings has handlers of signals that are Go's
failed=0
./hydra.test -test.v -test.run '^TestVerbs$' || failed=1
./verbs.test -test.v -test.run Measure -fabric.measure || failed=1
./verbs.test -test.v -test.timeout 2h -fabric.operations "$(cat operations)" || failed=1
exit $failed
