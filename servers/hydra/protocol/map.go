package protocol

import "flashdbm/servers/circle"

// Map says which shards exist, their addresses, and which shard owns each key. It is the answer to a MAP.
type Map = circle.Map

// Place is one shard of a map.
type Place = circle.Place
