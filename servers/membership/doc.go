// Package membership makes a node one of several: what the nodes of a table agree on, which of them has which shard, who replaces a primary that is gone,
// and the connections between nodes. What a shard does with its entries is package replica's, and what the entries say is known to the
// tables' own packages: both hydra's and RAMP's use this one.
//
//	node.go     the cluster's settings, the nodes that live, the records of shards, and the map that follows from them
//	copy.go     what a shard's thread does for its copies on other nodes
//	balance.go  which nodes shall have a shard, and who shall be its primary
//	leader.go   who looks after a shard: a primary that is gone is replaced
//	peer.go     connections between nodes
//	drain.go    a node that shall have no shards; recover.go a shard whose set is gone for good
//
// # Who calls what
//
// A Node's goroutines (follow, live, lead) and those of proposals and connections share what mu guards, and the knowledge that is published whole.
// A Copy belongs to its shard's thread: everything else reaches it through hand.
package membership
