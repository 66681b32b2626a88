// Package membership makes a node one of several: what the nodes of a table agree on, which node has which shard, how
// a failed primary is replaced, and the connections between nodes. Package replica keeps the copies of a shard's log,
// and the tables' packages know what the entries mean; both hydra's tables and RAMP's use this package.
//
//	node.go     the cluster's settings, the live nodes, the records of shards, and the map that follows from them
//	copy.go     what a shard's thread does for its copies on other nodes
//	balance.go  which nodes should have a shard, and which should be its primary
//	leader.go   who looks after a shard: replacing a failed primary
//	peer.go     connections between nodes
//	drain.go    a node that should have no shards; recover.go a shard whose set is gone for good
//
// # Who calls what
//
// A Node's goroutines (follow, live, lead) and those of proposals and connections share the fields that mu guards,
// and the knowledge, which is immutable and replaced as a whole. A Copy belongs to its shard's thread: all other
// goroutines reach it through hand.
package membership
